"""Prints a preview on a terminal."""

from collections.abc import Iterable, Mapping

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slipway.evaluated import phrasing
from slipway.evaluated.model import Level, Operation, Preview
from slipway.infra.schema.problems import printable, printable_lines
from slipway.preview import page
from slipway.preview.page import Block, ChangeRows, Code, Fold, Items, Paragraph, Strong, Verbatim, Words

STYLES: Mapping[Level | Operation | None, str] = {
    None: "",
    **dict.fromkeys(Level, "bold red"),
    Level.WARNING: "yellow",
    Operation.CREATE: "green",
    Operation.UPDATE: "yellow",
    Operation.REPLACE: "magenta",
    Operation.DELETE: "red",
}


def show(preview: Preview, console: Console) -> None:
    """Prints the verdict and the table of all stacks, then each stack; stacks with the same text together."""
    heading = _text(page.title(preview))
    heading.stylize("bold")
    console.print(heading)
    # The columns of a terminal are narrow, and each stack's own part names its Jobs right below.
    _print(console, page.beginning(preview, named=0), 0)
    for section in page.sections(preview):
        console.print()
        console.rule(_text(page.words(Strong(section.names), f": {section.summary}")), align="left", style="dim")
        _print(console, section.blocks(), 2)
    _print(console, page.end(preview), 0)


def _print(console: Console, blocks: Iterable[Block], indent: int) -> None:
    for block in blocks:
        if isinstance(block, Verbatim):
            for line in printable_lines(block.text).split("\n"):
                console.print(Text(f"{' ' * indent}    {line}"), soft_wrap=True)
        elif isinstance(block, Fold):
            if not isinstance(block.brief, Paragraph):
                console.print(Padding(Text(f"\n{block.title}", style="italic"), (0, 0, 0, indent), expand=False))
            _print(console, [block.brief] if block.brief else block.blocks, indent)
        else:
            content = _renderable(block)
            console.print(Padding(content, (0, 0, 0, indent), expand=False) if indent else content)


def _renderable(block: Paragraph | Items | page.Table | ChangeRows) -> RenderableType:
    match block:
        case Paragraph(words):
            text = _text(words)
            text.style = text.style or "dim"
            return text
        case Items(items):
            return Group(*(_indent(_text(head), map(_text, rest)) for head, *rest in items))
        case ChangeRows(rows, properties):
            return Group(*(_change(row, properties) for row in rows))
        case page.Table():
            return _table(block)


def _indent(head: Text, rest: Iterable[Text], indent: int = 2) -> Group:
    """Lines of which all but the first are indented."""
    return Group(head, *(Padding(line, (0, 0, 0, indent)) for line in rest))


def _change(row: page.Row, properties: int | None) -> Group:
    named = ", ".join(f"{name}  {kind}" for name, kind in row.named)
    more = phrasing.more(len(row.named), len(row.resources))
    lines = [_text(line) for line in page.explain_row(row, properties)]
    head = Text.assemble(
        (f"{phrasing.SYMBOLS[row.operation]} ", STYLES[row.operation]),
        (printable(f"{named} {more}".strip()), "bold"),
        (f"  {row.done}", STYLES[row.operation]),
    )
    if row.where_and_why:
        head.append("  ").append_text(lines.pop(0))
    return _indent(head, lines, 4)


def _table(block: page.Table) -> Table:
    """A table without borders that wraps its cells."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, heading in enumerate(block.headings):
        justify = "right" if heading in block.right else "left"
        # A name that is broken in two cannot be searched for.
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=block.names and not index)
    for cells in block.rows:
        table.add_row(*map(_text, cells))
    return table


def _text(words: Words) -> Text:
    """One line of text. Its parts may have a style; their content cannot style, move or break the line."""
    text = Text(style=STYLES[words.style])
    for part in words.parts:
        content = part.text if isinstance(part, Code | Strong) else part
        text.append(printable(content), "bold" if isinstance(part, Strong) else None)
    return text
