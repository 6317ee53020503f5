"""The charts of a comparison: points over an axis of numbers, or a bar for each variant."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offline.picture.text_width import Style, fitted
from offline.rehearsal.charts import Chart, Line, Tick, y_axis
from offline.rehearsal.comparison import Compared, Comparison

LINES = 4
"""Lines that a chart of points has at most; beyond, each variant has a bar."""

WIDE = 100
"""Ratio of an axis' largest value to its smallest from which on it is logarithmic."""

LABELS = Style("", 12)
WIDEST = 210
"""The font of the bars' labels, and the room that they have at most, in pixels."""

APART = 0.07
"""Distance of two labels on the x axis, whose length is 1, that they need."""


@dataclass(frozen=True)
class Bar:
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
    bars: list[Bar]
    zero: float
    label_width: float


def drawn(comparison: Comparison) -> tuple[list[Chart], list[Bars]]:
    """A chart for each number that a variant left."""
    names = [
        name for name in comparison.measures if any(each.value(name) is not None for each in comparison.variants)
    ]
    if axis := _numeric_axis(comparison):
        return [_points(comparison, name, axis) for name in names], []
    return [], [_bars(comparison, name) for name in names]


def _numeric_axis(comparison: Comparison) -> str:
    """The axis over which points are drawn: of those with numbers that give few lines the last of the longest."""
    lengths = {
        axis: len({each.values[axis] for each in comparison.variants})
        for axis in comparison.axes
        if all(_number(each.values.get(axis)) for each in comparison.variants)
    }
    few = [axis for axis, length in lengths.items() if length > 1 and len(_series(comparison, axis)) <= LINES]
    return max(reversed(few), key=lambda axis: lengths[axis], default="")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _series(comparison: Comparison, axis: str) -> Mapping[str, list[Compared]]:
    """The variants by what they have on the other axes."""
    found: dict[str, list[Compared]] = {}
    for each in comparison.variants:
        others = ", ".join(
            each.text(other) if isinstance(each.values.get(other), str) else f"{other} {each.text(other)}"
            for other in comparison.axes
            if other != axis
        )
        found.setdefault(others or comparison.step, []).append(each)
    return found


def _points(comparison: Comparison, name: str, axis: str) -> Chart:
    places = {each.record.urn: float(each.values[axis]) for each in comparison.variants}
    low, high = min(places.values()), max(places.values())
    logarithmic = low > 0 and high / low >= WIDE

    def x(value: float) -> float:
        if logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    percent = any(name in each.numbers and each.numbers[name].format == "percent" for each in comparison.variants)
    numbers = {
        each.record.urn: value * (100 if percent else 1)
        for each in comparison.variants
        if (value := each.value(name)) is not None
    }
    bottom, height, y_ticks = y_axis(list(numbers.values()))

    def point(each: Compared) -> tuple[float, float, float]:
        value = numbers[each.record.urn]
        return x(places[each.record.urn]), (value - bottom) / height, value

    lines = [
        Line(title, sorted(point(each) for each in variants if each.record.urn in numbers))
        for title, variants in _series(comparison, axis).items()
    ]
    best = comparison.best
    return Chart(
        title=comparison.measures[name] + (", %" if percent else ""),
        unit=f"{axis} (logarithmic)" if logarithmic else axis,
        marked="",
        lines=[line for line in lines if line.points],
        x_ticks=_spaced([Tick(x(value), f"{value:g}") for value in sorted(set(places.values()))]),
        y_ticks=y_ticks,
        marks=[],
        ring=point(best)[:2] if best is not None and best.record.urn in numbers else None,
    )


def _spaced(ticks: Sequence[Tick]) -> list[Tick]:
    """``ticks`` without those whose label would lie over the one before."""
    kept: list[Tick] = []
    for tick in ticks:
        if not kept or tick.at - kept[-1].at >= APART:
            kept.append(tick)
    return kept


def _bars(comparison: Comparison, name: str) -> Bars:
    values = [value for each in comparison.variants if (value := each.value(name)) is not None]
    low, high = min(0.0, *values), max(0.0, *values)
    length = high - low or 1.0
    zero = -low / length
    bars: list[Bar] = []
    for each in comparison.variants:
        value = each.value(name)
        at = zero if value is None else (value - low) / length
        bars.append(
            Bar(
                label=each.label,
                short=fitted(each.label, WIDEST, LABELS),
                text=comparison.cell(each, name) or each.result,
                start=min(zero, at),
                end=max(zero, at),
                best=each is comparison.best,
                drawn=value is not None,
            )
        )
    widest = max(LABELS.width(each.label) for each in bars)
    return Bars(comparison.measures[name], bars, zero, min(widest, WIDEST))
