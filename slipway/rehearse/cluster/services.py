"""The servers of a rehearsal: services, which start when a pod needs them, and apps, which start at once."""

import contextlib
import http.client
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipway.evaluated.pod_rules import refuses
from slipway.evaluated.scheduling import PodRequest
from slipway.evaluated.workloads import Workload
from slipway.infra.kubernetes.labels import APP
from slipway.infra.review.stack import Resource, Stack, mapping
from slipway.rehearse.cluster.cluster_objects import Namespace, Objects, RefusedError, contents
from slipway.rehearse.cluster.kubelet import Kubelet, Pod, PodResult, PreparedCommand
from slipway.rehearse.cluster.pods import Container, PodSpec, UnsupportedError
from slipway.rehearse.cluster.quotas import admit
from slipway.rehearse.cluster.scheduler import Placement, PodAffinity, Scheduler
from slipway.rehearse.cluster.server_specs import Address, Probe, ServerSpec, addresses, server_spec
from slipway.rehearse.machine.processes import LOOPBACK, CancelledError, Stop
from slipway.rehearse.state import Place, ServicePhase, ServiceRecord

READY_WITHIN = 120.0
"""Seconds that a server may take until its probe succeeds."""

TRIES = 3
"""Starts after which a server that never was ready is given up. In a cluster it would go on starting."""

POLL = 0.05
"""Seconds between two looks at whether a server is ready."""

BACKOFF = 1.0
LONGEST_BACKOFF = 10.0
"""Seconds before a server is started for the third time, doubled for each further one up to the longest. The
kubelet waits from 10 s to 5 minutes (kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle, November 2026)."""

WELL = 10.0
"""A server that ran for this many seconds is started again at once when it ends."""

PROBE_TIMEOUT = 1.0

REASON_LINES = 10
"""Lines of a server's log in the reason why it is not ready."""

EVERYWHERE = re.compile(r"(?:^|(?<==))(?:\*|::|\[::\]|0\.0\.0\.0)(?=:\d|$)|(?<=//)(?:0\.0\.0\.0|\[::\])(?=[:/]|$)")
"""What stands for all addresses of a machine where a program is told on which to listen: ``*``, ``0.0.0.0:80``."""

EVERYWHERE_OPTIONAL = re.compile(r"^-::\*$")
"""All addresses of IPv6 in valkey-server's spelling, which does not fail where there is no IPv6."""

Reach = Callable[["Server"], Mapping["Server", Mapping[str, re.Pattern[str]]]]
"""The other servers that a pod names: of each how, by its addresses on this machine. Raises RefusedError."""


@dataclass(frozen=True)
class Surroundings:
    """What servers share.

    ``request`` returns the parts of a pod that decide on which nodes it can run, ``kubelet`` creates what runs a
    pod, and ``instead_of`` returns the substitute for a server's pod. ``changed`` and ``note`` get what happens.
    ``ports`` finds a port of this machine for each port of a container.
    """

    place: Place
    objects: Objects
    scheduler: Scheduler
    request: Callable[[str, PodSpec], PodRequest]
    kubelet: Callable[[ServiceRecord, Namespace], Kubelet]
    instead_of: Callable[[str, PodSpec], PodSpec]
    changed: Callable[[ServiceRecord], None]
    note: Callable[[ServiceRecord, str], None]
    ports: Callable[[Sequence[int]], Sequence[int]]


@dataclass(eq=False)
class Server:
    """One server, and its process as soon as it is needed. ``placements`` are the places of its pods."""

    surroundings: Surroundings
    resource: Resource
    spec: ServerSpec
    namespace: Namespace
    record: ServiceRecord
    placements: Sequence[Placement]
    reach: Reach = lambda _: {}
    asks: frozenset[str] = frozenset()
    """The names of the servers that its pod names."""
    ports: dict[int, int] = field(default_factory=dict[int, int])
    """Ports of this machine by those of the container."""
    _stop: Stop = field(default_factory=Stop)
    _launched: float | None = None
    """When its program was last started: after the packages that it needs were installed."""
    _recovering: bool = False
    """Whether it ended after it had been ready, and has not answered since."""
    _last: PodResult | None = None
    _failed: str = ""
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Starts it where it was not. Its ports are known from now on."""
        with self._lock:
            if self._thread is None:
                self._start()

    def ready(self, stop: Stop) -> None:
        """Starts it where it was not, and returns when its probe has succeeded once.

        Raises RefusedError and CancelledError.
        """
        self.start()
        while self.record.phase is ServicePhase.STARTING:
            if stop.requested:
                raise CancelledError
            with self._lock:
                if self.record.phase is ServicePhase.STARTING:
                    self._look()
            time.sleep(POLL)
        if self._failed:
            raise RefusedError(f"{self.record.kind} {self.record.name} is not ready: {self._failed}")

    def look_again(self) -> None:
        """Notes that it answers again, where it ended after it had been ready."""
        if self._recovering and self._launched is not None and self._answers():
            self._recovering = False
            self.surroundings.note(self.record, f"ready again after {time.monotonic() - self._launched:.1f} s")

    def end(self, grace: float) -> None:
        """Asks it to end: SIGTERM, and SIGKILL after at most ``grace`` seconds. A later call may cut that."""
        self._stop.request("ended", min(grace, self.spec.pod.grace_period))

    def patterns(self, named: Iterable[Address]) -> dict[str, re.Pattern[str]]:
        """These addresses of it, by those on this machine. It was started."""
        return {f"{LOOPBACK}:{self.ports[address.port]}": address.pattern for address in named}

    def join(self) -> None:
        """Waits until it has ended."""
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        record = self.record
        declared = {*self.spec.ports.values(), *([self.spec.probe.port] if self.spec.probe else [])}
        ports: list[int] = sorted(declared)
        self.ports.update(zip(ports, self.surroundings.ports(ports), strict=True))
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
        elif self._answers():
            waited = time.monotonic() - self._launched
            record.phase = ServicePhase.RUNNING
            self.surroundings.changed(record)
            self.surroundings.note(record, f"ready on {record.node} after {waited:.1f} s")
        elif time.monotonic() - self._launched > READY_WITHIN:
            self._give_up(f"its readiness probe does not succeed within {READY_WITHIN:g} s")

    def _answers(self) -> bool:
        return self.spec.probe is None or probe_succeeds(self.spec.probe, self.ports, self._password)

    def _password(self, variable: str) -> str:
        """The value of an environment variable of its container that comes from a Secret; empty without one."""
        for entry in self.spec.pod.container.env:
            reference = mapping(mapping(entry.get("valueFrom")).get("secretKeyRef"))
            if entry.get("name") == variable and reference:
                secret = self.namespace.find("Secret", str(reference.get("name")))
                return contents(secret)[str(reference.get("key"))].decode() if secret else ""
        return ""

    def _give_up(self, reason: str) -> None:
        self.end(0)
        self.join()
        lines = self._last.message.splitlines()[-REASON_LINES:] if self._last else []
        file = self.surroundings.place.log(self.record.name)
        last_lines = "\n".join(["; its last lines:", *lines]) if lines else ""
        self._failed = f"{reason} (whole log: {file}){last_lines}"
        self.record.phase, self.record.reason = ServicePhase.FAILED, reason
        self.surroundings.changed(self.record)

    def _ending(self) -> str:
        return self._last.ending if self._last else "it did not start"

    def _run(self) -> None:
        """Starts its pod again and again until it is stopped."""
        record = self.record
        try:
            self._keep_running()
        except OSError as error:
            self._failed = f"{error.filename or 'this machine'}: {error.strerror}"
        record.finished = time.time()
        if record.phase is ServicePhase.RUNNING:
            record.phase = ServicePhase.FAILED if self._failed else ServicePhase.ENDED
            record.reason = self._failed
            self.surroundings.changed(record)

    def _keep_running(self) -> None:
        record, place = self.record, self.surroundings.place
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
                try:
                    self._last = self._kubelet().run(self._pod(data, write))
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
                self._recovering = record.phase is ServicePhase.RUNNING
                pause = min(BACKOFF * 2 ** (early - 2), LONGEST_BACKOFF) if early > 1 else 0.0
                again = "starting again" + (f" in {pause:g} s" if pause else "")
                last = self._last.message.strip().rpartition("\n")[2] if self._last.exit_code > 0 else ""
                self.surroundings.note(record, "; ".join(filter(None, [self._last.ending, again, last])))
                self._stop.wait(pause)

    def _pod(self, data: Mapping[str, Path], write: Callable[[bytes], None]) -> Pod:
        reached = self.reach(self)
        self.asks = frozenset(server.record.name for server in reached)
        others = {address: pattern for server in reached.values() for address, pattern in server.items()}
        return Pod(
            f"{self.spec.name[:57]}-{secrets.token_hex(3)[:5]}",
            self.namespace,
            self.surroundings.instead_of(self.record.name, self.spec.pod),
            self.placements[0],
            self._stop,
            write,
            volumes=data,
            addresses={**others, **self._own_addresses()},
        )

    def _kubelet(self) -> Kubelet:
        kubelet = self.surroundings.kubelet(self.record, self.namespace)

        def prepare(pod: Pod, container: Container, words: Sequence[str], folder: Path) -> PreparedCommand | None:
            prepared = kubelet.prepare(pod, container, words, folder) if kubelet.prepare else None
            self._launched = time.monotonic() if self._recovering or self._launched is None else self._launched
            return prepared

        return replace(kubelet, prepare=prepare)

    def _own_addresses(self) -> dict[str, re.Pattern[str]]:
        """The parts of its command line and environment that differ here: listen addresses and ports."""
        own_addresses = {
            str(here): re.compile(rf"(?<![\w.]){declared}(?![\w.])") for declared, here in self.ports.items()
        }
        return {LOOPBACK: EVERYWHERE, "-::1": EVERYWHERE_OPTIONAL, **own_addresses}


def probe_succeeds(probe: Probe, ports: Mapping[int, int], password: Callable[[str], str]) -> bool:
    """Whether the probe succeeds now. ``password`` is the value of an environment variable."""
    port = ports[probe.port]
    if probe.ping:
        return _pongs(port, password(probe.ping))
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


def _pongs(port: int, password: str) -> bool:
    """Whether a Valkey server answers PING after AUTH."""
    words = ["AUTH", password]
    request = "".join([f"*{len(words)}\r\n", *(f"${len(word.encode())}\r\n{word}\r\n" for word in words)])
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), PROBE_TIMEOUT) as connection:
        connection.sendall(f"{request}*1\r\n$4\r\nPING\r\n".encode())
        with connection.makefile("rb") as replies:
            replies.readline()
            return replies.readline() == b"+PONG\r\n"
    return False


@dataclass
class Services:
    """The services and apps of all clusters. Usable from several threads."""

    surroundings: Surroundings
    _servers: list[Server] = field(default_factory=list[Server])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, resource: Resource, stop: Stop) -> None:
        """Admits a StatefulSet or a Deployment and gives its pods their places, which they hold from now on.

        A service starts when it is needed. An app starts, and this returns when it is ready, as `pulumi up` waits
        for it. One without pods is left out. Raises RefusedError, UnsupportedError, UnschedulableError
        and CancelledError.
        """
        around = self.surroundings
        spec = server_spec(resource)
        namespace = Namespace(around.objects, spec.cluster, spec.namespace)
        if not spec.replicas:
            return
        request = around.request(spec.cluster, spec.pod)
        admit(namespace, spec.template, spec.pod, request.resources)
        kind = "app" if spec.app else "service"
        record = ServiceRecord(resource.urn, resource.name, spec.cluster, spec.namespace, kind)
        placements = self._places(spec, namespace, record, request, lambda: stop.requested)
        node = placements[0].node
        record.pool, record.node = node.pool, placements[0].node_name
        record.requested, record.allocatable = request.resources, node.allocatable
        record.memory_limit, record.replicas = spec.pod.container.memory_limit, spec.replicas
        server = Server(around, resource, spec, namespace, record, placements, self._reached_by_server)
        with self._lock:
            self._servers.append(server)
        around.changed(record)
        if spec.app:
            server.ready(stop)

    @property
    def records(self) -> list[ServiceRecord]:
        """All services and apps, in the order in which they were declared."""
        with self._lock:
            return [server.record for server in self._servers]

    @property
    def servers(self) -> list[Server]:
        """All services and apps, in the order in which they were declared."""
        with self._lock:
            return list(self._servers)

    def reached_by(
        self, client: Workload, pod: PodSpec, namespace: Namespace, stop: Stop
    ) -> dict[str, re.Pattern[str]]:
        """Starts the servers whose addresses ``pod``, one of ``client``, names, and waits until they are ready.

        Returns these addresses by those on this machine. Raises RefusedError where a NetworkPolicy is in the way
        or a server is not ready in time, and CancelledError where ``stop`` is requested.
        """
        patterns: dict[str, re.Pattern[str]] = {}
        for server, named in self._named_by(client, pod, namespace):
            server.ready(stop)
            patterns |= server.patterns(named)
        return patterns

    def _reached_by_server(self, server: Server) -> dict[Server, dict[str, re.Pattern[str]]]:
        """The addresses that a server names, by who has them. It waits for none: two may name each other."""
        spec = server.spec
        client = Workload(server.resource, spec.cluster, spec.template)
        by_server: dict[Server, dict[str, re.Pattern[str]]] = {}
        for other, named in self._named_by(client, spec.pod, server.namespace):
            other.start()
            by_server[other] = other.patterns(named)
        return by_server

    def _named_by(
        self, client: Workload, pod: PodSpec, namespace: Namespace
    ) -> Iterator[tuple[Server, list[Address]]]:
        """The servers whose addresses ``pod``, one of ``client``, names, with these addresses.

        Raises RefusedError where a NetworkPolicy is in the way.
        """
        texts = list(pod.texts)
        for server in self.servers:
            here = (server.spec.cluster, server.spec.namespace) == (namespace.cluster, namespace.name)
            if not here or server.resource.urn == client.resource.urn:
                continue
            named = [
                address for address in addresses(server.spec, namespace) if any(map(address.pattern.search, texts))
            ]
            for named_port in named:
                _require_connection(client, server, namespace, named_port.port)
            if named:
                yield server, named

    def _places(
        self,
        spec: ServerSpec,
        namespace: Namespace,
        record: ServiceRecord,
        request: PodRequest,
        cancelled: Callable[[], bool],
    ) -> list[Placement]:
        """A place for each of its pods."""
        around = self.surroundings
        affinity = PodAffinity(
            group=record.urn if spec.pod.spreads else "",
            namespace=namespace.name,
            labels=spec.pod.labels,
            apart=spec.pod.apart,
        )
        return [
            around.scheduler.place(
                request,
                cancelled,
                lambda reason: around.note(record, f"Pending: {reason}"),
                stays=True,
                affinity=affinity,
            )
            for _ in range(spec.replicas)
        ]

    def end(self, grace: float) -> None:
        """Asks all to end: SIGTERM, and SIGKILL after at most ``grace`` seconds. A later call may cut that."""
        for server in self.servers:
            server.end(grace)

    def close(self, grace: float) -> None:
        """Ends all and waits for them."""
        self.end(grace)
        for server in self.servers:
            server.join()


def _require_connection(client: Workload, server: Server, namespace: Namespace, port: int) -> None:
    """Raises RefusedError where a connection would find no way in the cluster."""
    policies = namespace.objects.all_of(namespace.cluster, "NetworkPolicy", namespace.name)
    stack = Stack("", {policy.urn: policy for _, policy in policies}, {})
    server_workload = Workload(server.resource, client.cluster, server.spec.template)
    if side := refuses(stack, client, server_workload, port):
        kind, of = server.record.kind, "app" if APP in client.labels else "step"
        raise RefusedError(
            f"it names the address of {kind} {server.record.name}, and no NetworkPolicy lets its pods connect "
            f"there ({side.lower()}); name the {kind} in `connects` of the {of}"
        )
