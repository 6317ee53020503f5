"""The pods of one Job, from Pending to their end: on which node, with what, and what they print."""

import re
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import IO, Protocol

from infra.review.stack import Resource
from offline.engine.scheduling import PodRequest
from offline.policies.workloads import Workload
from offline.rehearsal import job_controller
from offline.rehearsal.cluster_objects import Namespace
from offline.rehearsal.job_controller import JobSpec
from offline.rehearsal.job_records import JobRecord, Phase
from offline.rehearsal.kubelet import Kubelet, Pod, PodResult
from offline.rehearsal.processes import Stop
from offline.rehearsal.scheduler import Placement, Scheduler
from offline.rehearsal.services import Services

EPOCH = re.compile(rb"^Epoch (?P<done>\d+)/(?P<all>\d+)\b")

EVICT_AFTER = 3
"""A pod that is to be disrupted is evicted after one in this many of its epochs."""

EVICT_WORKER_AFTER = 1.0
"""Seconds between the first line of a worker that is to be disrupted and its eviction."""


class Machine(Protocol):
    """What the pods of all Jobs share: the engine of a rehearsal. Called from several threads."""

    scheduler: Scheduler
    services: Services
    evicted: bool
    """Whether the pod that was to be disrupted was."""

    def job_kubelet(self, record: JobRecord, namespace: Namespace) -> Kubelet:
        """What runs the pods of a Job."""
        ...

    def disrupts(self, record: JobRecord) -> bool:
        """Whether the Job's first pod is to be evicted."""
        ...

    def changed(self, record: JobRecord) -> None:
        """Something about the Job changed."""
        ...

    def note(self, record: JobRecord, text: str) -> None:
        """Something worth a line happened to the Job."""
        ...


@dataclass
class JobPods:
    """Runs the pods of one Job: of each index one after the other, those of several indexes side by side."""

    engine: Machine
    resource: Resource
    job: JobSpec
    namespace: Namespace
    request: PodRequest
    record: JobRecord
    log: IO[bytes]
    uid: str = field(default_factory=job_controller.new_uid)
    _placed: list[Placement] = field(default_factory=list[Placement])
    _nodes: dict[str, None] = field(default_factory=dict[str, None])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, number: int, index: int, stop: Stop) -> PodResult:
        """The pod of this index with this number, from 1, from Pending to its end."""
        record, engine, several = self.record, self.engine, self.job.workers > 1
        spec = job_controller.pod_of(self.job, self.uid, index)
        client = Workload(self.resource, self.job.cluster, self.job.template)
        reached = engine.services.reached_by(client, spec, self.namespace, stop)
        placement = self._place(index, stop)
        unique = secrets.token_hex(3)[:5]
        name = f"{self.job.name[:52]}-{index}-{unique}" if several else f"{self.job.name[:57]}-{unique}"
        prefix = f"[{index}] ".encode() if several else b""
        self._write(prefix + f"# pod {name} on {placement.node_name}, attempt {number}\n".encode())
        evict = number == 1 and index == 0 and engine.disrupts(record)
        eviction = threading.Timer(EVICT_WORKER_AFTER, self._evict, [stop, f"worker {index} evicted"])
        eviction.daemon = True

        def write(line: bytes) -> None:
            self._write(prefix + line)
            if self.job.indexed:
                # Its epochs are those of one item after the other.
                if evict and eviction.ident is None:
                    eviction.start()
            elif match := EPOCH.match(line):
                record.epochs = (int(match["done"]), int(match["all"]))
                engine.changed(record)
                if evict and record.epochs[0] * EVICT_AFTER >= record.epochs[1] and not stop.requested:
                    self._evict(stop, f"pod evicted after epoch {record.epochs[0]}")

        kubelet = engine.job_kubelet(record, self.namespace)
        try:
            result = kubelet.run(Pod(name, self.namespace, spec, placement, stop, write, addresses=reached))
        finally:
            eviction.cancel()
            engine.scheduler.release(placement)
            with self._lock:
                self._placed.remove(placement)
        with self._lock:
            record.peak_memory = max(record.peak_memory, result.peak_memory)
        return result

    def _write(self, line: bytes) -> None:
        with self._lock:
            self.log.write(line)
            self.log.flush()

    def _evict(self, stop: Stop, what: str) -> None:
        """As an eviction through the Kubernetes API does; of a pod that has ended it says nothing."""
        if not stop.requested:
            self.engine.evicted = True
            stop.request("evicted", self.job.pod.grace_period)
            self.engine.note(self.record, f"{what} (DisruptionTarget)")

    def _place(self, index: int, stop: Stop) -> Placement:
        record, engine = self.record, self.engine
        who = f"worker {index} " if self.job.workers > 1 else ""
        began = time.time()
        with self._lock:
            waits = not self._placed
            if waits:
                record.phase = Phase.PENDING
        engine.changed(record)
        placement = engine.scheduler.place(
            self.request,
            lambda: stop.requested,
            lambda reason: engine.note(record, f"{who}Pending: {reason}"),
            group=record.urn if self.job.pod.spreads else "",
        )
        with self._lock:
            # The Job waits as long as none of its pods runs.
            if waits and not self._placed:
                record.pending += time.time() - began
            self._placed.append(placement)
            self._nodes[placement.node_name] = None
            record.phase = Phase.RUNNING
            record.pool, record.node = placement.node.pool, ", ".join(self._nodes)
            record.accelerator, record.allocatable = placement.node.accelerator or "", placement.node.allocatable
        engine.changed(record)
        return placement
