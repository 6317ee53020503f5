"""Whether Kueue ever admits a Job: what all of its pods ask for, against the quota of each flavor whose nodes they
can be on. What policies say of that and of a change that takes Kueue away, and which Jobs a rehearsal refuses.

As a stack declares it, a ClusterQueue has one resource group, and quotas that cohorts lend whole. After
pkg/scheduler of github.com/kubernetes-sigs/kueue at commit ff69552 (22 August 2026, API version v1beta2).
docs/kueue.md says what is left out.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.engine.provider_outputs import kind_of, object_name
from slipway.evaluated.scheduling import (
    NAMESPACE_NAME,
    Expression,
    Toleration,
    affinity,
    amount,
    find_untolerated,
    holds,
    pod_amounts,
    quantity_text,
    selector_picks,
    taints_of,
    tolerations,
)
from slipway.evaluated.workloads import CRON_JOB, Workload, workloads
from slipway.features.kueue.feature import API
from slipway.infra.kubernetes.labels import QUEUE_LABEL, released_labels
from slipway.infra.platform import Taint
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import JOB, Properties, Resource, Stack, at, known, mapping, mappings, strings
from slipway.policies.changes import Change, cause, undo
from slipway.rehearse.cluster.cluster_objects import Objects as ClusterObjects
from slipway.rehearse.cluster.job_controller import JobSpec

PODS = "pods"
"""The resource of which each pod takes one, where a ClusterQueue covers it."""

FlavorResource = tuple[str, str]
"""Names of a flavor and of a resource."""

Objects = Callable[[str], Iterable[tuple[str, Properties]]]
"""By a kind: the names and properties of the objects of that kind."""


@dataclass(frozen=True)
class Flavor:
    """The nodes that a part of a quota stands for."""

    labels: Mapping[str, str]
    taints: Sequence[Taint]
    tolerations: Sequence[Toleration]


@dataclass(frozen=True)
class ClusterQueue:
    """What the Jobs of some namespaces may have.

    ``nominal`` is its quota, ``borrowing`` how much it may have at most of what its ``cohort`` does not use; a key
    that is missing there has no limit. A queue that ``reclaims`` stops Jobs of other queues that use more than
    their shares. ``selector`` picks its namespaces by their labels; without one there are none.
    """

    name: str
    cohort: str
    flavors: Sequence[str]
    nominal: Mapping[FlavorResource, int]
    borrowing: Mapping[FlavorResource, int]
    reclaims: bool
    selector: Properties | None
    stopped: bool
    checks: Sequence[str]

    @property
    def resources(self) -> set[str]:
        """The resources that its Jobs may ask for."""
        return {resource for _, resource in self.nominal}


@dataclass(frozen=True)
class QueuedJob:
    """What Kueue knows of a Job: what all of its pods ask for together, and which nodes they may be on.

    ``amounts`` are by resource, in units of `slipway.evaluated.scheduling`, for all its ``pods``.
    """

    name: str
    namespace: str
    queue: str
    pods: int
    amounts: Mapping[str, int]
    selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: Sequence[Toleration] = ()
    affinity: Sequence[Sequence[Expression]] = ()


@dataclass(frozen=True)
class Queues:
    """The queues of one cluster."""

    flavors: Mapping[str, Flavor]
    cluster_queues: Mapping[str, ClusterQueue]
    local_queues: Mapping[tuple[str, str], str]
    """Names of ClusterQueues by namespace and name of a LocalQueue."""
    stopped: frozenset[tuple[str, str]]
    """The LocalQueues that are stopped."""
    checks: frozenset[str]

    def of(self, job: QueuedJob) -> ClusterQueue | None:
        """The ClusterQueue of a Job; None where there is none."""
        return self.cluster_queues.get(self.local_queues.get((job.namespace, job.queue), ""))

    def obstacle(self, job: QueuedJob, labels: Mapping[str, str]) -> str:
        """Why the Job waits whatever others use; empty where nothing but quota is in its way.

        ``labels`` are those of its namespace.
        """
        local = (job.namespace, job.queue)
        if local not in self.local_queues:
            return f"LocalQueue {job.queue} doesn't exist in {job.namespace}"
        queue = self.of(job)
        if queue is None:
            return f"ClusterQueue {self.local_queues[local]} of LocalQueue {job.queue} doesn't exist"
        named = {NAMESPACE_NAME: job.namespace, **labels}
        if queue.selector is None or not selector_picks(queue.selector, named):
            return f"Workload namespace doesn't match ClusterQueue selector of {queue.name}"
        return self._inactive(queue, job)

    def _inactive(self, queue: ClusterQueue, job: QueuedJob) -> str:
        if queue.stopped or (job.namespace, job.queue) in self.stopped:
            return f"ClusterQueue {queue.name} or its LocalQueue {job.queue} is stopped by its stopPolicy"
        if missing := [name for name in queue.flavors if name not in self.flavors]:
            return f"ClusterQueue {queue.name} is inactive: flavors do not exist: {', '.join(missing)}"
        if missing := [name for name in queue.checks if name not in self.checks]:
            return f"ClusterQueue {queue.name} is inactive: AdmissionChecks do not exist: {', '.join(missing)}"
        return ""

    def never(self, job: QueuedJob) -> str:
        """Why quota alone keeps the Job waiting for ever, with the figures; empty where it does not."""
        queue = self.of(job)
        return self._excess(queue, job) if queue else ""

    def beyond_share(self, job: QueuedJob) -> str:
        """Why the Job takes nothing back that others borrow, with the figures; empty where it may.

        Jobs of other queues are stopped only for what is within the queue's own quota (`fitsResourceQuota` in
        flavorassigner.go). Seen with Kueue 0.19.2, with fair sharing, too.
        """
        queue = self.of(job)
        if queue is None or not queue.cohort or not queue.reclaims or self.never(job):
            return ""
        return self._excess(queue, job, own_share=True)

    def _excess(self, queue: ClusterQueue, job: QueuedJob, *, own_share: bool = False) -> str:
        """Why no flavor has as much as the Job asks for; empty where one has.

        With ``own_share``, what others lend does not count.
        """

        def limit(flavor: str, resource: str) -> int:
            key = flavor, resource
            return queue.nominal.get(key, 0) if own_share else self._most(queue, key)

        wanted = _request_of(queue, job)
        unavailable = [name for name in wanted if name not in queue.resources]
        reasons = [f"resource {name} unavailable in ClusterQueue" for name in unavailable]
        mismatches = {name: self._mismatch(name, job) for name in queue.flavors}
        flavors = [name for name, mismatch in mismatches.items() if not mismatch]
        if reasons or not flavors:
            return f"no quota of queue {queue.name} is for its pods: {'; '.join(reasons or mismatches.values())}"
        if any(all(value <= limit(name, key) for key, value in wanted.items()) for name in flavors):
            return ""
        lacking: list[str] = []
        for resource, value in wanted.items():
            most = max(limit(name, resource) for name in flavors)
            if value > most:
                pods = f" ({job.pods} pods)" if job.pods > 1 and resource != PODS else ""
                limited = f"the {'share' if own_share else 'quota'} of queue {queue.name}"
                has = f"{limited} is {quantity_text(resource, most)}"
                lacking.append(f"{quantity_text(resource, value)} {resource} in all{pods}, and {has}")
        return f"it asks for {', '.join(lacking or ['more than any one flavor has'])}"

    def _cohort(self, queue: ClusterQueue) -> list[ClusterQueue]:
        """The queues that lend one another unused quota, this one included."""
        if not queue.cohort:
            return [queue]
        return [other for other in self.cluster_queues.values() if other.cohort == queue.cohort]

    def _whole(self, queue: ClusterQueue, key: FlavorResource) -> int:
        return sum(other.nominal.get(key, 0) for other in self._cohort(queue))

    def _most(self, queue: ClusterQueue, key: FlavorResource) -> int:
        """The quota if no other Job uses any of it, with the quota that others lend."""
        whole_quota = self._whole(queue, key)
        borrowing = queue.borrowing.get(key)
        return whole_quota if borrowing is None else min(whole_quota, queue.nominal.get(key, 0) + borrowing)

    def _mismatch(self, name: str, job: QueuedJob) -> str:
        """Why pods cannot be on the nodes of a flavor. Of labels only those count that the flavor names."""
        flavor = self.flavors.get(name)
        if flavor is None:
            return f"flavor {name} not found"
        if taint := find_untolerated([*job.tolerations, *flavor.tolerations], flavor.taints):
            return f"untolerated taint {{{taint.key}: {taint.value}}} in flavor {name}"
        chosen = all(flavor.labels[key] == value for key, value in job.selector.items() if key in flavor.labels)
        terms = [[expression for expression in term if expression.key in flavor.labels] for term in job.affinity]
        fits = not terms or any(all(holds(expression, flavor.labels) for expression in term) for term in terms)
        return "" if chosen and fits else f"flavor {name} doesn't match node affinity"


def _request_of(queue: ClusterQueue, job: QueuedJob) -> dict[str, int]:
    """What a Job needs from the queue, with the number of pods where the queue counts pods."""
    wanted = {name: value for name, value in job.amounts.items() if value}
    return {**wanted, PODS: job.pods} if PODS in queue.resources else wanted


def queues_of(cluster_wide: Objects, local_queues: Iterable[tuple[str, str, Properties]]) -> Queues:
    """The queues that these objects are; ``local_queues`` are by namespace and name.

    Raises ValueError for an amount that is no quantity.
    """

    def specs(kind: str) -> dict[str, Properties]:
        return {name: mapping(properties.get("spec")) for name, properties in cluster_wide(kind)}

    local = {(namespace, name): mapping(properties.get("spec")) for namespace, name, properties in local_queues}
    return Queues(
        flavors={name: _flavor(spec) for name, spec in specs("ResourceFlavor").items()},
        cluster_queues={name: _cluster_queue(name, spec) for name, spec in specs("ClusterQueue").items()},
        local_queues={key: str(spec.get("clusterQueue") or "") for key, spec in local.items()},
        stopped=frozenset(key for key, spec in local.items() if _is_stopped(spec)),
        checks=frozenset(specs("AdmissionCheck")),
    )


def _flavor(spec: Properties) -> Flavor:
    taints = taints_of(spec.get("nodeTaints"))
    return Flavor(strings(spec.get("nodeLabels")), taints, tolerations(spec.get("tolerations")))


def _cluster_queue(name: str, spec: Properties) -> ClusterQueue:
    flavors = [
        flavor for group in mappings(spec.get("resourceGroups")) for flavor in mappings(group.get("flavors"))
    ]

    def limits(key: str) -> dict[FlavorResource, int]:
        return {
            (str(flavor.get("name")), str(entry.get("name"))): amount(str(entry.get("name")), entry[key])
            for flavor in flavors
            for entry in mappings(flavor.get("resources"))
            if entry.get(key) is not None
        }

    selector = spec.get("namespaceSelector")
    checks = mappings(at(spec, "admissionChecksStrategy", "admissionChecks"))
    return ClusterQueue(
        name=name,
        cohort=str(spec.get("cohortName") or ""),
        flavors=[str(flavor.get("name")) for flavor in flavors],
        nominal=limits("nominalQuota"),
        borrowing=limits("borrowingLimit"),
        reclaims=at(spec, "preemption", "reclaimWithinCohort") in {"LowerPriority", "Any"},
        selector=None if selector is None else mapping(selector),
        stopped=_is_stopped(spec),
        checks=[str(check.get("name", "")) for check in checks],
    )


def _is_stopped(spec: Properties) -> bool:
    return spec.get("stopPolicy", "None") != "None"


def queued_job(
    name: str, namespace: str, labels: Mapping[str, str], *, pods: int, spec: Properties
) -> QueuedJob | None:
    """What a Job with these ``labels`` and this pod ``spec`` asks of its queue; None where it names none.

    Raises ValueError for an amount that is no quantity.
    """
    if QUEUE_LABEL not in labels:
        return None
    required = at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return QueuedJob(
        name=name,
        namespace=namespace,
        queue=labels[QUEUE_LABEL],
        pods=pods,
        amounts={key: value * pods for key, value in pod_amounts(spec).items()},
        selector=strings(spec.get("nodeSelector")),
        tolerations=tolerations(spec.get("tolerations")),
        affinity=affinity(mapping(required).get("nodeSelectorTerms")),
    )


PREFIX = f"kubernetes:{API.partition('/')[0]}/"
NAMESPACE = "kubernetes:core/v1:Namespace"


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


def _finder(reason: Callable[[Queues, QueuedJob, str], str], fix: str) -> Callable[[Stack], Iterator[Violation]]:
    """What finds Jobs in queues; ``reason`` is given what keeps all of that queue waiting."""

    def find(stack: Stack) -> Iterator[Violation]:
        for workload, queues, job, obstacle in _in_queues(stack):
            if said := reason(queues, job, obstacle):
                yield Violation(workload.resource.urn, said, fix)

    return find


def _beyond_share(queues: Queues, job: QueuedJob, obstacle: str) -> str:
    reason = "" if obstacle else queues.beyond_share(job)
    more = "Kueue stops no Job of another team for more than that: it waits until theirs end by themselves"
    return reason and f"{reason}; {more}"


TABLE = Path(__file__).parent / "data" / "policies.toml"

POLICIES = policies_of(
    TABLE,
    {
        "queue-quota": _finder(
            lambda queues, job, obstacle: "" if obstacle else queues.never(job),
            "ask for less or for fewer pods, or let a pool whose nodes can take them have more of these",
        ),
        "queue-share": _finder(
            _beyond_share,
            "ask for less or for fewer pods, or give its namespace more in `slipway:kueue` `shares`",
        ),
        "queue-inactive": _finder(
            lambda _, __, obstacle: obstacle,
            "declare the flavors and admission checks that the ClusterQueue names, and let it pick the namespace",
        ),
    },
)


RELEASE = "kubernetes:helm.sh/v3:Release"

KUEUE = "kueue"
"""The name of the release, which charts of other places have, too."""


def _find_kueue(change: Change) -> Iterator[Violation]:
    for compared in change.compared:
        release = compared.deleted
        if release and release.type == RELEASE and release.properties.get("name") == KUEUE:
            yield Violation(
                compared.resource.urn,
                f"deletes Kueue's API, and with it everybody's queues on that cluster: {cause(compared)}; Jobs of "
                "other stacks that wait there wait for ever",
                f"{undo(compared)}; or first take `slipway:kueue` out of the stacks that have queues there",
            )


CHANGE_POLICIES = policies_of(TABLE, {"deletes-queue-api": _find_kueue})


def refusal(objects: ClusterObjects, resource: Resource, job: JobSpec) -> str:
    """Why the Job would wait for ever in the queue that it names; empty where it would not."""

    def cluster_wide(kind: str) -> list[tuple[str, Properties]]:
        return [(name, entry.inputs) for name, entry in objects.all_of(job.cluster, kind, "")]

    annotations = strings(resource.metadata.get("annotations"))
    labels = released_labels(strings(resource.metadata.get("labels")), annotations)
    local = objects.in_all_namespaces(job.cluster, "LocalQueue")
    spec = mapping(job.template.get("spec"))
    try:
        queues = queues_of(cluster_wide, [(namespace, name, entry.inputs) for namespace, name, entry in local])
        queued = queued_job(resource.name, job.namespace, labels, pods=job.workers, spec=spec)
    except ValueError as error:
        return str(error)
    if queued is None:
        return ""
    namespace = objects.find(job.cluster, "Namespace", "", job.namespace)
    named = strings(namespace.metadata.get("labels")) if namespace else {}
    reason = queues.obstacle(queued, named) or queues.never(queued)
    return f"Kueue never admits it: {reason}" if reason else ""
