"""What a rehearsal knows of each service: shown while it runs, and in the summary and the report."""

from dataclasses import dataclass, field
from enum import StrEnum

from infra.platform import Resources


class ServicePhase(StrEnum):
    """The phase of a service. It is started by the first Job that names it."""

    UNUSED = "not started"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


@dataclass
class ServiceRecord:
    """One service. Times are seconds since the epoch, amounts those of `Resources`, ``peak_memory`` in MiB.

    ``name`` is the logical name of its StatefulSet, ``starts`` how often its process was started. ``requested`` is
    the whole pod with what a cloud injects.
    """

    urn: str
    name: str
    cluster: str = ""
    namespace: str = ""
    phase: ServicePhase = ServicePhase.UNUSED
    pool: str = ""
    node: str = ""
    requested: Resources | None = None
    allocatable: Resources | None = None
    memory_limit: int | None = None
    started: float = 0.0
    finished: float = 0.0
    starts: int = 0
    peak_memory: int = 0
    reason: str = ""
    notes: list[str] = field(default_factory=list[str])

    @property
    def seconds(self) -> float:
        """How long it ran, from its first start to its end."""
        return max(self.finished - self.started, 0.0)
