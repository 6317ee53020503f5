"""What Kueue says of a Job that waits, which services do not come up, and which runs by the clock failed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from infra.kubernetes.labels import COMPONENT, NAME, SERVICE
from infra.placed import SCHEDULED_RUN
from infra.review.stack import Properties, at, mapping, mappings, strings, text, whole
from tools.watch.observed import (
    LONG_AGO,
    Event,
    annotations_of,
    conditions,
    creation_time,
    deletion_time,
    holds,
    labels_of,
    newest,
    owners,
    time_of,
    uid_of,
)
from tools.watch.pod_states import last_words, recognise, table
from tools.watch.states import Phase, Reason, StepState, times

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
"""The label of a Job with the LocalQueue that admits it (kueue.sigs.k8s.io/docs/tasks/run/jobs, seen November
2026)."""


def workload_of(job: Properties, workloads: Sequence[Properties]) -> Properties | None:
    """The Workload that Kueue made for the Job; None where there is none. Of several, the newest counts."""
    candidates = [workload for workload in workloads if uid_of(job) in owners(workload)]
    return max(candidates, key=lambda workload: creation_time(workload) or LONG_AGO, default=None)


def why_suspended(
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
        event = newest(events, "FailedCreateWorkload", "ErrWorkloadCompose", "FailedAdmission", "UpdateFailed")
        words = event.message if event else ""
        return Reason(
            f"Kueue has not taken it up{words and f': {words}'}",
            f"look whether Kueue runs, and whether the LocalQueue {queue} is there",
            words,
            "kueue",
        )
    workload_conditions = conditions(workload)
    if at(workload, "spec", "active") is False:
        return Reason(
            "Kueue has given it up, and admits it no more",
            "set the Workload's `spec.active` to true, or delete the Job: the next `pulumi up` makes it anew",
            text(workload_conditions.get("Evicted", {}).get("message")),
            "deactivated",
        )
    if holds(workload_conditions, "Admitted"):
        return Reason("it has been admitted, and starts", kind="admitted")
    if holds(workload_conditions, "QuotaReserved"):
        return _admission_checks(workload)
    return _without_quota(workload, workload_conditions, workloads)


def evictions(workload: Properties | None) -> tuple[int, str]:
    """How often Kueue took the Job's place away, and why it did so last."""
    if workload is None:
        return 0, ""
    statistics = mappings(at(workload, "status", "schedulingStats", "evictions"))
    count = sum(whole(eviction.get("count")) for eviction in statistics if eviction.get("reason") != "Deactivated")
    evicted = holds(conditions(workload), "Evicted") or {}
    return count, text(evicted.get("message"))


def flavor_of(workload: Properties | None) -> tuple[str, Mapping[str, str]]:
    """The flavor that Kueue admitted the Job for, and what its pods select by themselves; empty without one."""
    assignments = mappings(at(workload or {}, "status", "admission", "podSetAssignments"))
    flavors = [flavor for assignment in assignments for flavor in strings(assignment.get("flavors")).values()]
    pod_sets = mappings(at(workload or {}, "spec", "podSets"))
    selectors = [strings(at(pod_set, "template", "spec", "nodeSelector")) for pod_set in pod_sets]
    return ", ".join(dict.fromkeys(flavors)), selectors[0] if selectors else {}


def _admission_checks(workload: Properties) -> Reason:
    """Of a Workload that has its quota and waits for admission checks, such as a ProvisioningRequest."""
    checks = mappings(at(workload, "status", "admissionChecks"))
    pending = [check for check in checks if check.get("state") != "Ready"]
    if not pending:
        return Reason("it has its quota, and is about to be admitted", kind="checks")
    names = ", ".join(text(check.get("name")) for check in pending)
    words = "; ".join(filter(None, (text(check.get("message")) for check in pending)))
    what = f"it has its quota, and waits for all its nodes together ({names})"
    return Reason(f"{what}: {words}" if words else what, words=words, kind="checks")


def _without_quota(
    workload: Properties, workload_conditions: Mapping[str, Properties], workloads: Sequence[Properties]
) -> Reason:
    words = text(workload_conditions.get("QuotaReserved", {}).get("message"))
    reason = recognise(words, table("queue")) or Reason(
        words or "Kueue has not looked at it yet", "", words, "new"
    )
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


# Services of pipelines, such as queues, whose program ends again and again.


def failing_services(pods: Sequence[Properties]) -> Iterator[str]:
    """Of each service whose program has ended and is not ready again: how often, and its own last words."""
    for pod in pods:
        labels = labels_of(pod)
        if SERVICE not in labels or deletion_time(pod) or holds(conditions(pod), "Ready"):
            continue
        for status in mappings(at(pod, "status", "containerStatuses")):
            ended = mapping(at(status, "state", "terminated")) or mapping(at(status, "lastState", "terminated"))
            if not ended:
                continue
            name = f"{labels.get(NAME, '')}.{labels.get(COMPONENT, '')}"
            words = last_words(text(ended.get("message"))) or text(ended.get("reason"))
            yield (
                f"service {name} is not ready: its program has ended "
                f"{times(max(whole(status.get('restartCount')), 1))}, "
                f"with exit code {whole(ended.get('exitCode'))}: {words}"
            )


# Runs of pipelines by the clock: whether the last one failed, and how many before it did.


TIME_ANNOTATION = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""The annotation of a CronJob's Job with the time for which it was scheduled
(kubernetes.io/docs/reference/labels-annotations-taints, seen November 2026)."""


def is_run(job: Properties) -> bool:
    """Whether the Job is a run by the clock, which starts the Jobs of its pipeline."""
    return labels_of(job).get(NAME) == SCHEDULED_RUN


def newest_runs(jobs: Sequence[Properties]) -> set[str]:
    """The UIDs of the newest run by the clock of each pipeline."""
    return {uid_of(runs[-1]) for runs in _runs_by_pipeline(jobs).values()}


def failed_runs(
    jobs: Sequence[Properties], cron_jobs: Sequence[Properties], state_of: Callable[[Properties], StepState]
) -> Iterator[str]:
    """Of each pipeline whose last finished run by the clock failed: when, how many in a row, which step, and why.

    ``state_of`` says where a Job stands.
    """
    for pipeline, runs in _runs_by_pipeline(jobs).items():
        failed: list[Properties] = []
        for run in runs:
            if holds(conditions(run), "Complete"):
                failed = []
            elif holds(conditions(run), "Failed"):
                failed.append(run)
        if not failed:
            continue
        schedules = [cron_job for cron_job in cron_jobs if labels_of(cron_job).get(COMPONENT) == pipeline]
        successes = [time_of(at(schedule, "status", "lastSuccessfulTime")) for schedule in schedules]
        success = max(filter(None, successes), default=None)
        scheduled = time_of(annotations_of(failed[-1]).get(TIME_ANNOTATION)) or creation_time(failed[-1])
        yield (
            f"the scheduled run of {pipeline}"
            + (f" of {scheduled.astimezone():%Y-%m-%d %H:%M}" if scheduled else "")
            + " failed"
            + (f", the last {len(failed)} in a row" if len(failed) > 1 else "")
            + (f"; the last good one ended {success.astimezone():%Y-%m-%d %H:%M}" if success else "")
            + f": {_why(failed[-1], jobs, state_of)}"
        )


def _why(run: Properties, jobs: Sequence[Properties], state_of: Callable[[Properties], StepState]) -> str:
    """The step that failed and its reason; those of the run itself where none of its Jobs failed."""
    states = [(labels_of(job).get(COMPONENT, ""), state_of(job)) for job in jobs if uid_of(run) in owners(job)]
    failed = [f"{step}: {state.reason.says}" for step, state in states if state.phase is Phase.FAILED]
    return "; ".join(failed) or state_of(run).reason.says


def _runs_by_pipeline(jobs: Sequence[Properties]) -> dict[str, list[Properties]]:
    """The runs of each pipeline, the newest last."""
    runs: dict[str, list[Properties]] = {}
    for job in sorted(filter(is_run, jobs), key=lambda job: creation_time(job) or LONG_AGO):
        runs.setdefault(labels_of(job).get(COMPONENT, ""), []).append(job)
    return runs
