"""The geometry of the report's charts, for the template to draw as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from infra.pipelines.results import heading
from offline.rehearsal.job_records import JobRecord, Phase
from offline.rehearsal.shown_results import ShownCurves

RECENT = 3600.0
"""Seconds: with nothing run this time, the timeline shows the Jobs that began within this long of the last one."""

VALIDATION = "val_"
"""What Keras puts in front of the name of a number that it measured on validation data."""

STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Tick:
    """A tick of an axis: its position from 0 to 1, and its label."""

    at: float
    text: str


@dataclass(frozen=True)
class Bar:
    """One Job on the timeline. ``start``, ``running`` and ``end`` run from 0 to 1; without a bar they are 0."""

    record: JobRecord
    text: str
    start: float = 0.0
    running: float = 0.0
    end: float = 0.0


@dataclass(frozen=True)
class Timeline:
    """Bars in the order of the Jobs, and the axis in seconds."""

    bars: list[Bar]
    ticks: list[Tick]


@dataclass(frozen=True)
class Line:
    """A line of a chart: points from 0 to 1, y upwards, each with its value."""

    name: str
    points: list[tuple[float, float, float]]


@dataclass(frozen=True)
class Chart:
    """Lines over epochs or steps, as ``unit`` says.

    ``marks`` are the places on the x axis where the number called ``marked`` changed, with its new value. ``ring``
    is a point that stands out.
    """

    title: str
    unit: str
    marked: str
    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    marks: list[Tick]
    ring: tuple[float, float] | None = None


def timeline(records: Sequence[JobRecord], executed: frozenset[str]) -> Timeline:
    """When the Jobs of this rehearsal were Pending and ran; of the last one, where this one ran no Job."""
    shown = [each for each in records if each.urn in executed and each.started]
    if not shown:
        newest = max((each.started for each in records), default=0.0)
        shown = [each for each in records if each.started > newest - RECENT and each.started]
    if not shown:
        return Timeline([Bar(each, str(each.phase)) for each in records], [])
    urns = {each.urn for each in shown}
    began = min(each.started for each in shown)
    whole = max(max(each.finished for each in shown) - began, 1.0)
    step = nice_step(whole / 8)
    bars = [
        Bar(
            record=each,
            text=f"{each.seconds:.1f} s",
            start=(each.started - began) / whole,
            running=(min(each.started + each.queued + each.pending, each.finished) - began) / whole,
            end=(each.finished - began) / whole,
        )
        if each.urn in urns
        else Bar(
            each, f"unchanged, took {each.seconds:.1f} s" if each.phase is Phase.UNCHANGED else str(each.phase)
        )
        for each in records
    ]
    ticks = [Tick(index * step / whole, f"{index * step:g} s") for index in range(int(whole / step) + 1)]
    return Timeline(bars, ticks)


def curves(shown: ShownCurves) -> list[Chart]:
    """A chart for each curve; what Keras measured on validation data is a second line in it."""
    there = dict.fromkeys(key for point in shown.points for key in point if key != shown.declared.marks)
    beside = {f"{VALIDATION}{name}" for name in there}
    names = [name for name in shown.declared.curves or there if name in there and name not in beside]
    return [_chart(name, shown) for name in names]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _chart(name: str, shown: ShownCurves) -> Chart:
    history, count = shown.points, len(shown.points)
    keys = {name: _words(name)}
    if any(f"{VALIDATION}{name}" in point for point in history):
        keys = {name: "training", f"{VALIDATION}{name}": "validation"}
    bottom, height, y_ticks = y_axis([float(epoch[key]) for key in keys for epoch in history if key in epoch])

    def x(epoch: int) -> float:
        return (epoch - 1) / max(count - 1, 1)

    lines = [
        Line(
            name,
            [
                (x(number), (float(epoch[key]) - bottom) / height, float(epoch[key]))
                for number, epoch in enumerate(history, 1)
                if key in epoch
            ],
        )
        for key, name in keys.items()
    ]
    every = max(round(nice_step(count / 8)), 1)
    marked = [epoch.get(shown.declared.marks) for epoch in history]
    marks = [
        Tick(x(number), f"{value:.2g}")
        for number, (value, before) in enumerate(zip(marked, [None, *marked], strict=False), 1)
        if value is not None and value != before
    ]
    return Chart(
        title=heading(name),
        unit=shown.declared.unit,
        marked=_words(shown.declared.marks) if marks else "",
        lines=[line for line in lines if line.points],
        x_ticks=[
            Tick(x(number), str(number)) for number in range(1, count + 1) if number == 1 or number % every == 0
        ],
        y_ticks=y_ticks,
        marks=marks,
    )


def y_axis(values: Sequence[float]) -> tuple[float, float, list[Tick]]:
    """The lowest value of an axis for ``values``, how much is above that, and its ticks."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    step = nice_step((high - low) / 4 or abs(high) / 10 or 0.1)
    bottom = math.floor(low / step) * step
    height = step * max(-int(-(high - bottom) // step), 1)
    count = round(height / step)
    return bottom, height, [Tick(each / count, f"{bottom + each * step:.4g}") for each in range(count + 1)]


def nice_step(at_least: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below ``at_least``."""
    power = 1.0
    while power > at_least:
        power /= 10
    while power * 10 <= at_least:
        power *= 10
    return next(factor * power for factor in STEPS if factor * power >= at_least * 0.999)
