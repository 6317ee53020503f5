"""What takes room on a pool at all times, beside Jobs: services, apps, and what a stack installs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.pipelines.apps import AppDeclaration, object_name
from infra.pipelines.contract import ServiceDeclaration
from infra.platform import Pool, Resources

Kind = Literal["service", "exporter", "app", "proxy", "runner", "kueue", "prometheus"]


def total(pods: Iterable[Resources]) -> Resources:
    """What ``pods`` ask for together."""
    counted = list(pods)
    return Resources(
        cpu=sum(pod.cpu for pod in counted),
        memory=sum(pod.memory for pod in counted),
        ephemeral_storage=sum(pod.ephemeral_storage for pod in counted),
        gpus=sum(pod.gpus for pod in counted),
    )


@dataclass(frozen=True)
class Resident:
    """Something that is on ``pool``, in no queue, for as long as the stack is.

    ``pods`` is what each of its pods asks for that are there at all times, and ``added`` the same of those that an
    autoscaler may add. ``pipeline`` and ``name`` say whose it is; ``pipeline`` is empty where it is the stack's.
    """

    kind: Kind
    pool: str
    pods: Sequence[Resources]
    added: Sequence[Resources] = ()
    pipeline: str = ""
    name: str = ""

    @property
    def all_pods(self) -> Sequence[Resources]:
        """Those that an autoscaler may add included."""
        return [*self.pods, *self.added]

    @property
    def least(self) -> Resources:
        """What it takes at all times."""
        return total(self.pods)

    @property
    def most(self) -> Resources:
        """What it takes with all pods that an autoscaler may add."""
        return total(self.all_pods)

    @property
    def object_name(self) -> str:
        """The name of its Kubernetes objects, where it is a service or an app."""
        return object_name(self.pipeline, self.name)


def residents(
    pipeline: str, services: Iterable[ServiceDeclaration], apps: Iterable[AppDeclaration], *, exporters: bool
) -> Iterator[Resident]:
    """What the services and apps of ``pipeline`` take of pools, as they ask for it.

    With ``exporters`` that includes what reads the metrics of services, which a stack has that collects metrics.
    """
    for service in services:
        pool = service.placed_by.pool
        yield Resident("service", pool, [service.placed_by.asked], pipeline=pipeline, name=service.name)
        if exporters and service.exporter:
            yield Resident("exporter", pool, [service.exporter.resources], pipeline=pipeline, name=service.name)
    for app in apps:
        settings = app.placed_by
        most = settings.autoscale.most if settings.autoscale else settings.replicas
        pods, added = [settings.asked] * settings.replicas, [settings.asked] * (most - settings.replicas)
        yield Resident("app", settings.pool, pods, added, pipeline, app.name)


def admitted(residents: Iterable[Resident], pool: Pool) -> list[Resident]:
    """Those on ``pool``, with what their pods ask for as its cluster takes it."""
    return [
        Resident(
            resident.kind,
            resident.pool,
            [pool.admitted(pod) for pod in resident.pods],
            [pool.admitted(pod) for pod in resident.added],
            resident.pipeline,
            resident.name,
        )
        for resident in residents
        if resident.pool == pool.name
    ]
