"""The fenced code blocks of a Markdown page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its page, the line its fence stands on, the info string and the text inside."""

    page: str
    line: int
    info: str
    body: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(root: Path) -> Iterator[Block]:
    """Every block of README.md and of the pages in docs/, in page order."""
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            name = page.relative_to(root).as_posix()
            yield Block(name, line, match["info"].strip(), match["body"])
