"""What is known of a step while it runs: the words that everything here passes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tools.watch.progress import Progress


class Phase(StrEnum):
    """Where a pod, or the step that it is of, stands."""

    ABSENT = "not created"
    """There is no Job yet."""
    QUEUED = "queued"
    """The Job is suspended: Kueue has not admitted it, or somebody holds it."""
    CREATING = "has no pod yet"
    WAITING = "waits for a node"
    PULLING = "pulls its image"
    STARTING = "starts"
    """On its node: volumes, init containers."""
    MEETING = "waits for its other pods"
    """The pods of a training on several nodes run, and their programs do not."""
    RUNNING = "runs"
    LOST = "node lost"
    """Its container ran when the node was last heard of."""
    ENDING = "ends"
    RETRYING = "is started again"
    """A pod was taken away, and the next one is not there yet."""
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Its cluster cannot be read."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen by itself."""
        return self in {Phase.DONE, Phase.FAILED}


@dataclass(frozen=True)
class Reason:
    """Why something is as it is: in a plain clause, what mends it, and the words of whoever said so first.

    ``kind`` is one word for it: ``stockout``, ``quota``, ``taint``. ``fix`` is empty where there is only waiting.
    """

    says: str
    fix: str = ""
    words: str = ""
    kind: str = ""


NOTHING = Reason("")


@dataclass(frozen=True)
class PodState:
    """A pod. ``index`` is its completion index, None where its Job has none; ``began`` when it got its node.

    ``running_since`` is when its program started. ``disrupted`` says who took it away, empty where nobody did.
    ``code`` is its program's exit code. ``said`` are the last lines of a program that failed.
    """

    name: str
    uid: str
    phase: Phase
    reason: Reason = NOTHING
    since: datetime | None = None
    index: int | None = None
    node: str = ""
    container: str = ""
    gpus: int = 0
    created: datetime | None = None
    began: datetime | None = None
    running_since: datetime | None = None
    ended: datetime | None = None
    code: int | None = None
    said: str = ""
    disrupted: str = ""

    @property
    def over(self) -> bool:
        """Whether its containers have ended."""
        return self.phase.over

    @property
    def holds_node(self) -> bool:
        """Whether it has a place on a node."""
        return bool(self.node) and not self.over


@dataclass(frozen=True)
class Cost:
    """List prices for the time that a step's pods held their nodes.

    ``dollars`` is None where nothing is known of it. With ``least`` some of the time is not known, so that it is
    more. ``hourly`` is what the nodes cost that it holds now.
    """

    dollars: float | None = None
    hourly: float = 0.0
    least: bool = False


@dataclass(frozen=True)
class StepState:
    """A step, or a Job that no step of the plan has.

    ``job`` is the Kubernetes name of its Job, ``since`` when this phase began, ``began`` and ``ended`` those of
    the Job. ``pods`` are the newest of each index. ``running`` of the ``wanted`` pods run their program.
    ``retries`` is how many pods were taken away and replaced, as far as the cluster still tells; ``retried`` says
    why the last one was. ``deadline`` is when the Job is ended by its time limit. ``remark`` is what else should
    be known of it. ``planned`` says that the program declares it as it is.
    """

    name: str
    job: str
    cluster: str
    pool: str
    phase: Phase
    reason: Reason = NOTHING
    since: datetime | None = None
    began: datetime | None = None
    ended: datetime | None = None
    deadline: datetime | None = None
    pods: Sequence[PodState] = ()
    running: int = 0
    wanted: int = 1
    retries: int = 0
    retried: str = ""
    remark: str = ""
    progress: Progress | None = None
    cost: Cost = field(default_factory=Cost)
    tail: Sequence[str] = ()
    planned: bool = True

    @property
    def gpus(self) -> int:
        """How many GPUs its pods hold now."""
        return sum(pod.gpus for pod in self.pods if pod.holds_node)

    @property
    def says(self) -> str:
        """The phase with its reason, on one line."""
        if self.phase is Phase.RUNNING:
            return f"runs: {self.progress.says}" if self.progress and self.progress.says else "runs"
        return f"{self.phase}: {self.reason.says}" if self.reason.says else str(self.phase)


@dataclass(frozen=True)
class View:
    """A stack at one moment. ``trouble`` is what could not be read, and why.

    ``dollars`` is the cost of all steps together, each node counted once at a time; ``least`` says that it is
    more. ``unpriced`` are pools whose price is not known. ``alarms`` say which scheduled runs
    failed, and which services do not come up.
    """

    stack: str
    at: datetime
    steps: Sequence[StepState] = ()
    trouble: Sequence[str] = ()
    dollars: float | None = None
    least: bool = False
    unpriced: Sequence[str] = ()
    alarms: Sequence[str] = ()
    earlier: int = 0
    """Finished Jobs of earlier runs that are still in the cluster."""

    @property
    def gpus(self) -> int:
        """How many GPUs all steps hold now."""
        return sum(step.gpus for step in self.steps)

    @property
    def hourly(self) -> float:
        """What the nodes cost for an hour that the steps hold now."""
        return sum(step.cost.hourly for step in self.steps)

    @property
    def done(self) -> bool:
        """Whether every step of the plan is done."""
        return all(step.phase is Phase.DONE for step in self.steps if step.planned)

    @property
    def failed(self) -> bool:
        """Whether a step failed and none goes on."""
        phases = {step.phase for step in self.steps}
        return Phase.FAILED in phases and phases <= {Phase.FAILED, Phase.DONE, Phase.ABSENT}
