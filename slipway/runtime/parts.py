"""For what a pod's time goes, by cause, and the life of the node that is paid for it.

Several processes of a pod do a part each: containers before the program's own, the runtime, the program. Each
notes when a part begins and ends, in one file of the pod; what measures the step
(`slipway.runtime.usage.measure`) adds up the file into ``parts`` of its record. Standard library only,
Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "SLIPWAY_PARTS"
"""Names the file. Where it is not set, nothing is noted."""

GATE, PACKAGES, INPUTS, RESTORE, PROGRAM, PUBLISH = "gate", "packages", "inputs", "restore", "program", "publish"
"""The parts: the test of the pod's GPUs; what the image lacks; reading and checking inputs and earlier results;
an earlier checkpoint; the program; the result. `PROGRAM` is the time of which no part is noted."""

LOADING = "loading"
"""The first part of the program's time, until its GPUs are busy: imports, compilation, its first data. Nobody
notes it: it is known where the driver says what the GPUs do."""

DRIVER_SAMPLE = 1.0
"""Seconds of the driver's own sample of a GPU's use, at most (`nvmlUtilization_t` in
docs.nvidia.com/deploy/nvml-api, November 2026): so long after another part the GPU may seem busy with that."""

VIRTUAL_NODE = "SLIPWAY_VIRTUAL_NODE"
"""The name of the node that a rehearsal's pod stands on: this machine is not that node."""

PROC = Path("/proc")

_BEGIN, _END = "+", "-"


@contextlib.contextmanager
def timed(part: str) -> Iterator[None]:
    """Note that what is done meanwhile is ``part``. It is a decorator, too: ``@timed(INPUTS)``.

    Within a part, another one is not noted. Of a process that is killed within a part, the part lasts until
    the pod's record is written last. Nothing that goes wrong with the file is an error.
    """
    _note(_BEGIN, part)
    try:
        yield
    finally:
        _note(_END, part)


def _note(sign: str, part: str) -> None:
    path = os.environ.get(VARIABLE)
    if not path:
        return
    # One write to the end of the file: lines of several processes do not mix. The clock is that of the machine.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, f"{sign} {time.monotonic():.3f} {part}\n".encode())
        finally:
            os.close(descriptor)


class Parts:
    """Adds up ``file``, as far as it is written. ``began`` is when the program's container did, by the machine's
    monotonic clock, in seconds; parts before it are those of other containers.
    """

    def __init__(self, file: Path | None, began: float) -> None:
        self._file = file
        self._began = began
        self._position = 0
        self._open: list[str] = []
        self._free = began
        self._loading: float | None = None
        self._last = 0.0
        self._seconds: dict[str, float] = {}
        self._of_container = 0.0

    def until(self, now: float, *, loads: bool = False) -> dict[str, float]:
        """Seconds by part up to ``now``. Time counts once: for the part that began first of those that go on.

        With ``loads`` the program has loaded all the time, unless its GPUs were seen to be busy (`see_busy`).
        """
        self._read(now)
        program = self._program(now)
        loading = program if loads and self._loading is None else self._loading
        seconds = {**self._seconds, **({} if loading is None else {LOADING: loading})}
        seconds[PROGRAM] = program - (loading or 0.0)
        return {part: round(amount, 1) for part, amount in seconds.items()}

    def see_busy(self, now: float) -> None:
        """Take up that a GPU is busy: unless with another part, the program has loaded."""
        if self._loading is None:
            self._read(now)
            if not self._open and now - self._free >= DRIVER_SAMPLE:
                self._loading = max(self._program(now) - DRIVER_SAMPLE, 0.0)

    def _program(self, now: float) -> float:
        return max(now - self._began - self._of_container, 0.0)

    def _read(self, now: float) -> None:
        for line in self._new_lines():
            words = line.split(maxsplit=2)
            with contextlib.suppress(ValueError, IndexError):
                sign, at, part = words[0], float(words[1]), words[2]
                self._go_on(min(at, now))
                if sign == _BEGIN:
                    self._open.append(part)
                elif part in self._open:
                    self._open.remove(part)
                    self._free = max(self._free, min(at, now))
        self._go_on(now)

    def _go_on(self, at: float) -> None:
        if self._open and at > self._last:
            part = self._open[0]
            self._seconds[part] = self._seconds.get(part, 0.0) + at - self._last
            self._of_container += max(at - max(self._last, self._began), 0.0)
        self._last = max(self._last, at)

    def _new_lines(self) -> list[str]:
        if self._file is None:
            return []
        try:
            with self._file.open("rb") as stream:
                stream.seek(self._position)
                content = stream.read()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._position += len(whole)
        return whole.decode(errors="replace").splitlines()


@dataclass(frozen=True)
class NodeLife:
    """``boot`` names the life of a node from one start to its end: two pods on it have the same. ``booted`` is
    when it started, in seconds since the epoch.
    """

    boot: str
    booted: float


def node_life(pod: str, now: float) -> NodeLife:
    """The life of this pod's node. Of a rehearsal's node, and where the system does not tell, the pod's own."""
    if virtual := os.environ.get(VIRTUAL_NODE):
        return NodeLife(f"virtual:{virtual}", now)
    try:
        # random(4) and proc_uptime(5): a new UUID at each start, and the seconds since then.
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        uptime = float((PROC / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return NodeLife(f"pod:{pod}", now)
    return NodeLife(boot, now - uptime)
