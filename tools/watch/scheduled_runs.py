"""Runs of pipelines by the clock: whether the last one failed, and how many before it did."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from infra.kubernetes.labels import COMPONENT, NAME
from infra.review.properties import Properties, at
from infra.step import SCHEDULED_RUN
from tools.watch.objects import annotations_of, conditions, created, holds, labels_of, owners, time_of, uid_of
from tools.watch.states import Phase, StepState

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
        schedules = [each for each in cron_jobs if labels_of(each).get(COMPONENT) == pipeline]
        times = [time_of(at(each, "status", "lastSuccessfulTime")) for each in schedules]
        since = max((each for each in times if each), default=None)
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
