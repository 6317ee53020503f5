"""The servers of a rehearsal: services, which start when a pod needs them, and apps, which start at once."""

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from infra.kubernetes.labels import APP
from infra.review.stack import Resource, Stack
from offline.engine.scheduling import PodRequest
from offline.policies.network_policies import refuses
from offline.policies.workloads import Workload
from offline.rehearsal.admission import admit
from offline.rehearsal.cluster_objects import Namespace, RefusedError
from offline.rehearsal.pods import PodSpec
from offline.rehearsal.ports import LOOPBACK
from offline.rehearsal.processes import Stop
from offline.rehearsal.scheduler import Neighbourhood, Placement
from offline.rehearsal.server_specs import Address, ServerSpec, addresses, server_spec
from offline.rehearsal.servers import Server, Surroundings
from offline.rehearsal.service_records import ServiceRecord


@dataclass
class Services:
    """The services and apps of all clusters. Usable from several threads."""

    surroundings: Surroundings
    _servers: list[Server] = field(default_factory=list[Server])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, resource: Resource, stop: Stop) -> None:
        """Admits a StatefulSet or a Deployment and gives its pods their places, which they hold from now on.

        A service starts when it is needed. An app starts, and this returns when it is ready, as `pulumi up` waits
        for it. Raises RefusedError, UnsupportedError, UnschedulableError and CancelledError.
        """
        around = self.surroundings
        spec = server_spec(resource)
        namespace = Namespace(around.objects, spec.cluster, spec.namespace)
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
            return [each.record for each in self._servers]

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
        found: dict[str, re.Pattern[str]] = {}
        for server, named in self._named_by(client, pod, namespace):
            server.ready(stop)
            found |= {f"{LOOPBACK}:{server.ports[each.port]}": each.pattern for each in named}
        return found

    def _reached_by_server(self, server: Server) -> dict[Server, dict[str, re.Pattern[str]]]:
        """The same for a server, by the other. It waits for none: two may name one another."""
        spec = server.spec
        client = Workload(server.resource, spec.cluster, spec.template)
        found: dict[Server, dict[str, re.Pattern[str]]] = {}
        for other, named in self._named_by(client, spec.pod, server.namespace):
            other.start()
            found[other] = {f"{LOOPBACK}:{other.ports[each.port]}": each.pattern for each in named}
        return found

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
            named = [each for each in addresses(server.spec, namespace) if any(map(each.pattern.search, texts))]
            for each in named:
                _require_connection(client, server, namespace, each.port)
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
        neighbourhood = Neighbourhood(
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
                neighbourhood=neighbourhood,
            )
            for _ in range(spec.replicas)
        ]

    def end(self, grace: float) -> None:
        """Asks all to end: SIGTERM, and SIGKILL after at most ``grace`` seconds. A later call may cut that."""
        for each in self.servers:
            each.end(grace)

    def close(self, grace: float) -> None:
        """Ends all and waits for them."""
        self.end(grace)
        for each in self.servers:
            each.join()


def _require_connection(client: Workload, server: Server, namespace: Namespace, port: int) -> None:
    """Raises RefusedError where a connection would find no way in the cluster."""
    policies = namespace.objects.all_of(namespace.cluster, "NetworkPolicy", namespace.name)
    stack = Stack("", {each.urn: each for _, each in policies}, {})
    there = Workload(server.resource, client.cluster, server.spec.template)
    if side := refuses(stack, client, there, port):
        kind, of = server.record.kind, "app" if APP in client.labels else "step"
        raise RefusedError(
            f"it names the address of {kind} {server.record.name}, and no NetworkPolicy lets its pods connect "
            f"there ({side.lower()}); name the {kind} in `connects` of the {of}"
        )
