"""Runs a program that knows nothing of Slipway: found by its name, told of SIGTERM, its secrets masked.

Standard library only.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from workloads.runtime.exits import BAD_INPUT, INTERRUPTED, INTERRUPTED_BY_KEYBOARD, RECORD_VARIABLE, StepError
from workloads.runtime.masking import Masker

_PIECE = 1 << 16
_LAST_WORDS = 2.0
"""Seconds for which the output of a program is still read once it has ended: what it started may hold it open."""


@dataclass(frozen=True)
class Program:
    """`words` is the command line, `folder` the directory in which it starts, `environment` all its variables.

    Of all that it prints, `secrets` are masked, and it comes on standard output. Where there are no secrets, the
    program writes to this process's own standard output and error.
    """

    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    secrets: Sequence[str] = ()

    def require(self) -> None:
        """Raise StepError with BAD_INPUT where the program cannot be started."""
        name = self.words[0]
        if not self.folder.is_dir():
            raise StepError(BAD_INPUT, f"{name!r} cannot be started in {self.folder}: there is no such folder")
        if "/" in name:
            path = self.folder / name
            if not path.is_file():
                raise StepError(BAD_INPUT, f"there is no program {name!r} in {self.folder}")
            if not os.access(path, os.X_OK):
                raise StepError(
                    BAD_INPUT,
                    f"{name!r} in {self.folder} is not executable; write its interpreter before it, as in "
                    f"`python {name}`",
                )
            return
        search = self.environment.get("PATH", os.defpath)
        # A relative folder of PATH counts from where the program starts.
        places = os.pathsep.join(str(self.folder / place) for place in search.split(os.pathsep))
        if shutil.which(name, path=places) is None:
            raise StepError(BAD_INPUT, f"there is no program {name!r} in this image{_hint(name, self.folder)}")

    def run(self, remark: str) -> None:
        """Run it to its end.

        SIGTERM is passed on to it, and its end awaited; whatever its exit code is then, it did not do its work.
        `remark` is the end of the line that says so.

        Raises:
            StepError: BAD_INPUT where it cannot be started; its own exit code where that is not 0, 128 + n where
                signal n ended it; INTERRUPTED after SIGTERM.
        """
        self.require()
        piped = subprocess.PIPE if self.secrets else None
        environment = {name: value for name, value in self.environment.items() if name != RECORD_VARIABLE}
        if self.secrets:
            # A pipe would make Python hold back its output until a buffer is full.
            environment.setdefault("PYTHONUNBUFFERED", "1")
        with _Signals() as signals:
            try:
                process = subprocess.Popen(
                    list(self.words),
                    cwd=self.folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=piped,
                    # Two pipes would lose the order of what is written to them.
                    stderr=subprocess.STDOUT if self.secrets else None,
                )
            except OSError as error:
                raise StepError(BAD_INPUT, f"{self.words[0]!r} cannot be started: {error.strerror}") from error
            signals.forward_to(process)
            copying = process.stdout and _copy(process.stdout, sys.stdout.buffer, Masker(self.secrets))
            code = process.wait()
            if copying is not None:
                copying.join(_LAST_WORDS)
        if signals.received == signal.SIGTERM:
            raise StepError(INTERRUPTED, f"stopped by SIGTERM: {remark}")
        if signals.received == signal.SIGINT:
            raise StepError(INTERRUPTED_BY_KEYBOARD, f"interrupted: {remark}")
        if code < 0:
            raise StepError(128 - code, f"{self.words[0]} was ended by {_signal(-code)}")
        if code:
            raise StepError(code, f"{self.words[0]} failed; what it wrote is above")


class _Signals:
    """While it is entered, SIGTERM is passed on to the program, and Ctrl-C, which it gets itself, only noted.

    In a container this process is process 1, for which Linux ignores SIGTERM unless a handler is set.
    """

    def __init__(self) -> None:
        self.received = 0
        self._process: subprocess.Popen[bytes] | None = None

    def forward_to(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        if self.received == signal.SIGTERM:
            process.send_signal(signal.SIGTERM)

    def __enter__(self) -> _Signals:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.received = number
        if number == signal.SIGTERM and self._process is not None:
            self._process.send_signal(number)


def _copy(stream: BinaryIO, to: BinaryIO, masker: Masker) -> threading.Thread:
    def copy() -> None:
        while piece := os.read(stream.fileno(), _PIECE):
            to.write(masker.feed(piece))
            to.flush()
        to.write(masker.finish())
        to.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def _signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"{name}, as by the kernel where memory runs out" if number == signal.SIGKILL else name


def _hint(name: str, folder: Path) -> str:
    if (folder / name).is_file():
        return f"; {name} lies in the step's code: write its interpreter before it, as in `python {name}`"
    if name == "python":
        return f"; {sys.executable} is there: write python3"
    return ", nor among the packages of the step's requirements"
