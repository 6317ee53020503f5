"""How a program of a pod begins and ends: its command line, its exit codes, its one-line errors, and a prompt stop
on SIGTERM. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NoReturn

OK = 0
"""The step did its work, or found it done."""
UNEXPECTED = 1
"""An error that no step foresees: the traceback says where. Python's own code for it."""
USAGE = 2
"""The command line is wrong; argparse exits with this one too."""
MODEL_REFUSED = 3
"""The trained model is below the accuracy that was asked for. Running again gives the same answer."""
BAD_INPUT = 4
"""An input is missing, truncated, altered or malformed, or holds nothing to work on."""
STORE_TROUBLE = 5
"""The store cannot be read or written: permissions, read-only, full, gone."""
ACCELERATOR_REFUSED = 6
"""The accelerators are too few, of another model, or compute wrongly."""
INSTALL_FAILED = 7
"""Python packages could not be installed."""
NO_NETWORK = 8
"""A data set has to be downloaded and its server cannot be reached."""
BUDGET_SPENT = 21
"""The nodes of the run, or of the month, cost as much as the stack may spend. A higher budget goes on."""
GPU_IDLE = 22
"""The step held GPUs for too long without using them."""
INTERRUPTED_BY_KEYBOARD = 130
"""Ctrl-C: 128 + SIGINT."""
INTERRUPTED = 143
"""SIGTERM: 128 + 15, the code a shell gives to a process that this signal ended."""


WHY_STOPPED = "; its node is taken away, or its `time_limit` is over"
"""The end of what is said by a program that was told to stop: nothing tells it which of the two it is."""


class StepError(Exception):
    """Ends the step with one line on standard error and `code` as its exit status; `message` names the way out."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


RECORD_VARIABLE = "SLIPWAY_RECORD"
"""Names an empty file that is left once the step has ended well: who looks at the store from outside then knows
that a result has to be there. Not set where a step is run by hand."""


def run(main: Callable[[], int]) -> NoReturn:
    """Run a step's `main` and leave the process with its exit code; a StepError becomes one line, any
    other error a traceback and one line.

    The process ends at once, without Python's clean-up at exit: taking TensorFlow's modules apart took 0.6 to
    0.9 s of CPU (2.21, November 2026), and a GPU would wait for it.
    """
    try:
        code = main()
        if code == OK:
            _leave_record()
    except StepError as error:
        # What Pulumi shows of a failed pod is the end of its log, without the code.
        print(f"error: {error} (exit code {error.code})", file=sys.stderr)
        code = error.code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        code = INTERRUPTED_BY_KEYBOARD
    except Exception as error:
        traceback.print_exc()
        words = " ".join("".join(traceback.format_exception_only(type(error), error)).split())
        print(f"error: {words} (exit code {UNEXPECTED})", file=sys.stderr)
        code = UNEXPECTED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def parse_before_program(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options before ``--``, and in `words` the program behind it; without one the parser's error."""
    split_at = list(arguments).index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split_at])
    options.words = list(arguments[split_at + 1 :])
    if not options.words:
        parser.error("the program to start is missing: write it after --")
    return options


def parse_pairs(parser: argparse.ArgumentParser, option: str, texts: Sequence[str]) -> dict[str, str]:
    """The values of an option that is given several times as NAME=DIR; else the parser's error."""
    pairs = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, _, place) in zip(texts, pairs) if not name or not place]:  # noqa: B905
        parser.error(f"{option} {wrong[0]!r}; write NAME=DIR")
    if len({name for name, _, _ in pairs}) < len(pairs):
        parser.error(f"{option}: two have one name")
    return {name: place for name, _, place in pairs}


def _leave_record() -> None:
    name = os.environ.get(RECORD_VARIABLE)
    if not name:
        return
    try:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise StepError(STORE_TROUBLE, f"{name} cannot be written: {error.strerror or error}") from error


def exit_code(returned: int) -> int:
    """The exit code of a process for which `subprocess` ``returned`` that: 128 + n where signal n ended it."""
    return returned if returned >= 0 else 128 - returned


def stop_on_sigterm(remark: str) -> None:
    """End the process with 143 as soon as SIGTERM arrives, after a line that ends in `remark`.

    Whatever is being written at that moment lies under a temporary name and does no harm. Call this from the main
    thread.
    """

    def stop(_: int) -> None:
        print(f"error: stopped by SIGTERM: {remark}", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)

    on_signals([signal.SIGTERM], stop)


def on_signals(numbers: Collection[int], handle: Callable[[int], None]) -> None:
    """Have a thread call `handle` with each of these signals. Call this from the main thread.

    In a container the step is process 1, for which Linux ignores a signal unless a handler is set, and the pod
    would hold its GPU until the grace period is over. Python runs its handlers between bytecodes of the main
    thread, which may be minutes away inside one TensorFlow call, and which may hold a lock.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def wait() -> None:
        while True:
            for number in receiver.recv(64):
                if number in numbers:
                    handle(number)

    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    threading.Thread(target=wait, name="signals", daemon=True).start()
    _open_sockets.extend((receiver, sender))


_open_sockets: list[socket.socket] = []
