"""Clusters of another stack before a team's first `pulumi up`: asked where the file names a kubeconfig."""

from collections.abc import Mapping, Sequence

from infra.api_server import ApiServer
from infra.clouds.other_stack.settings import OtherStackCluster
from infra.review.facts import Probe
from infra.review.stack import Stack
from infra.schema.request import Request

TIMEOUTS = (3, 10)


def probes(_stack: Stack, _request: Request | None) -> Sequence[Probe]:
    """None of its own: what is there in the other stack is read from that one's outputs."""
    return []


def servers(_stack: Stack, request: Request | None) -> Mapping[str, ApiServer]:
    """The clusters whose kubeconfig the stack file names; that of the others is a secret of the other stack."""
    clusters = request.clusters_of(OtherStackCluster) if request else dict[str, OtherStackCluster]()
    return {
        name: ApiServer(each.kubeconfig, each.context, TIMEOUTS)
        for name, each in clusters.items()
        if each.kubeconfig is not None
    }
