"""What stands in for existing clusters when the program is evaluated without them."""

from collections.abc import Sequence

from infra import emulator
from infra.clouds.existing.live_cluster import UNREAD
from infra.clouds.existing.platforms import pool_of
from infra.clouds.existing.settings import ExistingCluster
from infra.platform import Node, Pool, Resources
from infra.schema.request import Request


class Emulator(emulator.Emulator):
    """The nodes that the settings describe: an existing cluster declares nothing that a cloud would compute."""

    def __init__(self, request: Request) -> None:
        self._clusters = request.clusters_of(ExistingCluster)
        self._namespace = request.namespace

    def prepare(self) -> None:
        """No kubeconfig of this machine is read."""
        UNREAD.set(True)

    def standing_nodes(self) -> Sequence[Node]:
        """The nodes of every existing cluster: those that two pools select are there once."""
        nodes: list[Node] = []
        for name, cluster in self._clusters.items():
            same: dict[frozenset[tuple[str, str]], list[Pool]] = {}
            for key, settings in cluster.pools.items():
                pool = pool_of(name, key, settings)
                same.setdefault(frozenset(pool.selector.items()), []).append(pool)
            nodes += [_nodes(pools) for pools in same.values()]
        return nodes

    def standing_namespaces(self) -> Sequence[tuple[str, str]]:
        """The namespace, in clusters where the stack does not create it."""
        return [(name, self._namespace) for name, cluster in self._clusters.items() if not cluster.owns_namespace]


def _nodes(pools: Sequence[Pool]) -> Node:
    """The nodes that all ``pools`` describe, with the largest amount of each resource that one of them names."""
    most = max(pools, key=lambda pool: pool.allocatable.gpus)
    sizes = [pool.allocatable for pool in pools]
    return Node(
        cluster=most.cluster,
        pool=most.name,
        labels=most.selector,
        taints=most.taints,
        allocatable=Resources(
            cpu=max(size.cpu for size in sizes),
            memory=max(size.memory for size in sizes),
            ephemeral_storage=max(size.ephemeral_storage for size in sizes),
            gpus=most.allocatable.gpus,
        ),
        count=most.max_nodes,
        accelerator=most.accelerator,
    )
