"""How a worker that has an item is stopped. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

from workloads.runtime.exits import INTERRUPTED, INTERRUPTED_BY_KEYBOARD, StepError
from workloads.runtime.item_program import Runner

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
