"""What stands in for clusters of another stack when the program is evaluated without them."""

from collections.abc import Sequence

from infra import emulator
from infra.clouds.other_stack.settings import OtherStackCluster
from infra.platform import Node
from infra.schema.request import Request


class Emulator(emulator.Emulator):
    """The nodes that the other stack's pools can have, and the namespaces that are there."""

    def __init__(self, request: Request) -> None:
        self._clusters = request.clusters_of(OtherStackCluster)
        self._namespace = request.namespace

    def standing_nodes(self) -> Sequence[Node]:
        """The nodes of every pool, as many as it can grow to."""
        return [
            Node(
                cluster=name,
                pool=pool,
                labels=facts.selector,
                taints=[taint.taint() for taint in facts.taints],
                allocatable=facts.node(),
                count=facts.max_nodes,
                accelerator=facts.accelerator,
            )
            for name, cluster in self._clusters.items()
            for pool, facts in cluster.pools.items()
        ]

    def standing_namespaces(self) -> Sequence[tuple[str, str]]:
        """The namespace, in clusters where the stack does not create it."""
        return [(name, self._namespace) for name, cluster in self._clusters.items() if not cluster.owns_namespace]
