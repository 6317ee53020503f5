"""What a trial reports while it runs, in a file or in what it prints, and whether it is stopped for that.

Each step counts once, with the value that was reported first: a program that goes on from a checkpoint reports
some steps again. The reports decide, and not when they are read. Standard library only.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.workloads.runtime.json_values import AbsentError, split, value_in
from slipway.workloads.runtime.store import read_file, store_errors

if TYPE_CHECKING:
    from slipway.workloads.runtime.search.study import Judge

STEP, VALUE = "step", "value"
"""Keys of a line: the number of the step, which every program calls so, and what is kept of a printed value."""

PRINTED = "printed:"
"""What a reference begins with that is a pattern of printed lines, with the groups `step` and `value`."""

FILE = "reports.jsonl"
"""The file in the directory of a trial that keeps what it printed of its steps."""

_LONGEST_LINE = 1 << 16

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

    Called with pieces of what it prints, as they come. Lines end at line feeds and carriage returns. An attempt
    after an eviction adds to the file of the one before.
    """

    def __init__(self, directory: Path, reference: str) -> None:
        self._pattern = re.compile(reference[len(PRINTED) :])
        self._file = directory / FILE
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""
        self._error: OSError | None = None
        with contextlib.suppress(OSError):
            if not (content := self._file.read_bytes()).endswith(b"\n") and content:
                # A worker that was killed left a part of a line.
                self._add("\n")

    def __call__(self, piece: bytes) -> None:
        *lines, begun = re.split("[\r\n]", self._begun + self._decoder.decode(piece))
        self._begun = begun[-_LONGEST_LINE:]
        for line in lines:
            match = self._pattern.search(line)
            if match is None:
                continue
            with contextlib.suppress(ValueError, TypeError):
                report = {STEP: int(match[STEP]), VALUE: float(match[VALUE])}
                self._add(json.dumps(report) + "\n")

    def end(self) -> None:
        """Take the last line, too. Raises StoreError where the file could not be written."""
        self(b"\n")
        with store_errors(self._file):
            if self._error is not None:
                raise self._error

    def _add(self, line: str) -> None:
        try:
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(line)
        except OSError as error:
            # Whoever copies the output has to go on, or the program would wait for it for ever.
            self._error = error
