"""What stands in for existing clusters when the program is evaluated without them."""

from collections.abc import Sequence

from infra.existing.platforms import pool_of
from infra.existing.settings import ExistingCluster
from infra.platform import Emulator, Node
from infra.settings.model import Settings


class ExistingEmulator(Emulator):
    """The nodes that the settings describe: an existing cluster declares nothing that a cloud would compute."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def standing_nodes(self) -> Sequence[Node]:
        """The nodes of every existing cluster."""
        return [
            Node(
                cluster=cluster_name,
                pool=pool_name,
                labels=pool.selector,
                taints=pool.taints,
                allocatable=pool.allocatable,
                count=pool.max_nodes,
                accelerator=pool.accelerator,
            )
            for cluster_name, cluster in self._settings.clusters.items()
            if isinstance(cluster, ExistingCluster)
            for pool_name, settings in cluster.pools.items()
            for pool in [pool_of(cluster_name, pool_name, settings)]
        ]

    def standing_namespaces(self) -> Sequence[tuple[str, str]]:
        """The namespace, in clusters where the stack may not create it."""
        return [
            (name, self._settings.namespace)
            for name, cluster in self._settings.clusters.items()
            if isinstance(cluster, ExistingCluster) and cluster.access == "namespace"
        ]
