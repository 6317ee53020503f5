"""What a rehearsal knows of each service and app: shown while it runs, and in the summary and the report."""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from infra.platform import Resources


class ServicePhase(StrEnum):
    """The phase of a service, which the first Job that names it starts, or of an app, which starts by itself."""

    UNUSED = "not started"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


@dataclass
class ServiceRecord:
    """One service or app. Times are seconds since the epoch, amounts those of `Resources`, ``peak_memory`` in MiB.

    ``name`` is the logical name of its StatefulSet or Deployment, ``starts`` how often its process was started.
    ``requested`` is the whole pod with what a cloud injects. ``replicas`` are its pods in a cluster, of which a
    rehearsal runs one.
    """

    urn: str
    name: str
    cluster: str = ""
    namespace: str = ""
    kind: Literal["service", "app"] = "service"
    phase: ServicePhase = ServicePhase.UNUSED
    pool: str = ""
    node: str = ""
    requested: Resources | None = None
    allocatable: Resources | None = None
    memory_limit: int | None = None
    started: float = 0.0
    finished: float = 0.0
    starts: int = 0
    replicas: int = 1
    peak_memory: int = 0
    reason: str = ""
    notes: list[str] = field(default_factory=list[str])

    @property
    def seconds(self) -> float:
        """How long it ran, from its first start to its end, or until now."""
        return max((self.finished or time.time()) - self.started, 0.0) if self.started else 0.0
