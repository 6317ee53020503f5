"""Jobs that Kueue would never admit, since no quota of their queue is enough or none is for their pods."""

import contextlib
from collections.abc import Iterator

from infra.review.contract import Policy, Severity, Violation
from infra.review.stack import JOB, Properties, Resource, Stack, at, known, strings
from offline.engine.provider_outputs import kind_of, object_name
from offline.evaluated.queues import GROUP, QueuedJob, Queues, queued_job, queues_of
from offline.evaluated.workloads import CRON_JOB, Workload, workloads

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
        job = _queued_job(workload, queues) if queues else None
        if queues is None or job is None or not _is_declared(job, queues):
            continue
        namespace = namespaces.get((workload.cluster, job.namespace))
        labels = strings(at(namespace.properties, "metadata", "labels")) if namespace else {}
        yield workload, queues, job, queues.obstacle(job, labels) if namespace else ""


def _queued_job(workload: Workload, queues: Queues) -> QueuedJob | None:
    spec, namespace = workload.spec, workload.namespace
    choosing = (spec.get("nodeSelector"), spec.get("tolerations"), spec.get("affinity"))
    if not isinstance(namespace, str) or not known(choosing):
        return None
    labels = strings(at(workload.resource.properties, *_LABELS[workload.resource.type]))
    name, pods = workload.resource.name, workload.pods
    try:
        return queued_job(name, namespace, labels, pods=pods, spec=spec, priorities=queues.priorities)
    except ValueError:
        # Only an update can tell an amount, or it is no quantity, which Kubernetes refuses.
        return None


def _is_declared(job: QueuedJob, queues: Queues) -> bool:
    """Whether the stack declares all that decides: another may have the ClusterQueue, or somebody a LocalQueue."""
    if (job.namespace, job.queue) in queues.local_queues:
        return queues.of(job) is not None
    return any(namespace == job.namespace for namespace, _ in queues.local_queues)


_LABELS = {JOB: ("metadata", "labels"), CRON_JOB: ("spec", "jobTemplate", "metadata", "labels")}


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


POLICIES = (
    Policy(
        "queue-quota",
        Severity.ERROR,
        "The quota of a Job's queue is enough for all of its pods.",
        _find_never_admitted,
        "Ask for less or for fewer pods, or let a pool whose nodes can take them have more of these.",
    ),
    Policy(
        "queue-share",
        Severity.WARNING,
        "The share of a Job's team is enough for all of its pods, so that others give back what they borrow.",
        _find_beyond_share,
        "Ask for less or for fewer pods, or give its namespace more in `slipway:kueue` `shares`.",
    ),
    Policy(
        "queue-inactive",
        Severity.ERROR,
        "The queue of a Job is active, and for its namespace.",
        _find_always_waiting,
        "Declare the flavors and admission checks that the ClusterQueue names, and let it pick the namespace.",
    ),
)
