"""A preview for a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from infra.review import Severity
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
            console.print(Padding(part, (0, 0, 0, 2), expand=False))


def _summary(preview: Preview) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name, justify in (
        ("Stack", "left"),
        ("Changes", "left"),
        ("Jobs that run", "left"),
        ("Idle a month", "right"),
        ("At most an hour", "right"),
        ("One run", "right"),
        ("Findings", "left"),
    ):
        table.add_column(name, justify=justify)  # pyright: ignore[reportArgumentType]
    for each in preview.stacks:
        table.add_row(
            each.stack,
            Text(words.state(each), _state_style(each)),
            words.jobs(each.changes),
            *words.figures(each),
            Text(words.finding_words(each.findings), _worst(each.findings)),
        )
    return table


def _state_style(preview: StackPreview) -> str:
    if preview.failures:
        return "bold red"
    counts = words.counted(preview.changes) if preview.changes else {}
    return STYLES[next(iter(counts))] if counts else ""


def _worst(findings: Sequence[Finding]) -> str:
    return FINDING_STYLES[min(findings, key=lambda each: each.severity).severity] if findings else "green"


def _parts(preview: StackPreview) -> Iterator[RenderableType]:
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
    if preview.cost is not None:
        yield _cost(preview.cost)
    for line in words.cost_words(preview):
        yield Text(line)
    if preview.timeline is not None:
        yield Text(words.timeline_words(preview.timeline))
        yield Text(words.path_words(preview.timeline))
    if preview.quotas:
        yield _quotas(preview)
    for remark in preview.remarks:
        yield Text(remark, "dim")


def _finding(finding: Finding) -> Text:
    return Text.assemble(
        (finding.severity, FINDING_STYLES[finding.severity]), "  ", (finding.policy, "bold"),
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
        yield Text(f"Nothing changes; {words.many(changes.unchanged, 'resource')} as before.", "green")


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
    table = Table(title="Cost", title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("Resource", "What", "Each an hour", "Idle an hour", "At most an hour", "As of"):
        table.add_column(name, justify="right" if "hour" in name else "left")  # pyright: ignore[reportArgumentType]
    for line in cost.lines:
        if line.metered:
            table.add_row(line.resource, line.what, line.metered_price or words.UNKNOWN, "by use", "", line.as_of)
        else:
            prices = (words.money(each) for each in (line.hourly, line.idle, line.most))
            table.add_row(line.resource, line.what, *prices, line.as_of)
    return table


def _quotas(preview: StackPreview) -> Group:
    table = Table(title="Quota at maximum", title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("Metric", "Where", "Needed"):
        table.add_column(name, justify="right" if name == "Needed" else "left")
    for each in preview.quotas:
        table.add_row(each.metric, each.where, words.needed(each))
    return Group(table, *(Text(f"  {see}", "dim") for see in words.where_to_see(preview.quotas)))
