"""Escapes untrusted text for Markdown: no markup, no mentions, safe in table cells."""

import re

from infra.schema.printable import printable, printable_lines


def plain(text: str) -> str:
    """Plain text on one line."""
    return _escaped(printable(text))


def code(text: str) -> str:
    """A code span; empty for an empty text."""
    line = printable(text).strip()
    if not line:
        return ""
    if "|" in line:
        # A code span in a table cannot contain a backslash before a bar: the bar would end the cell.
        return f"<code>{_escaped(line)}</code>"
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


def _escaped(line: str) -> str:
    line = _entities(re.sub(r"([\\`*_\[\]~#])", r"\\\1", line))
    # GitHub renders text between two dollar signs as a formula.
    return line.replace("$", "&#36;").replace("@", "@\u200b")


def _entities(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")
