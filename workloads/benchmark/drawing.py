"""The bar chart: images per second by GPU type and count, a bar for each precision.

Where one node was measured, too, bars of several say how much of that speed each of their GPUs has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from workloads.benchmark.resnet50 import REMARK
from workloads.benchmark.results import Result, efficiency

COLOURS = {"fp32": "#4477aa", "fp32 (TF32)": "#66ccee", "bf16": "#228833", "fp16": "#ee8833"}
"""Paul Tol's palette, which most colour-blind people can tell apart."""
XLA_HATCH, STORED_HATCH, REDUCED_HATCH = "//", "oo", "xx"
WIDTH_OF_BAR, GAP = 0.9, 1.0
"""In inches: a bar, and what is between two groups."""
HEIGHT = 4.6
DPI = 130


def draw(results: Sequence[Result], file: Path) -> None:
    """Write a PNG with `results`, one of each configuration; measurements on a CPU have a panel of their own."""
    mpl.rcParams.update({"font.size": 10, "hatch.linewidth": 0.7, "axes.spines.top": False})
    panels = [
        part
        for part in ([result for result in results if result["reduced"] is flag] for flag in (False, True))
        if part
    ]
    width = max(_width(part) for part in panels)
    figure = Figure(figsize=(max(width, 6.4), HEIGHT * len(panels)), layout="constrained")
    for axes, part in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        _panel(axes, part)
    figure.savefig(file, dpi=DPI)


def _width(results: Sequence[Result]) -> float:
    return 1.5 + len(results) * WIDTH_OF_BAR + len({result.group for result in results}) * GAP


def _panel(axes: Axes, results: Sequence[Result]) -> None:
    reduced = bool(results[0]["reduced"])
    labels = {result.configuration: _label(result, results) for result in results}
    groups: dict[tuple[str, int, int], list[Result]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    seen: set[str] = set()
    ticks: list[tuple[float, str]] = []
    place = 0.0
    for group in sorted(groups, key=lambda group: (_best(group[0], results), *group)):
        bars = groups[group]
        for number, each in enumerate(bars):
            label = labels[each.configuration]
            hatch = (XLA_HATCH if each["xla"] else "") + (STORED_HATCH if each["data"] != "synthetic" else "")
            hatch += REDUCED_HATCH if reduced else ""
            colour = COLOURS[each.precision]
            axes.bar(
                place + number,
                each["images_per_second"],
                width=0.86,
                yerr=each["uncertainty"],
                capsize=5,
                color=colour,
                alpha=0.55 if reduced else 1.0,
                edgecolor="white" if hatch else colour,
                hatch=hatch or None,
                error_kw={"elinewidth": 1.2, "ecolor": "#222222"},
                label="_" + label if label in seen else label,
            )
            axes.annotate(
                _above(each, results),
                (place + number, each["images_per_second"] + each["uncertainty"]),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontweight="bold",
                fontsize=9.5,
            )
            seen.add(label)
        ticks.append((place + (len(bars) - 1) / 2, _group_label(group, bars)))
        place += len(bars) + GAP
    axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-1, place - GAP)
    axes.set_ylim(0, 1.2 * max(result["images_per_second"] + result["uncertainty"] for result in results))
    axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_ylabel("images per second")
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines["right"].set_visible(False)
    axes.set_title("ResNet-50 training throughput", loc="left", fontweight="bold", pad=24 if reduced else 10)
    if reduced:
        text = REMARK[0].upper() + REMARK[1:]
        axes.text(0, 1.02, text, transform=axes.transAxes, color="#b00020", fontsize=10)
    entries = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    ordered = list(dict.fromkeys(labels[each.configuration] for each in _by_precision(results)))
    axes.legend(
        [entries[label] for label in ordered],
        ordered,
        frameon=False,
        loc="upper left",
        # Below the names of the groups, which have up to three lines: above, the highest bar would be in the way.
        bbox_to_anchor=(0, -0.19),
        ncols=min(len(ordered), 4),
        borderaxespad=0,
    )


def _above(each: Result, results: Sequence[Result]) -> str:
    """What stands above a bar."""
    speed = f"{each['images_per_second']:,.{1 if each['reduced'] else 0}f}"
    share = efficiency(each, results)
    return speed if share is None else f"{share:.0%} of one\n{speed}"


def _best(device: str, results: Sequence[Result]) -> float:
    return max(result["images_per_second_per_gpu"] for result in results if result["device"] == device)


def _by_precision(results: Sequence[Result]) -> list[Result]:
    known = list(COLOURS)
    return sorted(
        results, key=lambda each: (known.index(each.precision), each["xla"], each["data"] != "synthetic")
    )


def _label(result: Result, among: Sequence[Result]) -> str:
    """The precision, and what else tells this result's bar from others of its precision."""
    parts = [result.precision]
    if result["xla"]:
        parts.append("XLA")
    if result["data"] != "synthetic":
        parts.append(f"{result['data']} data")
    for key, text in (("batch_size_per_gpu", "batch {}"), ("image_size", "{0} x {0} pixels")):
        if len({each[key] for each in among}) > 1:
            parts.append(text.format(result[key]))
    return ", ".join(parts)


def _group_label(group: tuple[str, int, int], bars: Sequence[Result]) -> str:
    device, nodes, count = group
    among = f"{nodes} nodes, each " if nodes > 1 else ""
    if count == 0:
        return f"{nodes} nodes, CPU" if nodes > 1 else "CPU"
    each = count // nodes
    stand_in = "\n(a CPU in its place)" if any(bar["virtual_devices"] for bar in bars) else ""
    return f"{device}\n{among}{each} GPU{'s' if each != 1 else ''}{stand_in}"
