"""A preview for a terminal."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from infra.review.policy import Severity
from stacks.preview import words
from stacks.preview.model import (
    Changes,
    Cost,
    Finding,
    Operation,
    Preview,
    ResourceChange,
    StackPreview,
)

STYLES = {
    Operation.CREATE: "green",
    Operation.UPDATE: "yellow",
    Operation.REPLACE: "magenta",
    Operation.DELETE: "red",
}
FINDING_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow"}


@dataclass(frozen=True)
class Command:
    """A line to be copied, and so never broken."""

    line: str


def show(preview: Preview, console: Console) -> None:
    """Prints the table over all stacks, and then each stack."""
    against = f" against {preview.base}" if preview.base else ""
    console.print(Text(f"Preview of {words.many(len(preview.stacks), 'stack')}{against}", "bold"))
    console.print()
    console.print(_summary(preview))
    for each in preview.stacks:
        console.print()
        console.rule(Text(each.stack, "bold"), align="left", style="dim")
        for part in _parts(each):
            if isinstance(part, Command):
                console.print(Text(f"    {part.line}", "dim"), soft_wrap=True)
            else:
                console.print(Padding(part, (0, 0, 0, 2), expand=False))


def _summary(preview: Preview) -> Table:
    found = words.columns(preview)
    table = _table(found, right=("Idle a month", "At most an hour", "One run"))
    for stack, cells in zip(preview.stacks, zip(*found.values(), strict=True), strict=True):
        styles = {1: _state_style(stack), len(cells) - 1: _worst(stack.findings)}
        table.add_row(*(Text(cell, styles.get(index, "")) for index, cell in enumerate(cells)))
    return table


def _table(headings: Iterable[str], right: Container[str], title: str | None = None) -> Table:
    """Without lines, its cells in full; the columns in ``right`` have numbers."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


def _state_style(preview: StackPreview) -> str:
    if preview.failures:
        return "bold red"
    counts = words.counted(preview.changes) if preview.changes else {}
    return STYLES[next(iter(counts))] if counts else ""


def _worst(findings: Sequence[Finding]) -> str:
    return FINDING_STYLES[min(findings, key=lambda each: each.severity).severity] if findings else "green"


def _parts(preview: StackPreview) -> Iterator[RenderableType | Command]:
    for failure in preview.failures:
        yield Text(f"cannot be evaluated at {words.REVISIONS[failure.revision]}: {failure.message}", "red")
        for problem in words.problems(failure):
            yield Text.assemble(
                ("  ", ""), (problem["key"], "bold"), f": {problem['value']}\n",
                f"    why: {problem['reason']}\n    fix: {problem['fix']}",
            )  # fmt: skip
    for finding in preview.findings:
        yield _finding(finding)
    for each in preview.suppressed:
        until = f" until {each.until}" if each.until else ""
        yield Text(f"suppressed{until}: {each.finding.policy}  {each.finding.name}: {each.why}", "dim")
    if preview.changes is not None:
        yield from _changes(preview.changes)
        if not preview.changes.resources:
            return
    if preview.cost is not None and words.priced(preview.cost):
        yield _cost(preview.cost)
    for line in words.cost_words(preview):
        yield Text(line)
    if preview.timeline is not None:
        yield Text(words.timeline_words(preview.timeline))
        yield Text(words.path_words(preview.timeline))
    if preview.quotas:
        yield _quotas(preview)
        yield from map(Command, words.where_to_see(preview.quotas))
    for remark in preview.remarks:
        yield Text(remark, "dim")


def _finding(finding: Finding) -> Text:
    return Text.assemble(
        (words.severity(finding), FINDING_STYLES[finding.severity]), "  ", (finding.policy, "bold"),
        f"  {finding.name}\n  why: {finding.reason}\n  fix: {finding.fix}",
    )  # fmt: skip


def _changes(changes: Changes) -> Iterator[RenderableType]:
    for each in words.ordered(changes):
        yield _change(each)
    for run in changes.runs:
        yield Text.assemble(("Job ", "bold"), (run.name, "bold"), f" {words.run_words(run)}")
    for remark in changes.remarks:
        yield Text(remark)
    if not changes.resources:
        yield Text(words.unchanged(changes), "green")


def _change(change: ResourceChange) -> Group:
    reason = words.why(change)
    head = Text.assemble(
        (f"{words.SYMBOLS[change.operation]} ", STYLES[change.operation]),
        (change.name, "bold"),
        f"  {words.kind(change.type)}  ",
        (words.DONE[change.operation], STYLES[change.operation]),
        f"  {reason}" if reason else "",
    )
    shown = words.telling(change)
    lines = [
        Text.assemble(
            f"    {each.path}: {words.value(each.before)} → {words.value(each.after)}",
            ("  replaces it" if each.forces else "", STYLES[Operation.REPLACE]),
        )
        for each in shown
    ]
    if rest := words.more(len(shown), len(change.properties)):
        lines.append(Text(f"    {rest}, digests alone", "dim"))
    return Group(head, *lines)


def _cost(cost: Cost) -> Table:
    hours = ("Each an hour", "Idle an hour", "At most an hour")
    table = _table(("Resource", "What", *hours, "As of"), hours, "Cost")
    for line in cost.lines:
        if line.metered:
            table.add_row(line.resource, line.what, line.metered_price or words.UNKNOWN, "by use", "", line.as_of)
        else:
            prices = (words.money(each) for each in (line.hourly, line.idle, line.most))
            table.add_row(line.resource, line.what, *prices, line.as_of)
    return table


def _quotas(preview: StackPreview) -> Table:
    table = _table(("Metric", "Where", "Needed"), ("Needed",), "Quota at maximum")
    for each in preview.quotas:
        table.add_row(each.metric, each.where, words.needed(each))
    return table
