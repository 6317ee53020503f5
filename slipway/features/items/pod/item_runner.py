"""Runs the programs of items, one after the other, each in a process group of its own that can be ended at once.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slipway.runtime.exits import INTERRUPTED, INTERRUPTED_BY_KEYBOARD, StepError, on_signals
from slipway.runtime.failures import explain
from slipway.runtime.steps.attendant import Attendant
from slipway.runtime.steps.program import Program, Runner, Tail, readable, signal_words

GRACE = 20.0
"""Seconds between SIGTERM and the end by force: the pod itself has 25."""


@dataclass(frozen=True)
class Ending:
    """How a program ended: `reason` says why it failed and is empty where it did not.

    `stopped` says that it was told to end, or was ended, before it did so by itself. `seconds` is how long it ran.
    """

    reason: str
    stopped: bool
    seconds: float


class ItemRunner(Runner):
    """Runs the programs of items. `kill`, too, may be called from other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.attendant: Attendant | None = None
        """Who knows how the program that runs is to be told to end."""
        self.is_told = False
        """Whether it was told so."""
        self._forbidden = False

    def allow(self) -> None:
        """Let the next program start: `kill` and `stop` hold until then, even where nothing runs yet."""
        with self._lock:
            self._forbidden = False

    def run(self, program: Program) -> Ending:
        """Run it to its end, and end what it leaves behind. Raises StepError where it cannot be started."""
        started = time.monotonic()
        with self._lock:
            if self._forbidden:
                return Ending("", stopped=True, seconds=0.0)
            process, tail, copying = self._begin(program)
        code = process.wait()
        # From here on nothing stops it: what it did is done.
        stopped = self._is_over()
        self._clean_up(process, copying)
        return Ending(_reason(program.words[0], code, tail), stopped, time.monotonic() - started)

    def stop(self, grace: float = GRACE, number: int = signal.SIGTERM) -> None:
        """Pass a signal on to the program, which has `grace` seconds from then; no other starts."""
        self._forbid()
        attendant = self.attendant
        if attendant is not None and not self.is_told:
            self.is_told = True
            grace, number = attendant.begin_end()
        super().stop(grace, number)

    def stop_early(self) -> None:
        """End the program, which has done enough: it need not save anything, and no other starts."""
        self._forbid()
        super().stop(GRACE)

    def run_attended(self, attendant: Attendant, run: Callable[[Program], Ending], program: Program) -> Ending:
        """As `run`, which is called with the program, with its checkpoints. Raises StepError."""
        try:
            self.is_told = False
            prepared = attendant.prepare(program)
            self.attendant = attendant
            ending = run(prepared)
            # One that was not told to end lost its item to another worker, which has gone on already.
            over = ending.stopped and not self.is_told
            attendant.finish(well=over or not (ending.reason or ending.stopped), told=lambda: self.is_told)
            return ending
        finally:
            self.attendant = None
            attendant.close()

    def kill(self) -> None:
        """End the program and all that it started, at once; no other starts."""
        self._kill(self._forbid(stopped=True))

    def _forbid(self, *, stopped: bool = False) -> subprocess.Popen[bytes] | None:
        with self._lock:
            self._forbidden = True
            self._stopped = self._stopped or stopped
            return self._process


def _reason(name: str, code: int, tail: Tail) -> str:
    if code < 0:
        return f"{name} was ended by {signal_words(-code)}"
    failure = explain(tail.text)
    return ": ".join(filter(None, [f"exit code {code}", readable(failure.line or failure.last)])) if code else ""


_CODES = {int(signal.SIGTERM): INTERRUPTED, int(signal.SIGINT): INTERRUPTED_BY_KEYBOARD}
_WORDS = {int(signal.SIGTERM): "stopped by SIGTERM", int(signal.SIGINT): "interrupted"}


class Stopping:
    """What becomes of SIGTERM and Ctrl-C: the process ends at once, or first gives back the item that it has."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.on_stop: Callable[[], None] | None = None
        self._runner: ItemRunner | None = None
        self._number = 0
        on_signals(_CODES, self._stop)

    @contextlib.contextmanager
    def gently(self, runner: ItemRunner) -> Iterator[None]:
        """While this is entered, the program of `runner` is told, and its end awaited."""
        self._runner = runner
        yield
        self._runner = None

    def leave(self) -> None:
        """End the worker, which was stopped. Raises StepError."""
        raise StepError(_CODES[self._number], f"{_WORDS[self._number]}: the same command goes on")

    def _stop(self, number: int) -> None:
        runner = self._runner
        if runner is None:
            print(f"error: {_WORDS[number]}: the same command goes on", file=sys.stderr, flush=True)
            os._exit(_CODES[number])
        if self.event.is_set():
            runner.kill()
            return
        self._number = number
        self.event.set()
        # Whoever gets the item goes on from its newest checkpoint, so that has to be in the store first.
        copies = runner.attendant is not None
        runner.stop(number=number)
        on_stop = self.on_stop
        if on_stop is not None and not copies:
            on_stop()
