"""What an existing cluster itself contradicts in a stack's settings, asked before anything is declared."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from infra.api_server import ApiServer, UnreachableError, UnreadableError
from infra.clouds.existing import live_cluster
from infra.clouds.existing.live_cluster import UNREAD, KubeconfigError, context_of
from infra.clouds.existing.settings import ExistingCluster
from infra.schema.problems import Finding, Problem
from infra.schema.request import Request

TIMEOUTS = (3, 10)
"""Seconds to wait for a connection and for an answer: what cannot be asked is passed over."""


def problems(request: Request | None) -> list[Problem]:
    """What the stack's existing clusters contradict in ``request``; nothing where these are None.

    A cluster that cannot be reached is passed over, and so is what its user may not read: a preview needs no
    cluster, and what is wrong then shows in `pulumi up`.
    """
    if request is None or UNREAD.get():
        return []
    return [
        finding.problem()
        for name, cluster in request.clusters_of(ExistingCluster).items()
        for finding in _findings(name, cluster, request)
    ]


def _findings(name: str, cluster: ExistingCluster, request: Request) -> Iterator[Finding]:
    try:
        server = ApiServer(cluster.kubeconfig, context_of(cluster.kubeconfig, cluster.context), TIMEOUTS)
        with _unread():
            yield from live_cluster.check_nodes(name, cluster, server.all_of("v1", "Node"))
        with _unread():
            yield from live_cluster.check_claims(server, request, name)
    except (KubeconfigError, UnreachableError):
        return


@contextmanager
def _unread() -> Generator[None]:
    """Passes over what the cluster's user may not read."""
    try:
        yield
    except UnreachableError:
        raise
    except UnreadableError:
        pass
