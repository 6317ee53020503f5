"""The Jobs of a step with places, as the Kubernetes API shows and changes them. Standard library only, Python 3.9.

Each place has a Job, and each but the last one a probe: a Job that asks for the same nodes and does nothing on
them. All are there, suspended. At any time one place at most may run, and one probe. A Job that is suspended loses
its pods, and another one is let run only when those of all others are gone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipway.workloads.runtime.exits import StepError
from slipway.workloads.schedule.release import verdict
from slipway.workloads.schedule.run import NO_API, Cluster, of_pods

NO_NODES = ("FailedScaleUp", "NotTriggerScaleUp")
"""Reasons of events by which the Cluster Autoscaler says that a pod gets no node (cluster-autoscaler,
processors/status/eventing_scale_up_processor.go, seen November 2026)."""

STOCKOUT_WORDS = (
    "out of resources",
    "stockout",
    "resource_pool_exhausted",
    "insufficientinstancecapacity",
    "in backoff",
)
"""What the messages of such events have where the cloud has no such machine now, in lower case: Compute Engine's
`ZONE_RESOURCE_POOL_EXHAUSTED` and EC2's `InsufficientInstanceCapacity`, and the autoscaler's pause after one."""

HOLDER = "holder"
"""The key of the notes with the pod that may let Jobs run."""

KEEP = 60.0
"""Seconds after which the state is kept again where nothing but its counts changed."""

COUNTED = ("counted", "spent", "done", "saved")
"""Keys of the state that change all the time."""

LAST = "last"
"""The key of the notes with where the step was when it last ended."""

STATE = "state"
"""The key of the notes with where the step is on its way."""


@dataclass(frozen=True)
class PlannedPlace:
    """A place of the step: its pool, its Job, its probe (empty: none), and how many pods run there at once."""

    pool: str
    job: str
    probe: str
    pods: int
    sure: bool
    price: float | None


@dataclass(frozen=True)
class Seen:
    """A Job now: whether it is suspended, and how many of its pods are there, have a node, and run.

    `outcome` is empty for one that is complete, the reason for one that failed, None for one that has not ended.
    """

    suspended: bool
    pods: int
    on_nodes: int
    running: int
    outcome: str | None

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of it runs, nor will by itself."""
        return (self.suspended or self.outcome is not None) and self.pods == 0


@dataclass
class PlaceJobs(Cluster):
    """The Jobs of the places of one step; `notes` is the ConfigMap in which the mover keeps what it knows.

    `attempts` are the numbers of the attempts that are due of Jobs that failed. All methods raise StepError with
    NO_API.
    """

    places: Sequence[PlannedPlace] = ()
    notes: str = ""
    holder: str = ""
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    now: Callable[[], float] = time.monotonic
    _written: dict[str, Any] = field(default_factory=dict[str, Any])
    _kept_at: float | None = None

    @property
    def names(self) -> list[str]:
        """The names of all Jobs, probes included."""
        return [name for place in self.places for name in (place.job, place.probe) if name]

    def look(self, name: str) -> Seen:
        """The Job of that name and its pods."""
        job = self.job(name)
        pods = [
            pod for pod in self.pods(name) if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]
        return Seen(
            bool(job.get("spec", {}).get("suspend")),
            len(pods),
            sum(1 for pod in pods if pod.get("spec", {}).get("nodeName")),
            sum(1 for pod in pods if pod.get("status", {}).get("phase") == "Running"),
            verdict(job),
        )

    def suspend(self, name: str, suspended: bool) -> None:
        """Let the Job run, or take its pods from it."""
        self._persist(lambda: self.api.patch(f"{self._jobs}/{name}", {"spec": {"suspend": suspended}}))

    def stockout(self, name: str) -> str:
        """Why the pods of the Job get no node, in the autoscaler's words; empty where it says nothing of that."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        events = self._persist(lambda: self.api.items(path))
        messages = [
            str(event.get("message", ""))
            for event in events
            if event.get("reason") in NO_NODES
            and str(event.get("involvedObject", {}).get("name", "")).startswith(f"{name}-")
        ]
        return next(
            (text for text in reversed(messages) if any(word in text.lower() for word in STOCKOUT_WORDS)), ""
        )

    def why(self, name: str) -> str:
        """How the first pod of the Job that failed ended; empty where none did."""
        code, words = of_pods(self.pods(name))
        return f"exit code {code}: {words}" if code is not None else ""

    def read(self) -> dict[str, Any]:
        """The state that was kept last; empty where none was."""
        data: dict[str, str] = self.config_map(self.notes).get("data") or {}
        self.attempts = {name: int(data[name]) for name in self.names if data.get(name, "").isdigit()}
        return json.loads(data.get(STATE, "{}"))

    def claim(self, holder: str) -> None:
        """From now on `holder`, a pod, lets Jobs run, and no other one does."""
        self.holder = holder
        self._note({HOLDER: holder})

    def keep(self, state: Mapping[str, Any], **more: str) -> None:
        """Keep the state and `more` keys beside it, where that is due."""
        due = self._kept_at is None or self.now() - self._kept_at >= KEEP
        whereabouts = {key: value for key, value in state.items() if key not in COUNTED} | more
        if due or whereabouts != self._written:
            self._note({STATE: json.dumps(state, sort_keys=True), **more})
            self._kept_at, self._written = self.now(), whereabouts

    def end(self, state: Mapping[str, Any], *, good: bool, **more: str) -> None:
        """Keep the way that the step took. After one that was not good the next one begins anew."""
        way = json.dumps(state, sort_keys=True)
        self._note({LAST: way, STATE: way if good else "{}", **more})

    def _note(self, data: Mapping[str, str]) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{self.notes}"
        self._persist(lambda: self.api.patch(path, {"data": dict(data)}))

    def _require_hold(self) -> None:
        data: dict[str, str] = self.config_map(self.notes).get("data") or {}
        if data.get(HOLDER) != self.holder:
            raise StepError(NO_API, f"pod {data.get(HOLDER)} moves the step now")

    def settle(self, wanted: Sequence[str]) -> dict[str, Seen]:
        """Suspend all Jobs but the `wanted` ones, and let these run once no pod of another is left.

        Returns what each Job is now, by its name. Safe to repeat: what a lost mover began goes on.
        """
        seen = {name: self.look(name) for name in self.names}
        for name, job in seen.items():
            if name not in wanted and not job.suspended and job.outcome is None:
                self.suspend(name, True)
        jobs = {place.job for place in self.places}
        others_quiet = all(job.is_quiet for name, job in seen.items() if name in jobs and name not in wanted)
        for name in wanted:
            if seen[name].suspended and seen[name].outcome is None and (others_quiet or name not in jobs):
                self._require_hold()
                self.suspend(name, False)
        return seen


def read_places(plan: Mapping[str, Any]) -> list[PlannedPlace]:
    """The places of a plan, in their order."""
    return [PlannedPlace(**place) for place in plan["places"]]
