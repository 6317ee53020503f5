"""Runs the programs of items, one after the other, each in a process group of its own that can be ended at once.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from workloads.runtime.exits import BAD_INPUT, INTERRUPTED, INTERRUPTED_BY_KEYBOARD, RECORD_VARIABLE, StepError
from workloads.runtime.items.guard import Guard, kill_group
from workloads.runtime.masking import Masker
from workloads.runtime.program import _LAST_WORDS, Program, _copy, _signal

GRACE = 20.0
"""Seconds between SIGTERM and the end by force: the pod itself has 25."""

_LONGEST_REASON = 300


@dataclass(frozen=True)
class Ending:
    """How a program ended: `reason` says why it failed and is empty where it did not.

    `stopped` says that it was told to end, or was ended, before it did so by itself. `seconds` is how long it ran.
    """

    reason: str
    stopped: bool
    seconds: float


class Runner:
    """Starts programs one at a time. `stop` and `kill` are called from other threads."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._forbidden = False

    def allow(self) -> None:
        """Let the next program start: `kill` and `stop` hold until then, even where nothing runs yet."""
        with self._lock:
            self._forbidden = self._stopped = False

    def run(self, program: Program) -> Ending:
        """Run it to its end, and end what it leaves behind. Raises StepError where it cannot be started."""
        started = time.monotonic()
        environment = {name: value for name, value in program.environment.items() if name != RECORD_VARIABLE}
        # A pipe would make Python hold back its output until a buffer is full.
        environment.setdefault("PYTHONUNBUFFERED", "1")
        last = _LastLine()
        with self._lock:
            if self._forbidden:
                return Ending("", stopped=True, seconds=0.0)
            self._guard.start()
            try:
                self._process = process = subprocess.Popen(
                    list(program.words),
                    cwd=program.folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    # Two pipes would lose the order of what is written to them.
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    # The guard has to know the program before it begins: the worker may be killed in between.
                    preexec_fn=self._guard.announce,  # noqa: PLW1509
                )
            except OSError as error:
                raise StepError(BAD_INPUT, f"{program.words[0]!r} cannot be started: {error.strerror}") from error
        assert process.stdout is not None
        copying = _copy(process.stdout, last, Masker(program.secrets))
        code = process.wait()
        with self._lock:
            self._process = None
            stopped = self._stopped
        kill_group(process.pid)
        self._guard.dismiss()
        copying.join(_LAST_WORDS)
        if not copying.is_alive():
            process.stdout.close()
        _reap(process.pid)
        return Ending(_reason(program.words[0], code, last.text), stopped, time.monotonic() - started)

    def stop(self, number: int) -> None:
        """Pass a signal on to the program, which has `GRACE` seconds from then."""
        with self._lock:
            self._stopped = self._forbidden = True
            if self._process is None:
                return
            process = self._process
            process.send_signal(number)
        ending = threading.Timer(GRACE, self._kill_if, [process])
        ending.daemon = True
        ending.start()

    def kill(self) -> None:
        """End the program and all that it started, at once."""
        with self._lock:
            self._stopped = self._forbidden = True
            if self._process is not None:
                kill_group(self._process.pid)

    def _kill_if(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            if self._process is process:
                kill_group(process.pid)


class _LastLine:
    """Passes on what a program prints to standard output, and keeps the last line of it."""

    def __init__(self) -> None:
        self._end = b""

    def write(self, piece: bytes) -> None:
        sys.stdout.buffer.write(piece)
        self._end = (self._end + piece)[-4096:]

    def flush(self) -> None:
        sys.stdout.buffer.flush()

    @property
    def text(self) -> str:
        lines = [line.strip() for line in self._end.decode(errors="replace").splitlines() if line.strip()]
        return (
            "".join(each if each.isprintable() else "?" for each in lines[-1])[:_LONGEST_REASON] if lines else ""
        )


def _reason(name: str, code: int, last: str) -> str:
    if code < 0:
        return f"{name} was ended by {_signal(-code)}"
    if code:
        return f"exit code {code}{f': {last}' if last else ''}"
    return ""


def _reap(group: int) -> None:
    """Take note of the end of what a program left behind: process 1 of a container inherits it."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


# How a worker that has an item is stopped. Standard library only.


_CODES = {int(signal.SIGTERM): INTERRUPTED, int(signal.SIGINT): INTERRUPTED_BY_KEYBOARD}
_WORDS = {int(signal.SIGTERM): "stopped by SIGTERM", int(signal.SIGINT): "interrupted"}


class Stopping:
    """What becomes of SIGTERM and Ctrl-C: the process ends at once or, while it has an item, gives it back first.

    A thread waits for the signals: their handlers run in the main thread, where they could take no lock.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.on_stop: Callable[[], None] | None = None
        self._runner: Runner | None = None
        self._number = 0
        self._receiver, sender = socket.socketpair()
        sender.setblocking(False)
        self._sender = sender
        signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        for number in _CODES:
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._wait, name="signals", daemon=True).start()

    @contextlib.contextmanager
    def gently(self, runner: Runner) -> Iterator[None]:
        """While this is entered, the program of `runner` is told, and its end awaited."""
        self._runner = runner
        yield
        self._runner = None

    def leave(self) -> None:
        """End the worker, which was stopped. Raises StepError."""
        raise StepError(_CODES[self._number], f"{_WORDS[self._number]}: the same command goes on")

    def _wait(self) -> None:
        while True:
            for number in self._receiver.recv(64):
                if number not in _CODES:
                    continue
                runner = self._runner
                if runner is None:
                    print(f"error: {_WORDS[number]}: the same command goes on", file=sys.stderr, flush=True)
                    os._exit(_CODES[number])
                if self.event.is_set():
                    runner.kill()
                    continue
                self._number = number
                self.event.set()
                runner.stop(number)
                on_stop = self.on_stop
                if on_stop is not None:
                    on_stop()
