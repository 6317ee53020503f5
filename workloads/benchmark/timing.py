"""How fast training steps were, and how sure that is. numpy only.

The definitions and the printed form are those of tf_cnn_benchmarks, so that its figures can be read beside these:
get_perf_timing and benchmark_one_step in scripts/tf_cnn_benchmarks/benchmark_cnn.py of github.com/tensorflow/
benchmarks at commit 8fb79079 (October 2023), read 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

DISPLAY_EVERY = 10
"""Steps between two lines of the log."""
HEADER = "Step\tImg/sec\ttotal_loss"
TO_STANDARD_DEVIATION = 1.4826
"""The median absolute deviation of a normal distribution times this is its standard deviation."""


@dataclass(frozen=True)
class Speed:
    """Images per second over some steps.

    `mean` is images over mean time; `uncertainty` the standard error of the mean of the steps' speeds; `jitter`
    their median absolute deviation, scaled to a standard deviation, which single slow steps do not move.
    """

    mean: float
    uncertainty: float
    jitter: float


@dataclass(frozen=True)
class StepSeconds:
    """How long the steps took, in seconds."""

    mean: float
    minimum: float
    p50: float
    p90: float
    p99: float
    maximum: float

    def as_dict(self) -> dict[str, float]:
        """As JSON holds it."""
        return asdict(self)


def speed(images: int, seconds: Sequence[float]) -> Speed:
    """The speed of steps that took `seconds` each, for `images` images each."""
    times = np.asarray(seconds, np.float64)
    speeds = images / times
    return Speed(
        mean=float(images / times.mean()),
        uncertainty=float(speeds.std() / np.sqrt(len(speeds))),
        jitter=float(TO_STANDARD_DEVIATION * np.median(np.abs(speeds - np.median(speeds)))),
    )


def step_seconds(seconds: Sequence[float]) -> StepSeconds:
    """Mean, extremes and percentiles."""
    times = np.asarray(seconds, np.float64)
    p50, p90, p99 = (float(value) for value in np.percentile(times, [50, 90, 99]))
    return StepSeconds(float(times.mean()), float(times.min()), p50, p90, p99, float(times.max()))


def shown(step: int) -> bool:
    """Whether the log has a line for this step, counted from 1: the first one and every tenth."""
    return step == 1 or step % DISPLAY_EVERY == 0


def line(step: int, found: Speed, loss: float) -> str:
    """The log's line after `step` steps."""
    rate = f"images/sec: {found.mean:.1f} +/- {found.uncertainty:.1f} (jitter = {found.jitter:.1f})"
    return f"{step}\t{rate}\t{loss:.3f}"


def total(images_per_second: float) -> str:
    """The last line of the log: all images of all timed steps over the wall time from the first to the last."""
    return f"total images/sec: {images_per_second:.2f}"
