"""What a preview says, as blocks: `slipway.preview.markdown` and `slipway.preview.terminal` write
these.

It begins with the verdict and the table of all stacks. A section for each stack follows, and what is the same for
all stacks stands at its end.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from slipway.evaluated import phrasing
from slipway.evaluated.model import (
    Failure,
    Finding,
    Level,
    Operation,
    Preview,
    PropertyChange,
    StackPreview,
    Suppressed,
)
from slipway.evaluated.paid import cause_words, ratio
from slipway.policies.check import SETTINGS
from slipway.preview import tables
from slipway.preview.differences import Row, is_unknown, rows, without_places
from slipway.preview.verdict import OLD, Line, known_lines, most_important, remaining_lines, verdict

NAMED = 8
"""How many stacks and resources a warning names."""

BRIEF = 160
"""Characters of a reason where the verdict is too long."""

LEAST = 20
"""How many findings of a stack are named at the least detail."""


@dataclass(frozen=True)
class Code:
    """A name, a path or a value."""

    text: str


@dataclass(frozen=True)
class Strong:
    """An emphasized text."""

    text: str


Part = str | Code | Strong
"""In a text, what stands between two backticks is code."""


@dataclass(frozen=True)
class Words:
    """A line. ``style`` is how bad the thing is that it is about, or what is done to it."""

    parts: Sequence[Part]
    style: Level | Operation | None = None


@dataclass(frozen=True)
class Paragraph:
    """A line of its own."""

    words: Words


@dataclass(frozen=True)
class Items:
    """A list. Each item has one line or several."""

    items: Sequence[Sequence[Words]]


@dataclass(frozen=True)
class Table:
    """A table. The columns in ``right`` have numbers; the first one is not broken if it has ``names``."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Words]]
    right: Collection[str] = ()
    names: bool = False


@dataclass(frozen=True)
class ChangeRows:
    """The changes of resources, with up to ``properties`` of each; None for all."""

    rows: Sequence[Row]
    properties: int | None = None


@dataclass(frozen=True)
class Verbatim:
    """Lines that are not wrapped: the message of an error, or commands to copy."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Details with a title. Where nothing can be folded, ``brief`` stands in their place, if there is one."""

    title: str
    blocks: "Sequence[Block]"
    brief: "Block | None" = None


Block = Paragraph | Items | Table | ChangeRows | Verbatim | Fold


@dataclass(frozen=True)
class Section:
    """One stack, or several with the same content; ``places``: whether their Jobs run on the same pools, too."""

    stacks: Sequence[StackPreview]
    places: bool
    lines: Sequence[Line]
    """The lines of the verdict."""

    @property
    def names(self) -> str:
        """The names of the stacks."""
        return ", ".join(stack.stack for stack in self.stacks)

    @property
    def summary(self) -> str:
        """``2 replaced, 1 Job runs``."""
        stack = self.stacks[0]
        return phrasing.join([phrasing.state(stack), *phrasing.running_words(stack.changes)])

    @property
    def affected(self) -> bool:
        """Whether the stacks change or cannot be evaluated."""
        return bool(self.stacks[0].changes or self.stacks[0].failures)

    def blocks(self, detail: int = 0) -> list[Block]:
        """The content. The higher ``detail``, up to `LEVELS`, the less of it there is."""
        return _content(self.stacks[0], self.lines, places=self.places, detail=detail)


LEVELS = 4
"""How many levels of detail a section has. After the last one, only the row in the table is left."""


def words(*parts: Part, style: Level | Operation | None = None) -> Words:
    """A line of the parts that are not empty."""
    return Words([part for part in parts if part], style)


def title(preview: Preview) -> Words:
    """What was compared with what."""
    against = [" against ", Code(preview.base)] if preview.base else []
    return words(f"Preview of {phrasing.many(len(preview.stacks), 'stack')}", *against)


def beginning(preview: Preview, named: int) -> Iterator[Block]:
    """The verdict, and the table of all stacks, which names up to ``named`` Jobs of each."""
    if preview.versions:
        yield Paragraph(_versions(preview))
    items = verdict_items(preview)
    if more := len(verdict(preview)) - len(items):
        items.append([words(f"and {phrasing.many(more, 'warning')} more, with their stacks below")])
    clean = words(Strong(phrasing.clean(preview)), style=Operation.CREATE)
    yield Items(items) if items else Paragraph(clean)
    if stacks := tables.stacks_in_table(preview):
        columns = tables.columns(preview, named)
        table_rows = [
            [words(Strong(name)), *map(words, cells), words(findings, style=_worst(stack.findings))]
            for stack, (name, *cells, findings) in zip(stacks, zip(*columns.values(), strict=True), strict=True)
        ]
        yield Table(list(columns), table_rows, tables.numeric(preview), names=True)
    yield from (Paragraph(words(note)) for note in tables.notes(preview))


def _versions(preview: Preview) -> Words:
    """``base: slipway-ml 0.1.0; here: slipway-ml 0.2.0``."""
    base = [f"{package.package} {package.base}" for package in preview.versions]
    here = [f"{package.package} {package.here}" for package in preview.versions if package.here]
    return words(f"base: {', '.join(base)}; here: {', '.join(here) or 'none of them'}")


def sections(preview: Preview) -> list[Section]:
    """The sections with content, in the order of their first stacks."""
    lines = most_important(verdict(preview))
    stacks_by_content: dict[str, list[StackPreview]] = {}
    for stack in preview.stacks:
        if content := _content(stack, lines, places=False):
            stacks_by_content.setdefault(repr(content), []).append(stack)
    return [
        Section(stacks, len({repr(_content(stack, lines, places=True)) for stack in stacks}) == 1, lines)
        for stacks in stacks_by_content.values()
    ]


def end(preview: Preview) -> Iterator[Block]:
    """Parts that are the same for all stacks."""
    if old := known_lines(preview):
        old_lines = most_important(old, OLD)
        more = [[words(f"{left}, in the JSON")]] if (left := phrasing.more(len(old_lines), len(old))) else []
        items = [_item(line) for line in old_lines]
        brief = [
            [words(", ".join(line.stacks), ": ", *_policy(line).parts)]
            for line in old_lines
            if isinstance(line.finding, Finding)
        ]
        yield Fold(f"Findings that are not new: {len(old)}", [Items([*items, *more])], Items([*brief, *more]))
    if see := tables.where_to_see(quota for stack in preview.stacks for quota in tables.quotas(stack)):
        yield Fold("Where the limits of quotas are shown", [Verbatim("\n".join(see))])


def verdict_items(preview: Preview, *, brief: bool = False) -> list[list[Words]]:
    """The lines of the verdict; if ``brief``, without the ways out, and with the beginnings of the reasons."""
    return [_item(line, brief=brief) for line in most_important(verdict(preview))]


def _item(line: Line, *, brief: bool = False) -> list[Words]:
    stacks = _names(Strong, line.stacks, short=line.short)
    of = [f"{line.subject} of " if line.subject else "", *stacks]
    if isinstance(line.finding, Finding):
        return _finding(line, [*of, ": "], brief=brief)
    at = phrasing.REVISIONS[line.finding.revision]
    message = _first_line(line.finding)[: BRIEF if brief else None]
    return [words(*of, ": ", Strong("cannot be evaluated"), f" at {at}: ", message, style=line.level)]


def _finding(line: Line, of: Sequence[Part] = (), *, brief: bool = False) -> list[Words]:
    """A finding, its policy and its fix; ``of`` are the stacks that have it."""
    finding = line.finding
    assert isinstance(finding, Finding)
    reason = finding.reason[: BRIEF if brief else None]
    fix = [] if brief else [words(Strong("Fix:"), f" {finding.fix}")]
    if finding.policy == SETTINGS:
        return [words(*of, *_resources(line), ": ", reason, style=line.level), *fix]
    return [words(*of, Strong(reason) if finding.harm else reason, style=line.level), _policy(line), *fix]


def _policy(line: Line) -> Words:
    finding = line.finding
    assert isinstance(finding, Finding)
    alone = len({name for names in line.names.values() for name in names}) == 1
    place = f", {finding.place}" if finding.place and alone else ""
    return words(f"{phrasing.severity(finding)}: ", Code(finding.policy), " ", *_resources(line), place)


def _resources(line: Line) -> list[Part]:
    return _names(Code, line.resources, short=line.short)


def _names(part: type[Code | Strong], names: Sequence[str], *, short: bool) -> list[Part]:
    """The names with commas between them; of those that may be ``short`` the first `NAMED`."""
    named = names[:NAMED] if short else names
    more = phrasing.more(len(named), len(names))
    return [*join_parts([part(name) for name in named]), f" {more}" if more else ""]


def join_parts(parts: Iterable[Part]) -> list[Part]:
    """The parts with commas between them."""
    return list(chain.from_iterable((", ", part) for part in parts))[1:]


def _first_line(failure: Failure) -> str:
    return failure.message.partition("\n")[0]


def _worst(findings: Sequence[Finding]) -> Level | None:
    return min((finding.level for finding in findings), default=None)


def _content(stack: StackPreview, lines: Sequence[Line], *, places: bool, detail: int = 0) -> list[Block]:
    """The content of a section: findings that are not in the verdict, changes and figures."""
    if detail >= LEVELS:
        return []
    findings = remaining_lines(stack, lines)
    if detail == LEVELS - 1:
        least = [[_policy(line)] for line in findings[:LEAST] if isinstance(line.finding, Finding)]
        counts = [[words(phrasing.change_words(stack.changes))]] if stack.changes is not None else []
        return [Items([*least, *counts])] if least or counts else []
    blocks: list[Block] = [
        Verbatim(failure.message) for failure in stack.failures if failure.message != _first_line(failure)
    ]
    items = [
        [
            words(Code(problem["key"]), ": ", Code(problem["value"])),
            words(problem["reason"]),
            words(Strong("Fix:"), f" {problem['fix']}"),
        ]
        for failure in stack.failures
        for problem in phrasing.problems(failure)
    ]
    items += [_finding(line, [f"{line.subject}: "] if line.subject else []) for line in findings]
    items += [_suppression(entry) for entry in stack.suppressed if entry.finding.new]
    if items:
        blocks.append(Items(items))
    if stack.changes is not None:
        change_rows = rows(stack.changes)
        if change_rows:
            blocks.append(ChangeRows(change_rows if places else without_places(change_rows), (None, 3, 0)[detail]))
        if stack.changes.remarks:
            blocks.append(Items([[words(remark)] for remark in stack.changes.remarks]))
    return [*blocks, *_figures(stack, lines=detail == 0)]


def _suppression(entry: Suppressed) -> list[Words]:
    until = f" until {entry.until}" if entry.until else ""
    policy, name = Code(entry.finding.policy), Code(entry.finding.name)
    reason = words(f"Suppressed{until}: ", policy, " ", name, f": {entry.finding.reason}")
    return [reason, words(Strong("Because:"), f" {entry.why}")]


def _figures(preview: StackPreview, *, lines: bool) -> Iterator[Block]:
    """The cost and the quotas of a stack; without ``lines``, no tables of cost."""
    whole = tables.is_whole(preview)
    places = tables.places_words(preview) if whole else []
    sentences = [*tables.cost_words(preview), *places, tables.unknown_words(preview)]
    if items := [[words(sentence)] for sentence in sentences if sentence]:
        yield Items(items)
    if lines and whole and (steps := tables.paid_steps(preview)):
        cells = [
            [
                words(Code(step.job)),
                words(step.pool),
                words(phrasing.duration(step.paid)),
                words(ratio(step)),
                words(phrasing.join(cause_words(step))),
            ]
            for step in steps
        ]
        table = Table(
            ("Job", "Pool", "Paid", "Paid ÷ useful", "Beside programs"), cells, ("Paid", "Paid ÷ useful")
        )
        yield Fold("What GPU nodes are paid for", [table])
    if lines and (cost_lines := tables.cost_lines(preview)):
        cells = [
            [words(Code(line.resource)), *map(words, (line.what, *tables.amounts(line), line.as_of))]
            for line in cost_lines
        ]
        table = Table(("Resource", "What", *tables.AMOUNTS, "As of"), cells, tables.AMOUNTS)
        yield Fold("Cost of each resource" if whole else "Cost of what is new or changed", [table])
    if quotas := tables.quotas(preview):
        cells = [
            [words(Code(quota.metric)), words(quota.where), words(tables.quota_words(quota))] for quota in quotas
        ]
        needed = "Quota needed at maximum" if whole else "Quota of which another amount is needed at maximum"
        yield Fold(needed, [Table(("Metric", "Where", "Needed"), cells, ("Needed",))])
    if whole and preview.remarks:
        yield Items([[words(remark)] for remark in preview.remarks])


def explain_row(row: Row, properties: int | None) -> list[Words]:
    """Why and where a resource changes, and up to ``properties`` of its properties."""
    named = row.properties[:properties]
    forcing = [change.path for change in row.properties if change.forces]
    lines: list[Words] = []
    if row.where_and_why:
        lines.append(words(row.where_and_why))
    elif forcing and not named:
        lines.append(words("forced by ", *join_parts(map(Code, forcing))))
    lines += map(_property, named)
    more = phrasing.more(len(named), len(row.properties)) if named else ""
    return [*lines, words(more)] if more else lines


def _property(change: PropertyChange) -> Words:
    values: list[Part] = (
        ["known only after the update"]
        if is_unknown(change)
        else [_value(change.before), " → ", _value(change.after)]
    )
    return words(Code(change.path), ": ", *values, *([" ", Strong("replaces it")] if change.forces else []))


def _value(content: object) -> Part:
    text = phrasing.value(content)
    return text if content is None else Code(text)
