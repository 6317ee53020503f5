"""Findings about Jobs and services that lose their nodes, because another stack changes or deletes them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infra.kubernetes.labels import NAME
from infra.platform import Node
from infra.review.properties import at, strings, text
from infra.review.stack import JOB, NodePool, Stack
from infra.schema.problems import key_of
from infra.step import GATES
from offline.engine.scheduling import obstacle, pool_obstacle
from offline.policies.check import lost_pool_finding
from offline.policies.workloads import CRON_JOB, STATEFUL_SET, Workload, workloads
from offline.preview.evaluated_stack import ClusterElsewhere, Evaluated
from offline.preview.model import Finding

PLACED = (JOB, CRON_JOB, STATEFUL_SET)
"""What has a place on a pool."""


@dataclass(frozen=True)
class LostPlace:
    """Jobs or services of the stack ``team`` lose their place, because the stack ``stack`` changes."""

    team: str
    stack: str
    finding: Finding


def lost_places(before: Evaluated, after: Evaluated) -> list[LostPlace]:
    """The Jobs and services of ``before`` on nodes of other stacks that, after a change of these, can run nowhere.

    The stack may have failed after the change: a step whose pool is gone is a problem of its settings.
    """
    if before.stack is None:
        return []
    clusters = {each.name: each for each in after.elsewhere}
    teams = {each.name: each.teams for each in before.elsewhere}
    found: dict[tuple[str, str, str], list[Workload]] = {}
    for job in workloads(before.stack, *PLACED):
        pool = job.pool(before.stack)
        if pool is None or not pool.stack or (there := clusters.get(pool.cluster)) is None:
            continue
        if there.stack != pool.stack:
            continue
        if lost := _loss(job, pool, there, after.stack) or _lost_access(
            job, teams[pool.cluster], there, after.stack
        ):
            found.setdefault((pool.stack, *lost), []).append(job)
    return [
        LostPlace(before.name, stack, lost_pool_finding(stack, before.name, resource, why, [*_steps(jobs)]))
        for (stack, resource, why), jobs in found.items()
    ]


def _steps(jobs: Sequence[Workload]) -> list[str]:
    """The names of Jobs, without those of gates unless there are no others."""
    labels = {job.resource.name: strings(at(job.resource.properties, "metadata", "labels")) for job in jobs}
    return [name for name, each in labels.items() if each.get(NAME) not in GATES] or [*labels]


def _loss(job: Workload, pool: NodePool, there: ClusterElsewhere, after: Stack | None) -> tuple[str, str] | None:
    """The resource or key that no longer takes ``job``, and why; None where it still has a place."""
    if after is not None:
        again = next((each for each in workloads(after, *PLACED) if each.resource.urn == job.resource.urn), None)
        if again is None or again.pool(after) is not None:
            return None
        job = again
    cluster = key_of(("clusters", there.cluster))
    if there.removed:
        return cluster, f"the file of `{there.stack}`, which has the cluster, is removed"
    if there.pools is None:
        return None
    if not there.pools:
        return cluster, f"`{there.stack}` no longer has the cluster `{there.cluster}`"
    now = next((each for each in there.pools if each.name == pool.name), None)
    place = pool.urn or key_of(("clusters", there.cluster, "pools", pool.name))
    if now is None:
        return place, f"`{there.stack}` no longer has the pool `{pool.name}` in its cluster `{there.cluster}`"
    why = _obstacle(job, now, there.pools, placed=after is not None)
    return (place, f"the nodes of pool `{pool.name}` of `{there.stack}` do not suffice: {why}") if why else None


def _lost_access(
    job: Workload, teams: Sequence[tuple[str, str]], there: ClusterElsewhere, after: Stack | None
) -> tuple[str, str] | None:
    """The same where the other stack no longer names the team of ``job``, one of ``teams`` before."""
    namespace = text(at(job.resource.properties, "metadata", "namespace"))
    team = (namespace, text(job.spec.get("serviceAccountName")))
    if after is not None or there.pools is None or team not in teams or team in there.teams:
        return None
    return key_of(("teams",)), (
        f"`{there.stack}` no longer names a team with namespace `{team[0]}` and service account `{team[1]}`, "
        "and takes its access to the store away"
    )


def _obstacle(job: Workload, pool: NodePool, pools: Sequence[NodePool], *, placed: bool) -> str | None:
    """What keeps the pod off the pool.

    Labels and taints decide nothing of a pod that is not ``placed`` yet: a stack takes its selector and its
    tolerations from the pool.
    """
    if job.request is None:
        return None
    if placed:
        return pool_obstacle(job.request, pool, pools)
    node = Node(pool.cluster, pool.name, {}, (), pool.allocatable, pool.max_nodes)
    return obstacle(replace(job.request, selector={}, affinity=()), node)
