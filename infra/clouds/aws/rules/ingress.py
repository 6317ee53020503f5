"""Apps that people reach by AWS's load balancer: a certificate of ACM, and Cognito, OpenID Connect or a proxy."""

from collections.abc import Iterator

from infra.clouds.aws.settings import AwsCluster
from infra.schema.problems import Finding
from infra.schema.request import Exposed, Request


def check(request: Request) -> Iterator[Finding]:
    """Findings about what AWS's load balancer cannot do."""
    for name, cluster in request.clusters_of(AwsCluster).items():
        for each in request.exposed_on(name):
            yield from _certificate(each, name, cluster)
            yield from _login(each, name, cluster)


def _certificate(each: Exposed, name: str, cluster: AwsCluster) -> Iterator[Finding]:
    tls, at = each.ingress.tls, (*each.at, "tls")
    if tls.kind not in (None, "acm"):
        yield Finding(
            at,
            None,
            f"`{tls.chosen[0]}` is not for AWS's load balancer, which has certificates of AWS Certificate Manager",
            f"request one for {each.ingress.host} there, and write `tls: {{certificate: arn:aws:acm:…}}`",
            read=(("clusters", name, "cloud"),),
        )
    elif tls.certificate and (region := tls.certificate.split(":")[3]) != cluster.region:
        yield Finding(
            (*at, "certificate"),
            tls.certificate,
            f"it is in {region}, and the load balancer is in {cluster.region}",
            f"request one in {cluster.region}",
            read=(("clusters", name, "region"),),
        )


def _login(each: Exposed, name: str, cluster: AwsCluster) -> Iterator[Finding]:
    login, at = each.ingress.login, (*each.at, "login")
    if login.kind == "iap":
        yield Finding(
            (*at, "iap"),
            None,
            "Identity-Aware Proxy is a login of Google's load balancers",
            "write `cognito`, or `oidc`",
            read=(("clusters", name, "cloud"),),
        )
    elif login.cognito and (region := login.cognito.user_pool.split(":")[3]) != cluster.region:
        yield Finding(
            (*at, "cognito", "user_pool"),
            login.cognito.user_pool,
            f"it is in {region}, and the load balancer in {cluster.region} takes only one of its own region",
            f"name a user pool in {cluster.region}, or write `oidc`",
            read=(("clusters", name, "region"),),
        )
