"""A step that works piece by piece: its program runs once for each file of a pattern, in one pod or in several.

A service hands the items out, or each pod has its own share of them; `slipway.features.items.pod.worker` runs it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from slipway.infra.features import Feature
from slipway.infra.pipelines import pods
from slipway.infra.pipelines.pods import Word
from slipway.infra.pipelines.results import (
    ITEM_COLUMNS,
    ITEMS_FILE,
    DeclaredColumn,
    Result,
    TableColumn,
    declare_columns,
    items_table,
)
from slipway.infra.pipelines.scripts import is_script, script_of
from slipway.infra.pipelines.step_keys import INTERRUPTED, KILLED, InPod, StepKey, StepPart, told
from slipway.infra.schema.base import Duration, Int, Model, refuse
from slipway.infra.schema.paths import pattern_problem
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.quantities import seconds

if TYPE_CHECKING:
    from slipway.infra.pipelines.file.shape import PipelineFile, PipelineStep

ITEMS = "items"

WORKERS, MODE, ASSIGNMENT = "workers", "mode", "assignment"
"""Keys of a step with items in a pipeline's section."""

QUEUE, STATIC = "queue", "static"
"""How items come to workers: a service hands them out, or each has its own share."""

ORDERED = "ordered"

TOLD: Mapping[str, str] = {
    "workers": "the number of its workers changed from {} to {}",
    "lease": "its lease, in seconds, changed from {} to {}",
    "attempts": "the number of attempts at an item changed from {} to {}",
    "allow_failed": "how many of its items may fail changed from {} to {}",
}
"""`Items.tells` as text."""

MOST_WORKERS = 1000
"""Pods of one step: a namespace of so many is still a small one for Kubernetes, and a mistake has more."""

SHORTEST_LEASE, LONGEST_LEASE = 5, 3600
"""Seconds. A worker says several times in a lease that it lives, over a network that may be slow for seconds; and
for as long as a lease, nobody takes over the item of a worker that died."""


def _lease(value: str) -> str:
    if not SHORTEST_LEASE <= seconds(value) <= LONGEST_LEASE:
        example = f"write `{SHORTEST_LEASE}s` to `{LONGEST_LEASE // 60}m`, for example `60s`"
        raise refuse(f"{seconds(value)} seconds, and a lease has {SHORTEST_LEASE} to {LONGEST_LEASE}", example)
    return value


class StepItems(Model):
    """What a step works on piece by piece: its program runs once for each item, a file that `files` matches. An
    item's name is that of the file without its extension: `day-1` for `day-1.csv` and `day-1.csv.gz`. Items are
    ordered by name. A pattern that matches no file, or two of one name, fails the step.
    """

    files: Word = Field(
        description="A pattern of files, with the references of `run`: `{prepare}/days/*.csv`, `{store}/days/*`."
    )
    mode: Literal["parallel", "ordered"] = Field(
        default="parallel",
        description="`ordered`: one item after the other, each with the result of the one before as `{previous}`.",
    )
    queue: str | None = Field(
        default=None,
        description="The service that hands the items out; default: each worker has its own share of them.",
    )
    attempts: Int = Field(
        default=3, ge=1, le=100, description="After so many failures an item is set aside, and the others go on."
    )
    allow_failed: Int = Field(
        default=0, ge=0, description="The step fails in the end where more items than this were set aside."
    )
    lease: Annotated[Duration, AfterValidator(_lease)] = Field(
        default="60s", description="A worker that is silent for so long loses its item to another one."
    )
    columns: dict[str, DeclaredColumn] = Field(
        default_factory=dict[str, TableColumn],
        description="More columns of the table of items: values of the `summary.json` that the program leaves.",
    )


class WithItems(Model):
    """Keys of a step that works piece by piece."""

    items: StepItems | None = Field(
        default=None, description="What its program runs for piece by piece; default: it runs once."
    )
    workers: Int | None = Field(
        default=None,
        ge=1,
        le=MOST_WORKERS,
        description="Pods that work on the items at once; default: 1.",
    )


@dataclass(frozen=True)
class Items(StepPart):
    """The items of a step. ``files`` is their pattern, ``mode`` and ``queue`` are those of `StepItems`, with what
    a stack file changes; ``lease`` is in seconds. An item that failed ``attempts`` times is set aside, and the
    step fails in the end where more than ``allow_failed`` were.
    """

    files: str
    mode: Literal["parallel", "ordered"] = "parallel"
    queue: str | None = None
    attempts: int = 3
    allow_failed: int = 0
    lease: int = 60
    pods: int = 1
    results: Sequence[Result] = ()

    key: ClassVar[str] = ITEMS
    pods_key: ClassVar[str] = WORKERS
    module: ClassVar[str] = "slipway.features.items.pod.worker"
    # An item counts its own attempts.
    tolerated: ClassVar[Sequence[int]] = (KILLED, INTERRUPTED)
    is_indexed: ClassVar[bool] = True
    is_shared: ClassVar[bool] = True

    @property
    def references(self) -> Sequence[str]:
        """What is another with each item."""
        return (*pods.OF_ITEMS, pods.OUTPUT)

    @property
    def reads(self) -> Sequence[str]:
        """What the pattern names."""
        return [*pods.names(self.files)]

    @property
    def decides(self) -> Mapping[str, object]:
        """Which items there are, and what each is given of the one before."""
        return {ITEMS: {"files": self.files, "mode": self.mode}}

    def tells(self, pod: InPod) -> Mapping[str, object]:
        """How workers share the items."""
        address = pod.services[self.queue][0] if self.queue else ""
        told = {"workers": self.pods, "attempts": self.attempts, "allow_failed": self.allow_failed}
        return {**told, "lease": self.lease, "queue": address}

    def fill(self, fill: Callable[[str], str]) -> Self:
        """The same with the whole pattern."""
        return replace(self, files=fill(self.files))

    def work_flags(self, pod: InPod) -> list[str]:
        """What says which items there are."""
        return ["--items", self.files.format_map(pod.directories), "--mode", self.mode]

    def flags(self, pod: InPod) -> list[str]:
        """What a worker has to know."""
        flags = [*self.work_flags(pod), "--attempts", str(self.attempts)]
        flags += ["--allow-failed", str(self.allow_failed), "--lease", str(self.lease)]
        flags += ["--workers", str(self.pods), "--fingerprint", pod.surroundings]
        if self.queue:
            address, password = pod.services[self.queue]
            flags += ["--queue", address, "--queue-password", password]
        return flags


class ItemsKey(StepKey):
    """The key `items`, and `workers` beside it."""

    name: ClassVar[str] = ITEMS
    part: ClassVar[type[StepPart]] = Items
    fields: ClassVar[type[Model]] = WithItems
    references: ClassVar[Mapping[str, str]] = dict.fromkeys(
        pods.OF_ITEMS, "add `items`, with a pattern of `files`, or remove it"
    )
    explains: ClassVar[Sequence[str]] = (ITEMS,)

    def settings(self, step: Any) -> Mapping[str, Any]:
        """How many workers share the items, and how."""
        mode = step.items.mode if step.items else "parallel"
        queue = step.items and step.items.queue
        workers = Annotated[Int, Field(ge=1, le=MOST_WORKERS)]

        def has_queue(value: str) -> str:
            if value == QUEUE and step.items and not queue:
                fix = f"write `{STATIC}`, or add `queue: <service>` to the `items` of the step in `pipeline.yaml`"
                raise refuse("the pipeline names no service that hands out the items of this step", fix)
            return value

        assignment = Annotated[Literal["queue", "static"], AfterValidator(has_queue)]
        order = "Whether its items wait for one another."
        handing = "Whether a service hands its items out, or each worker has its own share."
        return {
            WORKERS: (
                workers,
                Field(default=step.workers or 1, description="Pods that share its items."),
            ),
            MODE: (StepItems.model_fields["mode"].annotation, Field(default=mode, description=order)),
            ASSIGNMENT: (assignment, Field(default=QUEUE if queue else STATIC, description=handing)),
        }

    def findings(self, file: Any) -> Iterator[Finding]:
        """What is wrong with items, workers, and what a step with items can have."""
        yield from _check(file)

    def words(self, step: Any) -> Sequence[str]:
        """The pattern."""
        return [step.items.files] if step.items else []

    def in_run(self, step: Any, file: Any) -> Sequence[str]:
        """An item that waits for no other has none before it."""
        if step.items is None:
            return ()
        waits = step.items.mode == ORDERED or pods.PREVIOUS in file.parameters
        return pods.OF_ITEMS if waits else (pods.ITEM,)

    def word_findings(self, at: Path, word: str, step: Any, file: Any, *, environment: bool) -> Iterator[Finding]:
        """References that mean nothing there."""
        read = ((*at[:2], ITEMS),)
        of_item = [name for name in pods.names(word) if name in (*pods.OF_ITEMS, pods.OUTPUT)]
        names = [name for name in of_item if name not in file.parameters]
        if environment and names:
            reason = f"`{{{names[0]}}}` is another for each item, and all items have one environment"
            yield Finding(at, word, reason, "write it in `run`", read=read)
        elif pods.PREVIOUS in names and pods.PREVIOUS not in self.in_run(step, file):
            reason = f"`{{{pods.PREVIOUS}}}` is the result of the item before, and these wait for no other"
            yield Finding(at, word, reason, "write `mode: ordered` in `items`, or remove it", read=read)

    def section_findings(self, at: Path, step: Any, settings: Any, file: Any) -> Iterator[Finding]:
        """More workers than can work, where a stack file says so."""
        if (settings.mode, settings.workers) != (step.items.mode, step.workers or 1):
            yield from waiting((*at, WORKERS), settings.mode, settings.workers, read=((*at, MODE),))

    def connects(self, step: Any, settings: Any = None) -> Mapping[str, Path]:
        """The queue, unless a stack file does without."""
        queue = step.items.queue if step.items else None
        is_used = settings is None or getattr(settings, ASSIGNMENT, None) == QUEUE
        return {queue: (ITEMS, "queue")} if queue and is_used else {}

    def declare(self, step: Any, settings: Any, file: Any, fill: Callable[[str], str]) -> Items | None:
        """The items, as a stack file has them."""
        if step.items is None:
            return None
        return Items(
            files=fill(step.items.files),
            mode=settings.mode,
            queue=next(iter(self.connects(step, settings)), None),
            attempts=step.items.attempts,
            allow_failed=step.items.allow_failed,
            lease=seconds(step.items.lease),
            pods=settings.workers,
            results=(items_table(declare_columns(step.items.columns)),),
        )

    def causes(self, old: Any, new: Any) -> Iterator[str]:
        """How the work is shared, and which items there are."""
        yield from told(TOLD, old, new)
        queue = new.tells.get("queue")
        if old.tells and new.tells and old.tells.get("queue") != queue:
            yield (
                f"its items come from {queue} now"
                if queue
                else "each of its workers has its own share of the items"
            )
        before, after = old.decides.get(ITEMS), new.decides.get(ITEMS)
        if before and after and before["files"] == after["files"] and before != after:
            yield f"its mode changed from {before['mode']} to {after['mode']}"
        elif before != after:
            yield "which items it has changed"


def waiting(at: Path, mode: str, workers: int, read: tuple[Path, ...]) -> Iterator[Finding]:
    """More workers than can work, however the items are handed out."""
    if mode == ORDERED and workers > 1:
        reason = f"in the mode `{ORDERED}` one item is worked on at a time, so {workers - 1} of them would idle"
        yield Finding(at, workers, reason, f"write `{WORKERS}: 1`, or `{MODE}: parallel`", read=read)


PATTERN = re.compile(r"\{(?P<root>[^{}]*)\}/+(?P<rest>.*[^/])", re.DOTALL)
"""A pattern of files: a directory that a reference names, and what is below it."""


def _check(declared: Any) -> Iterator[Finding]:
    """Findings about items, workers, and what a step with items can have."""
    for name, step in declared.steps.items():
        at: Path = ("steps", name)
        items, workers = step.items, step.workers
        if items is None:
            if workers is not None:
                reason = "only a step with `items` has workers: several pods would write one directory"
                fix = "add `items`, with a pattern of `files`, or remove it"
                yield Finding((*at, WORKERS), workers, reason, fix, read=((*at, ITEMS),))
            continue
        yield from _files((*at, ITEMS, "files"), items.files, name, declared)
        yield from waiting((*at, WORKERS), items.mode, workers or 1, read=((*at, ITEMS, MODE),))
        yield from _item_reference(at, step)
        yield from _results(at, step, items)
    if any(step.items for step in declared.steps.values()):
        yield from _names(declared)


def _files(at: Path, pattern: str, name: str, declared: "PipelineFile") -> Iterator[Finding]:
    from slipway.infra.pipelines.file.references import in_word

    others = [step for step in declared.steps if step != name]
    known = [pods.STORE, *declared.parameters, *declared.inputs, *others]
    wrong = list(in_word(at, pattern, known, name, declared))
    if wrong:
        yield from wrong
        return
    match = PATTERN.fullmatch(pattern)
    if match is None or match["root"] in declared.parameters or ".." in match["rest"].split("/"):
        roots = [f"{{{root}}}" for root in (*declared.steps, *declared.inputs, pods.STORE) if root != name]
        reason = "not a pattern of files below the output of a step, an input or the store"
        yield Finding(at, pattern, reason, f"begin it with {listed(roots)}: `{roots[0]}/days/*.csv`")
        return
    if why := pattern_problem(pattern):
        yield Finding(at, pattern, why, "write a shorter pattern")
        return
    for read in pods.names(pattern):
        other = declared.steps.get(read)
        if other is not None and other.matrix and not other.best:
            reason = f"`{read}` becomes several steps, and items are files of one directory"
            yield Finding(at, pattern, reason, f"add `best` to `{read}`", read=(("steps", read),))


def _item_reference(at: Path, step: "PipelineStep") -> Iterator[Finding]:
    """A finding where the command does not name the item."""
    words = [name for word in step.run for name in pods.names(word)]
    if step.run and pods.ITEM not in words:
        reason = "nothing tells the program which item it works on"
        fix = 'add `{item}` where it takes the path: `--day, "{item}"`'
        command = script_of(step.run) if is_script(step.run) else step.run
        yield Finding((*at, "run"), command, reason, fix, read=((*at, ITEMS),))


def _results(at: Path, step: "PipelineStep", items: StepItems) -> Iterator[Finding]:
    for key, result in step.results.items():
        paths = [result.number, result.table, result.curves, result.picture, result.file]
        path = next((path for path in paths if path is not None), "").partition("#")[0]
        if key == ITEMS:
            reason = "the table of the items has that name, and every step with items has one"
            yield Finding((*at, "results", key), key, reason, "choose another name; `items.columns` adds columns")
        elif path and path != ITEMS_FILE:
            reason = f"each item has a directory of its own; that of the step has `{ITEMS_FILE}` alone"
            fix = "add the value to `items.columns`, or make the file in a later step that reads all items"
            yield Finding((*at, "results", key), path, reason, fix, read=((*at, ITEMS),))
    known = {column.key for column in ITEM_COLUMNS}
    for key in items.columns:
        if key in known:
            reason = "every table of items has that column"
            yield Finding((*at, ITEMS, "columns", key), key, reason, "remove it, or rename the value")


def _names(declared: "PipelineFile") -> Iterator[Finding]:
    for name in pods.OF_ITEMS:
        for section, names in (("steps", declared.steps), ("parameters", declared.parameters)):
            if name in names:
                reason = f"`{{{name}}}` means something else in commands of steps with items"
                yield Finding((section, name), name, reason, "choose another name", read=(("steps",),))


FEATURE = Feature(step_keys=(ItemsKey(),))
