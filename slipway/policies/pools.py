"""GPU pools that are billed while no Job needs them, and queues whose quota is for none of their Jobs."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from slipway.engine.provider_outputs import kind_of, object_name
from slipway.evaluated.queues import GROUP, QueuedJob, Queues, queued_job, queues_of
from slipway.evaluated.scheduling import HARD_EFFECTS, has_gpus, pools_of
from slipway.evaluated.workloads import CRON_JOB, Workload, workloads
from slipway.infra.kubernetes.labels import released_labels
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import (
    JOB,
    NodePool,
    Properties,
    Resource,
    Stack,
    at,
    known,
    mapping,
    strings,
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


PREFIX = f"kubernetes:{GROUP}/"
NAMESPACE = "kubernetes:core/v1:Namespace"

MORE = "ask for less or for fewer pods, or let a pool whose nodes can take them have more of these"
SHARE = "ask for less or for fewer pods, or give its namespace more in `slipway:kueue` `shares`"
ACTIVE = "declare the flavors and admission checks that the ClusterQueue names, and let it pick the namespace"


def _in_queues(stack: Stack) -> Iterator[tuple[Workload, Queues, QueuedJob, str]]:
    """The Jobs in queues that the stack declares, with what keeps all of these waiting; "" for nothing."""
    declared: dict[str, Queues] = {}
    for cluster in _clusters(stack):
        # What is no quantity, Kueue refuses.
        with contextlib.suppress(ValueError):
            declared[cluster] = _queues(stack, cluster)
    namespaces = {(stack.cluster_of(resource), _name(resource)): resource for resource in stack.of_type(NAMESPACE)}
    for workload in workloads(stack, JOB, CRON_JOB):
        queues = declared.get(workload.cluster)
        job = _queued_job(workload)
        if queues is None or job is None or not _is_declared(job, queues):
            continue
        namespace = namespaces.get((workload.cluster, job.namespace))
        labels = strings(at(namespace.properties, "metadata", "labels")) if namespace else {}
        yield workload, queues, job, queues.obstacle(job, labels) if namespace else ""


def _queued_job(workload: Workload) -> QueuedJob | None:
    spec, namespace = workload.spec, workload.namespace
    choosing = (spec.get("nodeSelector"), spec.get("tolerations"), spec.get("affinity"))
    if not isinstance(namespace, str) or not known(choosing):
        return None
    metadata = mapping(at(workload.resource.properties, *_METADATA[workload.resource.type]))
    labels = released_labels(strings(metadata.get("labels")), strings(metadata.get("annotations")))
    name, pods = workload.resource.name, workload.pods
    try:
        return queued_job(name, namespace, labels, pods=pods, spec=spec)
    except ValueError:
        # Only an update can tell an amount, or it is no quantity, which Kubernetes refuses.
        return None


def _is_declared(job: QueuedJob, queues: Queues) -> bool:
    """Whether the stack declares all that decides: another may have the ClusterQueue, or somebody a LocalQueue."""
    if (job.namespace, job.queue) in queues.local_queues:
        return queues.of(job) is not None
    return any(namespace == job.namespace for namespace, _ in queues.local_queues)


_METADATA = {JOB: ("metadata",), CRON_JOB: ("spec", "jobTemplate", "metadata")}


def _clusters(stack: Stack) -> set[str]:
    return {
        stack.cluster_of(resource) for resource in stack.resources.values() if resource.type.startswith(PREFIX)
    }


def _queues(stack: Stack, cluster: str) -> Queues:
    here = [
        *(resource for resource in stack.resources.values() if stack.cluster_of(resource) == cluster),
        # Those of a team's LocalQueue are in the stack that has the cluster.
        *stack.declared_elsewhere.get(cluster, ()),
    ]
    here = [resource for resource in here if resource.type.startswith(PREFIX)]

    def of_kind(kind: str) -> list[tuple[str, Properties]]:
        return [(_name(resource), resource.properties) for resource in here if kind_of(resource.type) == kind]

    local = [resource for resource in here if kind_of(resource.type) == "LocalQueue"]
    namespaces = [str(at(resource.properties, "metadata", "namespace") or "default") for resource in local]
    named = zip(namespaces, local, strict=True)
    return queues_of(of_kind, [(namespace, _name(resource), resource.properties) for namespace, resource in named])


def _name(resource: Resource) -> str:
    return str(at(resource.properties, "metadata", "name") or object_name(resource))


def _find_never_admitted(stack: Stack) -> Iterator[Violation]:
    for workload, queues, job, obstacle in _in_queues(stack):
        if not obstacle and (reason := queues.never(job)):
            yield Violation(workload.resource.urn, reason, MORE)


def _find_always_waiting(stack: Stack) -> Iterator[Violation]:
    for workload, _, _, obstacle in _in_queues(stack):
        if obstacle:
            yield Violation(workload.resource.urn, obstacle, ACTIVE)


def _find_beyond_share(stack: Stack) -> Iterator[Violation]:
    for workload, queues, job, obstacle in _in_queues(stack):
        if not obstacle and (reason := queues.beyond_share(job)):
            waits = (
                "Kueue stops no Job of another team for more than that: it waits until theirs end by themselves"
            )
            yield Violation(workload.resource.urn, f"{reason}; {waits}", SHARE)


POLICIES = policies_of(
    Path(__file__).with_name("policies.toml"),
    {
        "gpu-pool-without-taint": _find_without_taint,
        "gpu-pool-always-on": _find_always_on,
        "gpu-nodes-without-pods": _find_never_used,
        "queue-quota": _find_never_admitted,
        "queue-share": _find_beyond_share,
        "queue-inactive": _find_always_waiting,
    },
)
