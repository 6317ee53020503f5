"""What was measured of a step: from samples to the figures that are kept and shown. Standard library only, Python
3.9.

``usage.json`` of the record has them; docs/metrics.md says what each means.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

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
    them, ``trouble`` why nothing is known of them.
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
            "done": self.done,
            "seconds": round(self.seconds, 1),
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
        """One line for the log, which `tools.watch` reads."""
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
        return f"Use: {', '.join(parts)}"


def _mean(points: list[list[float]]) -> list[float]:
    return [round(sum(values) / len(values), 3) for values in zip(*points)]  # noqa: B905
