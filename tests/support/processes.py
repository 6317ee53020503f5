"""Processes by a mark that they were started with and hand on to whatever they start: a variable of theirs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def processes_with_mark(variable: str, beginning: str) -> list[int]:
    """The processes in whose environment the value of ``variable`` has that ``beginning``."""
    mark = f"{variable}={beginning}".encode()
    processes: list[int] = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                variables = Path(entry.path, "environ").read_bytes().split(b"\0")
                if any(text.startswith(mark) for text in variables):
                    processes.append(int(entry.name))
    return processes
