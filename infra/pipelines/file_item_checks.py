"""What is wrong with the items of the steps of a ``pipeline.yaml``, and with the workers on them.

The same holds for what a stack file says of workers, which `of_section` checks.
"""

import re
from collections.abc import Iterator
from typing import Any

from infra.pipelines import file_references, references
from infra.pipelines.contract import PipelineSettings, Section
from infra.pipelines.file_settings import MODE, WORKERS
from infra.pipelines.pipeline_file import PipelineFile, PipelineStep
from infra.pipelines.results import ITEM_COLUMNS, ITEMS, ITEMS_FILE
from infra.schema.paths import pattern_problem
from infra.schema.problems import Finding, Path, listed

ORDERED = "ordered"

PATTERN = re.compile(r"\{(?P<root>[^{}]*)\}/+(?P<rest>.*[^/])", re.DOTALL)
"""A pattern of files: a directory that a reference names, and what is below it."""


def check(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about items, workers, and what a step with items can have."""
    for name, step in declared.steps.items():
        at: Path = ("steps", name)
        if step.items is None:
            if step.workers is not None:
                reason = "only a step with `items` has workers: several pods would write one directory"
                fix = "add `items`, with a pattern of `files`, or remove it"
                yield Finding((*at, WORKERS), step.workers, reason, fix, read=((*at, "items"),))
            continue
        yield from _files((*at, "items", "files"), name, step, declared)
        yield from _waiting((*at, WORKERS), step.items.mode, step.workers or 1, read=((*at, "items", MODE),))
        yield from _told(at, step)
        yield from _results(at, step)
    if any(step.items for step in declared.steps.values()):
        yield from _names(declared)


def of_section(declared: PipelineFile, section: Section[Any]) -> Iterator[Finding]:
    """Findings about what a stack file says of steps with items."""
    for name, step in declared.steps.items():
        settings = getattr(_steps_of(section.settings), name, None)
        if step.items is None or settings is None:
            continue
        at = section.key("steps", name)
        mode, workers = getattr(settings, MODE), getattr(settings, WORKERS)
        if (mode, workers) != (step.items.mode, step.workers or 1):
            yield from _waiting((*at, WORKERS), mode, workers, read=((*at, MODE),))


def _steps_of(settings: PipelineSettings) -> object:
    return getattr(settings, "steps", None)


def _waiting(at: Path, mode: str, workers: int, read: tuple[Path, ...]) -> Iterator[Finding]:
    """More workers than can work, however the items are handed out."""
    if mode == ORDERED and workers > 1:
        reason = f"in the mode `{ORDERED}` one item is worked on at a time, so {workers - 1} of them would idle"
        yield Finding(at, workers, reason, f"write `{WORKERS}: 1`, or `{MODE}: parallel`", read=read)


def _files(at: Path, name: str, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    assert step.items is not None
    pattern = step.items.files
    wrong = list(file_references.in_items(at, pattern, name, declared))
    if wrong:
        yield from wrong
        return
    match = PATTERN.fullmatch(pattern)
    if match is None or match["root"] in declared.parameters or ".." in match["rest"].split("/"):
        roots = [f"{{{each}}}" for each in (*(each for each in declared.steps if each != name), references.STORE)]
        reason = "not a pattern of files below the output of a step, or below the store"
        yield Finding(at, pattern, reason, f"begin it with {listed(roots)}: `{roots[0]}/days/*.csv`")
        return
    if why := pattern_problem(pattern):
        yield Finding(at, pattern, why, "write a shorter pattern")
        return
    for read in references.names(pattern):
        other = declared.steps.get(read)
        if other is not None and other.matrix and not other.best:
            reason = f"`{read}` becomes several steps, and items are files of one directory"
            yield Finding(at, pattern, reason, f"add `best` to `{read}`", read=(("steps", read),))


def _told(at: Path, step: PipelineStep) -> Iterator[Finding]:
    """A program that is not told on which item it works."""
    words = [name for word in step.run for name in references.names(word)]
    if step.run and references.ITEM not in words:
        reason = "nothing tells the program which item it works on"
        fix = 'add `{item}` where it takes the path: `--day, "{item}"`'
        yield Finding((*at, "run"), step.run, reason, fix, read=((*at, "items"),))


def _results(at: Path, step: PipelineStep) -> Iterator[Finding]:
    assert step.items is not None
    for key, result in step.results.items():
        where = [result.number, result.table, result.curves, result.picture, result.file]
        path = next((each for each in where if each is not None), "").partition("#")[0]
        if key == ITEMS:
            reason = "the table of the items has that name, and every step with items has one"
            yield Finding((*at, "results", key), key, reason, "choose another name; `items.columns` adds columns")
        elif path and path != ITEMS_FILE:
            reason = f"each item has a directory of its own; that of the step has `{ITEMS_FILE}` alone"
            fix = "add the value to `items.columns`, or make the file in a later step that reads all items"
            yield Finding((*at, "results", key), path, reason, fix, read=((*at, "items"),))
    known = {column.key for column in ITEM_COLUMNS}
    for key in step.items.columns:
        if key in known:
            reason = "every table of items has that column"
            yield Finding((*at, "items", "columns", key), key, reason, "remove it, or rename the value")


def _names(declared: PipelineFile) -> Iterator[Finding]:
    for name in references.OF_ITEMS:
        for section, there in (("steps", declared.steps), ("parameters", declared.parameters)):
            if name in there:
                reason = f"`{{{name}}}` means something else in commands of steps with items"
                yield Finding((section, name), name, reason, "choose another name", read=(("steps",),))
