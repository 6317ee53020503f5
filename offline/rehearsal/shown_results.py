"""Results as people read them: what the summary and the report show of a Job's."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from infra.pipelines.results import Curves, Format

COPY_LIMIT = 100 * 1024 * 1024
"""Bytes of a file beyond which only the store has it."""


@dataclass(frozen=True)
class ShownNumber:
    """A number, as people read it in ``text``, and a sentence that belongs to it or nothing.

    ``value`` is None where its format allows what is no number, and it is none.
    """

    name: str
    title: str
    value: float | None
    format: Format
    text: str
    remark: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a table: its cells as people read them.

    ``failed`` says that it is an item that was set aside, ``right`` whether the value is the true one, None where
    the truth is not known. ``length`` and ``spread`` are those of its bar, 1 is the longest bar of the table, with
    its spread.
    """

    cells: tuple[str, ...]
    right: bool | None = None
    failed: bool = False
    length: float = 0.0
    spread: float = 0.0
    spread_text: str = ""


@dataclass(frozen=True)
class ShownTable:
    """A table. ``compared`` and ``bars`` are the numbers of the columns that are marked and that have bars.

    ``of_items`` says that its rows are the items of a step.
    """

    name: str
    title: str
    headings: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[Row, ...]
    path: str
    compared: int | None = None
    bars: int | None = None
    caveat: str = ""
    of_items: bool = False

    @cached_property
    def failed(self) -> int:
        """Rows of items that were set aside."""
        return sum(row.failed for row in self.rows)

    @cached_property
    def known(self) -> int:
        """Rows whose truth is known."""
        return sum(row.right is not None for row in self.rows)

    @cached_property
    def right(self) -> int:
        """Rows whose value is the true one."""
        return sum(row.right is True for row in self.rows)

    @property
    def heading(self) -> str:
        """The title, with how many rows are right, or how many items are done."""
        if self.of_items:
            failed = f", {self.failed} failed" if self.failed else ""
            return f"{self.title}, {len(self.rows) - self.failed} of {len(self.rows)} done{failed}"
        return f"{self.title}, {self.right} of {self.known} right" if self.known else self.title


@dataclass(frozen=True)
class ShownCurves:
    """Numbers by name for each epoch or step."""

    declared: Curves
    points: list[dict[str, float]]


@dataclass(frozen=True)
class ShownPicture:
    """A PNG file. ``path`` is below the Job's directory of the store."""

    title: str
    file: Path
    path: str


@dataclass(frozen=True)
class ShownFile:
    """A file, or a folder, of which only the place is shown. ``path`` is below the Job's directory of the store.

    ``size`` is in bytes.
    """

    title: str
    file: Path
    path: str
    size: int

    @property
    def copied(self) -> bool:
        """Whether a copy is kept beside the report: of a file that is not too large for a second one."""
        return self.file.is_file() and self.size <= COPY_LIMIT
