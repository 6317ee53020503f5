"""Runs a program that knows nothing of Slipway: looked up by its name, told of SIGTERM, its secrets masked.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from slipway.runtime.exits import (
    BAD_INPUT,
    INTERRUPTED,
    INTERRUPTED_BY_KEYBOARD,
    RECORD_VARIABLE,
    WHY_STOPPED,
    StepError,
)
from slipway.runtime.failures import Failure, explain
from slipway.runtime.masking import Masker
from slipway.runtime.steps.guard import MARK, Guard, kill_all

_PIECE = 1 << 16
_KEPT = 1 << 14
_LONGEST_WORDS = 300
_SHELLS = {"bash", "dash", "sh"}
_LAST_WORDS = 2.0
"""Seconds for which the output of a program is still read once it has ended: what it started may hold it open."""


class Attendant(Protocol):
    """Stands by a program while it runs."""

    def attend(self, process: subprocess.Popen[bytes], received: Sequence[int]) -> int:
        """Wait for its end, and tell it of the signals as they are `received`; its exit code."""
        ...

    def finish(self, *, well: bool, told: Callable[[], bool]) -> None:
        """What is done once it has ended. `told` says whether a signal came by now."""
        ...


@dataclass(frozen=True)
class Program:
    """`words` is the command line, `folder` the directory in which it starts, `environment` all its variables.

    Of all that it prints, `secrets` are masked, and it comes on standard output; a `Runner` calls `heard` with it,
    too.
    """

    words: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    secrets: Sequence[str] = ()
    heard: Callable[[bytes], None] | None = None

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

    def run(self, remark: str, attendant: Attendant | None = None) -> None:
        """Run it to its end.

        SIGTERM is passed on to it, and its end awaited; whatever its exit code is then, it did not do its work.
        `remark` is the end of the line that says so. An `attendant` tells it in its own way.

        Raises:
            StepError: BAD_INPUT where it cannot be started; its own exit code where that is not 0, 128 + n where
                signal n ended it; INTERRUPTED after SIGTERM.
        """
        self.require()
        # A terminal sends Ctrl-C to the program, too.
        noted = [signal.SIGINT] if attendant is None else [signal.SIGINT, signal.SIGTERM]
        forwarded = {signal.SIGINT, signal.SIGTERM} - {*noted}
        with Forwarding(*forwarded, noted=noted) as signals:
            process = self.start()
            signals.to(process)
            tail = Tail()
            copying = _copy(process, tail, self.secrets)
            code = process.wait() if attendant is None else attendant.attend(process, signals.received)
            copying.join(_LAST_WORDS)
            if attendant is not None:
                told = signals.received
                attendant.finish(well=code == 0 and not told, told=lambda: bool(told))
        last = signals.received[-1] if signals.received else 0
        if last == signal.SIGTERM:
            raise StepError(INTERRUPTED, f"stopped by SIGTERM: {remark}{WHY_STOPPED}")
        if last == signal.SIGINT:
            raise StepError(INTERRUPTED_BY_KEYBOARD, f"interrupted: {remark}")
        if code:
            raise StepError(code if code > 0 else 128 - code, tell_failure(self.words[0], code, tail.text))

    def start(self, *, guard: Guard | None = None) -> subprocess.Popen[bytes]:
        """Start it with its output in a pipe, and where there is a `guard` in a process group of its own.

        Raises:
            StepError: BAD_INPUT where it cannot be started.
        """
        environment = {name: value for name, value in self.environment.items() if name != RECORD_VARIABLE}
        # A pipe would make Python hold back its output until a buffer is full.
        environment.setdefault("PYTHONUNBUFFERED", "1")
        if guard is not None:
            environment[MARK] = guard.mark
        try:
            return subprocess.Popen(
                list(self.words),
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # Two pipes would lose the order of what is written to them.
                stderr=subprocess.STDOUT,
                start_new_session=guard is not None,
                # The guard has to know the program before it begins: this process may be killed in between.
                preexec_fn=None if guard is None else guard.announce,  # noqa: PLW1509
            )
        except OSError as error:
            raise StepError(BAD_INPUT, f"{self.words[0]!r} cannot be started: {error.strerror}") from error


class Runner:
    """Runs one program at a time, in a process group of its own, and ends with it all that it started.

    `stop` may be called from any thread. Where this process is killed, a guard ends the program.
    """

    def __init__(self) -> None:
        self._guard = Guard()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether there is a program that has not ended, or something that it started."""
        return self._process is not None

    def stop(self, grace: float, number: int = signal.SIGTERM) -> None:
        """Send the program a signal, and end it by force after `grace` seconds."""
        with self._lock:
            process, again = self._process, self._stopped
            if process is None:
                return
            self._stopped = True
            if not again:
                send(process, number, signal.SIGTERM if number != signal.SIGINT else 0)
        ending = threading.Timer(grace, self._kill, [process])
        ending.daemon = True
        ending.start()

    def _begin(self, program: Program) -> tuple[subprocess.Popen[bytes], Tail, threading.Thread]:
        """Start a program while the lock is held, and pass its output on. Raises StepError."""
        self._guard.start()
        self._process = process = program.start(guard=self._guard)
        self._stopped = False
        tail = Tail()
        return process, tail, _copy(process, tail, program.secrets, program.heard)

    def _clean_up(self, process: subprocess.Popen[bytes], copying: threading.Thread) -> None:
        """End all that a program left behind, once it has ended itself."""
        self._guard.end(process.pid)
        copying.join(_LAST_WORDS)
        if not copying.is_alive() and process.stdout is not None:
            process.stdout.close()
        # Process 1 of a container inherits what the program left behind.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-process.pid, os.WNOHANG)[0]:
                pass

    def _is_over(self) -> bool:
        """Take note that the program is over; whether it had been told to end.

        Both at once: whoever tells it to end while it counts as busy relies on hearing that it was told.
        """
        with self._lock:
            self._process = None
            return self._stopped

    def _kill(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is not None and self._process is process:
            kill_all(process.pid, self._guard.mark)


class Tail:
    """Passes on what a program prints to standard output, and keeps the end of it."""

    def __init__(self) -> None:
        self._end = b""

    def write(self, piece: bytes) -> None:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        self._end = (self._end + piece)[-_KEPT:]

    @property
    def text(self) -> str:
        return self._end.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """The lines that are not empty."""
        return [line.strip() for line in self.text.splitlines() if line.strip()]


def readable(line: str) -> str:
    """A line of a program for a message of one's own: short, and with nothing that a terminal obeys."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:_LONGEST_WORDS]


class Forwarding:
    """While it is entered, signals are passed on to a program, and those that it gets itself are only noted.

    In a container this process is process 1, for which Linux ignores a signal unless a handler is set; and a
    program that starts where one is ignored ignores it, too.
    """

    def __init__(self, *forwarded: int, noted: Sequence[int] = ()) -> None:
        self.received: list[int] = []
        self._forwarded = forwarded
        self._noted = noted
        self._process: subprocess.Popen[bytes] | None = None

    def to(self, process: subprocess.Popen[bytes]) -> None:
        """Name the program, which gets what came before it was there."""
        self._process = process
        for number in self.received:
            self._forward(number)

    def __enter__(self) -> Forwarding:
        numbers = (*self._forwarded, *self._noted)
        self._before = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)
        self._forward(number)

    def _forward(self, number: int) -> None:
        if number in self._forwarded and self._process is not None:
            send(self._process, number)


def send(process: subprocess.Popen[Any], number: int, shell: int = 0) -> None:
    """Send a program a signal; a shell, which does not pass it on, with the programs that it has started.

    What these have started they are to end themselves. Only Linux says what a shell has started. `shell` is what
    that gets in place of the signal: SIGTERM, at which it waits for the programs; most others end it at once.
    """
    begun = _started_by_shell(process.pid)
    with contextlib.suppress(ProcessLookupError):
        # First, so that it does not begin the next program when one ends.
        process.send_signal(shell if shell and begun else number)
    for started in begun:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(started, number)


def _started_by_shell(pid: int) -> list[int]:
    """The processes that a shell, and shells among them, have started; none where it is another program."""
    begun: list[int] = []
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text().strip() in _SHELLS:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for child in map(int, children):
                begun += [child, *_started_by_shell(child)]
    return begun


def _copy(
    process: subprocess.Popen[bytes],
    tail: Tail,
    secrets: Sequence[str],
    heard: Callable[[bytes], None] | None = None,
) -> threading.Thread:
    assert process.stdout is not None
    stream, masker = process.stdout, Masker(secrets)

    def pass_on(masked: bytes) -> None:
        tail.write(masked)
        if heard is not None:
            heard(masked)

    def copy() -> None:
        while piece := os.read(stream.fileno(), _PIECE):
            pass_on(masker.feed(piece))
        pass_on(masker.finish())

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def tell_failure(name: str, code: int, log: str) -> str:
    """Say on standard error why the program `name` failed, where that is known; the line of its error.

    `code` is what `subprocess` has of it, and `log` the end of what it wrote.
    """
    ended = f"{name} was ended by {signal_words(-code)}" if code < 0 else ""
    failure = explain(log, _killed() if code == -signal.SIGKILL else ended)
    tell_cause(failure)
    words = ": ".join(filter(None, [ended, failure.line])) or failure.words(name)
    return readable(words + (_room(words) if failure.kind == "disk" else ""))


def tell_cause(failure: Failure) -> None:
    """Say on standard error why a program failed, where that is known, and what mends it."""
    if failure.says:
        print(f"note: {failure.says}; {failure.advice()}", file=sys.stderr, flush=True)


def _killed() -> str:
    """What the kernel says of a container in which it killed a process for want of memory; empty where it did not.

    Kubernetes has it kill all processes of a container, unless the kubelet sets `singleProcessOOMKill`.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        most, peak = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) >> 20 for name in ("max", "peak"))
        events = Path("/sys/fs/cgroup/memory.events").read_text()
        if int(events.split("oom_kill ")[1].split()[0]):
            return f"OOMKilled: {peak} MiB at its peak, and its limit is {most} MiB"
    return ""


def _room(words: str) -> str:
    """How much of the volume of the path in `words` is used, in parentheses."""
    path = re.search(r"'(/[^']+)'", words)
    with contextlib.suppress(OSError):
        if path is not None:
            usage = shutil.disk_usage(Path(path[1]).parent)
            return f" ({usage.used / 1024**3:,.1f} of {usage.total / 1024**3:,.1f} GiB used)"
    return ""


def signal_words(number: int) -> str:
    """The name of a signal, with who sends it."""
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
