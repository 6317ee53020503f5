"""What is known of a step while it runs: the words that everything here passes on."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from slipway.infra.review.stack import Properties


def duration(seconds: float) -> str:
    """``8 s``, ``3 min``, ``2 h 05 min``, ``3 d 4 h``."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        minutes = whole % 3600 // 60
        return f"{whole // 3600} h {minutes:02d} min" if minutes else f"{whole // 3600} h"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ago(since: datetime | None, now: datetime) -> str:
    """How long ago that was; empty where it is not known."""
    return duration((now - since).total_seconds()) if since else ""


def times(number: int) -> str:
    """``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def dollars(amount: float) -> str:
    """``$0.004``, ``$1.20``, ``$340``."""
    if amount and amount < 0.01:
        return f"${amount:.3f}" if amount >= 0.0005 else "under $0.001"
    return f"${amount:,.2f}" if amount < 100 else f"${amount:,.0f}"


KEPT = 200
"""Lines of a log that are kept for the screen."""

LONGEST = 400
"""Characters of a line that are kept: a progress bar without line breaks is one line of many thousands."""


@dataclass
class Progress:
    """What the newest lines say; None where they say nothing of it.

    ``epoch_over`` says that the epoch named last has ended. ``rate`` is with its unit, as the program wrote it.
    ``items`` are those that this step's pods finished, ``failed`` those that they gave up, ``of`` all there are.
    ``generation`` counts how often the programs of several nodes were started together; ``gathering`` says why
    they do not run, empty while they do. ``node_up`` is for how many seconds its node was there when it last said
    so, ``program`` how many of them the program had until then, ``loading`` those before its GPUs were busy.
    """

    epoch: float | None = None
    epochs: int | None = None
    epoch_over: bool = False
    step: int | None = None
    steps: int | None = None
    loss: str = ""
    accuracy: str = ""
    rate: str = ""
    items: int | None = None
    failed: int = 0
    of: int | None = None
    least: bool = False
    generation: int = 0
    gathering: str = ""
    busy: float | None = None
    idle: float = 0.0
    wasted: bool = False
    node_up: int | None = None
    program: int = 0
    loading: int = 0
    last: str = ""

    @property
    def says(self) -> str:
        """``epoch 3 of 12, step 45 of 60, loss 0.3121, 4,120 images/s``; else the last line."""
        parts: list[str] = []
        if self.epoch is not None:
            parts.append(f"epoch {self.epoch:g}" + (f" of {self.epochs}" if self.epochs else ""))
            if self.epoch_over:
                parts[-1] += " is done"
        if self.step is not None and not self.epoch_over:
            parts.append(f"step {self.step}" + (f" of {self.steps}" if self.steps else ""))
        if self.loss:
            parts.append(f"loss {self.loss}")
        if self.accuracy:
            parts.append(f"accuracy {self.accuracy}")
        if self.rate:
            parts.append(self.rate)
        if self.items is not None:
            number = f"{'at least ' if self.least else ''}{self.items}"
            parts.append(f"{number} of {self.of} items done" if self.of else f"{number} items done")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.busy is not None:
            parts.append(f"GPU {100 * self.busy:.0f} % busy")
        return ", ".join(parts) or self.last

    @property
    def share(self) -> float | None:
        """How much of the work is done, from 0 to 1; None where that cannot be told."""
        if self.items is not None and self.of and not self.least:
            return min(self.items / self.of, 1.0)
        if self.epoch is not None and self.epochs:
            whole = self.epoch if self.epoch_over else self.epoch - 1
            part = self.step / self.steps if self.step and self.steps and not self.epoch_over else 0.0
            return max(0.0, min((whole + part) / self.epochs, 1.0))
        if self.epoch is None and self.step is not None and self.steps:
            return min(self.step / self.steps, 1.0)
        return None


_NUMBER = r"[-+]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?|nan|inf"

# Colours, cursor movements and backspaces: Keras writes its bar with them also where there is no terminal.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x08|\x1b[()][A-Z0-9]")

_EPOCH = re.compile(
    r"""(?ix) (?:^|[\s\[({,'"]) epoch ['"]? [\s:=#]* \[? (?P<epoch>\d+(?:\.\d+)?)
    (?:\s*(?:/|of)\s*(?P<epochs>\d+))?"""
)
# What workloads/mnist/train.py prints at the end of an epoch.
_EPOCH_OVER = re.compile(r"Epoch \d+/\d+ - loss ")
_BAR = re.compile(r"^\s*(?P<step>\d+)/(?P<steps>\d+)(?=\s+(?:[━\[╸╺]|-))")
_STEP = re.compile(
    r"(?i)(?:^|[\s\[({,'\"])(?:global[ _])?(?:step|iteration|iter|batch)['\"]?[\s:=#]*(?P<step>\d+)"
    r"(?:\s*(?:/|of)\s*(?P<steps>\d+))?(?![\d.])"
)
_TQDM = re.compile(r"\d+%\|.*?\|\s*(?P<step>\d+)/(?P<steps>\d+)\s*\[")
_LOSS = re.compile(rf"(?i)(?<![\w])(?:train(?:ing)?[ _])?loss['\"]?\s*[:= ]\s*(?P<value>{_NUMBER})")
_ACCURACY = re.compile(
    rf"(?i)(?<![\w])(?:train(?:ing)?[ _])?(?:acc|accuracy|\w*categorical_accuracy)['\"]?\s*[:= ]\s*"
    rf"(?P<value>{_NUMBER})"
)
_RATE = re.compile(
    r"(?i)(?P<value>\d[\d,]*(?:\.\d+)?)\s*"
    r"(?P<unit>(?:images?|imgs?|examples?|samples?|tokens?|records?|rows?|batch(?:es)?|steps?|it)\s*(?:/|per)\s*s(?:ec(?:ond)?)?)\b"
)

# What slipway.features.items.pod.item_worker prints of items: `fraud-01.csv: done in 3.2 s`.
_CLAIMED = re.compile(r"^(?P<item>.+): claimed \(attempt \d+\)$")
_ITEM_DONE = re.compile(r"^(?P<item>.+): (?:done in [\d.]+ s|done before|taken from an earlier (?:attempt|run))$")
_ITEM_FAILED = re.compile(r"^(?P<item>.+): failed: .*; (?P<then>[^;]*)$")
_SET_ASIDE = "set aside"
_QUEUED = re.compile(r"^put (?P<of>\d+) items into the queue, of which \d+ are done$")
_PUBLISHED_ITEMS = re.compile(r"^Published \d+ files of (?P<of>\d+) items: ")


# What slipway.features.nodes.pod.group prints of the programs of several nodes.
_STARTED = re.compile(r"^Generation (?P<number>\d+): .*all programs start(?: again)?$")
_STOPPED = re.compile(r"^Generation (?P<number>\d+) ended: (?P<why>.*)$")
_GATHERING = re.compile(r"^waiting for (?:\d+ of \d+ pods: |pods that check their inputs: ).*$")


# What slipway.runtime.usage.measure prints of the use of GPUs.
_USE = re.compile(r"^Use: (?:GPU busy (?P<busy>\d+) %, idle (?P<idle>\d+) % of \d+ s)?")
_NODE = re.compile(r", node up (?P<up>\d+) s, (?:loading (?P<loading>\d+) s, )?program (?P<program>\d+) s$")
_WASTED = re.compile(r"^warning: (?:the GPU|\d+ GPUs) did next to nothing for \d+ % of ")


def as_on_terminal(line: str) -> str:
    """A line as a terminal would leave it: without colours, and of what was overwritten only the last."""
    parts = [_CONTROL.sub("", part).rstrip() for part in line.split("\r")]
    return next((part for part in reversed(parts) if part.strip()), "")


@dataclass
class Reading:
    """Reads a log's lines one after the other; ``progress`` is what they say so far, ``tail`` the last ones."""

    progress: Progress = field(default_factory=Progress)
    tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=KEPT))
    done: set[str] = field(default_factory=set[str])
    failed: set[str] = field(default_factory=set[str])

    def feed(self, line: str) -> None:
        """Takes up a line. Of what a carriage return overwrote, only the last counts."""
        text = as_on_terminal(line)[-LONGEST:]
        if not text:
            return
        self.tail.append(text)
        if self._read_use(text):
            return
        self.progress.last = text.strip()
        if not self._read_nodes(text) and not self._read_items(text):
            self._read_training(text)

    def _read_use(self, line: str) -> bool:
        if _WASTED.match(line):
            self.progress.wasted = True
            return True
        use = _USE.match(line)
        if use and use["busy"]:
            self.progress.busy, self.progress.idle = int(use["busy"]) / 100, int(use["idle"]) / 100
            self.progress.wasted = False
        if use and (node := _NODE.search(line)):
            self.progress.node_up, self.progress.program = int(node["up"]), int(node["program"])
            self.progress.loading = int(node["loading"] or 0)
        return use is not None

    def _read_nodes(self, line: str) -> bool:
        progress = self.progress
        if started := _STARTED.match(line):
            progress.generation, progress.gathering = int(started["number"]), ""
        elif stopped := _STOPPED.match(line):
            progress.generation = int(stopped["number"])
            progress.gathering = f"all programs were stopped: {stopped['why']}"
        elif _GATHERING.match(line):
            progress.gathering = line
        else:
            return False
        return True

    def _read_items(self, line: str) -> bool:
        progress = self.progress
        if done := _ITEM_DONE.match(line):
            self.done.add(done["item"])
            self.failed.discard(done["item"])
        elif failed := _ITEM_FAILED.match(line):
            if failed["then"] == _SET_ASIDE:
                self.failed.add(failed["item"])
        elif total := _QUEUED.match(line) or _PUBLISHED_ITEMS.match(line):
            progress.of = int(total["of"])
        elif not _CLAIMED.match(line):
            return False
        # From the first item that a worker claims on, a step's items are counted.
        progress.items, progress.failed = len(self.done), len(self.failed)
        return True

    def _read_training(self, line: str) -> None:
        progress = self.progress
        bar = _BAR.search(line) or _TQDM.search(line) or _STEP.search(line)
        if epoch := _EPOCH.search(line):
            progress.epoch = float(epoch["epoch"])
            progress.epochs = int(epoch["epochs"]) if epoch["epochs"] else progress.epochs
            # Others write the epoch's number with a loss in the middle of it, and Keras alone at its start.
            progress.epoch_over = bool(_EPOCH_OVER.match(line))
            progress.step = progress.steps = None
        if bar:
            progress.step, progress.steps = int(bar["step"]), int(bar["steps"]) if bar["steps"] else None
            whole = progress.steps is not None and progress.step >= progress.steps
            progress.epoch_over = progress.epoch is not None and whole
        if loss := _LOSS.search(line):
            progress.loss = loss["value"]
        if accuracy := _ACCURACY.search(line):
            progress.accuracy = accuracy["value"]
        if rate := _RATE.search(line):
            progress.rate = f"{rate['value']} {rate['unit']}"


def together(readings: list[Reading], *, cut: bool = False) -> Progress | None:
    """What several pods of a step say: the items of all, everything else from the first.

    ``cut`` says that the beginning of a log is missing.
    """
    if not readings:
        return None
    first = readings[0].progress
    if all(reading.progress.items is None for reading in readings):
        return replace(first)
    done = {item for reading in readings for item in reading.done}
    failed = {item for reading in readings for item in reading.failed} - done
    of = max(reading.progress.of or 0 for reading in readings) or None
    return replace(first, items=len(done), failed=len(failed), of=of, least=cut)


class Phase(StrEnum):
    """Where a pod, or the step that it is of, stands."""

    ABSENT = "not created"
    """There is no Job yet."""
    HELD = "not started"
    """The Job is suspended until those before it are done, and `up` does not wait for it."""
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
class Hold:
    """What a feature holds a Job back by. ``reason`` is why, while the Job is suspended.

    It stopped the Job ``stops`` times, the last time because of ``why``. ``misled`` takes a pod that no node's
    labels suit, with the scheduler's words: why, where the feature changed what the pod selects.
    """

    reason: Reason
    stops: int = 0
    why: str = ""
    misled: Callable[[Properties, str], Reason | None] = lambda _, __: None


@dataclass(frozen=True)
class Nodes:
    """The nodes that a step asks for, in words; what is empty is not known.

    ``machine`` is ``Spot n1-standard-4 with 1 nvidia-tesla-t4``, ``zones`` are ``us-central1-a, us-central1-c``.
    ``queued`` says that they are asked for, and come some time. ``elsewhere`` is what to write so that the step
    takes those of other pools.
    """

    pool: str = ""
    machine: str = ""
    zones: str = ""
    queued: bool = False
    elsewhere: str = ""

    @property
    def words(self) -> Mapping[str, str]:
        """What is known, by the names that rows of `waiting.toml` have for it."""
        names = {"pool": self.pool, "machine": self.machine, "zones": self.zones, "elsewhere": self.elsewhere}
        return {name: value for name, value in names.items() if value}


@dataclass(frozen=True)
class PodState:
    """A pod. ``index`` is its completion index, None where its Job has none; ``began`` when it got its node.

    ``running_since`` is when its program started. ``disrupted`` says who took it away, empty where nobody did.
    ``code`` is its program's exit code.
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
class NodeTime:
    """GPU nodes by cluster and name, with the seconds for which each was there when that was last said, and the
    seconds of programs on them until then; ``loading`` are those before, until their GPUs were busy.
    """

    up: Mapping[tuple[str, str], int]
    useful: int
    loading: int = 0

    @property
    def paid(self) -> int:
        """The seconds of all nodes."""
        return sum(self.up.values())

    @property
    def says(self) -> str:
        """``GPU nodes up 1,240 s, loading 70 s, programs 590 s: paid ÷ useful is 2.10 so far``."""
        ratio = f": paid ÷ useful is {self.paid / self.useful:.2f} so far" if self.useful else ""
        loading = f", loading {self.loading:,} s" if self.loading else ""
        return f"GPU nodes up {self.paid:,} s{loading}, programs {self.useful:,} s{ratio}"


def add_up(times: Iterable[NodeTime | None]) -> NodeTime | None:
    """The time of the nodes of several steps, each node once; None where nothing is known of any."""
    known = [time for time in times if time is not None]
    up: dict[tuple[str, str], int] = {}
    for node, seconds in (entry for time in known for entry in time.up.items()):
        up[node] = max(up.get(node, 0), seconds)
    useful, loading = sum(time.useful for time in known), sum(time.loading for time in known)
    return NodeTime(up, useful, loading) if known else None


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
    def node_time(self) -> NodeTime | None:
        """The time of its nodes, as its log says it; None where it does not."""
        progress, nodes = self.progress, {(self.cluster, pod.node) for pod in self.pods if pod.node}
        if progress is None or progress.node_up is None:
            return None
        count = len(nodes)
        return NodeTime(dict.fromkeys(nodes, progress.node_up), progress.program * count, progress.loading * count)

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
    waiting: Sequence[str] = ()
    """Which apps wait for results."""

    @property
    def gpus(self) -> int:
        """How many GPUs all steps hold now."""
        return sum(step.gpus for step in self.steps)

    @property
    def node_time(self) -> NodeTime | None:
        """The time of the GPU nodes of all steps; None where no log says it."""
        return add_up(step.node_time for step in self.steps)

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
        return Phase.FAILED in phases and phases <= {Phase.FAILED, Phase.DONE, Phase.ABSENT, Phase.HELD}
