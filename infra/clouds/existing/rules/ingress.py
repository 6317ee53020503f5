"""Apps that people reach from outside a cluster that is already there: what carries it out, and how."""

from collections.abc import Iterator

from infra.clouds.existing.settings import ExistingCluster
from infra.schema.problems import Finding, Path
from infra.schema.request import Exposed, Request


def check(request: Request) -> Iterator[Finding]:
    """Findings about clusters without a way in, and about certificates and logins that they do not have."""
    for name, cluster in request.clusters_of(ExistingCluster).items():
        place: Path = ("clusters", name, "ingress")
        if cluster.ingress and not (cluster.ingress.namespace or cluster.ingress.networks):
            yield Finding(
                place,
                None,
                "it does not say where its pods are, so that every pod of the cluster could connect past it",
                "write the `namespace` of its pods, or `networks` where they use the network of their nodes",
            )
        for each in request.exposed_on(name):
            yield from _way_in(each, cluster, place)
            yield from _certificate(each, cluster, place)
            yield from _login(each, place)


def _way_in(each: Exposed, cluster: ExistingCluster, place: Path) -> Iterator[Finding]:
    if cluster.ingress is None and not cluster.openshift:
        yield Finding(
            each.at,
            None,
            "nothing is known of the cluster that could carry it out",
            f"write `{'.'.join(map(str, place))}: {{class_name: …, namespace: …}}`, as `kubectl get ingressclass` "
            "and the pods of its controller show them",
            read=(place,),
        )


def _certificate(each: Exposed, cluster: ExistingCluster, place: Path) -> Iterator[Finding]:
    tls, at = each.ingress.tls, (*each.at, "tls")
    by_route = cluster.openshift and cluster.ingress is None
    if by_route and tls.kind not in (None, "managed"):
        yield Finding(
            at,
            None,
            f"`{tls.chosen[0]}` is not for a Route, for which the router's own certificate stands",
            "write `tls: {managed: true}`; or name the cluster's IngressClass, which takes Secrets and issuers",
            read=(place,),
        )
    elif not by_route and tls.kind in ("managed", "acm"):
        yield Finding(
            at,
            None,
            f"`{tls.chosen[0]}` is a certificate of a cloud's load balancer",
            "write `secret`, the name of one in the namespace, or `issuer`, a ClusterIssuer of cert-manager",
            read=(place,),
        )


def _login(each: Exposed, place: Path) -> Iterator[Finding]:
    login = each.ingress.login
    if login.kind in ("iap", "cognito"):
        yield Finding(
            (*each.at, "login", login.kind),
            None,
            "a login of a cloud's load balancer, and there is none here",
            "write `oidc`: a proxy in the cluster asks for it",
            read=(place,),
        )
