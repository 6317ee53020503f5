"""Apps that people reach by Google's load balancer: its own certificate, and Identity-Aware Proxy or a proxy."""

from collections.abc import Iterator

from infra.clouds.gcp.settings import GcpCluster
from infra.schema.problems import Finding
from infra.schema.request import Request


def check(request: Request) -> Iterator[Finding]:
    """Findings about what Google's load balancer cannot do."""
    for name in request.clusters_of(GcpCluster):
        read = (("clusters", name, "cloud"),)
        for each in request.exposed_on(name):
            tls, login = each.ingress.tls, each.ingress.login
            if tls.kind not in (None, "managed"):
                yield Finding(
                    (*each.at, "tls"),
                    None,
                    f"`{tls.chosen[0]}` is not for Google's load balancer, which has a certificate of Google's",
                    "write `tls: {managed: true}`",
                    read=read,
                )
            if login.kind == "cognito":
                yield Finding(
                    (*each.at, "login", "cognito"),
                    None,
                    "Amazon Cognito is a login of AWS's load balancers",
                    "write `iap`, or `oidc` with the issuer of the user pool",
                    read=read,
                )
