"""GPU pools that cost more than what runs on them."""

from collections.abc import Iterator

from infra.review import NodePool, Policy, Severity, Stack, Violation
from infra.settings.finding import key_of
from stacks.placement import HARD_EFFECTS
from stacks.policies.workloads import has_gpus, pools_of


def _without_taint(stack: Stack) -> Iterator[Violation]:
    for pool in filter(has_gpus, stack.pools):
        others = [each for each in pools_of(stack, pool.cluster) if not has_gpus(each)]
        if others and not any(taint.effect in HARD_EFFECTS for taint in pool.taints):
            yield Violation(
                _place(pool, "taints"),
                f"the GPU nodes of `{pool.name}` have no taint, so pods that need no GPU land there, "
                "fill them and keep them from going away",
                "give the nodes a taint such as nvidia.com/gpu=present:NoSchedule",
            )


def _always_on(stack: Stack) -> Iterator[Violation]:
    for pool in filter(has_gpus, stack.pools):
        if pool.urn and pool.min_nodes and pool.run_limit is None:
            nodes = "node" if pool.min_nodes == 1 else "nodes"
            yield Violation(
                pool.urn,
                f"`{pool.name}` has {pool.min_nodes} GPU {nodes} at all times and no limit to how long they run: "
                "billed day and night, whether a Job runs or not",
                "let the pool go down to no node, or limit how long its nodes run",
            )


def _place(pool: NodePool, key: str) -> str:
    """What declares the pool: a resource, or a part of the stack file for nodes that are there already."""
    return pool.urn or key_of(("clusters", pool.cluster, "pools", pool.name, key))


POLICIES = (
    Policy(
        "gpu-pool-without-taint",
        Severity.ERROR,
        "The nodes of a GPU pool carry a taint, where the cluster has other nodes for everything else.",
        _without_taint,
        "Taint the nodes, for example nvidia.com/gpu=present:NoSchedule.",
    ),
    Policy(
        "gpu-pool-always-on",
        Severity.WARNING,
        "A GPU pool can go down to no node, or limits how long its nodes run.",
        _always_on,
        "Set the least number of nodes to 0, or a run limit.",
    ),
)
