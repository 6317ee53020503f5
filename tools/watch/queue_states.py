"""What Kueue says of a Job that waits: from its Workload to a plain clause."""

from collections.abc import Mapping, Sequence

from infra.review.properties import Properties, at, mappings, strings, text, whole
from tools.watch.objects import Event, conditions, created, holds, labels_of, newest, owners, uid_of
from tools.watch.reasons import explained, table
from tools.watch.states import Reason

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
"""The label of a Job with the LocalQueue that admits it (kueue.sigs.k8s.io/docs/tasks/run/jobs, seen November
2026)."""


def workload_of(job: Properties, workloads: Sequence[Properties]) -> Properties | None:
    """The Workload that Kueue made for the Job; None where there is none. Of several, the newest counts."""
    own = [each for each in workloads if uid_of(job) in owners(each)]
    return max(own, key=lambda each: text(at(each, "metadata", "creationTimestamp")), default=None)


def queued(
    job: Properties, workload: Properties | None, workloads: Sequence[Properties], events: Sequence[Event]
) -> Reason:
    """Why the suspended Job is not let go."""
    queue = labels_of(job).get(QUEUE_NAME, "")
    if not queue:
        return Reason(
            "somebody has suspended it",
            '`kubectl patch job NAME --type merge -p \'{"spec": {"suspend": false}}\'` lets it go on',
            kind="suspended",
        )
    if workload is None:
        said = newest(events, "FailedCreateWorkload", "ErrWorkloadCompose", "FailedAdmission", "UpdateFailed")
        return Reason(
            f"Kueue has not taken it up{f': {said.message}' if said else ''}",
            f"look whether Kueue runs, and whether the LocalQueue {queue} is there",
            said.message if said else "",
            "kueue",
        )
    found = conditions(workload)
    if at(workload, "spec", "active") is False:
        words = text((found.get("Evicted") or {}).get("message"))
        return Reason(
            "Kueue has given it up, and admits it no more",
            "set the Workload's `spec.active` to true, or delete the Job: the next `pulumi up` makes it anew",
            words,
            "deactivated",
        )
    if holds(found, "Admitted"):
        return Reason("it has been admitted, and starts", kind="admitted")
    reserved = found.get("QuotaReserved")
    if reserved is not None and reserved.get("status") == "True":
        return _checks(workload)
    return _without_quota(workload, reserved, workloads)


def evictions(workload: Properties | None) -> tuple[int, str]:
    """How often Kueue took the Job's place away, and why it did so last."""
    if workload is None:
        return 0, ""
    counted = [
        whole(each.get("count"))
        for each in mappings(at(workload, "status", "schedulingStats", "evictions"))
        if each.get("reason") != "Deactivated"
    ]
    evicted = holds(conditions(workload), "Evicted")
    words = text(evicted.get("message")) if evicted else ""
    return sum(counted), words


def flavor_of(workload: Properties | None) -> tuple[str, Mapping[str, str]]:
    """The flavor that Kueue admitted the Job for, and what its pods select by themselves; empty without one."""
    assigned = mappings(at(workload or {}, "status", "admission", "podSetAssignments"))
    flavors = dict.fromkeys(flavor for each in assigned for flavor in strings(each.get("flavors")).values())
    templates = mappings(at(workload or {}, "spec", "podSets"))
    selectors = [strings(at(each, "template", "spec", "nodeSelector")) for each in templates]
    return ", ".join(flavors), selectors[0] if selectors else {}


def _checks(workload: Properties) -> Reason:
    """Of a Workload that has its quota and waits for admission checks, such as a ProvisioningRequest."""
    waiting = [
        each for each in mappings(at(workload, "status", "admissionChecks")) if each.get("state") != "Ready"
    ]
    said = "; ".join(text(each.get("message")) for each in waiting if text(each.get("message")))
    names = ", ".join(text(each.get("name")) for each in waiting)
    if not waiting:
        return Reason("it has its quota, and is about to be admitted", kind="checks")
    what = f"it has its quota, and waits for all its nodes together ({names})"
    return Reason(f"{what}: {said}" if said else what, words=said, kind="checks")


def _without_quota(workload: Properties, reserved: Properties | None, workloads: Sequence[Properties]) -> Reason:
    words = text((reserved or {}).get("message"))
    found = explained(words, table("queue")) or Reason(words or "Kueue has not looked at it yet", "", words, "new")
    says = found.says
    preempted = holds(conditions(workload), "Preempted") or holds(conditions(workload), "Evicted")
    if preempted is not None:
        says = f"{says}; it ran before, and lost its place: {text(preempted.get('message'))}"
    before = _before(workload, workloads)
    if before and found.kind in {"quota", "turn", "new"}:
        says = f"{says}; {before} of this namespace {'comes' if before == 1 else 'come'} before it"
    return Reason(says, found.fix, found.words, found.kind)


def _before(workload: Properties, workloads: Sequence[Properties]) -> int:
    """How many waiting Workloads of the namespace Kueue looks at first: by priority, then by age."""

    def place(each: Properties) -> tuple[int, float]:
        moment = created(each)
        return -whole(at(each, "spec", "priority")), moment.timestamp() if moment else 0.0

    return sum(
        place(each) < place(workload)
        for each in workloads
        if uid_of(each) != uid_of(workload)
        and at(each, "spec", "queueName") == at(workload, "spec", "queueName")
        and at(each, "spec", "active") is not False
        and not holds(conditions(each), "QuotaReserved")
        and not holds(conditions(each), "Finished")
    )
