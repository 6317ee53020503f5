"""The services of a rehearsal: StatefulSets of one, each a process that starts when the first Job needs it."""

import contextlib
import http.client
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from infra.review.stack import Resource, Stack
from offline.engine.scheduling import PodRequest
from offline.policies.network_policies import refuses
from offline.policies.workloads import Workload
from offline.rehearsal.admission import admit
from offline.rehearsal.cluster_objects import Namespace, Objects, RefusedError
from offline.rehearsal.kubelet import Kubelet, Pod, PodResult, Prepared
from offline.rehearsal.pods import Container, PodSpec, UnsupportedError
from offline.rehearsal.ports import LOOPBACK, free_ports
from offline.rehearsal.processes import Stop
from offline.rehearsal.scheduler import CancelledError, Placement, Scheduler
from offline.rehearsal.service_records import ServicePhase, ServiceRecord
from offline.rehearsal.state import Place
from offline.rehearsal.stateful_sets import Probe, StatefulSetSpec, addresses, stateful_set_spec

READY_WITHIN = 120.0
"""Seconds that a service may take until its probe succeeds."""

TRIES = 3
"""Starts after which a service that never was ready is given up. In a cluster it would go on starting."""

POLL = 0.05
"""Seconds between two looks at whether a service is ready."""

BACKOFF = 1.0
LONGEST_BACKOFF = 10.0
"""Seconds before a service is started for the third time, doubled for each further one up to the longest. The
kubelet waits from 10 s to 5 minutes (kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle, November 2026)."""

WELL = 10.0
"""A service that ran for this many seconds is started again at once when it ends."""

PROBE_TIMEOUT = 1.0

REASON_LINES = 10
"""Lines of a service's log in the reason why it is not ready."""

EVERYWHERE = re.compile(r"(?:^|(?<==))(?:\*|::|\[::\]|0\.0\.0\.0)(?=:\d|$)|(?<=//)(?:0\.0\.0\.0|\[::\])(?=[:/]|$)")
"""What stands for all addresses of a machine where a program is told on which to listen: ``*``, ``0.0.0.0:80``."""

EVERYWHERE_OPTIONAL = re.compile(r"^-::\*$")
"""The same for IPv6 in valkey-server's spelling, which does not fail where there is no IPv6."""


@dataclass(frozen=True)
class Surroundings:
    """What services share.

    ``request`` says what of a pod on a cluster decides where it can go, ``kubelet`` makes what runs one, and
    ``instead_of`` knows what runs in place of a container, by the service's name. ``changed`` and ``note`` are
    told of what happens.
    """

    place: Place
    objects: Objects
    scheduler: Scheduler
    request: Callable[[str, PodSpec], PodRequest]
    kubelet: Callable[[ServiceRecord, Namespace], Kubelet]
    instead_of: Callable[[str, Container], Container]
    changed: Callable[[ServiceRecord], None]
    note: Callable[[ServiceRecord, str], None]


@dataclass
class Services:
    """The services of all clusters. Usable from several threads."""

    surroundings: Surroundings
    _services: list["_Service"] = field(default_factory=list["_Service"])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, resource: Resource, cancelled: Callable[[], bool]) -> None:
        """Admits a StatefulSet and gives it a place, which it holds from now on. It starts when it is needed.

        Raises RefusedError, UnsupportedError, UnschedulableError and CancelledError.
        """
        around = self.surroundings
        spec = stateful_set_spec(resource)
        namespace = Namespace(around.objects, spec.cluster, spec.namespace)
        request = around.request(spec.cluster, spec.pod)
        admit(namespace, spec.template, spec.pod, request.resources)
        record = ServiceRecord(resource.urn, resource.name, spec.cluster, spec.namespace)
        placement = around.scheduler.place(
            request, cancelled, lambda reason: around.note(record, f"Pending: {reason}"), stays=True
        )
        record.pool, record.node = placement.node.pool, placement.node_name
        record.requested, record.allocatable = request.resources, placement.node.allocatable
        record.memory_limit = spec.pod.container.memory_limit
        with self._lock:
            self._services.append(_Service(around, resource, spec, namespace, record, placement))
        around.changed(record)

    @property
    def records(self) -> list[ServiceRecord]:
        """All services, in the order of their declaration."""
        with self._lock:
            return [each.record for each in self._services]

    def reached_by(
        self, client: Workload, pod: PodSpec, namespace: Namespace, stop: Stop
    ) -> dict[str, re.Pattern[str]]:
        """Starts the services whose addresses ``pod``, one of ``client``, names, and waits until they are ready.

        Returns these addresses by those on this machine. Raises RefusedError where a NetworkPolicy is in the way
        or a service is not ready in time, and CancelledError where ``stop`` is requested.
        """
        texts = list(pod.texts)
        with self._lock:
            there = [
                each
                for each in self._services
                if (each.spec.cluster, each.spec.namespace) == (namespace.cluster, namespace.name)
            ]
        found: dict[str, re.Pattern[str]] = {}
        for service in there:
            named = [each for each in addresses(service.spec, namespace) if any(map(each.pattern.search, texts))]
            if named:
                _require_connection(client, service, namespace, named[0].port)
                service.ready(stop)
            found |= {f"{LOOPBACK}:{service.ports[each.port]}": each.pattern for each in named}
        return found

    def close(self, grace: float) -> None:
        """Ends all services: SIGTERM, and SIGKILL after ``grace`` seconds at the latest. A second call cuts it."""
        with self._lock:
            services = list(self._services)
        for each in services:
            each.end(grace)
        for each in services:
            each.join()


@dataclass
class _Service:
    """One service, and its process as soon as it is needed."""

    surroundings: Surroundings
    resource: Resource
    spec: StatefulSetSpec
    namespace: Namespace
    record: ServiceRecord
    placement: Placement
    ports: dict[int, int] = field(default_factory=dict[int, int])
    """Ports of this machine by those of the container."""
    _stop: Stop = field(default_factory=Stop)
    _launched: float | None = None
    """When its program was first started: after the packages that it needs were installed."""
    _last: PodResult | None = None
    _failed: str = ""
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ready(self, stop: Stop) -> None:
        """Returns when its probe has succeeded once. Raises RefusedError and CancelledError."""
        with self._lock:
            if self._thread is None:
                self._start()
        while self.record.phase is ServicePhase.STARTING:
            if stop.requested:
                raise CancelledError
            with self._lock:
                if self.record.phase is ServicePhase.STARTING:
                    self._look()
            time.sleep(POLL)
        if self._failed:
            raise RefusedError(f"service {self.record.name} is not ready: {self._failed}")

    def end(self, grace: float) -> None:
        self._stop.request("ended", min(grace, self.spec.pod.grace_period))

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        record = self.record
        ports = {*self.spec.ports.values(), *([self.spec.probe.port] if self.spec.probe else [])}
        self.ports.update(zip(sorted(ports), free_ports(len(ports)), strict=True))
        record.started, record.phase = time.time(), ServicePhase.STARTING
        self.surroundings.changed(record)
        self._thread = threading.Thread(target=self._run, name=record.name, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        """Notes that it is ready, or why it will not be."""
        record = self.record
        assert self._thread is not None
        if not self._thread.is_alive():
            self._give_up(self._failed or self._ending())
        elif self._launched is None:
            return
        elif self.spec.probe is None or _answers(self.spec.probe, self.ports):
            waited = time.monotonic() - self._launched
            record.phase = ServicePhase.RUNNING
            self.surroundings.changed(record)
            self.surroundings.note(record, f"ready on {record.node} after {waited:.1f} s")
        elif time.monotonic() - self._launched > READY_WITHIN:
            self._give_up(f"its readiness probe does not succeed within {READY_WITHIN:g} s")

    def _give_up(self, reason: str) -> None:
        self.end(0)
        self.join()
        lines = self._last.message.splitlines()[-REASON_LINES:] if self._last else []
        file = self.surroundings.place.log(self.record.name)
        said = "\n".join(["; its last lines:", *lines]) if lines else ""
        self._failed = f"{reason} (whole log: {file}){said}"
        self.record.phase, self.record.reason = ServicePhase.FAILED, reason
        self.surroundings.changed(self.record)

    def _ending(self) -> str:
        return self._last.ending if self._last else "it did not start"

    def _run(self) -> None:
        """Starts its pod again and again until it is told to end."""
        record, place = self.record, self.surroundings.place
        declared = self.spec.pod
        spec = replace(declared, container=self.surroundings.instead_of(record.name, declared.container))
        data = {name: place.service(record.name) / name for name in self.spec.claims}
        for folder in data.values():
            folder.mkdir(parents=True, exist_ok=True)
        with place.log(record.name).open("wb", buffering=0) as log:

            def write(line: bytes) -> None:
                log.write(line)

            early = 0
            while not self._stop.requested:
                record.starts += 1
                began = time.monotonic()
                log.write(f"# pod {self.spec.name}-0 on {record.node}, start {record.starts}\n".encode())
                pod = Pod(
                    f"{self.spec.name[:57]}-{secrets.token_hex(3)[:5]}",
                    self.namespace,
                    spec,
                    self.placement,
                    self._stop,
                    write,
                    volumes=data,
                    addresses=self._own_addresses(),
                )
                try:
                    self._last = self._kubelet().run(pod)
                except (RefusedError, UnsupportedError) as error:
                    self._failed = str(error)
                    log.write(f"{error}\n".encode())
                    break
                except CancelledError:
                    break
                record.peak_memory = max(record.peak_memory, self._last.peak_memory)
                if self._stop.requested:
                    break
                early = 0 if time.monotonic() - began >= WELL else early + 1
                if record.phase is ServicePhase.STARTING and early >= TRIES:
                    break
                pause = min(BACKOFF * 2 ** (early - 2), LONGEST_BACKOFF) if early > 1 else 0.0
                self.surroundings.note(
                    record, f"{self._last.ending}; starting again" + (f" in {pause:g} s" if pause else "")
                )
                _sleep(self._stop, pause)
        record.finished = time.time()
        if record.phase is ServicePhase.RUNNING:
            record.phase = ServicePhase.ENDED
            self.surroundings.changed(record)

    def _kubelet(self) -> Kubelet:
        kubelet = self.surroundings.kubelet(self.record, self.namespace)

        def prepare(pod: Pod, container: Container, words: Sequence[str], folder: Path) -> Prepared | None:
            prepared = kubelet.prepare(pod, container, words, folder) if kubelet.prepare else None
            self._launched = self._launched or time.monotonic()
            return prepared

        return replace(kubelet, prepare=prepare)

    def _own_addresses(self) -> dict[str, re.Pattern[str]]:
        """What of its command line and its environment is another on this machine: ports, and where it listens."""
        own = {str(here): re.compile(rf"(?<![\w.]){there}(?![\w.])") for there, here in self.ports.items()}
        return {**own, LOOPBACK: EVERYWHERE, "-::1": EVERYWHERE_OPTIONAL}


def _require_connection(client: Workload, service: "_Service", namespace: Namespace, port: int) -> None:
    """Raises RefusedError where a connection would find no way in the cluster."""
    policies = namespace.objects.all_of(namespace.cluster, "NetworkPolicy", namespace.name)
    stack = Stack("", {each.urn: each for _, each in policies}, {})
    server = Workload(service.resource, client.cluster, service.spec.template)
    if side := refuses(stack, client, server, port):
        raise RefusedError(
            f"it names the address of service {service.record.name}, and no NetworkPolicy lets its pods connect "
            f"there ({side.lower()}); name the service in `connects` of the step"
        )


def _answers(probe: Probe, ports: Mapping[int, int]) -> bool:
    """Whether the probe succeeds now."""
    port = ports[probe.port]
    with contextlib.suppress(OSError, http.client.HTTPException):
        if probe.path is None:
            socket.create_connection((LOOPBACK, port), PROBE_TIMEOUT).close()
            return True
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=PROBE_TIMEOUT)
        try:
            connection.request("GET", probe.path)
            return 200 <= connection.getresponse().status < 400
        finally:
            connection.close()
    return False


def _sleep(stop: Stop, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stop.requested:
        time.sleep(POLL)
