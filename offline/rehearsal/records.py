"""The records of Jobs, services and apps: shown during a rehearsal, and kept for the next one."""

import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from infra.platform import Resources

# The record of a Job: shown during a rehearsal, kept for the next one, and drawn in the report.


Seconds = Annotated[float, Field(ge=0, lt=1e10, allow_inf_nan=False)]
"""A time, or a span of it. The bounds are for what is read from a file."""


class Phase(StrEnum):
    """The phase of a Job. In the last six it has ended."""

    WAITING = "waiting"
    QUEUED = "queued"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not run"
    SKIPPED = "skipped"

    @property
    def over(self) -> bool:
        """Whether the Job has ended."""
        return self not in {Phase.WAITING, Phase.QUEUED, Phase.PENDING, Phase.RUNNING}

    @property
    def good(self) -> bool:
        """Whether the Job's results are there."""
        return self in {Phase.SUCCEEDED, Phase.UNCHANGED}


@dataclass
class JobRecord:
    """One Job. Times are seconds since the epoch, amounts those of `Resources`, ``peak_memory`` in MiB.

    ``queued`` is how long it waited in a queue, ``pending`` for a node. ``requested`` is the whole pod with what a
    cloud injects. ``epochs`` are (done, all) of a training, as its log says. ``workers`` are the pods that run at
    once; ``node`` then names all their nodes, and amounts are those of one pod. ``nodes`` are how many of these
    work together, each on a node of its own, 0 where they do not, and ``generations`` how often they began
    together. ``index`` is that of the pod that made the Job fail. ``results`` are its own result in the store and
    those that it read: by directory the SHA-256 of the manifest.
    """

    urn: str
    name: str
    cluster: str = ""
    namespace: str = ""
    job_name: str = ""
    identity: str = ""
    phase: Phase = Phase.WAITING
    pool: str = ""
    node: str = ""
    accelerator: str = ""
    requested: Resources | None = None
    allocatable: Resources | None = None
    memory_limit: int | None = None
    workers: int = 1
    nodes: int = 0
    generations: int = 0
    index: int | None = None
    started: Seconds = 0.0
    finished: Seconds = 0.0
    pending: Seconds = 0.0
    queued: Seconds = 0.0
    attempts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    peak_memory: int = 0
    epochs: tuple[int, int] | None = None
    notes: list[str] = field(default_factory=list[str])
    results: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def seconds(self) -> float:
        """For how long the Job's last run ran, without what it waited for."""
        return max(self.finished - self.started - self.waited, 0.0)

    @property
    def waited(self) -> float:
        """For how long it waited, in a queue and for nodes."""
        return self.queued + self.pending

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON values."""
        return asdict(self)


# The record of a service or an app: shown during a rehearsal, and in the summary and the report.


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
