"""A cluster that another stack has: pools, store, identity and kubeconfig from that stack's outputs."""

from collections.abc import Mapping, Sequence

from slipway.infra.api_server import ApiServer
from slipway.infra.clouds.contract import Check, Cloud
from slipway.infra.clouds.other_stack.settings import OtherStackCluster
from slipway.infra.emulator import Emulator
from slipway.infra.platform import Platform
from slipway.infra.review.contract import Review
from slipway.infra.review.stack import Stack
from slipway.infra.schema.request import Request

TIMEOUTS = (3, 10)
"""Seconds to wait for a connection and for an answer of a cluster."""


class OtherStack(Cloud):
    """Clusters of another stack. Nothing of them is declared here, or billed to this stack.

    ``clouds``, by name, are those that the other stack's clusters may be on: they read its store.
    """

    name = "other_stack"
    title = "Another stack's cluster"
    sdk = None
    cluster = OtherStackCluster
    stores = ()
    has_starter = False

    def __init__(self, clouds: Mapping[str, Cloud]) -> None:
        self._clouds = clouds

    def checks(self) -> Sequence[Check]:
        from slipway.infra.clouds.other_stack import settings

        return settings.CHECKS

    def platforms(self, request: Request) -> Mapping[str, Platform]:
        from slipway.infra.clouds.other_stack import platforms

        return platforms.platforms(request, self._clouds)

    def emulator(self, request: Request) -> Emulator:
        from slipway.infra.clouds.other_stack import platforms as emulator

        return emulator.Emulator(request)

    def review(self) -> Review:
        return Review()

    def servers(self, stack: Stack, request: Request | None) -> Mapping[str, ApiServer]:  # noqa: ARG002
        """Those whose kubeconfig the stack file names; that of the others is a secret of the other stack."""
        clusters = request.clusters_of(OtherStackCluster) if request else dict[str, OtherStackCluster]()
        return {
            name: ApiServer(cluster.kubeconfig, cluster.context, TIMEOUTS)
            for name, cluster in clusters.items()
            if cluster.kubeconfig is not None
        }
