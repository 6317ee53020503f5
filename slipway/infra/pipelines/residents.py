"""What takes room on a pool at all times, beside Jobs: services, apps, and what a stack installs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from slipway.infra.pipelines.apps import AppDeclaration, object_name
from slipway.infra.pipelines.contract import ServiceDeclaration
from slipway.infra.platform import AMOUNTS, Pool, Resources, add, subtract

Kind = Literal["service", "app", "proxy", "runner", "installed"]


@dataclass(frozen=True)
class Resident:
    """A program whose pods stay on ``pool``, outside of any queue, for as long as the stack exists.

    ``pods`` is what each pod asks for that is always there, and ``added`` the same of those that an autoscaler may
    add. ``pipeline`` is empty where the stack itself installs the program, which ``name`` says then.
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
        return add(*self.pods)

    @property
    def most(self) -> Resources:
        """What it takes with all pods that an autoscaler may add."""
        return add(*self.all_pods)

    @property
    def object_name(self) -> str:
        """The name of its Kubernetes objects, where it is a service or an app."""
        return object_name(self.pipeline, self.name)


def residents(
    pipeline: str, services: Iterable[ServiceDeclaration], apps: Iterable[AppDeclaration]
) -> Iterator[Resident]:
    """The services and apps of ``pipeline``, with what their pods ask for."""
    for service in services:
        pool = service.placed_by.pool
        yield Resident("service", pool, [service.placed_by.asked], pipeline=pipeline, name=service.name)
    for app in apps:
        settings = app.placed_by
        pods, added = [settings.asked] * settings.replicas, [settings.asked] * (settings.most - settings.replicas)
        yield Resident("app", settings.pool, pods, added, pipeline, app.name)


def residents_on(residents: Iterable[Resident], pool: Pool) -> list[Resident]:
    """Those on ``pool``, with what its cluster makes of what their pods ask for."""
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


def room_for(free: Resources, wanted: Resources) -> int:
    """How many pods that ask for ``wanted`` have room on a node that has ``free``."""
    amounts = [(getattr(free, name), getattr(wanted, name)) for name in AMOUNTS]
    return min((left // amount for left, amount in amounts if amount), default=1)


def take(nodes: list[Resources], wanted: Resources) -> bool:
    """Takes ``wanted`` from the first of ``nodes`` that has room for it; False where none has."""
    for index, free in enumerate(nodes):
        if room_for(free, wanted):
            nodes[index] = subtract(free, wanted)
            return True
    return False


def left_by(pods: Iterable[Resources], nodes: Sequence[Resources]) -> list[Resources]:
    """What ``pods``, the largest first, leave of each of ``nodes``."""
    left = [*nodes]
    for pod in sorted(pods, key=lambda pod: [getattr(pod, name) for name in AMOUNTS], reverse=True):
        take(left, pod)
    return left
