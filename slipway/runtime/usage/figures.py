"""What was measured of a step: from samples to the figures that are kept and shown. Standard library only, Python

3.9.

``usage.json`` of the record has them; docs/metrics.md says what each means.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.runtime.parts import LOADING, PROGRAM

FORMAT = 1

MOST_POINTS = 240
"""Points of a course that are kept: beyond it two neighbours become one, and each point stands for twice as
long."""

MIB = 1024 * 1024


@dataclass
class Gpu:
    """One GPU over the whole time. ``busy_seconds`` weighs each sample with its percent; ``known`` are the seconds
    of which the driver said anything.
    """

    name: str
    known: float = 0.0
    busy_seconds: float = 0.0
    idle_seconds: float = 0.0
    memory_peak: int = 0
    memory_total: int = 0
    busy_now: int | None = None
    memory_now: int = 0
    watts_now: float | None = None

    def add(self, seconds: float, busy: int | None, idle_below: int) -> None:
        """Take up that it was ``busy`` percent for so many seconds."""
        self.busy_now = busy
        if busy is None:
            return
        self.known += seconds
        self.busy_seconds += seconds * busy / 100
        if busy < idle_below:
            self.idle_seconds += seconds

    def record(self) -> dict[str, Any]:
        """Its figures, shares from 0 to 1."""
        known = self.known
        return {
            "name": self.name,
            "busy": round(self.busy_seconds / known, 4) if known else None,
            "idle": round(self.idle_seconds / known, 4) if known else None,
            "memory_peak_mib": self.memory_peak // MIB,
            "memory_total_mib": self.memory_total // MIB,
        }


@dataclass
class Course:
    """How something went over time, in a bounded number of points."""

    points: list[list[float]] = field(default_factory=list)
    merged: int = 1
    _waiting: list[list[float]] = field(default_factory=list)

    def add(self, point: list[float]) -> None:
        """Take up a point: the time first, then values."""
        self._waiting.append(point)
        if len(self._waiting) < self.merged:
            return
        self.points.append(_mean(self._waiting))
        self._waiting = []
        if len(self.points) >= MOST_POINTS:
            self.points = [_mean(self.points[at : at + 2]) for at in range(0, len(self.points), 2)]
            self.merged *= 2


@dataclass
class Usage:
    """The use of one pod of a step. ``asked_gpus`` are those that it asked for, ``emulated`` what stands in for
    them, ``trouble`` why nothing is known of them. ``boot`` names the life of its node, which started at
    ``node_booted``, in seconds since the epoch, and is of ``pool``; ``parts`` are its seconds by cause
    (`slipway.runtime.parts`). ``price`` is what is paid for it, as
    `slipway.runtime.usage.limits.Price` has it, where the stack is limited, and ``ended`` how it ended,
    empty while it runs. ``limit`` is the one that ended it, as `Reached` there has it. For ``idle_for`` seconds up
    to now its GPUs were idle, on average.
    """

    step: str
    pod: str
    began: str
    asked_gpus: int = 0
    idle_below: int = 5
    emulated: str = ""
    trouble: str = ""
    seconds: float = 0.0
    samples: int = 0
    cpu_seconds: float | None = None
    memory: int = 0
    memory_peak: int = 0
    rate: float | None = None
    rate_unit: str = ""
    gpus: list[Gpu] = field(default_factory=list)
    course: Course = field(default_factory=Course)
    done: bool = False
    boot: str = ""
    node_booted: float | None = None
    pool: str = ""
    parts: dict[str, float] = field(default_factory=dict)
    price: dict[str, Any] = field(default_factory=dict)
    ended: str = ""
    limit: dict[str, Any] = field(default_factory=dict)
    idle_for: float = 0.0

    @property
    def idle(self) -> float | None:
        """The share of the time, from 0 to 1, that its GPUs were idle, on average; None where that is not
        known."""
        known = sum(gpu.known for gpu in self.gpus)
        return sum(gpu.idle_seconds for gpu in self.gpus) / known if known else None

    @property
    def busy(self) -> float | None:
        """How busy its GPUs were on average, from 0 to 1; None where that is not known."""
        known = sum(gpu.known for gpu in self.gpus)
        return sum(gpu.busy_seconds for gpu in self.gpus) / known if known else None

    def record(self) -> dict[str, Any]:
        """What is kept."""
        cores = self.cpu_seconds / self.seconds if self.cpu_seconds is not None and self.seconds else None
        return {
            "format": FORMAT,
            "step": self.step,
            "pod": self.pod,
            "began": self.began,
            "boot": self.boot,
            "node_booted": None if self.node_booted is None else round(self.node_booted, 1),
            "pool": self.pool,
            "done": self.done,
            "ended": self.ended,
            **({"price": self.price} if self.price else {}),
            **({"limit": self.limit} if self.limit else {}),
            "seconds": round(self.seconds, 1),
            "parts": self.parts,
            "samples": self.samples,
            "cpu_cores": None if cores is None else round(cores, 3),
            "memory_peak_mib": self.memory_peak // MIB,
            "gpus_asked": self.asked_gpus,
            "gpus_emulated": self.emulated,
            "gpus_unknown": self.trouble,
            "gpus": [gpu.record() for gpu in self.gpus],
            "gpu_busy": None if self.busy is None else round(self.busy, 4),
            "gpu_idle": None if self.idle is None else round(self.idle, 4),
            "idle_below": self.idle_below,
            "rate": self.rate,
            "rate_unit": self.rate_unit,
            "course": {"of": ["seconds", "cpu_cores", "memory_mib", "gpu_busy"], "points": self.course.points},
        }

    def encode(self, before: list[dict[str, Any]]) -> bytes:
        """The file: this pod, and those ``before`` it that had the same place and were taken away."""
        return (json.dumps({**self.record(), "before": before}) + "\n").encode()

    def line(self) -> str:
        """One line for the log, which `slipway.command.watch` reads."""
        parts: list[str] = []
        if self.busy is not None and self.idle is not None:
            peak, total = sum(gpu.memory_peak for gpu in self.gpus), sum(gpu.memory_total for gpu in self.gpus)
            parts.append(f"GPU busy {100 * self.busy:.0f} %, idle {100 * self.idle:.0f} % of {self.seconds:.0f} s")
            parts.append(f"GPU memory at most {peak / 1024**3:.1f} of {total / 1024**3:.1f} GiB")
        elif self.emulated:
            parts.append(f"GPU emulated ({self.emulated})")
        elif self.asked_gpus:
            parts.append(f"GPU unknown: {self.trouble}")
        if self.cpu_seconds is not None and self.seconds:
            parts.append(f"CPU {self.cpu_seconds / self.seconds:.2f} cores")
        parts.append(f"memory at most {self.memory_peak // MIB} MiB")
        if self.asked_gpus and self.node_booted is not None and not self.emulated:
            up, program = time.time() - self.node_booted, self.parts.get(PROGRAM, self.seconds)
            parts.append(f"node up {up:.0f} s")
            if LOADING in self.parts:
                parts.append(f"loading {self.parts[LOADING]:.0f} s")
            parts.append(f"program {program:.0f} s")
        return f"Use: {', '.join(parts)}"


def _mean(points: list[list[float]]) -> list[float]:
    return [round(sum(values) / len(values), 3) for values in zip(*points)]  # noqa: B905


# The CPU time and memory of a process with all that it started.
#
# From /proc, and not from the container's cgroup: it is the same in a container and in a rehearsal, where there is
# none.


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
    processes = _all()
    if root not in processes:
        return None
    children: dict[int, list[int]] = {}
    for number, process in processes.items():
        children.setdefault(process.parent, []).append(number)
    waiting, ticks, pages = [root], 0, 0
    while waiting:
        number = waiting.pop()
        ticks += processes[number].ticks
        pages += processes[number].pages
        waiting += children.get(number, [])
    return Use(ticks / _TICKS, pages * _PAGE)


def _all() -> dict[int, _Process]:
    try:
        numbers = [int(name) for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208
    except OSError:
        return {}
    processes: dict[int, _Process] = {}
    for number in numbers:
        try:
            # The name, in parentheses, may hold anything: the fields begin behind the last one (proc_pid_stat(5)).
            fields = (PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
            # Its own time, and that of children that it waited for.
            processes[number] = _Process(int(fields[1]), sum(map(int, fields[11:15])), int(fields[21]))
        except (OSError, ValueError, IndexError):
            continue
    return processes


# What NVIDIA's driver says of the GPUs that this container was given.
#
# The library is part of the driver, which the node mounts into every container with a GPU, whatever its image.
# Functions and structures are those of the NVML API reference (docs.nvidia.com/deploy/nvml-api, November 2026).


VARIABLE = "SLIPWAY_NVML"
"""Names another library than the driver's."""

LIBRARY = "libnvidia-ml.so.1"

FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
"""Where nodes mount it: GKE in the first (cloud.google.com/kubernetes-engine/docs/how-to/gpus, November 2026),
which an image need not search, and NVIDIA's container toolkit in the system's own."""

_SUCCESS = 0
_NAME_LENGTH = 96


class UnavailableError(Exception):
    """There is no driver here, or it does not answer; the text says which."""


@dataclass(frozen=True)
class Reading:
    """One GPU at one moment: percent of the last sample in which a kernel ran, memory in bytes, watts.

    None: the driver does not say it of this GPU, as of the use of one that is partitioned.
    """

    busy: int | None
    memory_used: int | None
    memory_total: int | None
    watts: float | None


class _Use(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """The driver's library, opened. ``names`` are the GPUs' models in its order.

    Raises:
        UnavailableError: it cannot be opened, or has no GPU.
    """

    def __init__(self) -> None:
        self._library = _open_library()
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._devices = [self._device(index) for index in range(count.value)]
        if not self._devices:
            raise UnavailableError("the driver has no GPU for this container")
        self.names = [self._name(device) for device in self._devices]

    def close(self) -> None:
        """Let go of the driver."""
        self._try("nvmlShutdown")

    def identities(self) -> list[str]:
        """The UUID of each GPU, or of each part of one that is partitioned. Raises UnavailableError."""
        return [uuid for device in self._devices for uuid in self._uuids(device)]

    def read(self) -> list[Reading]:
        """What each GPU does now."""
        return [self._read(device) for device in self._devices]

    def _read(self, device: ctypes.c_void_p) -> Reading:
        use, memory, power = _Use(), _Memory(), ctypes.c_uint()
        has_use = self._try("nvmlDeviceGetUtilizationRates", device, ctypes.byref(use))
        has_memory = self._try("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        has_power = self._try("nvmlDeviceGetPowerUsage", device, ctypes.byref(power))
        return Reading(
            busy=int(use.gpu) if has_use else None,
            memory_used=int(memory.used) if has_memory else None,
            memory_total=int(memory.total) if has_memory else None,
            watts=power.value / 1000 if has_power else None,
        )

    def _device(self, index: int) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
        return device

    def _uuids(self, device: ctypes.c_void_p) -> list[str]:
        most, uuid = ctypes.c_uint(), ctypes.create_string_buffer(_NAME_LENGTH)
        # Where it is not partitioned, the driver says none, or that it cannot say.
        self._try("nvmlDeviceGetMaxMigDeviceCount", device, ctypes.byref(most))
        parts: list[ctypes.c_void_p] = []
        for index in range(most.value):
            part = ctypes.c_void_p()
            if self._try("nvmlDeviceGetMigDeviceHandleByIndex", device, ctypes.c_uint(index), ctypes.byref(part)):
                parts.append(part)
        uuids: list[str] = []
        for one in parts or [device]:
            self._call("nvmlDeviceGetUUID", one, uuid, ctypes.c_uint(_NAME_LENGTH))
            uuids.append(uuid.value.decode())
        return uuids

    def _name(self, device: ctypes.c_void_p) -> str:
        name = ctypes.create_string_buffer(_NAME_LENGTH)
        if not self._try("nvmlDeviceGetName", device, name, ctypes.c_uint(_NAME_LENGTH)):
            return "GPU"
        return name.value.decode(errors="replace")

    def _try(self, function: str, *arguments: object) -> bool:
        return getattr(self._library, function)(*arguments) == _SUCCESS

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != _SUCCESS:
            raise UnavailableError(f"the driver's {function} answered {code}")


def _open_library() -> ctypes.CDLL:
    named = os.environ.get(VARIABLE)
    places = [named] if named else [LIBRARY, *(str(Path(folder) / LIBRARY) for folder in FOLDERS)]
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    raise UnavailableError(f"{places[0]} is not in this container")
