"""A preview as a comment on a pull request: one table over all stacks, and a foldable section for each.

GitHub takes at most 65,536 characters ("Body is too long (maximum is 65536 characters)", its API in 2025).
The largest sections lose detail until the comment fits; no stack is ever left out.
"""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import quote

from stacks.preview import words
from stacks.preview.model import Changes, Cost, Finding, Preview, StackPreview, Timeline

LIMIT = 65_000
"""Characters of the preview; the rest of a comment is for whoever posts it: a marker, a link."""

NUMBERS = frozenset({"Idle a month", "At most an hour", "One run"})
"""The columns of the table over all stacks that have amounts."""

SHORTENED = "Detail was left out to fit into a comment; the whole of it is in the JSON."


def comment(preview: Preview, limit: int = LIMIT) -> str:
    """The comment, of at most ``limit`` characters."""
    head = _head(preview)
    sections = [_section(each, 0) for each in preview.stacks]
    details = [0] * len(sections)
    length = len(head) + len(SHORTENED) + 4 + sum(len(each) + 1 for each in sections)
    largest = [(-len(each), index) for index, each in enumerate(sections)]
    heapq.heapify(largest)
    while largest and length > limit:
        _, index = heapq.heappop(largest)
        details[index] += 1
        length -= len(sections[index])
        sections[index] = _section(preview.stacks[index], details[index])
        length += len(sections[index])
        if details[index] < len(DETAILS):
            heapq.heappush(largest, (-len(sections[index]), index))
    if length > limit and len(_joined(head, sections, shortened=True)) > limit:
        return _names(preview, limit)
    return _joined(head, sections, shortened=any(details))


def _joined(head: str, sections: Iterable[str], *, shortened: bool) -> str:
    return "\n".join([head, *filter(None, sections), *([f"\n{SHORTENED}\n"] if shortened else [])])


def _head(preview: Preview) -> str:
    against = f" against {_code(preview.base)}" if preview.base else ""
    found = words.columns(preview)
    rows = [
        (f"**{_plain(name)}**", *map(_plain, cells), _icon(stack.findings) + findings)
        for stack, (name, *cells, findings) in zip(preview.stacks, zip(*found.values(), strict=True), strict=True)
    ]
    lines = [f"## Preview of {words.many(len(preview.stacks), 'stack')}{against}", ""]
    lines += _table(tuple(found), rows, "".join("r" if each in NUMBERS else "l" for each in found))
    if preview.prices_as_of:
        lines += [
            "",
            "List prices in US dollars, without what is paid by use; "
            f"of those with a date, the oldest as of {preview.prices_as_of}.",
        ]
    return "\n".join([*lines, ""])


def _names(preview: Preview, limit: int) -> str:
    """The least that says something of every stack."""
    title = f"## Preview of {words.many(len(preview.stacks), 'stack')}\n\n{SHORTENED}\n"
    text = "\n".join([title, *(f"- {_plain(each.stack)}: {_plain(words.state(each))}" for each in preview.stacks)])
    return text if len(text) <= limit else ", ".join(_plain(each.stack) for each in preview.stacks)


def _section(preview: StackPreview, detail: int) -> str:
    if detail >= len(DETAILS):
        return ""
    parts = [part for part in DETAILS[detail](preview) if part]
    said = [words.state(preview), *([words.finding_words(preview.findings)] if preview.findings else [])]
    summary = f"<summary><b>{_html(preview.stack)}</b>: {_html(words.listed(said))}</summary>"
    return "\n".join(["<details>", summary, "", *parts, "", "</details>", ""])


def _full(preview: StackPreview) -> Iterator[str]:
    yield from _start(preview)
    yield from _changes(preview.changes, properties=None)
    yield from _figures(preview, lines=True)


def _fewer_values(preview: StackPreview) -> Iterator[str]:
    yield from _start(preview)
    yield from _changes(preview.changes, properties=3)
    yield from _figures(preview, lines=False)


def _no_values(preview: StackPreview) -> Iterator[str]:
    yield from _start(preview)
    yield from _changes(preview.changes, properties=0)
    yield from _figures(preview, lines=False)


def _least(preview: StackPreview) -> Iterator[str]:
    for each in preview.findings[:20]:
        yield f"- {each.severity}: {_code(each.policy)} {_code(each.name)}"
    if preview.changes is not None:
        yield f"- {words.jobs(preview.changes)}"


DETAILS: Sequence[Callable[[StackPreview], Iterator[str]]] = (_full, _fewer_values, _no_values, _least)
"""What a section holds, from everything to nearly nothing; after the last it is the table's row alone."""


def _start(preview: StackPreview) -> Iterator[str]:
    for failure in preview.failures:
        yield f"**Cannot be evaluated at {words.REVISIONS[failure.revision]}.**\n\n{_block(failure.message)}\n"
        rows = [
            (_code(each["key"]), _code(each["value"]), _ticked(each["reason"]), _ticked(each["fix"]))
            for each in words.problems(failure)
        ]
        if rows:
            yield "\n".join(_table(("Key", "Value", "Why", "Fix"), rows)) + "\n"
    if preview.picture.startswith("https://"):
        yield f"[The architecture of {_plain(preview.stack)}]({quote(preview.picture, safe=':/?=&%')})\n"
    yield from _findings(preview)


def _findings(preview: StackPreview) -> Iterator[str]:
    # No table: paths of keys are long, and what comes last would have to be scrolled to.
    lines = [
        f"- {_icon([each])}{words.severity(each)}: {_code(each.policy)} {_code(each.name)}<br>"
        f"{_ticked(each.reason)}<br>**Fix:** {_ticked(each.fix)}"
        for each in preview.findings
    ]
    if lines:
        yield "\n".join(lines) + "\n"
    for each in preview.suppressed:
        until = f" until {each.until}" if each.until else ""
        yield f"Suppressed{until}: {_code(each.finding.policy)} {_code(each.finding.name)}: {_ticked(each.why)}\n"


def _changes(changes: Changes | None, properties: int | None) -> Iterator[str]:
    """``properties`` is how many of each resource are shown; None for all."""
    if changes is None:
        return
    if not changes.resources:
        yield f"{words.unchanged(changes)}\n"
    rows: list[tuple[str, ...]] = []
    for each in words.ordered(changes):
        telling = words.telling(each)[:properties]
        values = [
            f"{_code(change.path)}: {_value(change.before)} → {_value(change.after)}"
            + (" **replaces it**" if change.forces else "")
            for change in telling
        ]
        if telling and (rest := words.more(len(telling), len(each.properties))):
            values.append(rest)
        why = [_plain(words.why(each)), "" if telling else _plain(words.forced(each))]
        rows.append(
            (
                f"**{words.DONE[each.operation]}**",
                f"{_code(each.name)} {_plain(words.kind(each.type))}",
                "<br>".join(filter(None, [*why, *values])),
            )
        )
    if rows:
        yield "\n".join(_table(("Change", "Resource", "What"), rows)) + "\n"
    if changes.runs:
        yield "\n".join(f"- Job {_code(run.name)} {_plain(words.run_words(run))}" for run in changes.runs) + "\n"
    for remark in changes.remarks:
        yield f"{_ticked(remark)}\n"


def _figures(preview: StackPreview, *, lines: bool) -> Iterator[str]:
    if sums := words.cost_words(preview):
        yield "\n".join(f"- {_plain(each)}" for each in sums)
    if preview.timeline is not None:
        yield f"- {_ticked(words.timeline_words(preview.timeline))}"
        if lines:
            yield _folded("What pulumi up waits for", _path(preview.timeline))
    if preview.cost is not None and words.priced(preview.cost) and lines:
        yield _folded("Cost of each resource", _cost(preview.cost))
    if preview.quotas:
        rows = [(_code(each.metric), _plain(each.where), words.needed(each)) for each in preview.quotas]
        see = [f"- {_code(each)}" for each in words.where_to_see(preview.quotas)]
        table = _table(("Metric", "Where", "Needed"), rows, "llr")
        yield _folded("Quota needed at maximum", [*table, "", "What there is:", *see])
    for remark in preview.remarks:
        yield f"\n{_ticked(remark)}"


def _cost(cost: Cost) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for line in cost.lines:
        amounts = (
            (line.metered_price or words.UNKNOWN, "by use", "")
            if line.metered
            else tuple(words.money(each) for each in (line.hourly, line.idle, line.most))
        )
        rows.append((_code(line.resource), _plain(line.what), *map(_plain, amounts), line.as_of))
    head = ("Resource", "What", "Each an hour", "Idle an hour", "At most an hour", "As of")
    return _table(head, rows, "llrrrl")


def _path(timeline: Timeline) -> list[str]:
    rows = [
        (
            _code(each.name),
            _plain(words.kind(each.type)),
            words.duration(each.begins),
            words.duration(each.seconds),
            words.as_of(each.basis),
        )
        for each in timeline.critical
    ]
    table = _table(("Name", "Kind", "Begins after", "Takes", "From"), rows, "llrr")
    return [*table, "", *map(_plain, timeline.remarks)]


def _folded(title: str, table: Sequence[str]) -> str:
    return "\n".join(["\n<details>", f"<summary>{_html(title)}</summary>", "", *table, "", "</details>"])


def _icon(findings: Sequence[Finding]) -> str:
    severities = {each.severity for each in findings}
    return "🔴 " if "error" in severities else "🟡 " if severities else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> list[str]:
    """``align`` has a letter for each column: l or r."""
    rule = ["---:" if letter == "r" else "---" for letter in align.ljust(len(head), "l")]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def _code(text: str) -> str:
    """A code span, in which nothing is markup and nobody is mentioned; fit for a cell of a table."""
    line = " ".join(text.split()).replace("|", "\\|")
    if not line:
        return ""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    pad = " " if "`" in line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _plain(text: str) -> str:
    """Text with no markup and nobody mentioned, fit for a cell of a table."""
    return _escaped(" ".join(text.split()))


def _escaped(line: str) -> str:
    line = _html(line)
    line = re.sub(r"([\\`*_\[\]|~#])", r"\\\1", line)
    # Two dollar signs on a line would be a formula to GitHub.
    return line.replace("$", "&#36;").replace("@", "@\u200b")


def _value(content: object) -> str:
    return _plain(words.value(content)) if content is None else _code(words.value(content))


def _ticked(text: str) -> str:
    """`_plain`, but what stands between two backticks is code."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:
        return _plain(text)
    return "".join(_code(part) if index % 2 else _escaped(part) for index, part in enumerate(parts))


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _block(text: str) -> str:
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{fence}text\n{text}\n{fence}"
