"""The Jobs of a step with places, as the Kubernetes API shows and changes them. Standard library only, Python 3.9.

Each place has a Job, and each but the last one a probe: a Job that asks for the same nodes and does nothing on
them. All are there, suspended. At any time one place at most may run, and one probe. A Job that is suspended loses
its pods, and another one is let run only when those of all others are gone.

A Job with a queue of Kueue has its label while it may run, and Kueue decides on `spec.suspend` (`admission.py`).

A pod of the mover may be replaced while it still runs, on a node that was lost. So each one writes its name on all
Jobs before the first change, and changes a Job only as it has seen it: an earlier pod's change is refused then.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from slipway.runtime.exits import OK, StepError
from slipway.runtime.kubernetes_api import ExistsError
from slipway.runtime.schedule.places import admission
from slipway.runtime.schedule.places.admission import Change, QueuedJob
from slipway.runtime.schedule.places.orders import FENCE, TTL
from slipway.runtime.schedule.places.shortages import shortage, shortage_of
from slipway.runtime.schedule.release import verdict
from slipway.runtime.schedule.run import NO_API, Cluster, of_pods, own_job

BETWEEN_EVENTS = 15.0
"""Seconds after which the events of the namespace are listed again."""

MESSAGE = 1000
"""Characters of an event's message; the API server takes 1,024 (pkg/apis/core/validation/events.go)."""

HOLDER_ANNOTATION = "slipway/holder"
"""The annotation of Jobs with the pod that may change them; `STOPPED` where none may.

`infra/kubernetes/labels.py` has both, too."""

STOPPED = ""
"""The holder of the Jobs of a step that somebody stopped, until a pod of its mover claims them."""

ORDERED = "ordered"
"""The key of the notes with the epoch of the mover, and the Jobs of other clusters of which pods may run."""

ATTEMPT_ANNOTATION = "slipway/attempt"
"""That of the pods of a Job with the number of its attempt, from 2 on (infra/kubernetes/job.py)."""

NO_SUCH = "answered 404"
"""What `Api` says of an object that is not there."""

KEEP = 60.0
"""Seconds after which the state is kept again where nothing but its counts changed."""

COUNTED = ("counted", "spent", "done", "saved", "queued")
"""Keys of the state that change all the time."""

LAST = "last"
"""The key of the notes with where the step was when it last ended."""

STATE = "state"
"""The key of the notes with where the step is on its way, and with its Jobs and their prices."""

ENDED = "ended"
"""The key of the notes with how a Job of the mover ended: its UID, the exit code, and why."""


@dataclass(frozen=True)
class PlannedPlace:
    """A place of the step: its pool, its Job, its probe (empty: none), and how many pods run there at once.

    `cluster` is the name of its cluster, empty for that of the mover.
    """

    pool: str
    job: str
    probe: str
    pods: int
    sure: bool
    price: float | None
    cluster: str = ""


@dataclass(frozen=True)
class Seen:
    """A Job now: whether it is suspended, and how many of its pods are there, have a node, and run.

    `outcome` is empty for one that is complete, the reason for one that failed, None for one that has not ended.
    `obeyed` says that the Job controller knows whether it is suspended: until then, it may still create pods.
    `given_up` says that Kueue no longer tries to run it, though it may.
    """

    suspended: bool
    pods: int
    on_nodes: int
    running: int
    outcome: str | None
    obeyed: bool = True
    given_up: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of it runs, nor will by itself."""
        return (self.outcome is not None or (self.suspended and self.obeyed)) and self.pods == 0


@dataclass(frozen=True)
class Ending:
    """How a Job of the mover ended: the exit code, and why."""

    code: int
    why: str


@dataclass
class PlaceJobs(Cluster):
    """The Jobs of the places of one step; `notes` is the ConfigMap in which the mover keeps what it knows.

    `holder` is the mover's pod, and `mover` the UID of its Job. `stopped` says that somebody had stopped the step
    when it claimed the Jobs. All methods raise StepError with NO_API, also where another pod moves the step by
    now.
    """

    places: Sequence[PlannedPlace] = ()
    notes: str = ""
    holder: str = ""
    mover: str = ""
    stopped: bool = False
    every: Sequence[str] = ()
    """The Jobs of the step at all pools of this cluster, places or not."""
    former: Sequence[str] = ()
    """Those at places that it no longer has, of which pods may be left."""
    gone: Sequence[str] = ()
    """The same in other clusters, whose programs end by themselves without orders."""
    now: Callable[[], float] = time.monotonic
    _versions: dict[str, str] = field(default_factory=dict[str, str])
    _uids: dict[str, str] = field(default_factory=dict[str, str])
    _due: dict[str, int] = field(default_factory=dict[str, int])
    _events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    _events_at: float | None = None
    _queued: dict[str, QueuedJob] = field(default_factory=dict[str, QueuedJob])
    _written: dict[str, Any] = field(default_factory=dict[str, Any])
    _kept_at: float | None = None
    _gone_until: float = 0.0

    @property
    def names(self) -> list[str]:
        """The names of all Jobs, probes included."""
        return [name for place in self.places for name in (place.job, place.probe) if name]

    def claim(self, holder: str) -> None:
        """From now on the pod `holder` changes the Jobs, and no other one does."""
        pods = {pod["metadata"]["name"]: pod["metadata"] for pod in self.pods(own_job(holder))}
        if holder not in pods:
            raise StepError(NO_API, f"pod {holder} is no more")
        self.holder, self.mover = holder, pods[holder]["ownerReferences"][0]["uid"]
        for name in self.names:
            annotations: dict[str, str] = self.job(name)["metadata"].get("annotations") or {}
            self.stopped = self.stopped or annotations.get(HOLDER_ANNOTATION) == STOPPED
            self._change(f"{self._jobs}/{name}", {"metadata": {"annotations": {HOLDER_ANNOTATION: holder}}})

    def look(self, name: str) -> Seen:
        """The Job of that name and its pods."""
        job = self.job(name)
        metadata = job["metadata"]
        holder = metadata.get("annotations", {}).get(HOLDER_ANNOTATION, "")
        if holder != self.holder:
            raise StepError(NO_API, f"pod {holder} moves the step now" if holder else f"Job {name} is another one")
        self._versions[name], self._uids[name] = metadata["resourceVersion"], metadata.get("uid", "")
        self._due[name] = _due(job)
        pods = self._pods_left(name)
        suspended = bool(job.get("spec", {}).get("suspend"))
        obeyed = _is_held(job) == suspended
        queued = self._look_at_queue(job, is_stopped=suspended and obeyed and not pods)
        if queued:
            self._queued[name] = queued
        return Seen(
            suspended and not (queued and queued.labelled),
            len(pods),
            sum(1 for pod in pods if pod.get("spec", {}).get("nodeName")),
            sum(1 for pod in pods if pod.get("status", {}).get("phase") == "Running"),
            verdict(job),
            obeyed,
            given_up=queued is not None and queued.is_inactive,
        )

    def _look_at_queue(self, job: Mapping[str, Any], *, is_stopped: bool) -> QueuedJob | None:
        name, labelled = admission.queue_of(job), admission.is_labelled(job)
        if not name:
            return None
        if not labelled:
            return QueuedJob(name, labelled, is_stopped)
        workloads = self._persist(lambda: self.api.items(self._workloads))
        return QueuedJob(name, labelled, is_stopped, admission.workload_of(job, workloads))

    @property
    def _workloads(self) -> str:
        return f"/apis/{admission.GROUP}/{admission.VERSION}/namespaces/{self.namespace}/{admission.WORKLOADS}"

    def _pods_left(self, name: str) -> list[dict[str, Any]]:
        return [
            pod for pod in self.pods(name) if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def uid(self, name: str) -> str:
        """The UID of the Job, as it was last looked at."""
        return self._uids[name]

    def suspend(self, name: str, suspended: bool) -> None:
        """Let the Job run, or take its pods from it, unless it has changed since the last look."""
        queued = self._queued.get(name)
        if queued and (queued.labelled or not suspended):
            change = admission.take_back(queued) if suspended else admission.release(queued)
        else:
            change = Change({"spec": {"suspend": suspended}})
        if change and change.workload:
            self._change(f"{self._workloads}/{change.workload}", change.content)
        elif change:
            content = dict(change.content)
            content["metadata"] = {**content.get("metadata", {}), "resourceVersion": self._versions[name]}
            self._change(f"{self._jobs}/{name}", content)

    def _change(self, path: str, changes: dict[str, Any]) -> None:
        def change() -> dict[str, Any]:
            try:
                return self.api.patch(path, changes)
            except ExistsError:
                # It is looked at again.
                return {}

        self._persist(change)

    def waits(self, name: str) -> str:
        """Why the queue of the Job does not let it run, as of the last look; empty where it does, or has none."""
        queued = self._queued.get(name)
        return queued.waits if queued else ""

    def stockout(self, name: str) -> str:
        """Why the pods of the Job get no node, in the autoscaler's words; empty where it says nothing of that."""
        queued = self._queued.get(name)
        if queued and queued.waits:
            return shortage(queued.checks)
        path = f"/api/v1/namespaces/{self.namespace}/events"
        if self._events_at is None or self.now() - self._events_at >= BETWEEN_EVENTS:
            self._events, self._events_at = self._persist(lambda: self.api.items(path)), self.now()
        return shortage_of(self.pods(name), self._events)

    def tell(self, sentence: str) -> None:
        """Write the sentence as an event of the mover's Job: `pulumi up` shows warnings of what it waits for.

        Source: provider/pkg/await/watchers.go of pulumi-kubernetes 4.32.0, `NewEventAggregator`.
        """
        job = own_job(self.holder)
        now = datetime.now(timezone.utc)  # noqa: UP017
        event = {
            "metadata": {"name": f"{job}.{time.time_ns():x}"},
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": self.namespace,
                "name": job,
                "uid": self.mover,
            },
            "type": "Warning",
            "reason": "Places",
            "message": sentence[:MESSAGE],
            "source": {"component": "slipway"},
            "count": 1,
            "firstTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "lastTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        }
        # Nothing is moved by it: where the API refuses, the sentence is in the log and in the notes.
        with contextlib.suppress(OSError, ExistsError):
            self.api.create(f"/api/v1/namespaces/{self.namespace}/events", event)

    def why(self, name: str) -> str:
        """How the first pod of the Job that failed ended; empty where none did."""
        code, words = of_pods(self.pods(name))
        return f"exit code {code}: {words}" if code is not None else ""

    def due(self, name: str) -> int:
        """The number of the attempt that is due of the Job once the step has failed, as of the last look.

        It is 0 for one that was never let run.

        A Job that is let run again more than its time limit after its last beginning fails at once: the controller
        looks at the time before it begins to count anew (seen with Kubernetes 1.34.4).
        """
        return self._due[name]

    def read(self) -> tuple[dict[str, Any], Ending | None]:
        """The state that was kept last, and how this Job of the mover ended.

        The state is empty where none was kept, or an earlier Job ended with it.
        """
        data = self._read_notes()
        self._leave(data)
        return self._kept(data)

    def _leave(self, data: Mapping[str, str], known: Collection[str] = ()) -> None:
        """Take note of Jobs in other clusters, none of those ``known``, at places that the step no longer has."""
        ordered: dict[str, Any] = json.loads(data.get(ORDERED, "{}"))
        self.gone = [name for name in ordered.get("busy", ()) if name not in known]
        self._gone_until = self.now() + TTL + FENCE

    def _keep_ordered(self) -> None:
        """Note which Jobs of other clusters may have pods that run: none."""
        self._note({ORDERED: None})

    def _has_left(self) -> bool:
        """Whether nothing runs, nor will, at places that the step no longer has."""
        if self.gone and self.now() >= self._gone_until:
            self.gone = ()
            self._keep_ordered()
        return self._stop_former() and not self.gone

    def _read_notes(self) -> dict[str, str]:
        notes = self.config_map(self.notes)
        self._versions[self.notes] = notes["metadata"]["resourceVersion"]
        data: dict[str, str] = notes.get("data") or {}
        return data

    def _kept(self, data: Mapping[str, str]) -> tuple[dict[str, Any], Ending | None]:
        ended: dict[str, Any] = json.loads(data.get(ENDED, "{}"))
        if not ended:
            return json.loads(data.get(STATE, "{}")), None
        return {}, Ending(ended["code"], ended["why"]) if ended["mover"] == self.mover else None

    def keep(self, state: Mapping[str, Any], **more: str) -> None:
        """Keep the state and `more` keys beside it, where that is due."""
        due = self._kept_at is None or self.now() - self._kept_at >= KEEP
        whereabouts = {key: value for key, value in state.items() if key not in COUNTED} | more
        if due or whereabouts != self._written:
            self._note({STATE: json.dumps(state, sort_keys=True), ENDED: None, **more})
            self._kept_at, self._written = self.now(), whereabouts

    def end(self, state: Mapping[str, Any], ending: Ending, **more: str) -> None:
        """Keep the way that the step took, and that the mover ended: its next Job begins anew."""
        ended = {"mover": self.mover, "code": ending.code, "why": ending.why}
        # A step that was done before keeps the way that it took then.
        way = {LAST: json.dumps(state, sort_keys=True)} if ending.code != OK or any(state["spent"]) else {}
        self._note({ENDED: json.dumps(ended), **way, **more})

    def _note(self, data: Mapping[str, str | None]) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{self.notes}"
        content = {"metadata": {"resourceVersion": self._versions[self.notes]}, "data": dict(data)}

        def note() -> dict[str, Any]:
            try:
                return self.api.patch(path, content)
            except ExistsError as error:
                raise StepError(NO_API, f"ConfigMap {self.notes} was changed by another one") from error

        self._versions[self.notes] = self._persist(note)["metadata"]["resourceVersion"]

    def finish(self, ending: Ending) -> None:
        """Tell others that the mover has ended, where there are any."""

    def settle(self, wanted: Sequence[str], *, may_run: bool = True) -> dict[str, Seen]:
        """Suspend all Jobs but the `wanted` ones, and let these run once no pod of another is left.

        Once the Job of a place has ended, none is let run, nor without `may_run`. Returns what each Job is now, by
        its name. Safe to repeat: what a lost mover began goes on.
        """
        may_run = self._has_left() and may_run
        seen = {name: self.look(name) for name in self.names}
        for name, job in seen.items():
            # Before the Job controller knows that it may run, it would not notice that it may no more.
            if name not in wanted and not job.suspended and job.obeyed and job.outcome is None:
                self.suspend(name, True)
        jobs = {place.job for place in self.places if place.job in seen}
        if any(seen[name].outcome is not None for name in jobs):
            return seen
        free = may_run and all(seen[name].is_quiet for name in jobs if name not in wanted)
        for name in (name for name in wanted if name in seen):
            is_due = seen[name].outcome is None and (seen[name].suspended or seen[name].given_up)
            if is_due and (free or name not in jobs):
                self.suspend(name, False)
        return seen

    def _stop_former(self) -> bool:
        """Suspend the Jobs of places that the step no longer has: an update deletes them once the mover has ended.

        Returns whether nothing of them runs, nor will.
        """
        are_quiet = True
        for name in filter(self._claim_former, self.former):
            job = self.look(name)
            if not job.suspended and job.obeyed and job.outcome is None:
                self.suspend(name, True)
            are_quiet = are_quiet and job.is_quiet
        return are_quiet

    def _claim_former(self, name: str) -> bool:
        """Whether the Job is there; from now on only this pod changes it."""
        changes = {"metadata": {"annotations": {HOLDER_ANNOTATION: self.holder}}}

        def claim() -> dict[str, Any]:
            try:
                return self.api.patch(f"{self._jobs}/{name}", changes)
            except OSError as error:
                if NO_SUCH in str(error):
                    return {}
                raise

        return bool(self._persist(claim))


def _due(job: Mapping[str, Any]) -> int:
    if verdict(job) is None and not job.get("status", {}).get("startTime"):
        return 0
    annotations: dict[str, str] = job["spec"]["template"].get("metadata", {}).get("annotations") or {}
    return int(annotations.get(ATTEMPT_ANNOTATION, 1)) + 1


def _is_held(job: Mapping[str, Any]) -> bool | None:
    """Whether the Job controller holds it back; None while it has not said so."""
    conditions: list[dict[str, str]] = job.get("status", {}).get("conditions") or []
    return next((entry["status"] == "True" for entry in conditions if entry["type"] == "Suspended"), None)


def read_places(plan: Mapping[str, Any]) -> list[PlannedPlace]:
    """The places of a plan, in their order."""
    return [PlannedPlace(**place) for place in plan["places"]]
