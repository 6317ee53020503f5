"""Prints a preview on a terminal: the verdict, the table of all stacks, then each stack."""

import io
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from infra.review.contract import Severity
from infra.schema.problems import printable, printable_lines
from offline.evaluated import phrasing
from offline.evaluated.model import (
    CostLine,
    Failure,
    Finding,
    Level,
    Operation,
    Preview,
    PropertyChange,
    QuotaNeed,
    StackPreview,
)
from offline.policies.check import SETTINGS
from offline.preview import tables
from offline.preview.differences import Row, rows, unknown, without_places
from offline.preview.verdict import OLD, Line, alike, first, known, untold, verdict

STYLES = {
    Operation.CREATE: "green",
    Operation.UPDATE: "yellow",
    Operation.REPLACE: "magenta",
    Operation.DELETE: "red",
}
FINDING_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow"}
NAMED = 3
"""How many resources a warning names."""


@dataclass(frozen=True)
class Command:
    """A line for the reader to copy, which is never wrapped."""

    line: str


Part = RenderableType | Command


def show(preview: Preview, console: Console) -> None:
    """Prints the verdict and the table of all stacks, then each stack; stacks with the same text together."""
    every = verdict(preview)
    lines = first(every)
    against = f" against {preview.base}" if preview.base else ""
    console.print(_line(f"Preview of {phrasing.many(len(preview.stacks), 'stack')}{against}", style="bold"))
    for line in lines:
        console.print(_verdict(line))
    if not lines:
        console.print(_line(phrasing.clean(preview), style="green"))
    if more := len(every) - len(lines):
        console.print(_line(f"and {phrasing.many(more, 'warning')} more, with their stacks below"))
    if tables.in_table(preview):
        console.print()
        console.print(_summary(preview))
    for note in tables.notes(preview):
        console.print(_line(note, style="dim"))
    for group in alike(preview, lambda stack, places: _render(_parts(stack, lines, places))):
        console.print()
        names = _line(", ".join(stack.stack for stack in group.stacks), style="bold")
        console.rule(names, align="left", style="dim")
        _print(console, _parts(group.first, lines, group.places))
    _print(console, _foot(preview))


def _line(*parts: str | tuple[str, str], style: str = "") -> Text:
    """One line of text. Its parts may have a style; their content cannot style, move or break the line."""
    text = Text(style=style)
    for part in parts:
        words_, styled = (part, "") if isinstance(part, str) else part
        text.append(printable(words_), styled or None)
    return text


def _print(console: Console, parts: Iterable[Part]) -> None:
    for part in parts:
        if isinstance(part, Command):
            console.print(_line(f"    {part.line}", style="dim"), soft_wrap=True)
        else:
            console.print(Padding(part, (0, 0, 0, 2), expand=False))


def _render(parts: Iterable[Part]) -> str:
    file = io.StringIO()
    _print(Console(file=file, width=1000), parts)
    return file.getvalue()


def _verdict(line: Line) -> Group:
    stacks = f"{line.subject}{', '.join(line.stacks)}: "
    if isinstance(line.finding, Failure):
        words = f"cannot be evaluated at {phrasing.REVISIONS[line.finding.revision]}: "
        message = printable_lines(line.finding.message).replace("\n", "\n  ")
        return Group(Text.assemble(_line((stacks, "bold"), (words, _style(line.level))), message))
    return _finding(line, stacks)


def _style(level: Level) -> str:
    return "yellow" if level is Level.WARNING else "bold red"


def _finding(line: Line, stacks: str) -> Group:
    finding = line.finding
    assert isinstance(finding, Finding)
    resources = line.resources[:NAMED] if line.short else line.resources
    names = " ".join(filter(None, [", ".join(resources), phrasing.more(len(resources), len(line.resources))]))
    fix = _line(f"  fix: {finding.fix}")
    if finding.policy == SETTINGS:
        return Group(_line((f"{stacks}{names}", "bold"), f": {finding.reason}"), fix)
    of = _line(f"  {phrasing.severity(finding)}: ", (finding.policy, "bold"), f"  {names}")
    return Group(_line((stacks, "bold"), (finding.reason, _style(line.level))), of, fix)


def _summary(preview: Preview) -> Table:
    # The columns of a terminal are narrow, and each stack's own part names its Jobs right below.
    columns = tables.columns(preview, named=0)
    table = _table(columns, right=tables.numeric(preview))
    # A name that is broken in two cannot be searched for.
    table.columns[0].no_wrap = True
    for stack, cells in zip(tables.in_table(preview), zip(*columns.values(), strict=True), strict=True):
        styles = {1: _state_style(stack), len(cells) - 1: _worst(stack.findings)}
        table.add_row(*(_line(cell, style=styles.get(index, "")) for index, cell in enumerate(cells)))
    return table


def _table(headings: Iterable[str], right: Container[str], title: str | None = None) -> Table:
    """A table without borders that wraps its cells. The columns in ``right`` have numbers."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


def _state_style(preview: StackPreview) -> str:
    if preview.failures or preview.removed:
        return "bold red"
    counts = phrasing.counted(preview.changes) if preview.changes else {}
    return STYLES[next(iter(counts))] if counts else ""


def _worst(findings: Sequence[Finding]) -> str:
    return FINDING_STYLES[min(findings, key=lambda finding: finding.severity).severity] if findings else "green"


def _parts(preview: StackPreview, lines: Sequence[Line], places: bool) -> Iterator[Part]:
    for failure in preview.failures:
        for problem in phrasing.problems(failure):
            yield Group(
                _line((problem["key"], "bold"), f": {problem['value']}"),
                _line(f"  why: {problem['reason']}"),
                _line(f"  fix: {problem['fix']}"),
            )
    for line in untold(preview, lines):
        yield _finding(line, line.subject and f"{line.subject}{preview.stack}: ")
    for suppression in preview.suppressed:
        if suppression.finding.new:
            until = f" until {suppression.until}" if suppression.until else ""
            yield _line(
                f"suppressed{until}: {suppression.finding.policy}  {suppression.finding.name}: {suppression.why}",
                style="dim",
            )
    if preview.changes is not None:
        change_rows = rows(preview.changes)
        yield from map(_row, change_rows if places else without_places(change_rows))
        yield from map(_line, preview.changes.remarks)
    yield from _figures(preview)


def _row(row: Row) -> Group:
    named = ", ".join(f"{name}  {kind}" for name, kind in row.named)
    more = phrasing.more(len(row.named), len(row.resources))
    head = _line(
        (f"{phrasing.SYMBOLS[row.operation]} ", STYLES[row.operation]),
        (f"{named} {more}".strip(), "bold"),
        (f"  {row.done}", STYLES[row.operation]),
        f"  {row.where_and_why}" if row.where_and_why else "",
    )
    return Group(head, *map(_property, row.properties))


def _property(change: PropertyChange) -> Text:
    value = (
        "known only after the update"
        if unknown(change)
        else f"{phrasing.value(change.before)} → {phrasing.value(change.after)}"
    )
    return _line(
        f"    {change.path}: {value}", ("  replaces it" if change.forces else "", STYLES[Operation.REPLACE])
    )


def _figures(preview: StackPreview) -> Iterator[Part]:
    if lines := tables.cost_lines(preview):
        yield _cost(lines)
    yield from map(_line, tables.cost_words(preview))
    if without := tables.unknown_words(preview):
        yield _line(without)
    if tables.whole(preview) and preview.timeline is not None:
        yield _line(tables.timeline_words(preview.timeline))
        yield _line(tables.path_words(preview.timeline))
    if needed := tables.quotas(preview):
        yield _quotas(needed)
    if tables.whole(preview):
        yield from (_line(remark, style="dim") for remark in preview.remarks)


def _foot(preview: Preview) -> Iterator[Part]:
    """Parts that are the same for all stacks."""
    if old := known(preview):
        yield Text("\nNot new")
        old_prices = first(old, OLD)
        for line in old_prices:
            if isinstance(line.finding, Finding):
                yield _line(
                    f"{', '.join(line.stacks)}: {phrasing.severity(line.finding)}: "
                    f"{line.finding.policy}  {', '.join(line.resources)}"
                )
        if left := phrasing.more(len(old_prices), len(old)):
            yield _line(f"{left}, in the JSON")
    if see := tables.where_to_see(quota for stack in preview.stacks for quota in tables.quotas(stack)):
        yield Text("\nWhere the limits of quotas are shown")
        yield from map(Command, see)


def _cost(lines: Iterable[CostLine]) -> Table:
    table = _table(("Resource", "What", *tables.AMOUNTS, "As of"), tables.AMOUNTS, "Cost")
    for line in lines:
        table.add_row(*map(_line, (line.resource, line.what, *tables.amounts(line), line.as_of)))
    return table


def _quotas(quotas: Iterable[QuotaNeed]) -> Table:
    table = _table(("Metric", "Where", "Needed"), ("Needed",), "Quota at maximum")
    for quota in quotas:
        table.add_row(*map(_line, (quota.metric, quota.where, tables.needed(quota))))
    return table
