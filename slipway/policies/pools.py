"""GPU pools that are billed while no Job needs them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from slipway.evaluated.scheduling import HARD_EFFECTS, has_gpus, pools_of
from slipway.evaluated.workloads import Workload, workloads
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import (
    JOB,
    NodePool,
    Properties,
    Stack,
    at,
    mapping,
    whole,
)
from slipway.infra.review.tables import node_price
from slipway.infra.schema.problems import key_of


def _find_without_taint(stack: Stack) -> Iterator[Violation]:
    for pool in filter(has_gpus, stack.own_pools):
        others = [other for other in pools_of(stack, pool.cluster) if not has_gpus(other)]
        if others and not any(taint.effect in HARD_EFFECTS for taint in pool.taints):
            yield Violation(
                _place(pool, "taints"),
                f"the GPU nodes of `{pool.name}` have no taint, so pods that need no GPU land there, "
                "fill them and keep them from going away",
                "give the nodes a taint such as nvidia.com/gpu=present:NoSchedule",
            )


def _find_always_on(stack: Stack) -> Iterator[Violation]:
    in_file = {(cluster, name): (key, pool) for cluster, name, key, pool in _in_file(stack)}
    for pool in filter(has_gpus, stack.own_pools):
        if pool.urn and pool.min_nodes and pool.run_limit is None:
            key, _ = in_file.get((pool.cluster, pool.name), ("", {}))
            yield _never_gone(pool.urn, pool.name, pool.min_nodes, key)
    if stack.resources:
        return
    # If the program fails, the stack file still has the numbers of permanent nodes.
    for (_, name), (key, pool) in in_file.items():
        least = max(whole(at(pool, "nodes", key)) for key in ("count", "min", "total_min"))
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


def _find_never_used(stack: Stack) -> Iterator[Violation]:
    """Pools with more permanent GPU nodes than pods that can run at the same time."""
    for pool in filter(has_gpus, stack.own_pools):
        if not pool.urn or pool.min_nodes < 2:
            continue
        fitting = [workload for workload in workloads(stack) if pool in workload.suitable_pools(stack)]
        if not fitting or any(candidate.resource.type != JOB for candidate in fitting):
            continue
        pods = _at_once(stack, fitting)
        spare = pool.min_nodes - pods
        if spare <= 0:
            continue
        price = node_price(stack.charges, pool.urn)
        costs = f", for ${price * spare:.2f} an hour" if price else ""
        yield Violation(
            pool.urn,
            f"`{pool.name}` has {pool.min_nodes} nodes at all times, and {pods} "
            f"{'pod' if pods == 1 else 'pods'} at most run there at once: {spare} of them stay idle{costs}",
            "give it as many nodes as pods run at once, or let it scale from 0",
        )


def _at_once(stack: Stack, jobs: Sequence[Workload]) -> int:
    """The most pods of these Jobs that can run at the same time: a Job waits for those that it depends on.

    By Dilworth's theorem it equals the smallest number of chains of Jobs that wait for one another. That number is
    the number of pods minus the size of a largest matching between pods and the pods that they wait for.
    """
    pods = [(job.resource.urn, pod) for job in jobs for pod in range(whole(job.job.get("parallelism"), 1))]
    needed = {job.resource.urn: _all_dependencies(stack, job.resource.urn) for job in jobs}
    after: dict[tuple[str, int], tuple[str, int]] = {}

    def paired(pod: tuple[str, int], tried: set[tuple[str, int]]) -> bool:
        for other in pods:
            if other[0] in needed[pod[0]] and other not in tried:
                tried.add(other)
                if other not in after or paired(after[other], tried):
                    after[other] = pod
                    return True
        return False

    return len(pods) - sum(paired(pod, set()) for pod in pods)


def _all_dependencies(stack: Stack, urn: str) -> set[str]:
    """All direct and indirect dependencies of the resource."""
    reached = set[str]()
    waiting = [urn]
    while waiting:
        resource = stack.resources.get(waiting.pop())
        fresh = (resource.dependencies if resource else frozenset[str]()) - reached
        reached |= fresh
        waiting.extend(fresh)
    return reached


def _in_file(stack: Stack) -> Iterator[tuple[str, str, str, Properties]]:
    """Each pool of the stack file: its cluster, its name, the key of its nodes, and its settings."""
    for cluster, section in mapping(stack.configuration.get("slipway:clusters")).items():
        for name, pool in mapping(mapping(section).get("pools")).items():
            yield cluster, name, key_of(("clusters", cluster, "pools", name, "nodes")), mapping(pool)


def _place(pool: NodePool, key: str) -> str:
    """The resource that declares the pool, or the key in the stack file for existing nodes."""
    return pool.urn or key_of(("clusters", pool.cluster, "pools", pool.name, key))


POLICIES = policies_of(
    Path(__file__).with_name("policies.toml"),
    {
        "gpu-pool-without-taint": _find_without_taint,
        "gpu-pool-always-on": _find_always_on,
        "gpu-nodes-without-pods": _find_never_used,
    },
)
