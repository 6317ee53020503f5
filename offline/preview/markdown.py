"""A preview as a comment on a pull request: the verdict, one table over all stacks, and a section for each.

The verdict and the table fill the first screen; a section is open if it fits there. Stacks with equal content
share a section. GitHub takes at most 65,536 characters ("Body is too long (maximum is 65536 characters)", its API
in 2025): the largest sections lose detail until the comment fits, and no stack is ever left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from urllib.parse import quote

from infra.schema.problems import printable, printable_lines
from offline.evaluated import phrasing
from offline.evaluated.model import (
    CostLine,
    Failure,
    Finding,
    Level,
    Preview,
    PropertyChange,
    StackPreview,
    Suppressed,
    Timeline,
)
from offline.policies.check import SETTINGS
from offline.preview import tables
from offline.preview.differences import Row, rows, unknown, without_places
from offline.preview.verdict import OLD, Group, Line, alike, first, known, untold, verdict

# Escapes untrusted text for Markdown: no markup, no mentions, safe in table cells.


def plain(text: str) -> str:
    """Plain text on one line."""
    return _escape(printable(text))


def code(text: str) -> str:
    """A code span; empty for an empty text."""
    line = printable(text).strip()
    if not line:
        return ""
    if "|" in line:
        # A code span in a table cannot contain a backslash before a bar: the bar would end the cell.
        return f"<code>{_escape(line)}</code>"
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    pad = " " if "`" in line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def ticked(text: str) -> str:
    """`plain`, with line breaks as spaces; text between two backticks becomes a code span."""
    line = re.sub(r"[ \t\r\n]+", " ", text).strip()
    parts = line.split("`")
    if len(parts) % 2 == 0:
        return plain(line)
    return "".join(code(part) if index % 2 else plain(part) for index, part in enumerate(parts))


def html(text: str) -> str:
    """Text on one line for an HTML element, inside which Markdown is not read."""
    return _entities(printable(text))


def block(text: str) -> str:
    """A code block."""
    text = printable_lines(text)
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _escape(line: str) -> str:
    line = _entities(re.sub(r"([\\`*_\[\]~#])", r"\\\1", line))
    # GitHub renders text between two dollar signs as a formula.
    return line.replace("$", "&#36;").replace("@", "@\u200b")


def _entities(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")


LIMIT = 65_000
"""Most characters of the preview. The rest of GitHub's limit is for the marker and the link that the comment adds.
"""

SCREEN = 60
"""Sections are open as long as they fit in this many lines."""

NAMED = 8
"""How many stacks and resources a warning names."""

BRIEF = 160
"""Characters of a reason in a verdict that is too long for the comment."""

SHORTENED = "Detail was left out to fit into a comment; the whole of it is in the JSON."


@dataclass(frozen=True)
class About:
    """The content of a section: a stack, its findings that are not in the verdict, and whether to name the pools
    of its Jobs."""

    stack: StackPreview
    findings: Sequence[Line]
    places: bool


def comment(preview: Preview, limit: int = LIMIT) -> str:
    """The comment, of at most ``limit`` characters."""
    lines = first(verdict(preview))
    head, foot = _head(preview, lines), _foot(preview)

    def body(stack: StackPreview, places: bool, detail: int = 0) -> str:
        about = About(stack, untold(stack, lines), places)
        return "\n\n".join(part for part in DETAILS[detail](about) if part)

    groups = alike(preview, body)
    opened = _choose_open(head, [(group, body(group.first, group.places)) for group in groups])

    def section(index: int, detail: int) -> str:
        if detail >= len(DETAILS):
            return ""
        group = groups[index]
        return _section(group, body(group.first, group.places, detail), opened=opened[index])

    sections = [section(index, 0) for index in range(len(groups))]
    details = [0] * len(sections)
    length = len(head) + len(foot) + len(SHORTENED) + 4 + sum(len(section) + 1 for section in sections)
    while length > limit and any(sections):
        index = max(range(len(sections)), key=lambda position: len(sections[position]))
        details[index] += 1
        length -= len(sections[index])
        sections[index] = section(index, details[index])
        length += len(sections[index])
    text = "\n".join(filter(None, [head, *sections, foot, f"{SHORTENED}\n" if any(details) else ""]))
    return text if len(text) <= limit else _least_comment(preview, lines, limit)


def _head(preview: Preview, lines: Sequence[Line]) -> str:
    against = f" against {code(preview.base)}" if preview.base else ""
    left = len(verdict(preview)) - len(lines)
    notes = [
        *map(_line, lines),
        *([f"and {phrasing.many(left, 'warning')} more, with their stacks below"] if left else []),
    ]
    parts = [
        f"## Preview of {phrasing.many(len(preview.stacks), 'stack')}{against}",
        _list(notes) or f"**{phrasing.clean(preview)}**",
    ]
    if with_table := tables.in_table(preview):
        columns = tables.columns(preview)
        cells = [
            (f"**{plain(name)}**", *map(plain, rest), _worst(stack.findings) + findings)
            for stack, (name, *rest, findings) in zip(with_table, zip(*columns.values(), strict=True), strict=True)
        ]
        align = "".join("r" if column in tables.numeric(preview) else "l" for column in columns)
        parts.append(_table(tuple(columns), cells, align))
    return "\n\n".join([*parts, *map(plain, tables.notes(preview))]) + "\n"


def _line(line: Line, *, fix: bool = True, most: int | None = None) -> str:
    """A line of the verdict: without the way out of it, or with ``most`` characters of its reason, where it has to
    be short."""
    stacks_named = line.stacks[:NAMED] if line.short else line.stacks
    stacks = ", ".join(f"**{plain(stack)}**" for stack in stacks_named)
    if left := phrasing.more(len(stacks_named), len(line.stacks)):
        stacks += f" {left}"
    words = f"{_icon(line)}{plain(line.subject)}{stacks}"
    if isinstance(line.finding, Finding):
        return f"{words}: {_finding(line, fix=fix, most=most)}"
    at = phrasing.REVISIONS[line.finding.revision]
    return f"{words}: **cannot be evaluated** at {at}: {ticked(_first_line(line.finding)[:most])}"


def _first_line(failure: Failure) -> str:
    return failure.message.partition("\n")[0]


def _finding(line: Line, *, fix: bool = True, most: int | None = None) -> str:
    # A list, because the long paths of keys would make a table too wide.
    finding = line.finding
    assert isinstance(finding, Finding)
    resources = line.resources[:NAMED] if line.short else line.resources
    names = ", ".join(map(code, resources))
    if left := phrasing.more(len(resources), len(line.resources)):
        names += f" {left}"
    out = f"<br>**Fix:** {ticked(finding.fix)}" if fix else ""
    reason = ticked(finding.reason[:most])
    if finding.policy == SETTINGS:
        return f"{names}: {reason}{out}"
    return f"{f'**{reason}**' if finding.harm else reason}<br>{_finding_head(finding)} {names}{out}"


def _finding_head(finding: Finding) -> str:
    return f"{phrasing.severity(finding)}: {code(finding.policy)}"


def _foot(preview: Preview) -> str:
    """Parts that are the same for all stacks."""
    parts: list[str] = []
    if old := known(preview):
        old_prices = first(old, OLD)
        left = phrasing.more(len(old_prices), len(old))
        lines = [*map(_line, old_prices), *([f"{left}, in the JSON"] if left else [])]
        parts.append(_fold(f"Findings that are not new: {len(old)}", _list(lines)))
    quotas = [quota for stack in preview.stacks for quota in tables.quotas(stack)]
    if see := tables.where_to_see(quotas):
        parts.append(_fold("Where the limits of quotas are shown", _list(map(code, see))))
    links = [
        f"[{plain(stack.stack)}]({quote(stack.picture, safe=':/?=&%')})"
        for stack in preview.stacks
        if stack.picture.startswith("https://") and not tables.same(stack)
    ]
    if links:
        parts.append(f"Architecture: {', '.join(links)}")
    return "\n\n".join([*parts, ""]) if parts else ""


def _least_comment(preview: Preview, lines: Sequence[Line], limit: int) -> str:
    """The shortest comment that has every stack: with the whole verdict, or as much of its beginning as fits."""
    title = f"## Preview of {phrasing.many(len(preview.stacks), 'stack')}\n\n"
    stacks = "\n".join(f"- {plain(stack.stack)}: {plain(phrasing.state(stack))}" for stack in preview.stacks)
    foot = f"\n\n{stacks}\n\n{SHORTENED}\n"
    brief_lines = [_line(line, fix=False, most=BRIEF) for line in lines]
    for whole in (map(_line, lines), brief_lines):
        text = f"{title}{_list(whole)}{foot}"
        if len(text) <= limit:
            return text
    end = f"{len(lines)} lines of the verdict in all, the others in the JSON"
    sizes = accumulate((len(text) + 3 for text in brief_lines), initial=len(f"{title}- {end}{foot}"))
    fitting = sum(size <= limit for size in sizes) - 1
    if fitting > 0:
        return f"{title}{_list([*brief_lines[:fitting], end])}{foot}"
    text = f"{title}{SHORTENED}\n\n{stacks}\n"
    return text if len(text) <= limit else ", ".join(plain(stack.stack) for stack in preview.stacks)


def _choose_open(head: str, sections: Iterable[tuple[Group, str]]) -> list[bool]:
    """Which sections are open: those with changes or failures, as long as they fit below the head."""
    taken = head.count("\n")
    opened: list[bool] = []
    for group, body in sections:
        taken += body.count("\n") + body.count("<br>") + 6
        opened.append(bool(group.first.changes or group.first.failures) and taken <= SCREEN)
    return opened


def _section(group: Group, body: str, *, opened: bool) -> str:
    names = html(", ".join(stack.stack for stack in group.stacks))
    words = phrasing.listed([phrasing.state(group.first), *phrasing.running(group.first.changes)])
    summary = f"<summary><b>{names}</b>: {html(words)}</summary>"
    return "\n".join([f"<details{' open' if opened else ''}>", summary, "", body, "", "</details>", ""])


def _content(about: About, *, properties: int | None = None, lines: bool = True) -> Iterator[str]:
    """``properties`` is how many properties of each resource are shown; None for all."""
    yield from _start(about)
    yield from _changes(about, properties)
    yield from _figures(about.stack, lines=lines)


def _least(about: About) -> Iterator[str]:
    yield _list(
        _finding_head(line.finding) + f" {', '.join(map(code, line.resources))}"
        for line in about.findings[:20]
        if isinstance(line.finding, Finding)
    )
    if about.stack.changes is not None:
        yield f"- {plain(phrasing.change_words(about.stack.changes))}"


DETAILS: Sequence[Callable[[About], Iterator[str]]] = (
    _content,
    partial(_content, properties=3, lines=False),
    partial(_content, properties=0, lines=False),
    _least,
)
"""The contents of a section at each level of detail. After the last one, only the row in the table is left."""


def _start(about: About) -> Iterator[str]:
    for failure in about.stack.failures:
        if failure.message != _first_line(failure):
            yield block(failure.message)
        cells = [
            (code(problem["key"]), code(problem["value"]), ticked(problem["reason"]), ticked(problem["fix"]))
            for problem in phrasing.problems(failure)
        ]
        if cells:
            yield _table(("Key", "Value", "Why", "Fix"), cells)
    yield _list(f"{_icon(finding)}{plain(finding.subject)}{_finding(finding)}" for finding in about.findings)
    yield _list(
        map(
            _describe_suppressed,
            (suppression for suppression in about.stack.suppressed if suppression.finding.new),
        )
    )


def _describe_suppressed(entry: Suppressed) -> str:
    until = f" until {entry.until}" if entry.until else ""
    of = f"{code(entry.finding.policy)} {code(entry.finding.name)}"
    return f"Suppressed{plain(until)}: {of}: {ticked(entry.finding.reason)}<br>**Because:** {ticked(entry.why)}"


def _changes(about: About, properties: int | None) -> Iterator[str]:
    if about.stack.changes is None:
        return
    change_rows = rows(about.stack.changes)
    if not about.places:
        change_rows = without_places(change_rows)
    cells = [(f"**{row.done}**", _resources(row), "<br>".join(_what(row, properties))) for row in change_rows]
    if cells:
        yield _table(("Change", "Resource", "What"), cells)
    yield _list(map(ticked, about.stack.changes.remarks))


def _resources(row: Row) -> str:
    named = [f"{code(name)} {plain(kind)}" for name, kind in row.named]
    return "<br>".join([*named, *filter(None, [phrasing.more(len(named), len(row.resources))])])


def _what(row: Row, properties: int | None) -> Iterator[str]:
    shown_properties = row.properties[:properties]
    if row.where_and_why:
        yield ticked(row.where_and_why)
    elif not shown_properties and (forcing := [change.path for change in row.properties if change.forces]):
        yield f"forced by {', '.join(map(code, forcing))}"
    yield from map(_property, shown_properties)
    if shown_properties and (left := phrasing.more(len(shown_properties), len(row.properties))):
        yield left


def _property(change: PropertyChange) -> str:
    forces = " **replaces it**" if change.forces else ""
    if unknown(change):
        return f"{code(change.path)}: known only after the update{forces}"
    return f"{code(change.path)}: {_value(change.before)} → {_value(change.after)}{forces}"


def _value(content: object) -> str:
    return plain(phrasing.value(content)) if content is None else code(phrasing.value(content))


def _figures(preview: StackPreview, *, lines: bool) -> Iterator[str]:
    whole = tables.whole(preview)
    sums = tables.cost_words(preview)
    sums += filter(None, [tables.unknown_words(preview)])
    if whole and preview.timeline is not None:
        sums.append(tables.timeline_words(preview.timeline))
    yield _list(map(ticked, [*sums, *(preview.remarks if whole else ())]))
    if lines and whole and preview.timeline is not None:
        yield _fold("What pulumi up waits for", _path(preview.timeline))
    if lines and (lines_of_cost := tables.cost_lines(preview)):
        yield _fold("Cost of each resource" if whole else "Cost of what is new or changed", _cost(lines_of_cost))
    if lines_of_cost := tables.quotas(preview):
        cells = [(code(line.metric), plain(line.where), plain(tables.needed(line))) for line in lines_of_cost]
        title = "Quota needed at maximum" if whole else "Quota of which another amount is needed at maximum"
        yield _fold(title, _table(("Metric", "Where", "Needed"), cells, "llr"))


def _cost(lines: Iterable[CostLine]) -> str:
    cells: list[tuple[str, ...]] = []
    for line in lines:
        amounts = map(plain, tables.amounts(line))
        cells.append((code(line.resource), plain(line.what), *amounts, plain(line.as_of)))
    return _table(("Resource", "What", *tables.AMOUNTS, "As of"), cells, "llrrrrl")


def _path(timeline: Timeline) -> str:
    cells = [
        (
            code(step.name),
            plain(", ".join([phrasing.kind(step.type), *tables.pods_words(step)])),
            phrasing.duration(step.begins),
            phrasing.duration(step.seconds),
            plain(tables.as_of(step.basis)),
        )
        for step in timeline.critical
    ]
    table = _table(("Name", "Kind", "Begins after", "Takes", "From"), cells, "llrr")
    return "\n".join([table, "", *map(plain, timeline.remarks)])


def _fold(title: str, content: str) -> str:
    return f"<details>\n<summary>{html(title)}</summary>\n\n{content}\n\n</details>"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _icon(line: Line) -> str:
    return "🟡 " if line.level is Level.WARNING else "🔴 "


def _worst(findings: Sequence[Finding]) -> str:
    levels = {finding.level for finding in findings}
    return "" if not levels else "🟡 " if levels == {Level.WARNING} else "🔴 "


def _table(head: Sequence[str], cells: Iterable[Sequence[str]], align: str = "") -> str:
    """``align`` has a letter for each column: l or r."""
    rule = ["---:" if letter == "r" else "---" for letter in align.ljust(len(head), "l")]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *cells))
