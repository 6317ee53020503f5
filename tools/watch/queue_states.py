"""What Kueue says of a Job that waits: from its Workload to a plain clause."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from infra.kubernetes.labels import COMPONENT, NAME, SERVICE
from infra.placed import SCHEDULED_RUN
from infra.review.stack import Properties, at, mapping, mappings, strings, text, whole
from tools.watch.observed import (
    Event,
    annotations_of,
    conditions,
    created,
    deleted,
    holds,
    labels_of,
    newest,
    owners,
    time_of,
    uid_of,
)
from tools.watch.pod_states import explained, last_words, table
from tools.watch.states import Phase, Reason, StepState

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
"""The label of a Job with the LocalQueue that admits it (kueue.sigs.k8s.io/docs/tasks/run/jobs, seen November
2026)."""


def workload_of(job: Properties, workloads: Sequence[Properties]) -> Properties | None:
    """The Workload that Kueue made for the Job; None where there is none. Of several, the newest counts."""
    own = [workload for workload in workloads if uid_of(job) in owners(workload)]
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
    selectors = [strings(at(template, "template", "spec", "nodeSelector")) for template in templates]
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


# Services of pipelines, such as queues, whose program ends again and again.


def failing(pods: Sequence[Properties]) -> Iterator[str]:
    """Of each service whose program has ended and is not ready again: how often, and its own last words."""
    for pod in pods:
        labels = labels_of(pod)
        if SERVICE not in labels or deleted(pod) or holds(conditions(pod), "Ready"):
            continue
        for status in mappings(at(pod, "status", "containerStatuses")):
            ended = mapping(at(status, "state", "terminated")) or mapping(at(status, "lastState", "terminated"))
            if not ended:
                continue
            name = f"{labels.get(NAME, '')}.{labels.get(COMPONENT, '')}"
            count = max(whole(status.get("restartCount")), 1)
            times = "once" if count == 1 else f"{count} times"
            words = last_words(text(ended.get("message"))) or text(ended.get("reason"))
            code = whole(ended.get("exitCode"))
            yield f"service {name} is not ready: its program has ended {times}, with exit code {code}: {words}"


# Runs of pipelines by the clock: whether the last one failed, and how many before it did.


TIME_ANNOTATION = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""The annotation of a CronJob's Job with the time for which it was scheduled
(kubernetes.io/docs/reference/labels-annotations-taints, seen November 2026)."""

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class FailedRun:
    """The last finished run of a pipeline by the clock, which failed: ``count`` in a row have, at least.

    ``since`` is when a run last succeeded, as far as the cluster tells. ``why`` names the step and its reason.
    """

    pipeline: str
    at: datetime | None
    count: int
    why: str
    since: datetime | None = None

    @property
    def says(self) -> str:
        """The run on one line."""
        when = f" of {self.at.astimezone():%Y-%m-%d %H:%M}" if self.at else ""
        row = f", the last {self.count} in a row" if self.count > 1 else ""
        good = f"; the last good one ended {self.since.astimezone():%Y-%m-%d %H:%M}" if self.since else ""
        return f"the scheduled run of {self.pipeline}{when} failed{row}{good}: {self.why}"


def is_run(job: Properties) -> bool:
    """Whether the Job is a run by the clock, which starts the Jobs of its pipeline."""
    return labels_of(job).get(NAME) == SCHEDULED_RUN


def newest_runs(jobs: Sequence[Properties]) -> set[str]:
    """The UIDs of the newest run by the clock of each pipeline."""
    return {uid_of(runs[-1]) for runs in _by_pipeline(jobs).values()}


def failed_runs(
    jobs: Sequence[Properties], cron_jobs: Sequence[Properties], state_of: Callable[[Properties], StepState]
) -> list[FailedRun]:
    """The pipelines whose last finished run by the clock failed. ``state_of`` says where a Job stands."""
    found: list[FailedRun] = []
    for pipeline, runs in _by_pipeline(jobs).items():
        finished = [run for run in runs if _verdict(run) is not None]
        good = [number for number, run in enumerate(finished) if _verdict(run)]
        failed = finished[good[-1] + 1 :] if good else finished
        if not failed:
            continue
        schedules = [cron_job for cron_job in cron_jobs if labels_of(cron_job).get(COMPONENT) == pipeline]
        times = [time_of(at(schedule, "status", "lastSuccessfulTime")) for schedule in schedules]
        since = max((time for time in times if time), default=None)
        found.append(FailedRun(pipeline, _time(failed[-1]), len(failed), _why(failed[-1], jobs, state_of), since))
    return found


def _why(run: Properties, jobs: Sequence[Properties], state_of: Callable[[Properties], StepState]) -> str:
    """The step that failed and its reason; those of the run itself where none of its Jobs failed."""
    own = [job for job in jobs if uid_of(run) in owners(job)]
    states = [(labels_of(job).get(COMPONENT, ""), state_of(job)) for job in own]
    failed = [f"{step}: {state.reason.says}" for step, state in states if state.phase is Phase.FAILED]
    return "; ".join(failed) or state_of(run).reason.says


def _by_pipeline(jobs: Sequence[Properties]) -> dict[str, list[Properties]]:
    """The runs of each pipeline, the newest last."""
    found: dict[str, list[Properties]] = {}
    for job in sorted(filter(is_run, jobs), key=lambda job: created(job) or _LONG_AGO):
        found.setdefault(labels_of(job).get(COMPONENT, ""), []).append(job)
    return found


def _verdict(run: Properties) -> bool | None:
    """Whether the run succeeded; None where it goes on."""
    found = conditions(run)
    if holds(found, "Complete"):
        return True
    return False if holds(found, "Failed") else None


def _time(run: Properties) -> datetime | None:
    return time_of(annotations_of(run).get(TIME_ANNOTATION)) or created(run)
