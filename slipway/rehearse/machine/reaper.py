"""Ends what a rehearsal leaves running when it is killed. Started by the rehearsal; standard library only.

Reads lines from standard input: ``+PID`` when a process group begins, ``-PID`` when it is over. The end of input
means that the rehearsal and all launchers are gone; every group that is left is killed then.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Runs until the end of input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
