"""A service of a pipeline: what runs beside its steps, where, with what, and who may connect to it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from infra.pipelines.contract import OF_SERVICES, Exporter, Probe, service_variables
from infra.platform import Platform, Pool, Resources
from infra.schema.names import KUBERNETES_NAME_LIMIT, fit

NAME_LIMIT = KUBERNETES_NAME_LIMIT - 12
"""Longest name of a service's objects, some of which have a word behind it."""

DATA, PORT, PASSWORD = OF_SERVICES
"""References in the arguments of a service: its volume, its port, and its password."""

ADDRESS = "address"
"""The reference in the arguments of a service's exporter to the host and port of the service."""


@dataclass(frozen=True)
class Service:
    """One long-running program with a port and a volume.

    ``arguments`` are its whole command line, with the references above. ``storage`` is in MiB. ``clients`` are the
    names of the pipeline's steps that connect to it. ``exporter`` answers Prometheus for it, where metrics are
    read.
    """

    pipeline: str
    name: str
    image: str
    platform: Platform
    pool: Pool
    resources: Resources
    arguments: Sequence[str]
    port: int
    storage: int
    clients: Sequence[str]
    probe: Probe = field(default_factory=Probe)
    exporter: Exporter | None = None

    @property
    def requests(self) -> Resources:
        """What its pod asks for: its resources as the pool's cluster takes them."""
        return self.pool.admitted(self.resources)

    @property
    def exporter_requests(self) -> Resources | None:
        """What the pod of its exporter asks for, in the same way; None where it has none."""
        return self.pool.admitted(self.exporter.resources) if self.exporter else None

    @property
    def object_name(self) -> str:
        """The name of its Kubernetes objects, and its host name in the namespace: ``<pipeline>-<service>``."""
        return fit(f"{self.pipeline}-{self.name}", NAME_LIMIT)

    @property
    def address(self) -> str:
        """Host and port, as its clients reach it."""
        return f"{self.object_name}:{self.port}"

    @property
    def address_variable(self) -> str:
        """The environment variable in which its clients find the address."""
        return service_variables(self.name)[0]

    @property
    def password_variable(self) -> str:
        """The environment variable in which its clients, and it itself, find the password."""
        return service_variables(self.name)[1]
