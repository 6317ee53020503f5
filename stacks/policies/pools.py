"""GPU pools that cost more than what runs on them."""

from collections.abc import Iterator

from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import at, whole
from infra.review.stack import NodePool, Stack
from infra.settings.finding import key_of
from stacks.documents import Document, document
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
    in_file = {(cluster, name): (key, pool) for cluster, name, key, pool in _in_file(stack)}
    for pool in filter(has_gpus, stack.pools):
        if pool.urn and pool.min_nodes and pool.run_limit is None:
            key, _ = in_file.get((pool.cluster, pool.name), ("", {}))
            yield _never_gone(pool.urn, pool.name, pool.min_nodes, key)
    if stack.resources:
        return
    # Where the program fails, the file still says how many nodes are always there.
    for (_, name), (key, pool) in in_file.items():
        least = max(whole(at(pool, "nodes", each)) for each in ("count", "min", "total_min"))
        if least and pool.get("accelerator") and not pool.get("max_run_duration"):
            yield _never_gone(key, name, least, key)


def _never_gone(place: str, name: str, least: int, key: str) -> Violation:
    least_of = f"`{key}`" if key else "the pool"
    return Violation(
        place,
        f"`{name}` has {least} GPU {'node' if least == 1 else 'nodes'} at all times and no limit to how long they "
        "run: billed day and night, whether a Job runs or not",
        f"let {least_of} go down to no node, or limit how long the nodes run",
    )


def _in_file(stack: Stack) -> Iterator[tuple[str, str, str, Document]]:
    """Each pool of the stack file: its cluster, its name, the key of its nodes, and what is said of it."""
    for cluster, said in document(stack.configuration.get("slipway:clusters")).items():
        for name, pool in document(document(said).get("pools")).items():
            yield cluster, name, key_of(("clusters", cluster, "pools", name, "nodes")), document(pool)


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
        harm=True,
    ),
)
