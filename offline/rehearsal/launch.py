"""Becomes a container's process: ``launch.py REAPER_FD NICE CPUS COMMAND…``. Standard library only.

It tells the reaper of itself before anything can go wrong, so no process is ever unknown to it, and then turns
into the command. SIGTERM is ignored unless the command handles it, as Linux does for process 1 of a container.
"""

import os
import signal
import sys

START_ERROR = 128
"""Exit code that containerd reports for a command that cannot be started."""


def main() -> None:
    """Does not return."""
    reaper, nice, cpus, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    os.write(reaper, f"+{os.getpid()}\n".encode())
    os.close(reaper)
    if nice:
        os.nice(nice)
    if cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"StartError: exec: {command[0]!r}: {error.strerror}", file=sys.stderr, flush=True)
        sys.exit(START_ERROR)


if __name__ == "__main__":
    main()
