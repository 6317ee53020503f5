"""The engine of a rehearsal: it creates most resources at once, and Jobs by running them on this machine."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Protocol

from slipway.engine.monitor import NotCreatedError, Observer
from slipway.engine.provider_outputs import namespace_of, object_name
from slipway.evaluated.paid import kept_parts
from slipway.evaluated.phrasing import duration
from slipway.evaluated.places import is_held, is_moved, is_probe
from slipway.evaluated.scheduling import PodRequest
from slipway.evaluated.workloads import STATEFUL_SET, Workload, section_of
from slipway.infra.commands import command
from slipway.infra.emulator import Emulator
from slipway.infra.features import parts
from slipway.infra.kubernetes.labels import NAME, RUN_ANNOTATION, RUNS_ANNOTATION, USAGE_ANNOTATION, inputs_of
from slipway.infra.pipelines.cuda import SUPPLEMENTS
from slipway.infra.placed import PACKAGES
from slipway.infra.platform import add
from slipway.infra.review.stack import JOB, Properties, Resource, at, strings, whole
from slipway.policies.pods import built_image
from slipway.rehearse import moves
from slipway.rehearse.beside import NOT_RUN
from slipway.rehearse.capacity import Capacity, Clock, Trace
from slipway.rehearse.cluster import job_controller
from slipway.rehearse.cluster.cluster_objects import (
    ApiServer,
    DevicePlugins,
    Namespace,
    Objects,
    RefusedError,
    cluster_of,
)
from slipway.rehearse.cluster.containers import Containers
from slipway.rehearse.cluster.job_controller import Disruption, JobResult, JobSpec, LinkedStop, Target, keep_apart
from slipway.rehearse.cluster.job_pods import JobPods, pod_addresses
from slipway.rehearse.cluster.kubelet import OOM_KILLED, Kubelet, Prepare
from slipway.rehearse.cluster.pods import PodSpec, UnsupportedError
from slipway.rehearse.cluster.quotas import Quotas, admit
from slipway.rehearse.cluster.scheduler import Scheduler, UnschedulableError
from slipway.rehearse.cluster.server_specs import app_of
from slipway.rehearse.cluster.services import Services, Surroundings
from slipway.rehearse.machine.processes import CancelledError, Reaper, Stop, as_declared, free_ports
from slipway.rehearse.state import JobRecord, Phase, Place, Results, ServiceRecord, State
from slipway.runtime.exits import BUDGET_SPENT, GPU_IDLE
from slipway.runtime.failures import explain, known
from slipway.runtime.usage.limits import Reached

REPLACE_UNREADY = "pulumi.com/replaceUnready"
"""The annotation with which `pulumi up` runs a failed Job again instead of repeating its failure."""

PODS = max(8, 4 * (os.cpu_count() or 1))
"""Pods that run at a time: the nodes of a stack may have room for more than this machine has memory for."""

PATIENCE = 10.0
"""Seconds that a Job gets to end by itself when the rehearsal is interrupted."""

NOTHING = (
    "warning: its program ended well and wrote nothing into its output, so its result has no files. One that "
    'writes where it starts needs `directory: "{output}"`, one with a path built in a mount: '
    '`mounts: {/data: "{output}"}`'
)

LISTENS = (
    "warning: what it runs may listen on all addresses of this machine, and who reaches these may connect: "
    "nothing here can keep it to loopback (that takes Linux 5.9 and seccomp)"
)


class Display(Protocol):
    """Shows a rehearsal while it runs. Called from several threads."""

    def resource(self, resource: Resource) -> None:
        """``resource`` is created."""
        ...

    def job(self, record: JobRecord) -> None:
        """Something about the Job changed."""
        ...

    def service(self, record: ServiceRecord) -> None:
        """Something about the service or app changed."""
        ...

    def note(self, record: JobRecord | ServiceRecord, text: str) -> None:
        """Something worth a line happened to the Job, the service or the app."""
        ...


class Recorder(Protocol):
    """Keeps what is to be known of Jobs that ended well: `slipway.infra.features` says who makes one."""

    def add(self, job: Resource, record: JobRecord, objects: Objects) -> None:
        """``job`` ended well; ``objects`` are those that its cluster has."""
        ...


@dataclass
class Engine(Observer):
    """Runs the Jobs of one evaluation."""

    waits = True

    place: Place
    state: State
    results: Results
    emulators: Sequence[Emulator]
    reaper: Reaper
    display: Display
    disrupt: Target | None = None
    """The pod that is to be evicted once."""
    containers: Containers | None = None
    keeps: bool = False
    """Whether the apps stay when the Jobs are through. They then have their own ports where these are free."""
    is_beside: Callable[[Resource], bool] = lambda _: False
    """Whether the program declares a resource beside `slipway.run`."""
    recorders: Sequence[Recorder] = ()
    pipelines: Properties = field(default_factory=dict[str, object])
    """The section `slipway:pipelines` of the stack file."""
    capacity: Capacity | None = None
    """How many nodes pools have, where a trace says it."""
    scheduler: Scheduler = field(default_factory=lambda: Scheduler(most=PODS))
    objects: Objects = field(default_factory=Objects)
    quotas: Quotas = field(default_factory=Quotas)
    plugins: DevicePlugins = field(default_factory=DevicePlugins)
    records: dict[str, JobRecord] = field(default_factory=dict[str, JobRecord])
    executed: set[str] = field(default_factory=set[str])
    """URNs of the Jobs that ran this time."""
    interrupted: bool = False
    evicted: bool = False
    """Whether the pod that was to be disrupted was."""
    _patience: float = PATIENCE
    _closing: bool = False
    _listening: set[str] = field(default_factory=set[str])
    _active: dict[str, Stop] = field(default_factory=dict[str, Stop])
    _held: dict[tuple[str, str], Resource] = field(default_factory=dict[tuple[str, str], Resource])
    """The Jobs that a mover lets run, by cluster and name."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.scheduler.no_devices = self.plugins.obstacle
        self.services = Services(
            Surroundings(
                self.place,
                self.objects,
                self.scheduler,
                self.request,
                self._service_kubelet,
                self.containers.instead_of if self.containers else lambda _, pod: pod,
                self.display.service,
                self.note,
                as_declared if self.keeps else lambda wanted: free_ports(len(wanted)),
            )
        )
        for emulator in self.emulators:
            self.scheduler.add(emulator.standing_nodes())
            for cluster, namespace in emulator.standing_namespaces():
                self.objects.stands(cluster, namespace)

    @property
    def speed(self) -> float:
        """Seconds of a cluster that pass in one second of a pause here."""
        return self.capacity.clock.speed if self.capacity else job_controller.SPEED

    def follow(self, trace: Trace | None) -> None:
        """Gives pools the nodes that the ``trace`` says, from now on."""
        if trace is not None:
            self.capacity = capacity = Capacity(trace, Clock(trace.speed))
            self.scheduler.capacity, capacity.take_back = capacity.nodes, self.scheduler.take_back

    def interrupt(self, grace: float = PATIENCE) -> None:
        """Stops the running Jobs and starts no other. Safe in a signal handler; a second call cuts the grace.

        Services and apps run until `close`, so that the Jobs that end can still reach them.
        """
        self.interrupted = True
        self._patience = min(self._patience, grace)
        # From another thread: a signal handler must not wait for a lock that the code it interrupted holds.
        for stop in list(self._active.values()):
            threading.Thread(target=stop.request, args=("interrupted", grace), daemon=True).start()
        if self._closing:
            threading.Thread(target=self.services.end, args=(grace,), daemon=True).start()

    def close(self) -> None:
        """Ends the services and apps."""
        self._closing = True
        self.services.close(self._patience)

    def registering(self, resource: Resource) -> None:
        if resource.type == JOB and not is_held(resource):
            self._record(resource)
        if self.is_beside(resource):
            # Its cluster may have namespaces and accounts of which nothing here knows.
            return
        try:
            self.objects.admit(resource)
            if resource.type == STATEFUL_SET or app_of(resource):
                self._add_server(resource)
        except (UnsupportedError, RefusedError, UnschedulableError) as error:
            raise NotCreatedError(str(error)) from error
        except CancelledError as error:
            raise NotCreatedError("the rehearsal was interrupted") from error

    def _add_server(self, resource: Resource) -> None:
        """Adds a service or an app; an app is ready when this returns. It may raise what `Services.add` raises."""
        with self._stoppable(resource) as stop:
            if self.interrupted:
                raise CancelledError
            self.services.add(resource, stop)

    def created(self, resource: Resource) -> None:
        self.objects.add(resource)
        self.plugins.add(resource)
        # A node pool of the project's own brings nodes for pods that do not run here. It may lack inputs that the
        # emulators expect.
        with contextlib.suppress(LookupError) if self.is_beside(resource) else contextlib.nullcontext():
            for emulator in self.emulators:
                if nodes := emulator.nodes(resource.type, resource.name, resource.inputs):
                    self.scheduler.add(nodes)
        self.display.resource(resource)

    def failed(self, resource: Resource, reason: str) -> None:
        if is_held(resource):
            return
        if resource.type == JOB and not (record := self._record(resource)).phase.over:
            self._finish(record, Phase.FAILED, reason)

    def skipped(self, resource: Resource, because: Resource) -> None:
        if resource.type == JOB and not is_held(resource):
            record = self._record(resource)
            record.phase = Phase.NOT_RUN
            record.reason = f"needs {because.name}"
            self.display.job(record)

    def run_job(self, resource: Resource) -> None:
        if is_held(resource):
            self._held[cluster_of(resource), object_name(resource)] = resource
            return
        record = self._record(resource)
        if self.is_beside(resource):
            record.started = time.time()
            self._finish(record, Phase.SKIPPED, NOT_RUN)
            return
        record.identity = job_controller.identity(resource)
        if self._keep(resource, record):
            return
        if image := built_image(resource):
            self.note(record, f"not built here: what runs in the image of {image.name} runs what this machine has")
            record.started = time.time()
            self._finish(record, Phase.SKIPPED, "a rehearsal builds no image")
            return
        with self._stoppable(resource) as stop:
            if self.interrupted:
                raise self._end_job(record, Phase.INTERRUPTED, "the rehearsal was interrupted")
            self._execute(resource, record, stop)

    @contextlib.contextmanager
    def _stoppable(self, resource: Resource) -> Generator[Stop]:
        """What ends the pods of ``resource`` when the rehearsal is interrupted meanwhile."""
        stop = Stop()
        with self._lock:
            self._active[resource.urn] = stop
        try:
            yield stop
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
        again = annotations.get(REPLACE_UNREADY) == "true" or RUNS_ANNOTATION in annotations
        if failed is not None and not replaced and not again:
            record.exit_code, record.message = failed.exit_code, failed.message
            raise self._end_job(
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
        try:
            with self.place.log(resource.name).open("wb") as log:
                try:
                    result = (
                        self._move(resource, record, log, stop)
                        if is_moved(resource)
                        else self._run_alone(resource, record, log, stop)
                    )
                except (UnsupportedError, RefusedError, UnschedulableError) as error:
                    log.write(f"{error}\n".encode())
                    raise self._end_job(record, Phase.FAILED, str(error)) from error
        except CancelledError as error:
            raise self._end_job(record, Phase.INTERRUPTED, "the rehearsal was interrupted") from error
        except OSError as error:
            why = f"{error.filename or 'this machine'}: {error.strerror}"
            raise self._end_job(record, Phase.FAILED, why) from error
        record.index = result.index
        if result.pod is not None:
            record.exit_code, record.message = result.pod.exit_code, result.pod.message
        if result.succeeded:
            record.results = self.results.published(_directories(resource))
            annotations = strings(resource.metadata.get("annotations"))
            if USAGE_ANNOTATION in annotations:
                record.parts = kept_parts(self.place.store / annotations[USAGE_ANNOTATION])
            directory = annotations.get(RUN_ANNOTATION)
            # Packages are in an environment of this machine, and a CPU lacks no libraries of a GPU.
            ours = (PACKAGES, *SUPPLEMENTS)
            if directory and directory.partition("/")[0] not in ours and self.results.is_empty(directory):
                self.note(record, NOTHING)
            self._finish(record, Phase.SUCCEEDED, "")
            for recorder in self.recorders:
                recorder.add(resource, record, self.objects)
        elif result.reason == job_controller.INTERRUPTED:
            raise self._end_job(record, Phase.INTERRUPTED, "the rehearsal was interrupted")
        else:
            reached = Reached.parse(record.message) if record.exit_code in (BUDGET_SPENT, GPU_IDLE) else None
            why = f"{reached.says}; {reached.fix}" if reached else self._explain(resource, record, result)
            raise self._end_job(record, Phase.FAILED, why)

    def _explain(self, resource: Resource, record: JobRecord, result: JobResult) -> str:
        """Why the Job failed: in the words of its program, and with what mends it where that is known."""
        pod, said, beside = result.pod, "", result.message.partition("; ")[2]
        if result.reason == job_controller.DEADLINE_EXCEEDED:
            waited = record.pending if record.node else time.time() - record.started
            length = duration(whole(at(resource.inputs, "spec", "activeDeadlineSeconds")))
            waits = f", {waited:.0f} s of them without a node" if waited >= 1 else ""
            failure = known(f"{result.reason}: {length}{waits}")
        elif pod is None:
            return f"{result.reason}: {result.message}"
        elif pod.reason == OOM_KILLED:
            used = f"{record.peak_memory} MiB at its peak, and its limit is {record.memory_limit} MiB"
            failure = known(f"{OOM_KILLED}: {used}")
        else:
            pipeline = strings(resource.metadata.get("labels")).get(NAME, "")
            failure = explain(pod.message, lock=command("lock", pipeline=pipeline))
            who = result.message.partition("container ")[0]
            said = f"{who}{failure.words(f'container {pod.container!r}')} (exit code {pod.exit_code})"
        step = next((step for step in self.steps if step.job == resource.name), None)
        advice = failure.advice(section_of(step, self.pipelines))
        return "; ".join(filter(None, [said, failure.says, advice, beside]))

    def _run_alone(self, resource: Resource, record: JobRecord, log: IO[bytes], stop: Stop) -> JobResult:
        job = job_controller.job_spec(resource)
        pods = self._pods(resource, job, record, log, stop)
        self.display.job(record)
        return self._run(resource, job, pods, record, stop)

    def _move(self, resource: Resource, record: JobRecord, log: IO[bytes], stop: Stop) -> JobResult:
        """Runs a step with places, at one of them at a time."""

        def run(held: moves.HeldJob, held_stop: Stop) -> JobResult:
            job = job_controller.job_spec(held.resource)
            whose = JobRecord(held.resource.urn, held.name) if is_probe(held.resource) else record
            pods = self._pods(held.resource, job, whose, log, held_stop)
            held.placed = lambda: pods.placed
            return self._run(held.resource, job, pods, whose, held_stop)

        namespace = Namespace(self.objects, cluster_of(resource), namespace_of(resource))
        plan = moves.plan_of(resource, namespace)
        jobs = [
            moves.HeldJob(self._held[cluster or namespace.cluster, name], run)
            for name, cluster in moves.clusters_of(plan).items()
        ]
        way = moves.Way(self.place.store, moves.orders_of(resource), self.capacity, partial(self.note, record))
        return moves.move(plan, jobs, stop, way)

    def _run(self, resource: Resource, job: JobSpec, pods: JobPods, record: JobRecord, stop: Stop) -> JobResult:
        """Runs a Job. Raises RefusedError where its queue would never admit it."""
        own_stop = LinkedStop(stop)

        def paused(seconds: float) -> None:
            own_stop.wait(seconds / self.speed)
            if own_stop.requested:
                raise CancelledError

        for refusal in parts("policies", "refusal"):
            if problem := refusal(self.objects, resource, job):
                raise RefusedError(problem)
        wanted = add(*[pods.request.resources] * job.workers)
        with self.quotas.hold(pods.namespace, wanted, paused, partial(self.note, record)):
            result = job_controller.run(job, own_stop, pods.run, partial(self.note, record), speed=self.speed)
        record.attempts = result.attempts
        return result

    def _pods(self, resource: Resource, job: JobSpec, record: JobRecord, log: IO[bytes], stop: Stop) -> JobPods:
        namespace = Namespace(self.objects, job.cluster, job.namespace)
        request = self.request(job.cluster, job.pod)
        admit(namespace, job.template, job.pod, request.resources)
        record.job_name, record.namespace, record.workers = job.name, job.namespace, job.workers
        record.requested, record.memory_limit = request.resources, job.pod.container.memory_limit
        record.nodes, record.generations = (job.workers if job.together else 0), 0
        hosts = pod_addresses(job, Workload(resource, job.cluster, job.template), namespace)
        if keep_apart(job):
            self.scheduler.require(request, job.workers, lambda: stop.requested)
        return JobPods(self, resource, job, namespace, request, record, log, hosts)

    def request(self, cluster: str, pod: PodSpec) -> PodRequest:
        """The parts of ``pod`` that decide on which nodes it can run, with what a cloud injects."""
        injected = (emulator.injected(pod.annotations) for emulator in self.emulators)
        return PodRequest(cluster, pod.selector, pod.tolerations, add(pod.requests, *injected))

    def _service_kubelet(self, record: ServiceRecord, namespace: Namespace) -> Kubelet:
        containers = self.containers
        note = partial(self.note, record)
        return self._kubelet(record, namespace, containers.of_server(record.name, note) if containers else None)

    def _kubelet(
        self, record: JobRecord | ServiceRecord, namespace: Namespace, prepare: Prepare | None
    ) -> Kubelet:
        drivers = frozenset[str]().union(*(emulator.store_drivers for emulator in self.emulators))
        api = ApiServer(namespace)
        unheld = partial(self._listens, record)
        return Kubelet(self.reaper, self.place.pods, self.place.store, drivers, api, prepare, unheld)

    def _listens(self, record: JobRecord | ServiceRecord) -> None:
        """Says once of what has ports of its own that nothing keeps it to loopback."""
        if isinstance(record, ServiceRecord) or record.workers > 1:
            with self._lock:
                noted, self._listening = record.name in self._listening, {*self._listening, record.name}
            if not noted:
                self.note(record, LISTENS)

    def job_kubelet(self, record: JobRecord, namespace: Namespace) -> Kubelet:
        """What runs the pods of a Job."""
        containers = self.containers
        note = partial(self.note, record)
        return self._kubelet(record, namespace, containers.of_job(record.name, note) if containers else None)

    def changed(self, record: JobRecord) -> None:
        """Something about the Job changed."""
        self.display.job(record)

    def disruption(self, record: JobRecord, job: JobSpec) -> Disruption | None:
        """The eviction of one of the Job's pods, where the Job is the one that is to be disrupted."""
        if self.disrupt is None or not self.disrupt.is_of(record.name):
            return None

        def evicted(what: str) -> None:
            self.evicted = True
            self.note(record, what)

        return Disruption.of(job, self.disrupt, evicted)

    def _record(self, resource: Resource) -> JobRecord:
        with self._lock:
            if resource.urn not in self.records:
                record = JobRecord(urn=resource.urn, name=resource.name, cluster=cluster_of(resource))
                self.records[resource.urn] = record
            return self.records[resource.urn]

    def note(self, record: JobRecord | ServiceRecord, text: str) -> None:
        """Something worth a line happened to the Job, the service or the app."""
        record.notes.append(text)
        self.display.note(record, text)

    def _finish(self, record: JobRecord, phase: Phase, reason: str) -> None:
        record.phase, record.reason, record.finished = phase, reason, time.time()
        if record.urn in self.executed:
            with self._lock:
                self.state.jobs[record.urn] = record
                self.state.save()
        self.display.job(record)

    def _end_job(self, record: JobRecord, phase: Phase, reason: str) -> NotCreatedError:
        self._finish(record, phase, reason)
        return NotCreatedError(reason)


def _directories(job: Resource) -> list[str]:
    """The directories of the store with the result of ``job`` and with those that it reads."""
    annotations = strings(job.metadata.get("annotations"))
    directories = [annotations[RUN_ANNOTATION]] if RUN_ANNOTATION in annotations else []
    return [*directories, *inputs_of(annotations).values()]
