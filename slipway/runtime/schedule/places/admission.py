"""A Job in a queue of Kueue: who lets it run, and who takes it back. Standard library only, Python 3.9.

Kueue looks after a Job only while it has the label of its queue. So a Job is created without the label, suspended,
and is quiet by that alone. The mover lets it run by the label: Kueue makes a Workload of it, and unsuspends it
once there is quota for all of its pods. The mover takes it back by `spec.active` of the Workload, upon which Kueue
suspends the Job and frees the quota, and removes the label last. From then on Kueue changes nothing of it: what it
began is refused, since its patches of Jobs name the version that they saw.

`spec.active` alone is not enough. An admission that Kueue's scheduler began before it still lands, and starts the
Job until the next round takes it back (pkg/scheduler/scheduler.go and pkg/workload/patching/patching.go of
github.com/kubernetes-sigs/kueue, v0.19.2, November 2026; pkg/controller/jobframework/reconciler.go for the rest).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

QUEUE_ANNOTATION = "slipway/queue"
"""The annotation of a Job that is created suspended, with the LocalQueue whose label it gets to run."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

GROUP, VERSION, WORKLOADS = "kueue.x-k8s.io", "v1beta2", "workloads"

OTHER_FLAVOR = "doesn't match node affinity"
"""What Kueue says of each flavor that stands for other nodes than those of the place."""

MOST_WORDS = 160
"""Characters of why a Job waits in its queue."""


@dataclass(frozen=True)
class QueuedJob:
    """A Job with a queue. `labelled` says that Kueue looks after it, and `workload` is what Kueue made of it, None
    while it has not. `is_stopped` says that it is suspended, and that the Job controller has left it no pod.
    """

    queue: str
    labelled: bool
    is_stopped: bool
    workload: Mapping[str, Any] | None = None

    @property
    def is_inactive(self) -> bool:
        """Whether Kueue admits it no more, by the mover's will or since it gave up."""
        return self.workload is not None and self.workload["spec"].get("active", True) is False

    @property
    def holds_quota(self) -> bool:
        """Whether its queue counts it."""
        return self._is("QuotaReserved") and not self._is("Finished")

    @property
    def waits(self) -> str:
        """Why it does not run, in Kueue's words; empty where it may."""
        if not self.labelled or self._is("Admitted"):
            return ""
        if self.workload is None or self.is_inactive:
            return f"queue {self.queue}"
        words = self.checks if self.holds_quota else self._condition("QuotaReserved").get("message", "")
        parts = [part for part in words.rpartition(": ")[2].split(", ") if OTHER_FLAVOR not in part]
        return f"queue {self.queue}: {', '.join(parts)}"[:MOST_WORDS] if words else f"queue {self.queue}"

    @property
    def checks(self) -> str:
        """What is said of its admission checks, of a request for nodes for one."""
        checks: list[dict[str, str]] = (self.workload or {}).get("status", {}).get("admissionChecks") or []
        return "; ".join(text for check in checks if (text := check.get("message")))

    def _is(self, condition: str) -> bool:
        return self._condition(condition).get("status") == "True"

    def _condition(self, kind: str) -> Mapping[str, str]:
        conditions: list[dict[str, str]] = (self.workload or {}).get("status", {}).get("conditions") or []
        return next((entry for entry in conditions if entry["type"] == kind), dict[str, str]())


@dataclass(frozen=True)
class Change:
    """A merge patch that is due: of the Job, or of its `workload` by its name."""

    content: dict[str, Any]
    workload: str = ""


def queue_of(job: Mapping[str, Any]) -> str:
    """The queue of a Job; empty where it has none."""
    return str(job["metadata"].get("annotations", {}).get(QUEUE_ANNOTATION, ""))


def is_labelled(job: Mapping[str, Any]) -> bool:
    """Whether the Job has the label by which Kueue looks after it."""
    return QUEUE_LABEL in (job["metadata"].get("labels") or {})


def workload_of(job: Mapping[str, Any], workloads: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The Workload that Kueue made of the Job."""
    uid = job["metadata"]["uid"]
    return next(
        (
            workload
            for workload in workloads
            if any(owner["uid"] == uid for owner in workload["metadata"].get("ownerReferences", []))
        ),
        None,
    )


def release(job: QueuedJob) -> Change | None:
    """What lets Kueue run the Job; None where nothing is left to do."""
    if not job.labelled:
        return Change({"metadata": {"labels": {QUEUE_LABEL: job.queue}}})
    return _activate(job.workload, active=True) if job.is_inactive else None


def take_back(job: QueuedJob) -> Change | None:
    """The next step to a Job that Kueue lets run no more; None while Kueue has its turn."""
    if job.workload is None:
        # Kueue is about to make it, and it would be active.
        return None
    if not job.is_inactive:
        return _activate(job.workload, active=False)
    if job.holds_quota or not job.is_stopped:
        return None
    return Change({"metadata": {"labels": {QUEUE_LABEL: None}}})


def _activate(workload: Mapping[str, Any] | None, *, active: bool) -> Change:
    assert workload is not None
    metadata = workload["metadata"]
    content = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": {"active": active}}
    return Change(content, metadata["name"])
