"""End what runs of a stack, once its last day is over; nothing is deleted.

The pod of a CronJob starts it. Apps and services are scaled to no pod, and schedules suspended. Jobs that somebody
lets run are held as `slipway stop` holds them, and all others end as at their time limit: an `up` that waits for
one fails, and the next one makes it anew. Programs get SIGTERM and their grace period, so a step with checkpoints
keeps its last one. What was ended is noted in a ConfigMap. Before that day is over, nothing is done. Run as
`python -m slipway.workloads.schedule.until --until 2026-12-24 --namespace slipway --instance slipway.dev --notes
until`. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from slipway.workloads.runtime.exits import OK, StepError, run, stop_on_sigterm
from slipway.workloads.runtime.kubernetes_api import Api, add_options, api_of, persist
from slipway.workloads.schedule.places import admission
from slipway.workloads.schedule.places.jobs import HOLDER_ANNOTATION, NO_SUCH, STOPPED
from slipway.workloads.schedule.release import verdict
from slipway.workloads.schedule.run import NO_API, PATIENCE, PAUSE

BETWEEN_LOOKS = 40.0
"""Seconds between two looks: what lets Jobs run has 25 to end, and may let one more run meanwhile."""

LOOKS = 15
"""Looks at most. What changes longer than that is looked at by the next pod."""

ENDED = "ended"
"""The key of the notes with what was ended: JSON, `until`, `at`, and names by their kind."""

NAME, INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"

ITSELF = "until"
"""The value of `NAME` of the Jobs that run this."""

RUNNERS = ("cluster-run", "scheduled-run", "mover")
"""Values of `NAME` of Jobs that let other ones run (infra/placed.py)."""

RUNS_ANNOTATION = "slipway/runs"
"""The annotation of a Job that is created suspended, with who lets it run (infra/kubernetes/labels.py)."""

MOVES_ANNOTATION = "slipway/moves"
"""That of a Job that moves a step from place to place (the same file)."""

RELEASED_BY_RUNNER, RELEASED_BY_MOVER = "cluster-run", "mover"

MANAGER = "slipway-until"
"""Who changes the objects, in their `managedFields`."""


@dataclass
class Ending:
    """What is ended in a namespace: Deployments, StatefulSets and CronJobs by their names, and the Jobs of the
    stack `instance`, with those that its CronJobs made, but this program's own. Other stacks may be there, too.

    All methods raise StepError with NO_API.
    """

    api: Api
    namespace: str
    instance: str
    deployments: Sequence[str] = ()
    stateful_sets: Sequence[str] = ()
    cron_jobs: Sequence[str] = ()
    sleep: Callable[[float], None] = time.sleep
    ended: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def end(self) -> dict[str, list[str]]:
        """End everything, and look until a look has found nothing more. Returns the names by their kind."""
        for look in range(LOOKS):
            if look:
                self.sleep(BETWEEN_LOOKS)
            before = sum(map(len, self.ended.values()))
            self._end_once()
            if sum(map(len, self.ended.values())) == before:
                break
        # Where this may not do it, `slipway run` does.
        with contextlib.suppress(StepError):
            self._forget_starts()
        return self.ended

    def _end_once(self) -> None:
        for name in self.cron_jobs:
            path = f"{self._batch}/cronjobs/{name}"
            cron_job = self._get(path)
            if cron_job and not cron_job["spec"].get("suspend"):
                self._patch(path, {"spec": {"suspend": True}})
                self._note("schedules", name)
        for job in sorted(self._jobs(), key=lambda job: not _lets_run(job)):
            if verdict(job) is None:
                self._end_job(job)
        for plural, names in (("deployments", self.deployments), ("statefulsets", self.stateful_sets)):
            for name in names:
                path = f"/apis/apps/v1/namespaces/{self.namespace}/{plural}/{name}/scale"
                scale = self._get(path)
                if scale and scale["spec"].get("replicas"):
                    self._patch(path, {"spec": {"replicas": 0}})
                    self._note("apps", name)

    def _end_job(self, job: Mapping[str, Any]) -> None:
        name = job["metadata"]["name"]
        path = f"{self._batch}/jobs/{name}"
        if job["spec"].get("suspend") and not admission.is_labelled(job):
            return
        if not _waits_for_somebody(job):
            if job["spec"].get("activeDeadlineSeconds") != 1:
                # It ends at once where it runs, and where a queue holds it back, as soon as it is let run.
                self._patch(path, {"spec": {"activeDeadlineSeconds": 1}})
                self._note("jobs", name)
            return
        # A pod of its mover that is not gone yet may change it no more.
        stopped = {"metadata": {"annotations": {HOLDER_ANNOTATION: STOPPED}}} if _is_at_place(job) else {}
        if admission.is_labelled(job):
            # While Kueue looks after it, Kueue alone suspends it.
            workload = admission.workload_of(job, self._persist(lambda: self.api.items(self._workloads)))
            if workload and workload["spec"].get("active", True):
                self._patch(f"{self._workloads}/{workload['metadata']['name']}", {"spec": {"active": False}})
                self._patch(path, stopped)
                self._note("jobs", name)
        else:
            self._patch(path, {**stopped, "spec": {"suspend": True}})
            self._note("jobs", name)

    def _forget_starts(self) -> None:
        """Let the time limit of each Job that is held count anew once it goes on.

        The Job controller looks at the limit before it notes the new start: a Job that was held for longer than
        its limit would fail at once (Kubernetes 1.34.4, seen November 2026).
        """
        for job in self._jobs():
            held = job["spec"].get("suspend") and _waits_for_somebody(job) and verdict(job) is None
            if held and job.get("status", {}).get("startTime"):
                path = f"{self._batch}/jobs/{job['metadata']['name']}/status"
                self._patch(path, {"status": {"startTime": None}})

    def _jobs(self) -> list[dict[str, Any]]:
        """The Jobs of the stack. Those that a CronJob made, and theirs, do not have the stack's label."""
        jobs: list[dict[str, Any]] = self._persist(lambda: self.api.items(f"{self._batch}/jobs"))
        ours = {
            job["metadata"]["uid"]
            for job in jobs
            if _labels(job).get(INSTANCE) == self.instance or _owner(job, "CronJob", "name") in self.cron_jobs
        }
        return [
            job
            for job in jobs
            if (job["metadata"]["uid"] in ours or _owner(job, "Job", "uid") in ours)
            and _labels(job).get(NAME) != ITSELF
        ]

    def _note(self, kind: str, name: str) -> None:
        if name not in self.ended.setdefault(kind, []):
            self.ended[kind].append(name)
            print(f"{kind[:-1]} {name}: ended", flush=True)

    def _get(self, path: str) -> dict[str, Any] | None:
        """The object; None where it is not there (any more)."""
        try:
            return self._persist(lambda: self.api.get(path), quiet=NO_SUCH)
        except _NoSuchError:
            return None

    def _patch(self, path: str, changes: dict[str, Any]) -> None:
        try:
            self._persist(lambda: self.api.patch(f"{path}?fieldManager={MANAGER}", changes), quiet=NO_SUCH)
        except _NoSuchError:
            print(f"{path} is no more", flush=True)

    def _persist(self, request: Callable[[], Any], quiet: str = "") -> Any:
        def ask() -> Any:
            try:
                return request()
            except OSError as error:
                if quiet and quiet in str(error):
                    raise _NoSuchError from error
                raise

        try:
            return persist(ask, PATIENCE, PAUSE, self.sleep)
        except OSError as error:
            raise StepError(NO_API, str(error)) from error

    def read_notes(self, name: str) -> dict[str, Any]:
        """What was noted of an earlier end; empty where nothing was."""
        data: dict[str, str] = (self._get(self._config_map(name)) or {}).get("data") or {}
        return json.loads(data.get(ENDED, "{}"))

    def write_notes(self, name: str, notes: Mapping[str, Any]) -> None:
        """Note what was ended."""
        self._patch(self._config_map(name), {"data": {ENDED: json.dumps(notes, sort_keys=True)}})

    def _config_map(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{name}"

    @property
    def _batch(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}"

    @property
    def _workloads(self) -> str:
        return f"/apis/{admission.GROUP}/{admission.VERSION}/namespaces/{self.namespace}/{admission.WORKLOADS}"


class _NoSuchError(Exception):
    """The object is not there."""


def main(arguments: list[str] | None = None) -> int:
    """End what runs; returns the exit code.

    Raises:
        StepError: with NO_API where the API refuses.
    """
    options = _parse(arguments)
    stop_on_sigterm("the next pod goes on")
    ending = Ending(
        api_of(options),
        options.namespace,
        options.instance,
        options.deployment,
        options.stateful_set,
        options.cron_job,
    )
    end(ending, options.until, options.notes, datetime.now(timezone.utc))  # noqa: UP017
    return OK


def end(ending: Ending, until: str, notes: str, now: datetime) -> dict[str, list[str]]:
    """End what runs where the day `until` is over at `now`, and note it. Returns what this call ended.

    Raises:
        StepError: with NO_API where the API refuses.
    """
    moment = end_of(until)
    if now < moment:
        print(f"Nothing ends before {moment:%Y-%m-%d %H:%M} UTC", flush=True)
        return {}
    ended = ending.end()
    noted = ending.read_notes(notes)
    earlier = noted if noted.get("until") == until else {}
    if ended or not earlier:
        kinds = {*ended, *(kind for kind in earlier if kind not in ("until", "at"))}
        names = {kind: sorted({*earlier.get(kind, ()), *ended.get(kind, ())}) for kind in kinds}
        at = earlier.get("at") or f"{now:%Y-%m-%dT%H:%M:%SZ}"
        ending.write_notes(notes, {"until": until, "at": at, **names})
    counts = ", ".join(f"{len(names)} {kind}" for kind, names in sorted(ended.items())) or "nothing ran"
    print(f"The last day of the stack was {until}. Ended: {counts}", flush=True)
    return ended


def end_of(day: str) -> datetime:
    """The moment at which a day (ISO 8601) is over, by UTC."""
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=timezone.utc) + timedelta(days=1)  # noqa: UP017


def _labels(job: Mapping[str, Any]) -> Mapping[str, str]:
    return job["metadata"].get("labels") or {}


def _annotations(job: Mapping[str, Any]) -> Mapping[str, str]:
    return job["metadata"].get("annotations") or {}


def _owner(job: Mapping[str, Any], kind: str, key: str) -> str:
    """What the owner of that kind has at `key`; empty without one."""
    owners: list[dict[str, str]] = job["metadata"].get("ownerReferences") or []
    return next((owner[key] for owner in owners if owner["kind"] == kind), "")


def _lets_run(job: Mapping[str, Any]) -> bool:
    """Whether the Job lets others run, and so has to end before these."""
    return _labels(job).get(NAME) in RUNNERS or MOVES_ANNOTATION in _annotations(job)


def _is_at_place(job: Mapping[str, Any]) -> bool:
    """Whether a mover lets the Job run; what carries out its orders in another cluster is none of these."""
    account = job["spec"]["template"]["spec"].get("serviceAccountName")
    return _annotations(job).get(RUNS_ANNOTATION) == RELEASED_BY_MOVER and account != job["metadata"]["name"]


def _waits_for_somebody(job: Mapping[str, Any]) -> bool:
    """Whether the Job goes on only once somebody lets it, as `slipway run` does."""
    held = _annotations(job).get(RUNS_ANNOTATION) == RELEASED_BY_RUNNER
    return held or job["metadata"]["name"] == RELEASED_BY_RUNNER or _is_at_place(job)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.workloads.schedule.until", description=__doc__)
    add_options(parser)
    parser.add_argument("--until", required=True, metavar="DAY", help="the last day, as 2026-12-24, by UTC")
    parser.add_argument("--namespace", required=True, help="where everything is")
    parser.add_argument("--instance", required=True, help="the stack, as the label of its objects names it")
    parser.add_argument("--notes", required=True, metavar="NAME", help="the ConfigMap that says what was ended")
    for kind in ("deployment", "stateful-set", "cron-job"):
        parser.add_argument(
            f"--{kind}", action="append", default=[], metavar="NAME", help="one to end; repeatable"
        )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
