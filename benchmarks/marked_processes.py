"""Processes by a mark that they were started with and hand on to whatever they start: a variable of theirs."""

import contextlib
import os
from pathlib import Path


def marked(variable: str, beginning: str) -> list[int]:
    """The processes in whose environment the value of ``variable`` has that ``beginning``."""
    mark = f"{variable}={beginning}".encode()
    found: list[int] = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                variables = Path(entry.path, "environ").read_bytes().split(b"\0")
                if any(each.startswith(mark) for each in variables):
                    found.append(int(entry.name))
    return found
