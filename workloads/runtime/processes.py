"""The CPU time and memory of a process with all that it started. Standard library only, Python 3.9.

From /proc, and not from the container's cgroup: it is the same in a container and in a rehearsal, where there is
none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclass(frozen=True)
class Use:
    """``cpu`` are seconds since the processes began, ``memory`` bytes that they hold now; shared ones count anew
    with each process.
    """

    cpu: float
    memory: int


@dataclass(frozen=True)
class _Process:
    parent: int
    ticks: int
    pages: int


def of(root: int) -> Use | None:
    """What the process ``root`` and its descendants use; None where the system does not tell."""
    found = _all()
    if root not in found:
        return None
    children: dict[int, list[int]] = {}
    for number, process in found.items():
        children.setdefault(process.parent, []).append(number)
    waiting, ticks, pages = [root], 0, 0
    while waiting:
        number = waiting.pop()
        ticks += found[number].ticks
        pages += found[number].pages
        waiting += children.get(number, [])
    return Use(ticks / _TICKS, pages * _PAGE)


def _all() -> dict[int, _Process]:
    try:
        numbers = [int(name) for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208
    except OSError:
        return {}
    found: dict[int, _Process] = {}
    for number in numbers:
        try:
            # The name, in parentheses, may hold anything: the fields begin behind the last one (proc_pid_stat(5)).
            fields = (PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
            # Its own time, and that of children that it waited for.
            found[number] = _Process(int(fields[1]), sum(map(int, fields[11:15])), int(fields[21]))
        except (OSError, ValueError, IndexError):
            continue
    return found
