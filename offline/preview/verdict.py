"""The verdict, which a preview begins with: losses, failures, new findings; and the order of stacks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from infra.review.policy import Severity
from offline.policies.check import SETTINGS
from offline.preview.model import Failure, Finding, Operation, Outcome, Preview, StackPreview

MOST = 20
"""Most lines of a verdict. The other findings are shown with their stacks."""

OLD = 15
"""How many findings that are not new are listed."""


class Level(IntEnum):
    """The level of a line of the verdict, the worst first."""

    HARM = 0
    FAILURE = 1
    ERROR = 2
    WARNING = 3


@dataclass(frozen=True)
class Line:
    """A finding or a failed evaluation, with all stacks that have it."""

    level: Level
    stacks: Sequence[str]
    said: Finding | Failure


def verdict(preview: Preview) -> list[Line]:
    """Every failure and every new finding, the worst first, each once for all stacks that have it."""
    return _lines((stack.stack, level, said) for stack in preview.stacks for level, said in _said(stack))


def known(preview: Preview) -> list[Line]:
    """The same for findings that the base has, too."""
    return _lines(
        (stack.stack, _level(each), each) for stack in preview.stacks for each in stack.findings if not each.new
    )


def told(preview: Preview) -> list[Line]:
    """The lines of the verdict that are shown first."""
    return verdict(preview)[:MOST]


def untold(preview: StackPreview, lines: Sequence[Line]) -> list[Finding]:
    """The new findings of a stack that are not among ``lines``."""
    said = {_words(line.said) for line in lines if preview.stack in line.stacks}
    return [each for each in preview.findings if each.new and _words(each) not in said]


def impact(preview: StackPreview) -> tuple[float | str, ...]:
    """Sorts stacks by how much a change affects them, the most first."""
    lines = [level for level, _ in _said(preview)]
    changed = [each.operation for each in preview.changes.resources] if preview.changes else []
    runs = preview.changes.runs if preview.changes else []
    run = preview.cost.run if preview.cost is not None and preview.changes is not None else None
    return (
        *(-lines.count(level) for level in Level),
        -changed.count(Operation.DELETE),
        -((run.dollars or 0.0) - run.paid_anyway if run is not None else 0.0),
        -((run.dollars or 0.0) if run is not None else 0.0),
        -sum(each.outcome is Outcome.RUNS for each in runs),
        -changed.count(Operation.REPLACE),
        -len(changed),
        not preview.new_stack,
        preview.stack,
    )


def _lines(said: Iterable[tuple[str, Level, Finding | Failure]]) -> list[Line]:
    found: dict[tuple[str, ...], Line] = {}
    for stack, level, each in said:
        key = (str(level), *_words(each))
        earlier = found[key].stacks if key in found else ()
        found[key] = Line(level, (*earlier, *([] if stack in earlier else [stack])), each)
    return sorted(found.values(), key=lambda line: line.level)


def _said(preview: StackPreview) -> Iterator[tuple[Level, Finding | Failure]]:
    for failure in preview.failures:
        yield (Level.FAILURE if failure.revision == "head" else Level.WARNING), failure
    for finding in preview.findings:
        if finding.new:
            yield _level(finding), finding


def _level(finding: Finding) -> Level:
    if finding.harm:
        return Level.HARM
    if finding.policy == SETTINGS:
        # Problems of the settings are the reason why the stack cannot be evaluated.
        return Level.FAILURE
    return Level.ERROR if finding.severity is Severity.ERROR else Level.WARNING


def _words(said: Finding | Failure) -> tuple[str, ...]:
    if isinstance(said, Failure):
        return said.revision, said.message
    return said.policy, said.name, said.reason, said.fix


@dataclass(frozen=True)
class Group:
    """Stacks with the same text. ``places`` says whether their Jobs run on the same pools, too."""

    stacks: Sequence[StackPreview]
    places: bool

    @property
    def first(self) -> StackPreview:
        """The first of the stacks."""
        return self.stacks[0]


def alike(preview: Preview, written: Callable[[StackPreview, bool], str]) -> list[Group]:
    """Groups the stacks by their text from ``written``, with or without the places of Jobs."""
    found: dict[str, list[StackPreview]] = {}
    for each in preview.stacks:
        if text := written(each, False):
            found.setdefault(text, []).append(each)
    return [Group(each, len({written(stack, True) for stack in each}) == 1) for each in found.values()]
