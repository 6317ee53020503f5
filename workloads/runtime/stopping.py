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
        for number in (signal.SIGTERM, signal.SIGINT):
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
        by_keyboard = self._number == signal.SIGINT
        raise StepError(
            INTERRUPTED_BY_KEYBOARD if by_keyboard else INTERRUPTED,
            f"{'interrupted' if by_keyboard else 'stopped by SIGTERM'}: the same command goes on",
        )

    def _wait(self) -> None:
        while True:
            for number in self._receiver.recv(64):
                if number not in {signal.SIGTERM, signal.SIGINT}:
                    continue
                runner = self._runner
                if runner is None:
                    print("error: stopped: the same command goes on", file=sys.stderr, flush=True)
                    os._exit(INTERRUPTED if number == signal.SIGTERM else INTERRUPTED_BY_KEYBOARD)
                if self.event.is_set():
                    runner.kill()
                    continue
                self._number = number
                self.event.set()
                runner.stop(number)
                on_stop = self.on_stop
                if on_stop is not None:
                    on_stop()
