"""Runs the pods of one Job from Pending to their end: places them on nodes, prepares them, keeps their output."""

import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol

from slipway.evaluated.pod_rules import refuses
from slipway.evaluated.scheduling import PodRequest
from slipway.evaluated.workloads import Workload
from slipway.infra.review.stack import Resource, Stack, mapping, strings
from slipway.rehearse.cluster import job_controller
from slipway.rehearse.cluster.cluster_objects import Namespace, RefusedError
from slipway.rehearse.cluster.job_controller import EPOCH, PROGRESS, Disruption, JobSpec, host_name, pod_of
from slipway.rehearse.cluster.kubelet import EVICTED, Kubelet, Pod, PodResult, PreparedCommand, expand, label_at
from slipway.rehearse.cluster.pods import Container, PodSpec
from slipway.rehearse.cluster.scheduler import Placement, PodAffinity, Scheduler
from slipway.rehearse.cluster.services import Services
from slipway.rehearse.machine.processes import LOOPBACK, Stop, free_ports
from slipway.rehearse.state import JobRecord, Phase


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
"""What the launcher of a step's pods writes when all of these begin together
(`slipway.features.nodes.pod.launcher`)."""


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

    @property
    def placed(self) -> int:
        """How many pods of it are on nodes."""
        return len(self._placed)

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

        kubelet = self._kubelet(index)
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

    def _kubelet(self, index: int) -> Kubelet:
        """What runs the pod with this index, and tells the disruption when a container of it is started."""
        kubelet, disruption = self.engine.job_kubelet(self.record, self.namespace), self._disruption
        if disruption is None:
            return kubelet

        def prepare(pod: Pod, container: Container, words: Sequence[str], folder: Path) -> PreparedCommand | None:
            prepared = kubelet.prepare(pod, container, words, folder) if kubelet.prepare else None
            disruption.launches(index)
            return prepared

        return replace(kubelet, prepare=prepare)

    def _write(self, line: bytes) -> None:
        with self._lock:
            self.log.write(line)
            self.log.flush()

    def _read(self, index: int, line: bytes) -> None:
        """Reads the progress of a pod from a line that it prints."""
        match = PROGRESS.search(line)
        # Those of a worker are epochs of one item after the other.
        tells = match is not None and (self.job.together or not self.job.indexed)
        began = GENERATION.match(line) if self.job.together else None
        with self._lock:
            if began is not None:
                self.record.generations = max(self.record.generations, int(began["number"]))
            tells = tells and (self._telling is None or index <= self._telling)
            unit = match["unit"].decode().lower() if match is not None else ""
            tells = tells and (unit == EPOCH or self.record.epochs is None or self.record.unit != EPOCH)
            if match is not None and tells:
                self._telling = index
                self.record.epochs, self.record.unit = (int(match["done"]), int(match["all"])), unit
        if tells or began is not None:
            self.engine.changed(self.record)
        if self._disruption:
            self._disruption.wrote(index)
            if tells and self.record.epochs:
                self._disruption.trained(*self.record.epochs, self.record.unit)

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
            affinity=PodAffinity(
                group=record.urn if spec.spreads else "",
                namespace=self.namespace.name,
                labels=spec.labels,
                apart=spec.apart,
                gang=record.urn if self.job.together else "",
            ),
            evict=lambda: stop.request(EVICTED, spec.grace_period),
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


HEADLESS = "None"
"""The ``clusterIP`` of a Service whose name stands for its pods
(kubernetes.io/docs/concepts/services-networking/service, seen November 2026)."""


@dataclass(frozen=True)
class Host:
    """A port of the pod with this ``index``, as the pods name it by ``pattern``."""

    index: int
    port: int
    pattern: re.Pattern[str]


def pod_addresses(job: JobSpec, client: Workload, namespace: Namespace) -> Mapping[str, re.Pattern[str]]:
    """For each port of a host that the pods of ``job`` name: the address on this machine, and the pattern of the
    name.

    The addresses are those of all the Job's pods, and of the pods that take their places. ``client`` is the Job,
    in ``namespace``. Raises RefusedError where a name would lead to no pod in a cluster, or a NetworkPolicy stands
    in the way.
    """
    hosts = list(_hosts(job, namespace))
    if not hosts:
        return {}
    _require_service(job, namespace)
    for named_host in hosts:
        if named_host.index >= job.workers:
            host = host_name(job.name, named_host.index)
            raise RefusedError(f"it names the host {host}, and its pods have the indexes 0 to {job.workers - 1}")
    if job.workers > 1:
        for port in sorted({named_host.port for named_host in hosts}):
            _require_connection(client, namespace, port)
    here = (f"{LOOPBACK}:{port}" for port in free_ports(len(hosts)))
    return dict(zip(here, (named_host.pattern for named_host in hosts), strict=True))


def _hosts(job: JobSpec, namespace: Namespace) -> Iterator[Host]:
    """The ports of hosts that the pods name, each once."""
    service = job.pod.subdomain
    if not (service and job.indexed):
        return
    domain = rf"{re.escape(service)}(?:\.{re.escape(namespace.name)}(?:\.svc(?:\.cluster\.local)?)?)?"
    named = re.compile(rf"(?<![\w.-]){re.escape(job.name)}-(?P<index>\d+)\.{domain}:(?P<port>\d+)(?!\w)")
    pods = (pod_of(job, "", index) for index in range(job.workers))
    texts = dict.fromkeys(text for pod in pods for text in _complete_texts(pod))
    hosts = {(int(match["index"]), int(match["port"])) for text in texts for match in named.finditer(text)}
    for index, port in sorted(hosts):
        host = re.escape(host_name(job.name, index))
        yield Host(index, port, re.compile(rf"(?<![\w.-]){host}\.{domain}:{port}(?!\w)"))


def _complete_texts(pod: PodSpec) -> Iterator[str]:
    """The texts of a pod that may name a host, with the values of variables that the pod declares."""
    for container in (*pod.init_containers, pod.container):
        variables: dict[str, str] = {}
        for entry in container.env:
            path = mapping(mapping(entry.get("valueFrom")).get("fieldRef")).get("fieldPath")
            value = label_at(pod, str(path)) if path else entry.get("value")
            if value is not None:
                variables[str(entry["name"])] = expand(str(value), variables)
        yield from variables.values()
        yield from (expand(word, variables) for word in (*container.command, *container.args))


def _require_service(job: JobSpec, namespace: Namespace) -> None:
    name = job.pod.subdomain
    service = namespace.find("Service", name)
    spec = mapping(service.inputs.get("spec") if service else None)
    selector, labels = strings(spec.get("selector")), pod_of(job, "", 0).labels
    if not service or spec.get("clusterIP") != HEADLESS:
        reason = "it is not headless" if service else f"there is no Service {name} in {namespace.name}"
    elif not selector or not selector.items() <= labels.items():
        reason = f"the Service {name} selects other pods"
    else:
        return
    raise RefusedError(f"its pods do not find one another by names below {name}: {reason}")


def _require_connection(client: Workload, namespace: Namespace, port: int) -> None:
    policies = namespace.objects.all_of(namespace.cluster, "NetworkPolicy", namespace.name)
    stack = Stack("", {policy.urn: policy for _, policy in policies}, {})
    if side := refuses(stack, client, client, port):
        raise RefusedError(
            f"its pods name port {port} of one another, and no NetworkPolicy lets them connect ({side.lower()})"
        )
