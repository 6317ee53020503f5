"""The geometry of the report's charts, for the template to draw as SVG, and what steps used."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from slipway.infra.kubernetes.labels import USAGE_ANNOTATION
from slipway.infra.pipelines.results import heading
from slipway.infra.review.stack import Resource, strings
from slipway.rehearse.output.comparison import ComparedVariant, Comparison
from slipway.rehearse.output.results import ShownCurves
from slipway.rehearse.state import JobRecord, Phase

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
    """Lines over epochs or steps, as ``unit`` says. ``ring`` is a point that stands out."""

    title: str
    unit: str
    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    ring: tuple[float, float] | None = None


def timeline(records: Sequence[JobRecord], executed: frozenset[str]) -> Timeline:
    """When the Jobs of this rehearsal were Pending and ran. If it ran no Job, those of the last rehearsal."""
    plotted = [record for record in records if record.urn in executed and record.started]
    if not plotted:
        newest = max((record.started for record in records), default=0.0)
        plotted = [record for record in records if record.started > newest - RECENT and record.started]
    if not plotted:
        return Timeline([Bar(record, str(record.phase)) for record in records], [])
    urns = {record.urn for record in plotted}
    began = min(record.started for record in plotted)
    whole = max(max(record.finished for record in plotted) - began, 1.0)
    step = nice_step(whole / 8)
    bars = [
        Bar(
            record=record,
            text=f"{record.seconds:.1f} s",
            start=(record.started - began) / whole,
            running=(min(record.started + record.pending, record.finished) - began) / whole,
            end=(record.finished - began) / whole,
        )
        if record.urn in urns
        else Bar(
            record,
            f"unchanged, took {record.seconds:.1f} s" if record.phase is Phase.UNCHANGED else str(record.phase),
        )
        for record in records
    ]
    ticks = [Tick(index * step / whole, f"{index * step:g} s") for index in range(int(whole / step) + 1)]
    return Timeline(bars, ticks)


def curves(shown_curves: ShownCurves) -> list[Chart]:
    """A chart for each curve; what Keras measured on validation data is a second line in it."""
    keys = dict.fromkeys(key for point in shown_curves.points for key in point)
    beside = {f"{VALIDATION}{name}" for name in keys}
    names = [name for name in shown_curves.declared.curves or keys if name in keys and name not in beside]
    return [_chart(name, shown_curves) for name in names]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _chart(name: str, shown_curves: ShownCurves) -> Chart:
    history, count = shown_curves.points, len(shown_curves.points)
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
    return Chart(
        title=heading(name),
        unit=shown_curves.declared.unit,
        lines=[line for line in lines if line.points],
        x_ticks=[
            Tick(x(number), str(number)) for number in range(1, count + 1) if number == 1 or number % every == 0
        ],
        y_ticks=y_ticks,
    )


def y_axis(values: Sequence[float]) -> tuple[float, float, list[Tick]]:
    """The lowest value of an axis for ``values``, how much is above that, and its ticks."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    step = nice_step((high - low) / 4 or abs(high) / 10 or 0.1)
    bottom = math.floor(low / step) * step
    height = step * max(-int(-(high - bottom) // step), 1)
    count = round(height / step)
    return bottom, height, [Tick(tick / count, f"{bottom + tick * step:.4g}") for tick in range(count + 1)]


def nice_step(at_least: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below ``at_least``."""
    power = 1.0
    while power > at_least:
        power /= 10
    while power * 10 <= at_least:
        power *= 10
    return next(factor * power for factor in STEPS if factor * power >= at_least * 0.999)


LINES = 4
"""Lines that a chart of points has at most; beyond, each variant has a bar."""

WIDE = 100
"""Ratio of an axis' largest value to its smallest from which on it is logarithmic."""

LONGEST = 26
LETTER = 8
"""Characters that a bar's label has at most, and the room for each, in pixels: the font has 12."""

APART = 0.07
"""Distance of two labels on the x axis, whose length is 1, that they need."""


@dataclass(frozen=True)
class ComparisonBar:
    """One variant. Its bar runs from ``start`` to ``end``, from 0 to 1; ``text`` is its number, or its result.

    ``short`` is as much of the label as the chart has room for.
    """

    label: str
    short: str
    text: str
    start: float
    end: float
    best: bool
    drawn: bool


@dataclass(frozen=True)
class Bars:
    """A bar for each variant. All begin at zero, which lies at ``zero``, from 0 to 1.

    ``label_width`` is the room for their labels, in pixels.
    """

    title: str
    bars: list[ComparisonBar]
    zero: float
    label_width: int


def draw(comparison: Comparison) -> tuple[list[Chart], list[Bars]]:
    """A chart for each number that a variant left."""
    names = [
        name
        for name in comparison.measures
        if any(variant.value(name) is not None for variant in comparison.variants)
    ]
    if axis := _numeric_axis(comparison):
        return [_points(comparison, name, axis) for name in names], []
    return [], [_bars(comparison, name) for name in names]


def _numeric_axis(comparison: Comparison) -> str:
    """The axis over which points are drawn: of those with numbers that give few lines the last of the longest."""
    lengths = {
        axis: len({variant.values[axis] for variant in comparison.variants})
        for axis in comparison.axes
        if all(_number(variant.values.get(axis)) for variant in comparison.variants)
    }
    few = [axis for axis, length in lengths.items() if length > 1 and len(_series(comparison, axis)) <= LINES]
    return max(reversed(few), key=lambda axis: lengths[axis], default="")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _series(comparison: Comparison, axis: str) -> Mapping[str, list[ComparedVariant]]:
    """The variants by what they have on the other axes."""
    series: dict[str, list[ComparedVariant]] = {}
    for variant in comparison.variants:
        others = ", ".join(
            variant.text(other) if isinstance(variant.values.get(other), str) else f"{other} {variant.text(other)}"
            for other in comparison.axes
            if other != axis
        )
        series.setdefault(others or comparison.step, []).append(variant)
    return series


def _points(comparison: Comparison, name: str, axis: str) -> Chart:
    places = {variant.record.urn: float(variant.values[axis]) for variant in comparison.variants}
    low, high = min(places.values()), max(places.values())
    logarithmic = low > 0 and high / low >= WIDE

    def x(value: float) -> float:
        if logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    percent = any(
        name in variant.numbers and variant.numbers[name].format == "percent" for variant in comparison.variants
    )
    numbers = {
        variant.record.urn: value * (100 if percent else 1)
        for variant in comparison.variants
        if (value := variant.value(name)) is not None
    }
    bottom, height, y_ticks = y_axis(list(numbers.values()))

    def point(compared: ComparedVariant) -> tuple[float, float, float]:
        value = numbers[compared.record.urn]
        return x(places[compared.record.urn]), (value - bottom) / height, value

    lines = [
        Line(title, sorted(point(variant) for variant in variants if variant.record.urn in numbers))
        for title, variants in _series(comparison, axis).items()
    ]
    best = comparison.best
    return Chart(
        title=comparison.measures[name] + (", %" if percent else ""),
        unit=f"{axis} (logarithmic)" if logarithmic else axis,
        lines=[line for line in lines if line.points],
        x_ticks=_space_ticks([Tick(x(value), f"{value:g}") for value in sorted(set(places.values()))]),
        y_ticks=y_ticks,
        ring=point(best)[:2] if best is not None and best.record.urn in numbers else None,
    )


def _space_ticks(ticks: Sequence[Tick]) -> list[Tick]:
    """``ticks`` without those whose label would lie over the one before."""
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or tick.at - kept[-1].at >= APART:
            kept.append(tick)
    return kept


def _bars(comparison: Comparison, name: str) -> Bars:
    values = [value for variant in comparison.variants if (value := variant.value(name)) is not None]
    low, high = min(0.0, *values), max(0.0, *values)
    length = high - low or 1.0
    zero = -low / length
    bars: list[ComparisonBar] = []
    for variant in comparison.variants:
        value = variant.value(name)
        at = zero if value is None else (value - low) / length
        bars.append(
            ComparisonBar(
                label=variant.label,
                short=_shorten(variant.label),
                text=comparison.cell(variant, name) or variant.result,
                start=min(zero, at),
                end=max(zero, at),
                best=variant is comparison.best,
                drawn=value is not None,
            )
        )
    return Bars(comparison.measures[name], bars, zero, LETTER * max(len(bar.short) for bar in bars))


def _shorten(label: str) -> str:
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"


@dataclass(frozen=True)
class UsedBy:
    """What one pod of a Job used: cores and MiB. ``gpus`` says what stood in for its GPUs."""

    job: str
    pod: str
    seconds: float
    cores: float | None
    memory: int
    gpus: str
    rate: str


def usage_of(records: Sequence[JobRecord], resources: Mapping[str, Resource], store: Path) -> tuple[UsedBy, ...]:
    """The use of all Jobs that are measured and left something, in the order of ``records``."""
    usages: list[UsedBy] = []
    for record in records:
        resource = resources.get(record.urn)
        folder = strings(resource.metadata.get("annotations")).get(USAGE_ANNOTATION) if resource else None
        if not folder or not record.phase.good:
            continue
        files = sorted((store / folder).glob("*.json"), key=lambda path: (len(path.stem), path.stem))
        for file in files:
            if (content := _read(file)) is not None:
                usages.append(_usage_of_pod(record.name, file.stem if files[1:] else "", content))
    return tuple(usages)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", content) if isinstance(content, dict) else None


def _usage_of_pod(job: str, pod: str, content: Mapping[str, Any]) -> UsedBy:
    emulated, rate = content.get("gpus_emulated"), content.get("rate")
    return UsedBy(
        job,
        pod,
        float(content.get("seconds") or 0),
        content.get("cpu_cores"),
        int(content.get("memory_peak_mib") or 0),
        f"emulated: {emulated}, nothing is known of its use" if emulated else "",
        f"{rate:,g} {content.get('rate_unit', '')}" if isinstance(rate, float | int) else "",
    )
