"""The pods of one Job, from Pending to their end: on which node, with what, and what they print."""

import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Protocol

from infra.review.stack import Resource
from offline.engine.scheduling import PodRequest
from offline.policies.workloads import Workload
from offline.rehearsal import job_controller
from offline.rehearsal.cluster_objects import Namespace
from offline.rehearsal.disruption import EPOCH, Disruption
from offline.rehearsal.job_controller import JobSpec
from offline.rehearsal.job_records import JobRecord, Phase
from offline.rehearsal.kubelet import Kubelet, Pod, PodResult
from offline.rehearsal.pods import PodSpec
from offline.rehearsal.processes import Stop
from offline.rehearsal.scheduler import Neighbourhood, Placement, Scheduler
from offline.rehearsal.services import Services


class Machine(Protocol):
    """What the pods of all Jobs share: the engine of a rehearsal. Called from several threads."""

    scheduler: Scheduler
    services: Services

    def job_kubelet(self, record: JobRecord, namespace: Namespace) -> Kubelet:
        """What runs the pods of a Job."""
        ...

    def disruption(self, record: JobRecord, job: JobSpec) -> Disruption | None:
        """The eviction of one of the Job's pods; None where there is none to be."""
        ...

    def changed(self, record: JobRecord) -> None:
        """Something about the Job changed."""
        ...

    def note(self, record: JobRecord, text: str) -> None:
        """Something worth a line happened to the Job."""
        ...


GENERATION = re.compile(rb"^Generation (?P<number>\d+): .*\bprograms start\b")
"""What the launcher of a step's pods writes when all of these begin together (`workloads.runtime.launcher`)."""


@dataclass
class JobPods:
    """Runs the pods of one Job: of each index one after the other, those of several indexes side by side.

    ``hosts`` are patterns of what names a port of one of them, by its address on this machine.
    """

    engine: Machine
    resource: Resource
    job: JobSpec
    namespace: Namespace
    request: PodRequest
    record: JobRecord
    log: IO[bytes]
    hosts: Mapping[str, re.Pattern[str]] = field(default_factory=dict[str, re.Pattern[str]])
    uid: str = field(default_factory=job_controller.new_uid)
    _placed: list[Placement] = field(default_factory=list[Placement])
    _nodes: dict[str, None] = field(default_factory=dict[str, None])
    _telling: int | None = None
    """The index of the pod that tells of epochs: the lowest of those that do."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._disruption = self.engine.disruption(self.record, self.job)

    def run(self, number: int, index: int, stop: Stop) -> PodResult:
        """The pod of this index with this number, from 1, from Pending to its end."""
        record, engine, several = self.record, self.engine, self.job.workers > 1
        spec = job_controller.pod_of(self.job, self.uid, index)
        client = Workload(self.resource, self.job.cluster, self.job.template)
        reached = engine.services.reached_by(client, spec, self.namespace, stop)
        placement = self._place(index, spec, stop)
        unique = secrets.token_hex(3)[:5]
        name = f"{self.job.name[:52]}-{index}-{unique}" if several else f"{self.job.name[:57]}-{unique}"
        prefix = f"[{index}] ".encode() if several else b""
        self._write(prefix + f"# pod {name} on {placement.node_name}, attempt {number}\n".encode())
        disruption = self._disruption
        if disruption:
            disruption.starts(index, number, stop)

        def write(line: bytes) -> None:
            self._write(prefix + line)
            self._read(index, line)

        kubelet = engine.job_kubelet(record, self.namespace)
        try:
            addresses = {**reached, **self.hosts}
            result = kubelet.run(Pod(name, self.namespace, spec, placement, stop, write, addresses=addresses))
        finally:
            if disruption:
                disruption.ended(index)
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

    def _read(self, index: int, line: bytes) -> None:
        """Takes from a line of a pod what people are told while it runs."""
        match = EPOCH.match(line)
        # Those of a worker are epochs of one item after the other.
        tells = match is not None and (self.job.together or not self.job.indexed)
        began = GENERATION.match(line) if self.job.together else None
        with self._lock:
            if began is not None:
                self.record.generations = max(self.record.generations, int(began["number"]))
            tells = tells and (self._telling is None or index <= self._telling)
            if match is not None and tells:
                self._telling = index
                self.record.epochs = (int(match["done"]), int(match["all"]))
        if tells or began is not None:
            self.engine.changed(self.record)
        if self._disruption:
            self._disruption.wrote(index)
            if tells and self.record.epochs:
                self._disruption.trained(*self.record.epochs)

    def _place(self, index: int, spec: PodSpec, stop: Stop) -> Placement:
        record, engine = self.record, self.engine
        who = f"{self.job.who(index)} " if self.job.workers > 1 else ""
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
            neighbourhood=Neighbourhood(
                group=record.urn if spec.spreads else "",
                namespace=self.namespace.name,
                labels=spec.labels,
                apart=spec.apart,
                team=record.urn if self.job.together else "",
            ),
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
