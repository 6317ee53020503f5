"""How many pods a pool has room for at once, beside those that stay: the pods of services."""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.platform import Resources
from infra.review.stack import UNLIMITED, NodePool, Stack
from offline.engine.scheduling import AMOUNTS, lacking, subtract
from offline.policies.workloads import Workload, workloads


@dataclass(frozen=True)
class Held:
    """What the pods that stay leave of a pool: ``free`` of each node that has some of them, ``by`` whose they are.

    ``nodes`` is how many nodes there are at all times: the pool's least, or as many as they need.
    """

    pool: NodePool
    free: Sequence[Resources] = ()
    by: Sequence[Workload] = ()

    @property
    def nodes(self) -> int:
        return max(self.pool.min_nodes, len(self.free))

    def room(self, wanted: Resources, *, one_a_node: bool = False) -> int:
        """How many pods that want as much fit at the same time, with the pool at its largest.

        With ``one_a_node`` no two of them are on one node.
        """
        most = 1 if one_a_node else UNLIMITED
        empty = max(self.pool.max_nodes - len(self.free), 0)
        there = sum(min(_fit(wanted, each), most) for each in self.free)
        return there + empty * min(_fit(wanted, self.pool.allocatable), most)


def held(stack: Stack) -> list[Held]:
    """What stays on each pool of the stack, in the order of `Stack.pools`.

    Pods go to the first node with room, in the order of their declaration.
    """
    free: dict[tuple[str, str], list[Resources]] = {}
    by: dict[tuple[str, str], list[Workload]] = {}
    for workload in workloads(stack):
        pool = workload.pool(stack) if workload.stays else None
        if pool is None or workload.requests is None:
            continue
        key = (pool.cluster, pool.name)
        nodes = free.setdefault(key, [])
        by.setdefault(key, []).append(workload)
        for _ in range(min(workload.pods, pool.max_nodes * _fit(workload.requests, pool.allocatable))):
            _place(workload.requests, nodes, pool)
    return [
        Held(pool, free.get((pool.cluster, pool.name), ()), by.get((pool.cluster, pool.name), ()))
        for pool in stack.pools
    ]


def _place(wanted: Resources, nodes: list[Resources], pool: NodePool) -> None:
    for index, free in enumerate(nodes):
        if not lacking(wanted, free):
            nodes[index] = subtract(free, wanted)
            return
    if len(nodes) < pool.max_nodes:
        nodes.append(subtract(pool.allocatable, wanted))


def _fit(wanted: Resources, free: Resources) -> int:
    """How many times ``wanted`` is in ``free``."""
    counts = [getattr(free, key) // asked for key in AMOUNTS if (asked := getattr(wanted, key)) > 0]
    return max(min(counts, default=UNLIMITED), 0)
