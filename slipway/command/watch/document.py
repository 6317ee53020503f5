"""`slipway watch --once --format json`: a stack at one moment, as data."""

from datetime import datetime
from typing import Literal

from slipway.command.watch.states import View
from slipway.evaluated.model import EnumName, Model

FORMAT = 1


class Reason(Model):
    """Why something is as it is, as `slipway.command.watch.states.Reason`."""

    says: str
    fix: str
    words: str
    kind: str


class Pod(Model):
    """A pod, as `slipway.command.watch.states.PodState`."""

    name: str
    phase: EnumName
    reason: Reason
    index: int | None
    node: str
    gpus: int
    created: datetime | None
    began: datetime | None
    ended: datetime | None
    code: int | None
    disrupted: str


class Progress(Model):
    """How far a program is, as `slipway.command.watch.states.Progress`; ``share`` is from 0 to 1."""

    says: str
    share: float | None
    epoch: float | None
    epochs: int | None
    step: int | None
    steps: int | None
    items: int | None
    failed: int
    of: int | None


class Cost(Model):
    """List prices in dollars, as `slipway.command.watch.states.Cost`."""

    dollars: float | None
    hourly: float
    least: bool


class NodeTime(Model):
    """Seconds of GPU nodes when that was last said, and of programs on them until then; ``loading`` are those
    before, until their GPUs were busy.
    """

    paid: int
    useful: int
    loading: int


class Step(Model):
    """A step, or a Job that the program does not declare, as `slipway.command.watch.states.StepState`."""

    name: str
    job: str
    cluster: str
    pool: str
    planned: bool
    phase: EnumName
    reason: Reason
    since: datetime | None
    began: datetime | None
    ended: datetime | None
    deadline: datetime | None
    pods: list[Pod]
    running: int
    wanted: int
    retries: int
    retried: str
    remark: str
    progress: Progress | None
    cost: Cost
    node_time: NodeTime | None


class Watched(Model):
    """A stack, as `slipway.command.watch.states.View`."""

    format: Literal[1] = FORMAT
    stack: str
    at: datetime
    done: bool
    failed: bool
    trouble: list[str]
    steps: list[Step]
    alarms: list[str]
    waiting: list[str]
    earlier: int
    gpus: int
    hourly: float
    dollars: float | None
    least: bool
    unpriced: list[str]
    node_time: NodeTime | None


def watched(view: View) -> Watched:
    """The stack as data."""
    return Watched.model_validate(view, from_attributes=True)
