"""Ends all that a launcher or a worker started when it is killed itself: then nobody else would.

A program may start processes in sessions of their own, as torchrun does with its workers
(torch/distributed/elastic/multiprocessing/subprocess_handler, PyTorch 2.9, seen November 2026). So a process group
is not all; every process whose environment has the mark of the launcher belongs to it. Linux shows the environment
of each process; elsewhere the group has to do. A process of its own reads from a pipe which group is at work, one
number a line, 0 for none. When the pipe ends, the launcher is gone, and it kills the last group. Standard library
only; this file runs without the package around it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

MARK = "SLIPWAY_LAUNCHED_BY"
"""The environment variable that all processes of a program have: which launcher it belongs to."""

_PATIENCE = 5.0


class Guard:
    """The other process, as the launcher sees it. `mark` is the value of the variable `MARK`."""

    def __init__(self) -> None:
        self.mark = os.urandom(16).hex()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    def start(self) -> None:
        """Make sure that it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            # Without the user's packages it is up in some milliseconds.
            [sys.executable, "-I", "-S", __file__, self.mark],
            stdin=subprocess.PIPE,
            # A signal to the launcher's process group must not end the guard before the launcher.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin.fileno()

    def announce(self) -> None:
        """Say that the group of this process is at work, as a new process does before it becomes a program.

        It allocates and locks nothing that another thread may have held when this process was forked.
        """
        os.write(self._pipe, b"%d\n" % os.getpid())

    def end(self, group: int) -> None:
        """Kill all that is left of a group and of this launcher's programs, and say that none is at work."""
        kill_all(group, self.mark)
        with contextlib.suppress(OSError):
            os.write(self._pipe, b"0\n")


def processes_of(mark: str) -> list[int]:
    """The processes whose environment has this mark; none where the system does not show it."""
    wanted = f"{MARK}={mark}".encode()
    processes: list[int] = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
                    if wanted in file.read().split(b"\0"):
                        processes.append(int(name))
    return processes


def kill_all(group: int, mark: str) -> None:
    """Kill every process of a group, and all that have the mark, until none is left."""
    end = time.monotonic() + _PATIENCE
    while True:
        if group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        left = processes_of(mark)
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
            if process != group:
                # Process 1 of a container inherits them. Of the program itself another thread waits.
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process, os.WNOHANG)
        if not left or time.monotonic() > end:
            return
        time.sleep(0.01)


def main() -> None:
    """Read groups until the pipe ends, then kill the last one."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    group = 0
    for line in sys.stdin.buffer:
        group = int(line)
    # A program that was being started gets its mark only now.
    for _ in range(3):
        kill_all(group, sys.argv[1])
        time.sleep(0.05)


if __name__ == "__main__":
    main()
