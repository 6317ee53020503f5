"""Runs the program of one pod of several: once for each generation, and with all that it starts ended each time.

Standard library only.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from workloads.runtime.exits import BAD_INPUT, INTERRUPTED, RECORD_VARIABLE, StepError
from workloads.runtime.masking import Masker
from workloads.runtime.nodes.guard import MARK, Guard, kill_all
from workloads.runtime.program import _LAST_WORDS, Program, _copy

_KEPT = 1 << 14
_READ_FOR_CAUSE = 4096
_LONGEST_WORDS = 300
_LINES_OF_ERROR = 40

_ERROR = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\b")
"""The line of an exception at the end of a traceback of Python."""

_CONSEQUENCES = re.compile(
    r"UnavailableError|UNAVAILABLE|Connection (?:reset|refused|closed|aborted)|Broken pipe|Socket closed|"
    r"Connection\w*Error|BrokenPipeError|ncclRemoteError|DistNetworkError|heartbeat timeout|"
    r"remote process exited|failed to connect to all addresses|CancelledError|AbortedError|ABORTED",
)
"""What programs write that lost a neighbour: TensorFlow, gRPC, gloo, NCCL and Python (TensorFlow's words: 2.21,
seen November 2026). They only decide which of several failures of the same seconds is the cause."""


@dataclass(frozen=True)
class Ending:
    """How a program ended. `how` is `well`, `failed`, or `killed`; `stopped` says that it had been told to.

    `words` are the line of its error, or its last one, or the signal that killed it. `consequent` says that it
    wrote what a program writes whose neighbour is gone.
    """

    how: str
    code: int
    words: str
    consequent: bool
    stopped: bool


class Runner:
    """Runs one program at a time. `on_end` is called from another thread, with the generation that it was."""

    def __init__(self, on_end: Callable[[int, Ending], None]) -> None:
        self._on_end = on_end
        self._mark = secrets.token_hex(16)
        self._guard: Guard | None = None
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def busy(self) -> bool:
        """Whether there is a program that has not ended, or something that it started."""
        return self._process is not None

    def start(self, program: Program, generation: int) -> None:
        """Start it. Raises StepError where that cannot be done."""
        environment = {name: value for name, value in program.environment.items() if name != RECORD_VARIABLE}
        environment[MARK] = self._mark
        # A pipe would make Python hold back its output until a buffer is full.
        environment.setdefault("PYTHONUNBUFFERED", "1")
        if self._guard is None or not self._guard.is_alive:
            self._guard = Guard(self._mark)
        try:
            process = subprocess.Popen(
                list(program.words),
                cwd=program.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # Two pipes would lose the order of what is written to them.
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # The guard has to know the program before it begins: the launcher may be killed in between.
                preexec_fn=self._guard.announce,  # noqa: PLW1509
            )
        except OSError as error:
            raise StepError(BAD_INPUT, f"{program.words[0]!r} cannot be started: {error.strerror}") from error
        with self._lock:
            self._process, self._stopped = process, False
        masker = Masker(program.secrets)
        threading.Thread(target=self._wait, args=(process, masker, generation), daemon=True).start()

    def stop(self, grace: float) -> None:
        """Tell the program to end, and end it by force after `grace` seconds."""
        with self._lock:
            process = self._process
            if process is None:
                return
            again, self._stopped = self._stopped, True
            if not again:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
        ending = threading.Timer(grace, self._kill_if, [process])
        ending.daemon = True
        ending.start()

    def _kill_if(self, process: subprocess.Popen[bytes]) -> None:
        if self._process is process:
            kill_all(process.pid, self._mark)

    def _wait(self, process: subprocess.Popen[bytes], masker: Masker, generation: int) -> None:
        assert process.stdout is not None
        tail = _Tail()
        copying = _copy(process.stdout, tail, masker)  # type: ignore[arg-type]
        code = process.wait()
        kill_all(process.pid, self._mark)
        copying.join(_LAST_WORDS)
        if not copying.is_alive():
            process.stdout.close()
        with self._lock:
            self._process = None
            stopped = self._stopped
        self._on_end(generation, _ending(code, tail.text, stopped))


class _Tail:
    """Passes on what a program prints to standard output, and keeps the end of it."""

    def __init__(self) -> None:
        self._end = b""

    def write(self, piece: bytes) -> None:
        sys.stdout.buffer.write(piece)
        self._end = (self._end + piece)[-_KEPT:]

    def flush(self) -> None:
        sys.stdout.buffer.flush()

    @property
    def text(self) -> str:
        return self._end.decode(errors="replace")


def _ending(code: int, text: str, stopped: bool) -> Ending:
    killer = -code if code < 0 else code - 128
    if killer in (signal.SIGKILL, signal.SIGTERM):
        return Ending("killed", INTERRUPTED, signal.Signals(killer).name, consequent=False, stopped=stopped)
    if code == 0:
        return Ending("well", 0, "", consequent=False, stopped=stopped)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Some frameworks write more after the error, as TensorFlow does with the place in its graph.
    line = next((each for each in reversed(lines[-_LINES_OF_ERROR:]) if _ERROR.match(each)), (lines or [""])[-1])
    last = "".join(each if each.isprintable() else "?" for each in line)
    consequent = bool(_CONSEQUENCES.search(text[-_READ_FOR_CAUSE:]))
    return Ending("failed", code if code > 0 else 128 - code, last[:_LONGEST_WORDS], consequent, stopped)
