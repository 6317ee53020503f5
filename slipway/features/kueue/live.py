"""Kueue in a cluster that is there: what `doctor` and `watch` see of it, and how it lets a Job in no more."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from slipway.command.doctor.cluster import Cluster, is_ours
from slipway.command.watch.observed import (
    LONG_AGO,
    Observed,
    conditions,
    creation_time,
    holds,
    labels_of,
    name_of,
    newest,
    owners,
    time_of,
    uid_of,
)
from slipway.command.watch.pod_states import recognise, seen
from slipway.command.watch.states import Hold, Reason
from slipway.features.kueue.declared import CHART, queue_of, queue_problem
from slipway.features.kueue.feature import API, DEFAULT_QUEUE, section_of
from slipway.infra.api_server import MERGE, ApiServer
from slipway.infra.charts import charts
from slipway.infra.kubernetes.labels import QUEUE_ANNOTATION, QUEUE_LABEL
from slipway.infra.review.facts import Observation, fine, wrong
from slipway.infra.review.stack import Properties, at, mapping, mappings, strings, text, whole


def observations(cluster: Cluster, settings: Any) -> Iterator[Observation]:
    """Kueue's API where the stack expects it, and its absence where the stack installs it."""
    section = section_of(settings) if settings else None
    if section is None:
        return
    installs = section.install and section.local_queue is None
    subject = f"Kueue in {cluster.subject}"
    installed = cluster.server.may("get", API, "ClusterQueue") is not None
    version = charts()[CHART].version
    if not installs and not installed:
        manifest = f"https://github.com/kubernetes-sigs/kueue/releases/download/v{version}/manifests.yaml"
        yield wrong(
            subject,
            f"is not there ({API}), and the stack does not install it",
            f"kubectl apply --server-side -f {manifest}",
        )
    elif installs and installed and not _has_our_namespaces(cluster):
        yield wrong(
            subject,
            "is there already, and the stack would install a second one",
            f"pulumi config set --path slipway:kueue.install false -s {cluster.stack.name}",
        )
    else:
        yield fine(subject, "is there" if installed else "will be installed")
    for namespace, queue in _queues_of_others(cluster) if installed else ():
        if problem := queue_problem(cluster.server, namespace, queue):
            yield wrong(f"Jobs in {cluster.subject}", problem, f"kubectl get localqueue -n {namespace}")
    for namespace in _namespaces_of_held_jobs(cluster):
        if cluster.server.find(API, "LocalQueue", DEFAULT_QUEUE, namespace):
            yield wrong(
                subject,
                f"puts each new Job of namespace {namespace} into the LocalQueue `{DEFAULT_QUEUE}`: all places of "
                "a step would run at once",
                f"kubectl delete localqueue {DEFAULT_QUEUE} -n {namespace}",
            )


def _queues_of_others(cluster: Cluster) -> list[tuple[str, str]]:
    """The LocalQueues that Jobs name and the stack does not declare, by namespace and name."""
    metadata = [(kind, mapping(resource.properties.get("metadata"))) for (_, kind), resource in cluster.declared]
    queues = {(text(of.get("namespace")), text(of.get("name"))) for kind, of in metadata if kind == "LocalQueue"}
    named = {(text(of.get("namespace")), queue_of(of)) for kind, of in metadata if kind == "Job" and queue_of(of)}
    return sorted(named - queues)


def _namespaces_of_held_jobs(cluster: Cluster) -> list[str]:
    """The namespaces of Jobs that are in their queue only while somebody lets them run."""
    return sorted(
        {
            text(at(job.properties, "metadata", "namespace"))
            for (_, kind), job in cluster.declared
            if kind == "Job" and QUEUE_ANNOTATION in strings(at(job.properties, "metadata", "annotations"))
        }
    )


def _has_our_namespaces(cluster: Cluster) -> bool:
    """Whether a stack of this project made the namespaces that are declared: its Kueue is then the one there."""
    names = {
        text(mapping(resource.properties.get("metadata")).get("name"))
        for (_, kind), resource in cluster.declared
        if kind == "Namespace"
    }
    return all(is_ours(labels_of(cluster.server.find("v1", "Namespace", name) or {})) for name in names - {""})


def end(server: ApiServer, namespace: str, job: Properties) -> Iterator[str]:
    """Lets Workloads of the Job be admitted no more: Kueue would let it go on that it has admitted."""
    root = f"/apis/{API}/namespaces/{namespace}/workloads"
    for workload in mappings((server.get(root) or {}).get("items")):
        if uid_of(job) in owners(workload):
            server.send("PATCH", f"{root}/{name_of(workload)}", {"spec": {"active": False}}, MERGE)
            yield f"{name_of(workload)}: Kueue admits it no more"


def hold(job: Properties, observed: Observed) -> Hold | None:
    """What Kueue has made of the Job; None where that has nothing to do with it."""
    candidates = [workload for workload in observed.beside.get("workloads", ()) if uid_of(job) in owners(workload)]
    workload = max(candidates, key=lambda workload: creation_time(workload) or LONG_AGO, default=None)
    if workload is None and QUEUE_LABEL not in labels_of(job):
        return None
    return Hold(_reason(job, workload, observed), *evictions(workload), partial(_misled, workload or {}))


def _reason(job: Properties, workload: Properties | None, observed: Observed) -> Reason:
    """Why the suspended Job is not let go."""
    queue = labels_of(job).get(QUEUE_LABEL, "")
    if not queue:
        return seen("suspended")
    if workload is None:
        events = observed.events.get(uid_of(job), ())
        event = newest(events, "FailedCreateWorkload", "ErrWorkloadCompose", "FailedAdmission", "UpdateFailed")
        words = event.message if event else ""
        return seen("no workload", words, why=words and f": {words}", queue=queue)
    workload_conditions = conditions(workload)
    if at(workload, "spec", "active") is False:
        return seen("deactivated", text(workload_conditions.get("Evicted", {}).get("message")))
    if holds(workload_conditions, "Admitted"):
        return seen("admitted")
    if holds(workload_conditions, "QuotaReserved"):
        return _admission_checks(workload)
    return _without_quota(workload, workload_conditions, observed.beside["workloads"])


def evictions(workload: Properties | None) -> tuple[int, str]:
    """How often Kueue took the Job's place away, and why it did so last."""
    if workload is None:
        return 0, ""
    statistics = mappings(at(workload, "status", "schedulingStats", "evictions"))
    count = sum(whole(eviction.get("count")) for eviction in statistics if eviction.get("reason") != "Deactivated")
    evicted = holds(conditions(workload), "Evicted") or {}
    return count, text(evicted.get("message"))


def _misled(workload: Properties, pod: Properties, words: str) -> Reason | None:
    """The pod of a Job that was admitted for a flavor, whose labels Kueue added to what the pod selects."""
    assignments = mappings(at(workload, "status", "admission", "podSetAssignments"))
    flavors = [flavor for assignment in assignments for flavor in strings(assignment.get("flavors")).values()]
    pod_sets = mappings(at(workload, "spec", "podSets"))
    declared = strings(at(pod_sets[0], "template", "spec", "nodeSelector")) if pod_sets else {}
    selector = strings(at(pod, "spec", "nodeSelector")).items()
    added = " ".join(f"{key}={value}" for key, value in selector if flavors and key not in declared)
    return seen("flavor", words, flavor=", ".join(dict.fromkeys(flavors)), labels=added) if added else None


def _admission_checks(workload: Properties) -> Reason:
    """Of a Workload that has its quota and waits for admission checks, such as a ProvisioningRequest."""
    checks = mappings(at(workload, "status", "admissionChecks"))
    pending = [check for check in checks if check.get("state") != "Ready"]
    if not pending:
        return seen("reserved")
    names = ", ".join(text(check.get("name")) for check in pending)
    requested = time_of(pending[0].get("lastTransitionTime"))
    since = f" since {requested.astimezone():%H:%M}" if requested else ""
    words = "; ".join(filter(None, (text(check.get("message")) for check in pending)))
    return seen("checks", words, since=since, names=names, why=words and f": {words}")


def _without_quota(
    workload: Properties, workload_conditions: Mapping[str, Properties], workloads: Sequence[Properties]
) -> Reason:
    words = text(workload_conditions.get("QuotaReserved", {}).get("message"))
    reason = recognise(words, "queue", words or "Kueue has not looked at it yet", kind="new")
    says = reason.says
    if lost := holds(workload_conditions, "Preempted") or holds(workload_conditions, "Evicted"):
        says = f"{says}; it ran before, and lost its place: {text(lost.get('message'))}"
    before = _count_before(workload, workloads)
    if before and reason.kind in {"quota", "turn", "new"}:
        says = f"{says}; {before} of this namespace {'comes' if before == 1 else 'come'} before it"
    return Reason(says, reason.fix, reason.words, reason.kind)


def _count_before(workload: Properties, workloads: Sequence[Properties]) -> int:
    """How many waiting Workloads of the namespace Kueue looks at first: by priority, then by age."""

    def place(other: Properties) -> tuple[int, datetime]:
        return -whole(at(other, "spec", "priority")), creation_time(other) or LONG_AGO

    return sum(
        place(other) < place(workload)
        for other in workloads
        if uid_of(other) != uid_of(workload)
        and at(other, "spec", "queueName") == at(workload, "spec", "queueName")
        and at(other, "spec", "active") is not False
        and not holds(conditions(other), "QuotaReserved")
        and not holds(conditions(other), "Finished")
    )
