"""What stands in for existing clusters when the program is evaluated without them."""

from collections.abc import Mapping, Sequence
from typing import Any

from infra.existing.cluster import pool_of
from infra.platform import Node, StoreFiles
from infra.settings import Settings
from infra.settings.existing import ExistingCluster


class ExistingEmulator:
    """The nodes that the settings describe. Fulfils `infra.platform.Emulator`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def outputs(self, token: str, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:  # noqa: ARG002
        """None: an existing cluster declares nothing that a cloud would compute."""
        return None

    def call(self, token: str, args: Mapping[str, Any], store: StoreFiles) -> Mapping[str, Any] | None:  # noqa: ARG002
        """None: no provider function is called."""
        return None

    def nodes(self, token: str, name: str, inputs: Mapping[str, Any]) -> Sequence[Node]:  # noqa: ARG002
        """None: no resource brings nodes."""
        return ()

    def standing_nodes(self) -> Sequence[Node]:
        """The nodes of every existing cluster."""
        return [
            Node(
                cluster=cluster_name,
                pool=pool_name,
                labels=pool.selector,
                taints=pool.taints,
                allocatable=pool.allocatable,
                count=settings.nodes,
                accelerator=pool.accelerator,
            )
            for cluster_name, cluster in self._settings.clusters.items()
            if isinstance(cluster, ExistingCluster)
            for pool_name, settings in cluster.pools.items()
            for pool in [pool_of(cluster_name, pool_name, settings)]
        ]
