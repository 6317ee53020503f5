"""What a trial reports while it runs, in a file or in what it prints, and whether it is stopped for that.

Each step counts once, with the value that was reported first: a program that goes on from a checkpoint reports
some steps again. The reports decide, and not when they are read. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.runtime.json_values import AbsentError, split, value_in
from slipway.runtime.steps.program import readable
from slipway.runtime.store import read_file, store_errors

if TYPE_CHECKING:
    from slipway.features.search.pod.study import Judge

STEP, VALUE = "step", "value"
"""Keys of a line: the number of the step, which every program calls so, and what is kept of a printed value."""

PRINTED = "printed:"
"""What a reference begins with that is a pattern of printed lines, with the group `value` and maybe `step`."""

FILE = "reports.jsonl"
"""The file in the directory of a trial that keeps what it printed of its steps."""

_LONGEST_LINE = 2000
"""Bytes of a line in which the pattern is searched for: what that costs may grow with their square."""

_END = re.compile(rb"[\r\n]")

_POLL = 0.5
"""Seconds between two looks at the file."""


class Reports:
    """The reports of one trial: `reference` is a file below `directory`, and the value in each of its lines.

    Where it begins with `PRINTED`, `Printed` writes the file.
    """

    def __init__(self, directory: Path, reference: str, judge: Judge) -> None:
        file, self._pointer = split(f"{FILE}#/{VALUE}" if reference.startswith(PRINTED) else reference)
        self._path = directory / file
        self._judge = judge
        self.seen: dict[int, float] = {}
        """The value of each step, up to that with which it was stopped."""
        self.pruned = False

    @property
    def last(self) -> float:
        """The value of the last step."""
        return self.seen[max(self.seen)]

    @property
    def notes(self) -> dict[str, Any]:
        """What the pruner keeps of the trial."""
        return self._judge.notes

    @contextlib.contextmanager
    def watched(self, stop: Callable[[], None]) -> Iterator[None]:
        """While this is entered, `stop` is called once the trial is to end; at the end all reports are read."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_POLL):
                # At the end what keeps the store from being read is raised.
                with contextlib.suppress(Exception):
                    self.read()
                if self.pruned:
                    stop()
                    return

        thread = threading.Thread(target=watch, name="reports", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        self.read()

    def read(self) -> None:
        """Read what is new. Raises StoreError."""
        if self.pruned:
            return
        with store_errors(self._path):
            content = read_file(self._path) or b""
        # The last line may be one that is being written.
        for line in content.split(b"\n")[:-1]:
            report = self._parse(line)
            if report is None or report[0] in self.seen or report[0] < max(self.seen, default=0):
                continue
            step, value = report
            self.seen[step] = value
            if self._judge.stops(step, value):
                self.pruned = True
                return

    def _parse(self, line: bytes) -> tuple[int, float] | None:
        """The step and its value; None for a line that has none, or a value that is no number."""
        try:
            content = json.loads(line)
            step, value = content[STEP], value_in(content, self._pointer, "the line")
        except (ValueError, TypeError, KeyError, AbsentError, RecursionError):
            return None
        numbers = isinstance(step, int) and isinstance(value, (int, float)) and not isinstance(value, bool)
        return (step, float(value)) if numbers and step >= 0 and math.isfinite(value) else None


class Printed:
    """Keeps in `FILE` what a program prints of its steps, so that there is one way to read what a trial reports.

    Called with pieces of what it prints, as they come. Lines end at line feeds and carriage returns. A line with
    the step alone names the step of the value after it, as Keras prints it; a pattern without the group `step`
    counts its lines from 0. An attempt after an eviction adds to the file of the one before.
    """

    def __init__(self, directory: Path, reference: str) -> None:
        self._pattern = re.compile(reference[len(PRINTED) :])
        self._file = directory / FILE
        self._begun = b""
        self._step = -1
        self._last = -1
        self._matched = False
        self._skipped, self._first_skipped = 0, ""
        self._pending = ""
        self._error: OSError | None = None
        with contextlib.suppress(OSError):
            if not (content := self._file.read_bytes()).endswith(b"\n") and content:
                # A worker that was killed left a part of a line.
                self._pending = "\n"

    def __call__(self, piece: bytes) -> None:
        *lines, begun = _END.split(self._begun + piece)
        self._begun = begun[:_LONGEST_LINE]
        for line in lines:
            self._search(line[:_LONGEST_LINE].decode(errors="replace"))

    def end(self, *, whole: bool) -> None:
        """Take the last line, too, where the program ended by itself: otherwise it may be half of one, with half a
        number. Raises StoreError where the file could not be written.
        """
        if whole:
            self(b"\n")
        self._write()
        with store_errors(self._file):
            if self._error is not None:
                raise self._error

    @property
    def remark(self) -> str:
        """What is worth knowing of lines that are no reports; empty where nothing is."""
        if not self._matched:
            return "no line that it printed matches the pattern `printed` of its search"
        if not self._skipped:
            return ""
        others = f", and {self._skipped - 1} more" if self._skipped > 1 else ""
        return f"skipped among the printed reports: {self._first_skipped}{others}"

    def _search(self, line: str) -> None:
        match = self._pattern.search(line)
        if match is None:
            return
        self._matched = True
        groups = match.groupdict()
        step, value = groups.get(STEP), groups[VALUE]
        if step is not None:
            self._step = _number_of_step(step)
            if self._step < 0:
                self._skip(f"{readable(step)!r}, which is no number of a step")
                return
        elif STEP not in groups and value is not None:
            self._step += 1
        if value is None:
            return
        number = _finite(value)
        if self._step < 0:
            self._skip(f"{readable(value)!r}, before which no step was named")
        elif number is None:
            self._skip(f"{readable(value)!r} of step {self._step}, which is no finite number")
        elif self._step > self._last:
            # Others of the same step count for nothing, and each write is an upload where the store is a bucket.
            self._last = self._step
            self._pending += json.dumps({STEP: self._step, VALUE: number}) + "\n"
            self._write()

    def _skip(self, what: str) -> None:
        self._first_skipped = self._first_skipped or what
        self._skipped += 1

    def _write(self) -> None:
        if not self._pending:
            return
        try:
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(self._pending)
        except OSError as error:
            # Whoever copies the output has to go on, or the program would wait for it for ever. Where the store
            # comes back, nothing is lost; a part of a line may be there.
            self._error = error
            self._pending = "\n" + self._pending.lstrip("\n")
        else:
            self._error, self._pending = None, ""


def _number_of_step(text: str) -> int:
    """-1 where the text is no whole number from 0."""
    try:
        return max(int(text), -1)
    except ValueError:
        return -1


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
