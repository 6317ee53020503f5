"""Runs the program of one pod of several: once for each generation, and with all that it starts ended each time.

Standard library only.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

from workloads.runtime.exits import INTERRUPTED
from workloads.runtime.steps.program import Program, Runner, Tail, readable

_READ_FOR_CAUSE = 4096
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


class NodeRunner(Runner):
    """Runs the program of one pod. `on_end` is called from another thread, with the generation that it was."""

    def __init__(self, on_end: Callable[[int, Ending], None]) -> None:
        super().__init__()
        self._on_end = on_end

    def start(self, program: Program, generation: int) -> None:
        """Start it. Raises StepError where that cannot be done."""
        with self._lock:
            process, tail, copying = self._begin(program)

        def wait() -> None:
            code, stopped = self._await(process, copying)
            self._on_end(generation, _ending(code, tail, stopped))

        threading.Thread(target=wait, daemon=True).start()


def _ending(code: int, tail: Tail, stopped: bool) -> Ending:
    killer = -code if code < 0 else code - 128
    if killer in (signal.SIGKILL, signal.SIGTERM):
        return Ending("killed", INTERRUPTED, signal.Signals(killer).name, consequent=False, stopped=stopped)
    if code == 0:
        return Ending("well", 0, "", consequent=False, stopped=stopped)
    lines = tail.lines
    # Some frameworks write more after the error, as TensorFlow does with the place in its graph.
    errors = [line for line in lines[-_LINES_OF_ERROR:] if _ERROR.match(line)]
    line = (errors or lines or [""])[-1]
    consequent = bool(_CONSEQUENCES.search(tail.text[-_READ_FOR_CAUSE:]))
    return Ending("failed", code if code > 0 else 128 - code, readable(line), consequent, stopped)
