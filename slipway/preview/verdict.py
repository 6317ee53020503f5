"""The verdict at the beginning of a preview: losses, failures and new findings. Also orders the stacks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slipway.evaluated import phrasing
from slipway.evaluated.model import Failure, Finding, Level, Operation, Outcome, Preview, StackPreview

MOST = 20
"""How many lines a verdict has before warnings are left to their stacks. Errors and harm are never left out."""

OLD = 15
"""The same for findings that are not new."""


@dataclass(frozen=True)
class Line:
    """Findings with one reason, or a failed evaluation.

    ``finding`` is the first finding or the failure. ``names`` are the names of the resources by stack: none of a
    failure.
    """

    level: Level
    finding: Finding | Failure
    names: Mapping[str, Sequence[str]]

    @property
    def stacks(self) -> Sequence[str]:
        """All stacks that have it."""
        return list(self.names)

    @property
    def resources(self) -> Sequence[str]:
        """The names of the resources, each once; without their kind where it is the same for several."""
        names = list(dict.fromkeys(name for names_of_stack in self.names.values() for name in names_of_stack))
        kinds = {phrasing.kind_of(name) for name in names}
        return [phrasing.without_kind(name) for name in names] if len(names) > 1 == len(kinds) else names

    @property
    def subject(self) -> str:
        """The number and kind of its resources: ``24 NodePools``; empty if all stacks have it of one resource."""
        names = [name for names_of_stack in self.names.values() for name in names_of_stack]
        if len(set(names)) < 2:
            return ""
        kinds = {phrasing.kind_of(name) for name in names}
        return f"{len(names)} {phrasing.plural(kinds.pop()) if len(kinds) == 1 else 'resources'}"

    @property
    def short(self) -> bool:
        """Whether it may name some of its resources and stacks and count the others. Only warnings may."""
        return self.level is Level.WARNING and isinstance(self.finding, Finding)

    @property
    def minor(self) -> bool:
        """Whether the line may be left out: that of a warning that does no harm."""
        return self.short and isinstance(self.finding, Finding) and not self.finding.harm


def verdict(preview: Preview) -> list[Line]:
    """All failures and new findings, the worst first. Findings with the same reason are one line."""
    return _lines((stack.stack, finding) for stack in preview.stacks for finding in _findings_of(stack))


def known_lines(preview: Preview) -> list[Line]:
    """The same for findings that the base has, too."""
    return _lines(
        (stack.stack, finding) for stack in preview.stacks for finding in stack.findings if not finding.new
    )


def most_important(lines: Sequence[Line], most: int = MOST) -> list[Line]:
    """The first ``most`` lines, and all errors and harm beyond these."""
    return [line for index, line in enumerate(lines) if index < most or not line.minor]


def remaining_lines(preview: StackPreview, lines: Sequence[Line]) -> list[Line]:
    """The new findings of a stack that are not among ``lines``."""
    known_keys = {_key(line.finding) for line in lines if preview.stack in line.names}
    return _lines(
        (preview.stack, finding) for finding in preview.findings if finding.new and _key(finding) not in known_keys
    )


def impact(preview: StackPreview) -> tuple[float | str, ...]:
    """Sorts stacks by how much a change affects them, the most first."""
    levels = [_level(finding) for finding in _findings_of(preview)]
    changed = [resource.operation for resource in preview.changes.resources] if preview.changes else []
    runs = preview.changes.runs if preview.changes else []
    run = preview.cost.run if preview.cost is not None and preview.changes is not None else None
    return (
        *(-levels.count(level) for level in Level),
        -changed.count(Operation.DELETE),
        -((run.dollars or 0.0) - run.paid_anyway if run is not None else 0.0),
        -((run.dollars or 0.0) if run is not None else 0.0),
        -sum(run.outcome is Outcome.RUNS for run in runs),
        -changed.count(Operation.REPLACE),
        -len(changed),
        not preview.new_stack,
        preview.stack,
    )


def _lines(findings: Iterable[tuple[str, Finding | Failure]]) -> list[Line]:
    lines: dict[tuple[str, ...], tuple[Finding | Failure, dict[str, list[str]]]] = {}
    for stack, finding in findings:
        _, names = lines.setdefault(_key(finding), (finding, {}))
        names.setdefault(stack, []).extend([finding.name] if isinstance(finding, Finding) else [])
    return sorted((Line(_level(finding), finding, names) for finding, names in lines.values()), key=_rank)


def _findings_of(preview: StackPreview) -> Iterator[Finding | Failure]:
    yield from preview.failures
    yield from (finding for finding in preview.findings if finding.new)


def _level(finding: Finding | Failure) -> Level:
    if isinstance(finding, Finding):
        return finding.level
    return Level.REFUSAL if finding.revision == "head" else Level.WARNING


def _rank(line: Line) -> tuple[int, ...]:
    # A failure comes before the problems of the stack file that it is about.
    return line.finding.rank if isinstance(line.finding, Finding) else (line.level,)


def _key(finding: Finding | Failure) -> tuple[str, ...]:
    """What findings of one line have in common."""
    if isinstance(finding, Failure):
        return finding.revision, finding.message
    return finding.policy, finding.severity, finding.harm_kind or "", finding.reason, finding.fix
