"""`slipway run` and `slipway stop`: go on with Jobs that `up` does not wait for, or hold them or that of a step.

Both need a login to the cluster, and no Pulumi CLI where the stack file names its kubeconfig.
"""

import json
import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from slipway.command.clusters import AccessError, Clusters, explain
from slipway.command.watch.cli import WatchError, load_plan
from slipway.command.watch.logs import choose
from slipway.command.watch.observed import annotations_of, conditions, holds, name_of, uid_of
from slipway.command.watch.plan import Plan, PlanError
from slipway.infra.api_server import MERGE, ApiServer, UnreadableError
from slipway.infra.commands import command
from slipway.infra.exits import Exit, report_error
from slipway.infra.features import parts
from slipway.infra.kubernetes.labels import (
    HOLDER_ANNOTATION,
    MOVES_ANNOTATION,
    PLACE_ANNOTATION,
    RUNS_ANNOTATION,
    STOPPED,
)
from slipway.infra.placed import CLUSTER_RUN
from slipway.infra.review.stack import Properties, at, mapping, mappings, text, texts
from slipway.runtime.exits import StepError
from slipway.runtime.kubernetes_api import Api
from slipway.runtime.schedule import release
from slipway.runtime.usage.limits import Reached

GONE_WITHIN = 120.0
"""Seconds that a deleted Job has to go with its pods, and a held one to lose them."""

PAUSE = 1.0
"""Seconds between two looks whether it is gone."""

OVER = ("Succeeded", "Failed")
"""Phases of a pod whose program has ended."""

CONTROLLER_LABELS = frozenset(
    {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}
)
"""Labels that the API server gives to the pods of a Job, and that another Job of its name has with other values
(kubernetes.io/docs/reference/labels-annotations-taints, seen November 2026)."""

KEPT = ("name", "namespace", "labels", "annotations")
"""Keys of a Job's metadata that whoever declares it gives."""


class RunError(Exception):
    """What keeps a run from being started or stopped. The text says why, and what to do about it."""


@dataclass(frozen=True)
class _SignedIn:
    """Reads what the pod of a runner reads, as whoever is signed in."""

    server: ApiServer

    def get(self, path: str) -> Properties:
        return self.server.get(path) or {}

    def items(self, path: str, labels: str = "") -> Sequence[Properties]:
        return mappings((self.server.get(path, labelSelector=labels) or {}).get("items"))


@dataclass
class Namespace:
    """The Jobs of a namespace that `up` does not wait for, and the one that lets them run."""

    server: ApiServer
    name: str
    sleep: Callable[[float], None] = field(default=time.sleep)

    def run(self) -> Iterator[str]:
        """Goes on with the Jobs: failed ones are made anew, then the runner; a line for each.

        Raises RunError, before anything is changed where the budget is spent; and UnreadableError.
        """
        runner, jobs = self._look()
        again = [job for job in jobs if _has_failed(job)]
        done = all(holds(conditions(job), "Complete") for job in jobs)
        starts = bool(again) or (not done and (_is_over(runner) or _is_suspended(runner)))
        # The pods of a failed Job, whose words say what was spent, go when it is made anew.
        if starts and (spent := self._spent(runner)):
            raise RunError(f"{spent.words}: nothing is started; {spent.fix}")
        self._forget_starts([runner, *jobs, *(other for job in jobs for other in self._at_places(job))])
        for job in again:
            yield from self._make_places_anew(job)
            self._make_anew(job, suspend=True)
            yield f"{name_of(job)}: runs again, since it failed"
        if done:
            yield "all Jobs are done: `pulumi up` runs what has changed"
        elif again or _is_over(runner):
            self._make_anew(runner, suspend=False)
            yield f"{name_of(runner)}: started"
        elif _is_suspended(runner):
            self._suspend(runner, value=False)
            yield f"{name_of(runner)}: goes on"
        else:
            yield f"{name_of(runner)}: runs already"

    def stop(self) -> Iterator[str]:
        """Holds the runner, then the Jobs that run; a line for each. Raises RunError, UnreadableError."""
        runner, _ = self._look()
        if not _is_over(runner):
            self._suspend(runner, value=True)
            yield f"{name_of(runner)}: held"
        held = yield from self._hold(self._look()[1])
        if _is_over(runner):
            if not held:
                yield "nothing runs"
            return
        if not self._ends(runner):
            again = command("stop", stack="…")
            yield f"{name_of(runner)}: its pod does not end, and may let Jobs run yet: `{again}` holds these"
        # What it let run before its pod had ended.
        yield from self._hold(self._look()[1])

    def stop_step(self, name: str) -> Iterator[str]:
        """Holds the Job of a step, and what moves or runs it elsewhere in the cluster; a line for each.

        Raises RunError, UnreadableError.
        """
        job = self.server.get(f"{self._jobs}/{name}")
        if job is None:
            raise RunError(f"there is no Job {name}: nothing of the step runs")
        if annotations_of(job).get(RUNS_ANNOTATION) == CLUSTER_RUN:
            raise RunError(f"{name} is of a run in the cluster: `{command('stop', stack='…')}` stops all of it")
        if _is_over(job):
            yield f"{name}: over, nothing runs"
            return
        for end in parts("live", "end"):
            yield from end(self.server, self.name, job)
        yield from self._hold([job])
        if not self._ends(job):
            yield f"{name}: its pods do not end: `kubectl delete pod` ends them"

    def hold_place(self, name: str) -> Iterator[str]:
        """Holds the Job of a step at a place here whose mover is in another cluster; a line where it ran."""
        job = self.server.get(f"{self._jobs}/{name}")
        if job is not None and not _is_over(job):
            self._suspend(job, value=True, annotations={HOLDER_ANNOTATION: STOPPED})
            yield f"{name}: held, its pods end"

    def _spent(self, runner: Properties) -> Reached | None:
        """The budget that is spent, as the pod of ``runner`` would see it, which then starts nothing."""
        attempts, limits = (_option(runner, name) for name in ("--attempts", "--limits"))
        api = cast("Api", _SignedIn(self.server))
        try:
            return release.HeldJobs(api, self.name, self.sleep, attempts, limits).spent_before()
        except (StepError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"what the stack has spent of its budget cannot be read: {error}") from error

    def _hold(self, jobs: Iterable[Properties]) -> Generator[str, None, bool]:
        """Holds those of the Jobs that run; a line for each, and whether there was any."""
        names: list[str] = []
        for job in jobs:
            if not _is_over(job) and not _is_suspended(job):
                self._suspend(job, value=True)
                names.append(name_of(job))
                yield f"{names[-1]}: held, its pods end"
            for other in self._at_places(job):
                if not _is_over(other) and not (_is_over(job) and _is_suspended(other)):
                    # A pod of the mover that is not gone yet may change it no more.
                    self._suspend(other, value=True, annotations={HOLDER_ANNOTATION: STOPPED})
                if not _is_over(other) and not _is_suspended(other):
                    names.append(name_of(other))
                    yield f"{names[-1]}: held, its pods end"
        return bool(names)

    def _ends(self, job: Properties) -> bool:
        """Whether the pods of ``job`` are gone, which is waited for."""
        selector, end = f"batch.kubernetes.io/job-name={name_of(job)}", time.monotonic() + GONE_WITHIN
        while True:
            pods = self.server.get(f"/api/v1/namespaces/{self.name}/pods", labelSelector=selector) or {}
            if all(at(pod, "status", "phase") in OVER for pod in mappings(pods.get("items"))):
                return True
            if time.monotonic() > end:
                return False
            self.sleep(PAUSE)

    def _look(self) -> tuple[Properties, Sequence[Properties]]:
        content = self.server.get(self._jobs) or {}
        jobs = mappings(content.get("items"))
        runner = next((job for job in jobs if name_of(job) == CLUSTER_RUN), None)
        if runner is None:
            raise RunError(f"namespace {self.name} has no Job {CLUSTER_RUN}: `pulumi up` makes it")
        return runner, [job for job in jobs if annotations_of(job).get(RUNS_ANNOTATION) == CLUSTER_RUN]

    def _at_places(self, mover: Properties) -> list[Properties]:
        """The Jobs that ``mover`` lets run; none where it is the Job of a step with one place."""
        moves = _moves_of(mover)
        if not moves:
            return []
        plan = self.server.get(self._config_map(moves["plan"])) or {}
        names = mapping(mapping(json.loads(text(at(plan, "data", "plan.json")) or "{}")).get("jobs"))
        jobs = mappings((self.server.get(self._jobs) or {}).get("items"))
        # A place that is no more may run yet, where an `up` was interrupted.
        return [job for job in jobs if name_of(job) in names or _mover_of(job) == name_of(mover)]

    def _make_places_anew(self, mover: Properties) -> Iterator[str]:
        """Makes the Jobs anew that ``mover`` let run and that failed, and no attempt of them is noted any more."""
        failed = [job for job in self._at_places(mover) if _has_failed(job)]
        for job in failed:
            self._make_anew(job, suspend=True)
            yield f"{name_of(job)}: runs again, since it failed"
        if failed:
            # They are the attempts that the last `up` declared.
            noted = {"data": dict.fromkeys(map(name_of, failed))}
            self.server.send("PATCH", self._config_map(_moves_of(mover)["notes"]), noted, MERGE)

    def _forget_starts(self, jobs: Iterable[Properties]) -> None:
        """Lets the time limit of each Job that is held count anew once it goes on.

        The Job controller looks at the limit before it notes the new start: a Job that was held for longer than
        its limit would fail at once (Kubernetes 1.34.4, seen November 2026).
        """
        for job in jobs:
            if _is_suspended(job) and not _is_over(job) and at(job, "status", "startTime"):
                self.server.send("PATCH", f"{self._path(job)}/status", {"status": {"startTime": None}}, MERGE)

    def _suspend(
        self, job: Properties, *, value: bool, annotations: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        metadata = {"metadata": {"annotations": {**annotations}}} if annotations else {}
        self.server.send("PATCH", self._path(job), {**metadata, "spec": {"suspend": value}}, MERGE)

    def _make_anew(self, job: Properties, *, suspend: bool) -> None:
        """Deletes the Job and creates it as it was declared.

        Where this is interrupted between the two, `pulumi up --refresh` does the second.
        """
        manifest = as_declared(job, suspend=suspend)
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid_of(job)}}
        self.server.send("DELETE", self._path(job), options)
        end = time.monotonic() + GONE_WITHIN
        while self.server.get(self._path(job)) is not None:
            if time.monotonic() > end:
                raise RunError(
                    f"Job {name_of(job)} is being deleted, and does not go: `pulumi up --refresh` later"
                )
            self.sleep(PAUSE)
        self.server.send("POST", self._jobs, manifest)

    def _config_map(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.name}/configmaps/{name}"

    def _path(self, job: Properties) -> str:
        return f"{self._jobs}/{name_of(job)}"

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.name}/jobs"


def as_declared(job: Properties, *, suspend: bool) -> dict[str, Any]:
    """The manifest of a Job like ``job``, without what the API server has added."""
    metadata, spec = mapping(job.get("metadata")), mapping(job.get("spec"))
    pod = mapping(spec.get("template"))
    pod_metadata = mapping(pod.get("metadata"))
    pod_labels = mapping(pod_metadata.get("labels")).items()
    labels = {key: value for key, value in pod_labels if key not in CONTROLLER_LABELS}
    kept = {key: value for key, value in spec.items() if key != "selector"}
    template = {**pod, "metadata": {"labels": labels, "annotations": mapping(pod_metadata.get("annotations"))}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {key: metadata[key] for key in KEPT if key in metadata},
        "spec": {**kept, "template": template, "suspend": suspend},
    }


def _option(job: Properties, name: str) -> str:
    """The value of an option of the Job's program; empty where it has none."""
    containers = mappings(at(job, "spec", "template", "spec", "containers"))
    words = [word for container in containers for word in texts(container.get("args"))]
    return words[words.index(name) + 1] if name in words else ""


def _moves_of(job: Properties) -> dict[str, Any]:
    """What the Job of a step with places says of it; empty for other Jobs."""
    return json.loads(annotations_of(job).get(MOVES_ANNOTATION, "{}"))


def _mover_of(job: Properties) -> str:
    """The Job that moves the step that ``job`` runs at one of its places; empty for other Jobs."""
    return text(json.loads(annotations_of(job).get(PLACE_ANNOTATION, "{}")).get("of"))


def _has_failed(job: Properties) -> bool:
    return bool(holds(conditions(job), "Failed"))


def _is_over(job: Properties) -> bool:
    return any(holds(conditions(job), kind) for kind in ("Complete", "Failed"))


def _is_suspended(job: Properties) -> bool:
    return at(job, "spec", "suspend") is True


def act_on_runs(
    stack: str, kubeconfig: Path | None, context: str, act: Callable[[Namespace], Iterator[str]]
) -> Exit:
    """Does ``act`` in each namespace of the stack with such Jobs, and prints its lines."""
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        plan = load_plan(stack)
        clusters = Clusters(stack, {place.name: place for place in plan.places}, kubeconfig, context or None)
        for cluster, namespace in runners(plan).items():
            for line in act(Namespace(clusters.server(cluster), namespace)):
                print(line, flush=True)
    except (RunError, WatchError, PlanError, AccessError, UnreadableError) as error:
        report_error(explain(error) if isinstance(error, UnreadableError) else error)
        return Exit.FAILED
    return Exit.DONE


KEPT_OF_STEP = (
    "what it has saved in its output stays, and the next `pulumi up` starts it again from there; one that waits "
    "for it now does not see this: end that with Ctrl-C"
)


def stop_step(stack: str, name: str, kubeconfig: Path | None, context: str) -> Exit:
    """Stops the step that ``name`` means, and says what is kept."""
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        plan = load_plan(stack)
        step = choose(name, plan)
        clusters = Clusters(stack, {place.name: place for place in plan.places}, kubeconfig, context or None)
        for line in Namespace(clusters.server(step.cluster), step.namespace).stop_step(step.job):
            print(line, flush=True)
        for other in (*step.places, *step.probes):
            if other.cluster != step.cluster:
                for line in Namespace(clusters.server(other.cluster), other.namespace).hold_place(other.job):
                    print(line, flush=True)
        print(f"{step.name}: {KEPT_OF_STEP}")
    except (RunError, WatchError, PlanError, AccessError, UnreadableError) as error:
        report_error(explain(error) if isinstance(error, UnreadableError) else error)
        return Exit.FAILED
    return Exit.DONE


def runners(plan: Plan) -> Mapping[str, str]:
    """The namespaces with Jobs that `up` does not wait for, by the cluster. Raises RunError without any."""
    namespaces = {step.cluster: step.namespace for step in plan.steps if step.pipeline == CLUSTER_RUN}
    if not namespaces:
        raise RunError(f"no pipeline of the stack {plan.stack} has `runs: cluster`: `pulumi up` itself runs them")
    return namespaces
