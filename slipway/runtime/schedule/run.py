"""Run a pipeline's Jobs once, in their order, through the Kubernetes API.

The pod of a CronJob starts it. Each run has directories and Jobs of its own, named after the time for which it was
scheduled, so that a pod which takes the place of an evicted one goes on with the same run. Run as
`python -m slipway.runtime.schedule.run --namespace slipway --jobs fraud-schedule`. Standard library only, Python
3.9.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slipway.runtime.exits import OK, USAGE, StepError, run, stop_on_sigterm
from slipway.runtime.kubernetes_api import Api, ExistsError, add_options, api_of, persist
from slipway.runtime.usage.limits import MONTH, Limits, Reached, month_of

WEBHOOK_ANSWER = 10.0
"""Seconds that the webhook has for one answer."""

WEBHOOK_PAUSES = (5.0, 30.0)
"""Seconds before it is asked a second and a third time."""

FAILED, RECOVERED = "failed", "recovered"

LONGEST = 500
"""Characters of a reason: it ends with the last line of a log."""


@dataclass(frozen=True)
class ClockRun:
    """A run of a pipeline by the clock: `run` is the time for which it was scheduled."""

    pipeline: str
    run: str
    namespace: str


@dataclass(frozen=True)
class Notice(ClockRun):
    """What is posted, as a JSON object. `text` says it in a sentence, which chat services show."""

    text: str
    outcome: str
    step: str = ""
    reason: str = ""
    exit_code: int | None = None


def failed(of: ClockRun, step: str, reason: str, exit_code: int | None) -> Notice:
    """The run failed; `step` is empty where that was before any."""
    reason = reason[:LONGEST]
    at = f" at the step {step}" if step else ""
    code = f" with exit code {exit_code}" if exit_code is not None else ""
    text = f"{of.pipeline}: the run {of.run} failed{at}{code}: {reason}"
    return Notice(of.pipeline, of.run, of.namespace, text, FAILED, step, reason, exit_code)


def recovered(of: ClockRun) -> Notice:
    """The run is good, and the one before it failed."""
    text = f"{of.pipeline}: the run {of.run} is good; the one before it failed"
    return Notice(of.pipeline, of.run, of.namespace, text, RECOVERED)


def post(url: str, notice: Notice, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Post `notice`; whether it was taken. What fails is said in the log, without the address."""
    body = json.dumps(asdict(notice)).encode()
    for pause in (*WEBHOOK_PAUSES, None):
        why = _send(url, body)
        if not why:
            print(f"Told the webhook: {notice.outcome}", flush=True)
            return True
        print(f"warning: the webhook was not told: {why}", flush=True)
        if pause is not None:
            sleep(pause)
    return False


def _send(url: str, body: bytes) -> str:
    """Why the webhook did not take it; empty where it did."""
    if not url.startswith(("https://", "http://")):
        return "its address does not begin with https://"
    headers = {"Content-Type": "application/json", "User-Agent": "slipway"}
    try:
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=WEBHOOK_ANSWER):
            return ""
    except urllib.error.HTTPError as error:
        return f"it answered {error.code}"
    except urllib.error.URLError as error:
        return type(error.reason).__name__ if isinstance(error.reason, Exception) else "no answer"
    except Exception as error:
        # Whatever it is, the run ended as it ended; its words may hold the address.
        return type(error).__name__


def of_pods(pods: list[dict[str, Any]]) -> tuple[int | None, str]:
    """The exit code and the last line of the first container that failed; None and empty where none is known."""
    for pod in pods:
        status = pod.get("status", {})
        for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
            ended = container.get("state", {}).get("terminated")
            if ended and ended.get("exitCode"):
                lines = str(ended.get("message", "")).strip().splitlines()
                words = [str(ended.get("reason", "Error")), *lines[-1:]]
                return int(ended["exitCode"]), ": ".join(words)
    return None, ""


def reached_by(pods: list[dict[str, Any]]) -> Reached | None:
    """The limit of the stack that ended one of the pods, or kept its program from being started."""
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            ended = container.get("state", {}).get("terminated")
            reached = Reached.parse(str(ended.get("message", ""))) if ended else None
            if reached and ended.get("exitCode") == reached.code:
                return reached
    return None


def limits_in(cluster: Cluster, name: str) -> Limits:
    """What the stack may spend, by the ConfigMap of that name.

    Raises StepError with NO_API; ValueError, TypeError or KeyError where it is damaged.
    """
    return Limits.of(json.loads(cluster.config_map(name)["data"]["limits.json"]))


JOB_FAILED = 11
"""Exit code: a Job of the run failed, and those that need it were not started."""

NO_API = 12
"""Exit code: the Kubernetes API could not be reached, or refused."""

PAUSE = 5.0
"""Seconds between two looks at the Jobs."""

PATIENCE = 300.0
"""Seconds for which an API server that does not answer is asked again: one of a single zone is away while it is
upgraded."""

TIME_ANNOTATION = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""The annotation of a CronJob's Job with the time for which it was scheduled
(kubernetes.io/docs/reference/labels-annotations-taints, seen November 2026)."""

PIPELINE, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"

PART_OF = "app.kubernetes.io/part-of=slipway"
"""What selects the stack's pods (`infra/kubernetes/labels.py`)."""

RUNS = "scheduled-run"
"""The value of `PIPELINE` of the runs themselves; their `COMPONENT` is the pipeline."""

WEBHOOK = "NOTIFY_URL"
"""The environment variable with the address that is told of a failed run, and of a good one after it."""


class JobsFailedError(StepError):
    """Jobs of the run failed; `reasons` are by their names. A limit of the stack may have `reached` them."""

    def __init__(self, message: str, reasons: Mapping[str, str], reached: Reached | None = None) -> None:
        what = message if reached is None else f"{message}; {reached.words}: {reached.fix}"
        super().__init__(JOB_FAILED if reached is None else reached.code, what)
        self.reasons = reasons


@dataclass(frozen=True)
class Planned:
    """A Job of the pipeline: `path` is its directory in the store below the root, empty where it leaves no result.

    `after` are the names of those that have to succeed first.
    """

    name: str
    path: str
    after: Sequence[str]
    manifest: dict[str, Any]


@dataclass
class Cluster:
    """The Jobs of a namespace, as one run sees them."""

    api: Api
    namespace: str
    sleep: Callable[[float], None] = time.sleep

    def job(self, name: str) -> dict[str, Any]:
        """The Job of that name. Raises StepError with NO_API."""
        return self._persist(lambda: self.api.get(f"{self._jobs}/{name}"))

    def config_map(self, name: str) -> dict[str, Any]:
        """The ConfigMap of that name. Raises StepError with NO_API."""
        return self._persist(lambda: self.api.get(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}"))

    def runs(self, pipeline: str) -> list[dict[str, Any]]:
        """The Jobs of the pipeline's runs, oldest first. Raises StepError with NO_API."""
        jobs = self._persist(lambda: self.api.items(self._jobs, f"{PIPELINE}={RUNS},{COMPONENT}={pipeline}"))
        return sorted(jobs, key=lambda job: str(job["metadata"].get("creationTimestamp", "")))

    def pods(self, job: str) -> list[dict[str, Any]]:
        """The pods of the Job. Raises StepError with NO_API."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return self._persist(lambda: self.api.items(path, f"batch.kubernetes.io/job-name={job}"))

    def month_spent(self, limits: Limits) -> Reached | None:
        """What a pod of the namespace said of this month's budget, if it still is spent. Raises StepError with
        NO_API."""
        if limits.month is None:
            return None
        month, _ = month_of(time.time())
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        pods = self._persist(lambda: self.api.items(path, PART_OF))
        known = [reached_by([pod]) for pod in pods]
        return next((one for one in known if one and one.kind == MONTH and one.holds(limits, month)), None)

    def of(self, pipeline: str) -> list[dict[str, Any]]:
        """All Jobs of the pipeline. Raises StepError with NO_API."""
        return self._persist(lambda: self.api.items(self._jobs, f"{PIPELINE}={pipeline}"))

    def start(self, manifest: dict[str, Any]) -> None:
        """Create the Job, unless this run created it before. Raises StepError with NO_API."""

        def create() -> dict[str, Any]:
            try:
                return self.api.create(self._jobs, manifest)
            except ExistsError:
                return {}

        self._persist(create)

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    def _persist(self, request: Callable[[], Any]) -> Any:
        try:
            return persist(request, PATIENCE, PAUSE, self.sleep)
        except OSError as error:
            raise StepError(NO_API, str(error)) from error


def main(arguments: list[str] | None = None) -> int:
    """Run the pipeline; returns the exit code.

    Raises:
        StepError: with JOB_FAILED where a Job failed, NO_API where the API refuses.
    """
    options = _parse(arguments)
    stop_on_sigterm("the next pod goes on with this run")
    cluster = Cluster(api_of(options), options.namespace)
    job: dict[str, Any] = {}
    try:
        job = cluster.job(own_job(os.environ.get("POD_NAME", "")))
        code = _run(cluster, job, options)
    except StepError as error:
        _tell(functools.partial(_failure, cluster, options.pipeline, job, error))
        raise
    _tell(functools.partial(_recovery, cluster, options.pipeline, job))
    return code


def _tell(notice: Callable[[], Notice | None]) -> None:
    """Post what `notice` makes, where somebody is told. Whatever goes wrong, the run ended as it did."""
    url = os.environ.get(WEBHOOK)
    if not url:
        return
    try:
        made = notice()
    except StepError as error:
        print(f"warning: the webhook was not told: {error}", flush=True)
    else:
        if made:
            post(url, made)


def _failure(cluster: Cluster, pipeline: str, job: Mapping[str, Any], error: StepError) -> Notice:
    run = ClockRun(pipeline, mark_of(job) if job else "of now", cluster.namespace)
    if not isinstance(error, JobsFailedError):
        return failed(run, "", str(error), error.code)
    name, verdict = next(iter(error.reasons.items()))
    code, words = of_pods(cluster.pods(f"{name}-{run.run}"))
    return failed(run, name.removeprefix(f"{pipeline}-"), words or verdict, code)


def _recovery(cluster: Cluster, pipeline: str, job: Mapping[str, Any]) -> Notice | None:
    """A notice where the run before this one failed."""
    name = job["metadata"]["name"]
    earlier = [other for other in cluster.runs(pipeline) if other["metadata"]["name"] != name]
    if earlier and _verdict(earlier[-1]):
        return recovered(ClockRun(pipeline, mark_of(job), cluster.namespace))
    return None


def _run(cluster: Cluster, job: dict[str, Any], options: argparse.Namespace) -> int:
    planned = read(cluster.config_map(options.jobs))
    mark = mark_of(job)
    jobs = {step.name: scheduled(step, planned, mark, job) for step in planned}
    print(f"Run {mark}: {', '.join(jobs)}", flush=True)
    names = {job["metadata"]["name"] for job in jobs.values()}
    wait_for_others(cluster, options.pipeline, names, options.behind)
    require(cluster, options.needs)
    if options.limits and (reached := cluster.month_spent(limits_in(cluster, options.limits))):
        # Its own words, which the next run finds where the pod that said them first is gone.
        raise StepError(reached.code, f"{reached.words}: nothing is started; {reached.fix}")
    return follow(cluster, planned, jobs, limited=bool(options.limits))


def own_job(pod: str) -> str:
    """The name of the Job that the pod is of."""
    name, _, suffix = pod.rpartition("-")
    if not name or not suffix:
        raise StepError(USAGE, "POD_NAME is not set: this runs in the pod of a CronJob")
    return name


def mark_of(job: Mapping[str, Any]) -> str:
    """What tells this run from others: the time for which it was scheduled, as `20261122-0300`."""
    metadata = job["metadata"]
    moment = metadata.get("annotations", {}).get(TIME_ANNOTATION) or metadata["creationTimestamp"]
    digits = re.sub(r"\D", "", moment[:16])
    return f"{digits[:8]}-{digits[8:12]}"


def read(config_map: Mapping[str, Any]) -> list[Planned]:
    """The Jobs of the pipeline, in an order in which those come first that others wait for."""
    return [Planned(**load) for load in json.loads(config_map["data"]["jobs.json"])]


def scheduled(job: Planned, among: Sequence[Planned], mark: str, owner: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of the Job in the run `mark`: with a name and directories of its own.

    It belongs to `owner`, so that it goes with it.
    """
    text = json.dumps(job.manifest)
    for path in (step.path for step in among if step.path):
        text = re.sub(rf"{re.escape(path)}(?![\w-])", f"{path}-{mark}", text)
    manifest = json.loads(text)
    manifest["metadata"]["name"] = f"{job.name}-{mark}"
    manifest["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
    ]
    return manifest


def wait_for_others(cluster: Cluster, pipeline: str, names: set[str], behind: str = "") -> None:
    """Wait until no Job of the pipeline runs but those of this run: an update may be running it, too.

    With `behind` the Job of that name lets those of an update run, which are suspended until then: it has to be
    over, or held itself.
    """
    told = ""
    while True:
        running = [
            job["metadata"]["name"]
            for job in cluster.of(pipeline)
            if job["metadata"]["name"] not in names and _verdict(job) is None and not (behind and _is_held(job))
        ]
        if behind:
            # While an update makes it anew, there is none.
            runners = cluster.of(behind)
            over = runners and all(_is_held(job) or _verdict(job) is not None for job in runners)
            running += [] if over else [behind]
        if not running:
            return
        if told != (told := f"Waiting for {', '.join(running)}"):
            print(told, flush=True)
        cluster.sleep(PAUSE)


def require(cluster: Cluster, needs: Sequence[str]) -> None:
    """Raises StepError with JOB_FAILED where one of the Jobs is not complete, which all runs need."""
    reasons = {name: _verdict(cluster.job(name)) for name in needs}
    if lacking := {name: reason or "it has not run" for name, reason in reasons.items() if reason != ""}:
        what = "; ".join(f"{name}: {reason}" for name, reason in lacking.items())
        raise StepError(JOB_FAILED, f"{what}; `slipway run` or `pulumi up` runs it again")


def follow(
    cluster: Cluster, planned: Sequence[Planned], jobs: Mapping[str, dict[str, Any]], *, limited: bool = False
) -> int:
    """Start each Job when those before it are done, until all are, or one failed and no other runs.

    What the Jobs cost may be `limited`.
    """
    done: set[str] = set()
    lost: dict[str, str] = {}
    started: set[str] = set()
    while True:
        for step in planned:
            if step.name not in started and not lost and done.issuperset(step.after):
                cluster.start(jobs[step.name])
                started.add(step.name)
                print(f"{step.name}: started as {jobs[step.name]['metadata']['name']}", flush=True)
        for name in sorted(started - done - lost.keys()):
            verdict = _verdict(cluster.job(jobs[name]["metadata"]["name"]))
            if verdict == "":
                done.add(name)
                print(f"{name}: done", flush=True)
            elif verdict is not None:
                lost[name] = verdict
                print(f"{name}: failed: {verdict}", flush=True)
        if len(done) == len(planned):
            return OK
        if lost and started == done | lost.keys():
            what = "; ".join(f"{name}: {reason}" for name, reason in lost.items())
            waiting = [step.name for step in planned if step.name not in started]
            skipped = f"; not started: {', '.join(waiting)}" if waiting else ""
            names = [jobs[name]["metadata"]["name"] for name in lost]
            reached = reached_by([pod for name in names for pod in cluster.pods(name)]) if limited else None
            raise JobsFailedError(f"{what}{skipped}", lost, reached)
        cluster.sleep(PAUSE)


def _is_held(job: Mapping[str, Any]) -> bool:
    return bool(job.get("spec", {}).get("suspend"))


def _verdict(job: Mapping[str, Any]) -> str | None:
    """Empty for a Job that is complete, the reason for one that failed, None for one that runs."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition.get("status") != "True":
            continue
        if condition["type"] == "Complete":
            return ""
        if condition["type"] == "Failed":
            return f"{condition.get('reason', 'Failed')}: {condition.get('message', '')}".rstrip(": ")
    return None


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.schedule.run", description=__doc__)
    add_options(parser)
    parser.add_argument("--namespace", required=True, help="where the Jobs run")
    parser.add_argument("--pipeline", required=True, help="the pipeline's name, which its Jobs have as a label")
    parser.add_argument("--jobs", required=True, metavar="NAME", help="the ConfigMap with the Jobs")
    parser.add_argument(
        "--behind", default="", metavar="NAME", help="the Job that lets those of an update run; it is over first"
    )
    parser.add_argument("--limits", metavar="NAME", help="the ConfigMap with what the stack may spend")
    parser.add_argument(
        "--needs", action="append", default=[], metavar="NAME", help="a Job that has to be complete"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
