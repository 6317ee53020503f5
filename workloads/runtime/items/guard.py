"""Ends what a worker started when the worker itself is killed: then nobody else would.

A process of its own reads from a pipe which process group is at work, one number a line, 0 for none. When the pipe
ends, the worker is gone, and the group is killed. In a container the kernel does that, elsewhere nobody. Standard
library only; this file runs without the package around it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys


class Guard:
    """The other process, as the worker sees it. It starts with the first group that is announced."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make sure that it runs."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                # Without the user's packages it is up in some milliseconds.
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                # A signal to the worker's process group must not end the guard before the worker.
                start_new_session=True,
            )

    def announce(self, group: int | None = None) -> None:
        """Say which group is at work: this process by default, as a new process does before it becomes a program.

        It allocates and locks nothing that another thread may have held when this process was forked.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), b"%d\n" % (os.getpid() if group is None else group))

    def dismiss(self) -> None:
        """Say that no group is at work."""
        with contextlib.suppress(OSError):
            self.announce(0)


def kill_group(group: int) -> None:
    """Kill every process of a group; none may be left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def main() -> None:
    """Read groups until the pipe ends, then kill the last one."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    group = 0
    for line in sys.stdin.buffer:
        group = int(line)
    if group:
        kill_group(group)


if __name__ == "__main__":
    main()
