"""The engine of a rehearsal: it creates most resources at once, and Jobs by running them on this machine."""

import os
import re
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Protocol

from infra.kubernetes.labels import RUN_ANNOTATION, inputs_of
from infra.platform import Emulator
from infra.review.properties import strings
from infra.review.stack import JOB, Resource
from offline.engine.monitor import NotCreatedError, Observer
from offline.engine.scheduling import PodRequest, add
from offline.rehearsal import job_controller
from offline.rehearsal.admission import admit
from offline.rehearsal.api_server import ApiServer
from offline.rehearsal.cluster_objects import Namespace, Objects, RefusedError, cluster_of
from offline.rehearsal.containers import Containers
from offline.rehearsal.device_plugins import DevicePlugins
from offline.rehearsal.job_controller import JobSpec
from offline.rehearsal.job_records import JobRecord, Phase
from offline.rehearsal.kubelet import Kubelet, Pod, PodResult, Prepare
from offline.rehearsal.pods import PodSpec, UnsupportedError
from offline.rehearsal.processes import Reaper, Stop
from offline.rehearsal.result_integrity import Results
from offline.rehearsal.scheduler import CancelledError, Placement, Scheduler, UnschedulableError
from offline.rehearsal.service_accounts import mounts_token
from offline.rehearsal.service_records import ServiceRecord
from offline.rehearsal.services import Services, Surroundings
from offline.rehearsal.state import Place, State
from offline.rehearsal.stateful_sets import STATEFUL_SET

EPOCH = re.compile(rb"^Epoch (?P<done>\d+)/(?P<all>\d+)\b")

REPLACE_UNREADY = "pulumi.com/replaceUnready"
"""The annotation with which `pulumi up` runs a failed Job again instead of repeating its failure."""

EVICT_AFTER = 3
"""A pod that is to be disrupted is evicted after one in this many of its epochs."""

EVICT_WORKER_AFTER = 1.0
"""Seconds between the first line of a worker that is to be disrupted and its eviction."""

PODS = max(8, 4 * (os.cpu_count() or 1))
"""Pods that run at a time: the nodes of a stack may have room for more than this machine has memory for."""

PATIENCE = 10.0
"""Seconds that a Job gets to end by itself when the rehearsal is interrupted."""


class Display(Protocol):
    """Shows a rehearsal while it runs. Called from several threads."""

    def resource(self, resource: Resource) -> None:
        """``resource`` is created."""
        ...

    def job(self, record: JobRecord) -> None:
        """Something about the Job changed."""
        ...

    def service(self, record: ServiceRecord) -> None:
        """Something about the service changed."""
        ...

    def note(self, record: JobRecord | ServiceRecord, text: str) -> None:
        """Something worth a line happened to the Job or the service."""
        ...


@dataclass
class Engine(Observer):
    """Runs the Jobs of one evaluation."""

    place: Place
    state: State
    results: Results
    emulators: Sequence[Emulator]
    reaper: Reaper
    display: Display
    disrupt: str | None = None
    """Logical name, or its last part, of a Job whose pod is to be evicted once."""
    containers: Containers | None = None
    backoff: float = job_controller.BACKOFF
    scheduler: Scheduler = field(default_factory=lambda: Scheduler(most=PODS))
    objects: Objects = field(default_factory=Objects)
    plugins: DevicePlugins = field(default_factory=DevicePlugins)
    records: dict[str, JobRecord] = field(default_factory=dict[str, JobRecord])
    executed: set[str] = field(default_factory=set[str])
    """URNs of the Jobs that ran this time."""
    interrupted: bool = False
    evicted: bool = False
    """Whether the pod that was to be disrupted was."""
    _patience: float = PATIENCE
    _active: dict[str, Stop] = field(default_factory=dict[str, Stop])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.scheduler.no_devices = self.plugins.obstacle
        self.services = Services(
            Surroundings(
                self.place,
                self.objects,
                self.scheduler,
                self.request,
                self.kubelet,
                self.display.service,
                self.note,
            )
        )
        for emulator in self.emulators:
            self.scheduler.add(emulator.standing_nodes())
            for cluster, namespace in emulator.standing_namespaces():
                self.objects.stands(cluster, namespace)

    def interrupt(self, grace: float = PATIENCE) -> None:
        """Stops the running Jobs and starts no other. Safe in a signal handler; a second call cuts the grace.

        Services run until `close`, so that the Jobs that end can still reach them.
        """
        self.interrupted = True
        self._patience = min(self._patience, grace)
        for stop in list(self._active.values()):
            # From another thread: a signal handler must not wait for a lock that the code it interrupted holds.
            threading.Thread(target=stop.request, args=("interrupted", grace), daemon=True).start()

    def close(self) -> None:
        """Ends the services."""
        self.services.close(self._patience)

    def registering(self, resource: Resource) -> None:
        if resource.type == JOB:
            self._record(resource)
        try:
            self.objects.admit(resource)
            if resource.type == STATEFUL_SET:
                self.services.add(resource, lambda: self.interrupted)
        except (UnsupportedError, RefusedError, UnschedulableError) as error:
            raise NotCreatedError(str(error)) from error
        except CancelledError as error:
            raise NotCreatedError("the rehearsal was interrupted") from error

    def created(self, resource: Resource) -> None:
        self.objects.add(resource)
        self.plugins.add(resource)
        for emulator in self.emulators:
            if nodes := emulator.nodes(resource.type, resource.name, resource.inputs):
                self.scheduler.add(nodes)
        self.display.resource(resource)

    def failed(self, resource: Resource, reason: str) -> None:
        if resource.type == JOB and not (record := self._record(resource)).phase.over:
            self._finish(record, Phase.FAILED, reason)

    def skipped(self, resource: Resource, because: Resource) -> None:
        if resource.type == JOB:
            record = self._record(resource)
            record.phase = Phase.NOT_RUN
            record.reason = f"needs {because.name}"
            self.display.job(record)

    def run_job(self, resource: Resource) -> None:
        record = self._record(resource)
        record.identity = job_controller.identity(resource)
        if self._keep(resource, record):
            return
        stop = Stop()
        with self._lock:
            self._active[resource.urn] = stop
        try:
            if self.interrupted:
                raise self._ended(record, Phase.INTERRUPTED, "the rehearsal was interrupted")
            self._execute(resource, record, stop)
        finally:
            with self._lock:
                del self._active[resource.urn]

    def _keep(self, resource: Resource, record: JobRecord) -> bool:
        """Whether the Job need not run: it and its results are as they were when it last succeeded.

        Raises NotCreatedError where it failed for good.
        """
        replaced = any(urn in self.executed for urn in resource.replace_with)
        last = self.state.finished(resource.urn, record.identity)
        changed = self.results.changed(last.results) if last is not None else ""
        if changed:
            self.note(record, f"runs again: {changed}")
        if last is not None and not replaced and not changed:
            for key in vars(last).keys() - {"urn", "name"}:
                setattr(record, key, getattr(last, key))
            record.phase = Phase.UNCHANGED
            self.display.job(record)
            return True
        failed = self.state.failed(resource.urn, record.identity)
        annotations = strings(resource.metadata.get("annotations"))
        if failed is not None and not replaced and annotations.get(REPLACE_UNREADY) != "true":
            record.exit_code, record.message = failed.exit_code, failed.message
            raise self._ended(
                record,
                Phase.FAILED,
                f"{failed.reason} the last time; without the annotation {REPLACE_UNREADY} "
                "`pulumi up` repeats that instead of running the Job again",
            )
        return False

    def _execute(self, resource: Resource, record: JobRecord, stop: Stop) -> None:
        record.started = time.time()
        record.phase = Phase.PENDING
        self.executed.add(resource.urn)
        with self.place.log(resource.name).open("wb") as log:
            try:
                job = job_controller.job_spec(resource)
                pods = self._pods(job, record, log)
                self.display.job(record)
                result = job_controller.run(
                    job, stop, pods.run, lambda text: self.note(record, text), self.backoff
                )
            except (UnsupportedError, RefusedError, UnschedulableError) as error:
                log.write(f"{error}\n".encode())
                raise self._ended(record, Phase.FAILED, str(error)) from error
        record.attempts = result.attempts
        if result.pod is not None:
            record.exit_code, record.message = result.pod.exit_code, result.pod.message
        if result.succeeded:
            record.results = self.results.published(_directories(resource))
            self._finish(record, Phase.SUCCEEDED, "")
        elif result.reason == job_controller.INTERRUPTED:
            raise self._ended(record, Phase.INTERRUPTED, "the rehearsal was interrupted")
        else:
            raise self._ended(record, Phase.FAILED, f"{result.reason}: {result.message}")

    def _pods(self, job: JobSpec, record: JobRecord, log: IO[bytes]) -> "_Pods":
        namespace = Namespace(self.objects, job.cluster, job.namespace)
        request = self.request(job.cluster, job.pod)
        admit(namespace, job.template, job.pod, request.resources)
        if mounts_token(job.pod, namespace):
            self._require_devices(job.cluster)
        record.job_name, record.namespace, record.workers = job.name, job.namespace, job.workers
        record.requested, record.memory_limit = request.resources, job.pod.container.memory_limit
        return _Pods(self, job, namespace, request, record, log)

    def request(self, cluster: str, pod: PodSpec) -> PodRequest:
        """What of ``pod`` decides where it can go, with what a cloud injects."""
        injected = (each.injected(pod.annotations) for each in self.emulators)
        return PodRequest(cluster, pod.selector, pod.tolerations, add(pod.requests, *injected))

    def kubelet(self, namespace: Namespace, prepare: Prepare | None = None) -> Kubelet:
        """What runs pods of ``namespace``."""
        drivers = frozenset[str]().union(*(each.store_drivers for each in self.emulators))
        api = ApiServer(self.scheduler, namespace)
        return Kubelet(self.reaper, self.place.pods, self.place.store, drivers, api, prepare)

    def _require_devices(self, cluster: str) -> None:
        """Raises RefusedError where GPUs of the cluster's nodes can never be given to pods.

        All device plugins are declared by now, and a pod that reads the nodes would wait until its deadline.
        """
        reasons = [self.plugins.obstacle(node) for node in self.scheduler.nodes if node.cluster == cluster]
        if any(reasons):
            raise RefusedError("; ".join(filter(None, reasons)))

    def disrupts(self, record: JobRecord) -> bool:
        """Whether the Job's first pod is to be evicted; of several workers it is that of the first."""
        return self.disrupt is not None and (
            record.name == self.disrupt or record.name.endswith(f"-{self.disrupt}")
        )

    def _record(self, resource: Resource) -> JobRecord:
        with self._lock:
            if resource.urn not in self.records:
                record = JobRecord(urn=resource.urn, name=resource.name, cluster=cluster_of(resource))
                self.records[resource.urn] = record
            return self.records[resource.urn]

    def note(self, record: JobRecord | ServiceRecord, text: str) -> None:
        """Something worth a line happened to the Job or the service."""
        record.notes.append(text)
        self.display.note(record, text)

    def _finish(self, record: JobRecord, phase: Phase, reason: str) -> None:
        record.phase, record.reason, record.finished = phase, reason, time.time()
        if record.urn in self.executed:
            with self._lock:
                self.state.jobs[record.urn] = record
                self.state.save()
        self.display.job(record)

    def _ended(self, record: JobRecord, phase: Phase, reason: str) -> NotCreatedError:
        self._finish(record, phase, reason)
        return NotCreatedError(reason)


def _directories(job: Resource) -> list[str]:
    """The directories of the store with the result of ``job`` and with those that it reads."""
    annotations = strings(job.metadata.get("annotations"))
    own = [annotations[RUN_ANNOTATION]] if RUN_ANNOTATION in annotations else []
    return [*own, *inputs_of(annotations).values()]


@dataclass
class _Pods:
    """Runs the pods of one Job: of each index one after the other, those of several indexes side by side."""

    engine: Engine
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
        reached = engine.services.reached_by(spec, self.namespace, stop)
        placement = self._place(index, stop)
        unique = secrets.token_hex(3)[:5]
        name = f"{self.job.name[:52]}-{index}-{unique}" if several else f"{self.job.name[:57]}-{unique}"
        prefix = f"[{index}] ".encode() if several else b""
        self._write(prefix + f"# pod {name} on {placement.node_name}, attempt {number}\n".encode())
        evict = number == 1 and index == 0 and engine.disrupts(record)
        evicting = False

        def write(line: bytes) -> None:
            nonlocal evicting
            self._write(prefix + line)
            if several:
                if evict and not evicting:
                    evicting = True
                    timer = threading.Timer(EVICT_WORKER_AFTER, self._evict, [stop, "worker 0 evicted"])
                    timer.daemon = True
                    timer.start()
            elif match := EPOCH.match(line):
                record.epochs = (int(match["done"]), int(match["all"]))
                engine.display.job(record)
                if evict and record.epochs[0] * EVICT_AFTER >= record.epochs[1] and not stop.requested:
                    self._evict(stop, f"pod evicted after epoch {record.epochs[0]}")

        containers = engine.containers
        prepare = containers.of_job(record.name, lambda text: engine.note(record, text)) if containers else None
        kubelet = engine.kubelet(self.namespace, prepare)
        try:
            result = kubelet.run(Pod(name, self.namespace, spec, placement, stop, write, addresses=reached))
        finally:
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
        engine.display.job(record)
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
        engine.display.job(record)
        return placement
