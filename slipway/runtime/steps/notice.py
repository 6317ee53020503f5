"""Tells a program that it has to end: a file with the seconds that are left and the reason, and a signal.

Whoever ends a program of a step calls `end`, whatever the reason is: a pod that is taken away, a limit. Standard
library only, Python 3.9.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.runtime.steps.program import send
from slipway.runtime.store import write_atomically

VARIABLE = "SLIPWAY_NOTICE"
"""Names the file, which is not there before. It has `{"seconds": 10.0, "until": 1795000000.0, "reason": "…"}`;
`until` are seconds since the epoch."""

POD = "the pod is told to end"
"""The reason where nobody gives another one: a node is drained or taken back, or the Job is deleted."""

_own: list[Path] = []


@dataclass(frozen=True)
class Notice:
    """Until when a program may run, in seconds since the epoch, and why it has to end."""

    until: float
    reason: str

    @property
    def seconds(self) -> float:
        """What is left."""
        return max(0.0, self.until - time.time())

    def write(self, path: Path) -> None:
        """Make it known. The program is told by a signal, too: a file that cannot be written ends nothing."""
        content = {"seconds": round(self.seconds, 1), "until": round(self.until, 1), "reason": self.reason}
        try:
            write_atomically(path, f"{json.dumps(content)}\n".encode())
        except OSError as error:
            print(f"warning: {path} cannot be written: {error.strerror}", file=sys.stderr, flush=True)


def read(path: Path) -> Notice | None:
    """The notice that was given; None where none was."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        content: dict[str, Any] = json.loads(path.read_text())
        return Notice(float(content["until"]), str(content["reason"]))
    return None


def path_in(environment: dict[str, str]) -> Path:
    """The path that the program is told, which is added to its `environment` where it is not there."""
    if VARIABLE not in environment:
        # Not the number of the process, which another one had before.
        environment[VARIABLE] = str(Path(tempfile.gettempdir()) / f"slipway-notice-{secrets.token_hex(8)}.json")
        _own.append(Path(environment[VARIABLE]))
    return Path(environment[VARIABLE])


@atexit.register
def remove() -> None:
    """Remove the notices that this process named; `os._exit` does not call it."""
    for path in _own:
        path.unlink(missing_ok=True)


def end(process: subprocess.Popen[Any], path: Path, seconds: float, reason: str) -> Notice:
    """Give a program notice, and send it SIGTERM. The caller kills it when the seconds are over.

    `path` is what `path_in` said when the program was started.
    """
    notice = Notice(time.time() + seconds, reason)
    notice.write(path)
    send(process, signal.SIGTERM)
    return notice
