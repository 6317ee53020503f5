"""A cluster as in `world`, in which Kueue lets the Jobs of a queue run.

What it keeps to of Kueue 0.19.2: its controllers act on what Jobs and Workloads were seconds ago. Patches of a
Job, and of a Workload where that is taken back, are refused where they changed since. An admission lands however
the Workload changed since, later than it was decided. Kueue ignores a Job without the label of a queue.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from slipway.runtime.kubernetes_api import ExistsError
from slipway.runtime.schedule.places.admission import QUEUE_ANNOTATION, QUEUE_LABEL
from tests.runtime.places.world import Job, World

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ml/workloads"


@dataclass
class Workload:
    """``versions`` are what it was, with the times since when; Kueue knows those up to ``seen_until``."""

    job: str
    content: dict[str, Any]
    versions: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    seen_until: float = 0.0


def is_true(content: dict[str, Any], condition: str) -> bool:
    return content["status"].get(condition) is True


@dataclass
class QueuedWorld(World):
    """``in_flight`` is how many seconds an admission lands after it was decided, at most. ``evicts`` is how likely
    Kueue takes an admitted Job back for another in a second, and ``gives_up`` that it tries no more then.
    ``is_full``: no quota is left.
    """

    in_flight: float = 3.0
    evicts: float = 0.0
    gives_up: float = 0.0
    is_full: bool = False
    workloads: dict[str, Workload] = field(default_factory=dict)
    landing: list[tuple[float, str]] = field(default_factory=list)
    seen_jobs: dict[str, float] = field(default_factory=dict)

    def _make(self, name: str, pool: str, *, is_probe: bool, attempt: int = 1) -> None:
        super()._make(name, pool, is_probe=is_probe, attempt=attempt)
        job = self.jobs[name]
        metadata = job.content["metadata"]
        metadata["uid"], metadata["labels"] = f"uid-{name}-{self._version()}", {}
        metadata["annotations"][QUEUE_ANNOTATION] = "q"
        job.versions = [(self.now, copy.deepcopy(job.content))]
        self.workloads.pop(name, None)

    def answer(self, method: str, path: str, content: dict[str, Any] | None, cluster: str = "") -> dict[str, Any]:
        if path.partition("?")[0] == WORKLOADS:
            return {"items": [as_api(workload.content) for workload in self.workloads.values()]}
        if path.startswith(f"{WORKLOADS}/"):
            assert method == "PATCH"
            assert content
            workload = self.workloads[path.removeprefix(f"{WORKLOADS}/")]
            self._merge(workload.content, content)
            self._workload_changed(workload)
            return as_api(workload.content)
        answer = super().answer(method, path, content, cluster)
        name = path.rpartition("/")[2]
        if content and name in self.jobs and "spec" in content:
            self.wrong.append(f"{self.now:.0f}: {name} is suspended, or not, beside Kueue")
        if content and content.get("metadata", {}).get("labels", {}).get(QUEUE_LABEL):
            self._check_release(self.jobs[name])
        return answer

    def _workload_changed(self, workload: Workload) -> None:
        workload.versions.append((self.now, copy.deepcopy(workload.content)))

    def _control(self, job: Job) -> None:
        super()._control(job)
        for at, name in list(self.landing):
            if at <= self.now:
                self.landing.remove((at, name))
                if name in self.workloads:
                    self._set(self.workloads[name], quota=True, evicted=False)
        workload = self.workloads.get(job.name)
        if workload is not None:
            self._schedule(job, workload)
            self._reconcile_workload(workload)
        self._reconcile_job(job)

    def _seen_job(self, job: Job) -> dict[str, Any]:
        """What Kueue knows of the Job."""
        seen_until = max(self.seen_jobs.get(job.name, 0.0), self.now - self.chance.random() * self.lag)
        self.seen_jobs[job.name] = seen_until
        known = [content for since, content in job.versions if since <= seen_until]
        return known[-1] if known else job.versions[0][1]

    def _seen(self, workload: Workload) -> dict[str, Any]:
        workload.seen_until = max(workload.seen_until, self.now - self.chance.random() * self.lag)
        known = [content for since, content in workload.versions if since <= workload.seen_until]
        return known[-1] if known else workload.versions[0][1]

    def _set(self, workload: Workload, seen: dict[str, Any] | None = None, **conditions: bool) -> None:
        """Changes the status; refused where it has changed since it was ``seen``."""
        metadata = workload.content["metadata"]
        if seen is not None and seen["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            return
        workload.content["status"].update(conditions)
        metadata["resourceVersion"] = self._version()
        self._workload_changed(workload)

    def _patch(self, job: Job, seen: dict[str, Any], *, suspend: bool) -> bool:
        try:
            version = {"resourceVersion": seen["metadata"]["resourceVersion"]}
            self._merge(job.content, {"metadata": version, "spec": {"suspend": suspend}})
        except ExistsError:
            return False
        self._changed(job)
        return True

    def _schedule(self, job: Job, workload: Workload) -> None:
        seen = self._seen(workload)
        is_free = not self.is_full and not any(
            is_true(other.content, "quota") and self.jobs[other.job].pool == job.pool
            for other in self.workloads.values()
            if other is not workload
        )
        waits = seen["spec"]["active"] and not is_true(seen, "quota") and not job.has_ended
        if waits and is_free and self.chance.random() < 0.3:
            self.landing.append((self.now + self.chance.random() * self.in_flight, job.name))
        elif is_true(seen, "quota") and self.chance.random() < self.evicts:
            self._set(workload, seen, evicted=True)
            if self.chance.random() < self.gives_up:
                workload.content["spec"]["active"] = False
                self._set(workload)

    def _reconcile_workload(self, workload: Workload) -> None:
        seen = self._seen(workload)
        if not seen["spec"]["active"] and not is_true(seen, "evicted"):
            self._set(workload, seen, evicted=True)

    def _reconcile_job(self, job: Job) -> None:
        seen = self._seen_job(job)
        if QUEUE_LABEL not in seen["metadata"]["labels"] or job.has_ended:
            return
        workload = self.workloads.get(job.name)
        if workload is None:
            owners = [{"uid": job.content["metadata"]["uid"]}]
            metadata = {"name": job.name, "resourceVersion": self._version(), "ownerReferences": owners}
            workload = Workload(job.name, {"metadata": metadata, "spec": {"active": True}, "status": {}})
            self.workloads[job.name] = workload
            self._workload_changed(workload)
            return
        of = self._seen(workload)
        suspended = seen["spec"]["suspend"]
        if is_true(of, "evicted"):
            if not suspended and not self._patch(job, seen, suspend=True):
                return
            if is_true(of, "quota") and not any(pod.job == job.name for pod in self.pods.values()):
                self._set(workload, of, quota=False)
        elif suspended and is_true(of, "quota"):
            self._patch(job, seen, suspend=False)
        elif not suspended and not is_true(of, "quota"):
            self._patch(job, seen, suspend=True)

    @property
    def is_quiet(self) -> bool:
        held = [job for job in self.jobs.values() if not job.has_ended]
        return super().is_quiet and not any(QUEUE_LABEL in job.content["metadata"]["labels"] for job in held)

    @property
    def quota_left(self) -> list[str]:
        """The Jobs that have quota though they may not run."""
        return [
            workload.job
            for workload in self.workloads.values()
            if is_true(workload.content, "quota") and not self.jobs[workload.job].has_ended
        ]


def as_api(content: dict[str, Any]) -> dict[str, Any]:
    """The Workload as the API server shows it."""
    quota, evicted = is_true(content, "quota"), is_true(content, "evicted")
    conditions = [
        {"type": kind, "status": str(value)}
        for kind, value in (("QuotaReserved", quota), ("Admitted", quota), ("Evicted", evicted))
    ]
    return {**copy.deepcopy(content), "status": {"conditions": conditions}}
