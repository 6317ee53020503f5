"""A preview as a comment on a pull request: the verdict, one table over all stacks, and a section for each.

The verdict and the table fill the first screen; a section is open if it fits there. Stacks with equal content
share a section. GitHub takes at most 65,536 characters ("Body is too long (maximum is 65536 characters)", its API
in 2025): the largest sections lose detail until the comment fits, and no stack is ever left out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from slipway.evaluated import phrasing
from slipway.evaluated.model import Level, Preview, StackPreview
from slipway.infra.schema.problems import printable, printable_lines
from slipway.preview import page
from slipway.preview.page import (
    Block,
    ChangeRows,
    Code,
    Fold,
    Items,
    Paragraph,
    Section,
    Strong,
    Table,
    Verbatim,
    Words,
)


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


def prose(text: str) -> str:
    """`plain`, with line breaks as spaces; text between two backticks becomes a code span."""
    line = re.sub(r"[ \t\r\n]+", " ", text)
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

JOBS = 3
"""Up to this many Jobs of a stack are named in the table with their pools; more are counted."""

SHORTENED = "Detail was left out to fit into a comment; the whole of it is in the JSON."


def comment(preview: Preview, limit: int = LIMIT) -> str:
    """The comment, of at most ``limit`` characters."""
    head = f"{_title(preview)}{_blocks(page.beginning(preview, JOBS))}\n"
    foot = _blocks(page.end(preview))
    sections = page.sections(preview)
    opened = _choose_open(head, sections)
    texts = [_section(section, 0, is_open) for section, is_open in zip(sections, opened, strict=True)]
    details = [0] * len(texts)
    length = len(head) + len(foot) + len(SHORTENED) + 5 + sum(len(text) + 1 for text in texts)
    while length > limit and any(texts):
        index = max(range(len(texts)), key=lambda position: len(texts[position]))
        details[index] += 1
        length -= len(texts[index])
        texts[index] = _section(sections[index], details[index], opened[index])
        length += len(texts[index])
    shortened = f"{SHORTENED}\n" if any(details) else ""
    text = "\n".join(filter(None, [head, *texts, foot and f"{foot}\n", shortened]))
    if len(text) > limit:
        *longer, shortest = _least_comments(preview)
        return next((text for text in longer if len(text) <= limit), shortest)
    for stack in preview.stacks:
        drawn = _diagram(stack)
        if len(text) + len(drawn) <= limit:
            text += drawn
    return text


def _title(preview: Preview) -> str:
    return f"## {_words(page.title(preview))}\n\n"


def _diagram(stack: StackPreview) -> str:
    """The architecture of a stack, folded; empty where it has no diagram."""
    if not stack.diagram:
        return ""
    title = f"<summary>Architecture of {html(stack.stack)}</summary>"
    return f"\n<details>\n{title}\n\n```mermaid\n{stack.diagram}\n```\n\n</details>\n"


def _least_comments(preview: Preview) -> Iterator[str]:
    """Comments that have every stack, the longest first: with the whole verdict, a brief one, ever fewer lines of
    that, and none."""
    stacks = "\n".join(f"- {plain(stack.stack)}: {plain(phrasing.state(stack))}" for stack in preview.stacks)
    foot = f"\n\n{stacks}\n\n{SHORTENED}\n"
    yield f"{_title(preview)}{_block(Items(page.verdict_items(preview)))}{foot}"
    items = page.verdict_items(preview, brief=True)
    yield f"{_title(preview)}{_block(Items(items))}{foot}"
    left = [page.words(f"{len(items)} lines of the verdict in all, the others in the JSON")]
    for count in range(len(items) - 1, 0, -1):
        yield f"{_title(preview)}{_block(Items([*items[:count], left]))}{foot}"
    yield f"{_title(preview)}{SHORTENED}\n\n{stacks}\n"
    yield ", ".join(plain(stack.stack) for stack in preview.stacks)


def _choose_open(head: str, sections: Iterable[Section]) -> list[bool]:
    """Which sections are open: those with changes or failures, as long as they fit below the head."""
    taken = head.count("\n")
    opened: list[bool] = []
    for section in sections:
        body = _blocks(section.blocks())
        taken += body.count("\n") + body.count("<br>") + 6
        opened.append(section.affected and taken <= SCREEN)
    return opened


def _section(section: Section, detail: int, is_open: bool) -> str:
    if detail >= page.LEVELS:
        return ""
    summary = f"<summary><b>{html(section.names)}</b>: {html(section.summary)}</summary>"
    body = _blocks(section.blocks(detail))
    return "\n".join([f"<details{' open' if is_open else ''}>", summary, "", body, "", "</details>", ""])


def _blocks(blocks: Iterable[Block]) -> str:
    return "\n\n".join(map(_block, blocks))


def _block(block_: Block) -> str:
    match block_:
        case Paragraph(words):
            return _words(words)
        case Items(items):
            return "\n".join(f"- {'<br>'.join(map(_words, item))}" for item in items)
        case Table(headings, rows, right):
            return _table(headings, (map(_words, cells) for cells in rows), right)
        case ChangeRows(rows, properties):
            return _table(("Change", "Resource", "What"), (_change(row, properties) for row in rows))
        case Verbatim(text):
            return block(text)
        case Fold(title, blocks):
            return f"<details>\n<summary>{html(title)}</summary>\n\n{_blocks(blocks)}\n\n</details>"


def _change(row: page.Row, properties: int | None) -> Iterator[str]:
    named = [f"{code(name)} {plain(kind)}" for name, kind in row.named]
    yield f"**{row.done}**"
    yield "<br>".join(filter(None, [*named, phrasing.more(len(named), len(row.resources))]))
    yield "<br>".join(map(_words, page.explain_row(row, properties)))


def _words(words: Words) -> str:
    icon = "" if not isinstance(words.style, Level) else "🟡 " if words.style is Level.WARNING else "🔴 "
    return icon + "".join(map(_part, words.parts))


def _part(part: page.Part) -> str:
    if isinstance(part, Code):
        return code(part.text)
    return f"**{prose(part.text)}**" if isinstance(part, Strong) else prose(part)


def _table(headings: Sequence[str], rows: Iterable[Iterable[str]], right: Iterable[str] = ()) -> str:
    rule = ["---:" if heading in right else "---" for heading in headings]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *rows))
