"""Put the results of all benchmark runs side by side: a table, and a bar chart of GPU type, count and precision.

Takes every finished run below --results, earlier ones too; of several measurements of one configuration the last
one counts. Needs matplotlib, which `slipway.workloads.runtime.steps.packages` installs. Run as
`python -m workloads.benchmark.chart --results DIR --output DIR`.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slipway.workloads.runtime.exits import OK, run, stop_on_sigterm
from slipway.workloads.runtime.store import finished, publish, staging
from workloads.benchmark.resnet50 import REMARK
from workloads.benchmark.results import COLUMNS, Result, collect, efficiency, newest

STEP = "benchmark.chart"
CHART = "throughput.png"
RESULTS = "results.json"
FORMAT = 2
"""Of what is published. Raise it when that changes, and results drawn before are drawn again."""


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: BAD_INPUT where there is no result, STORE_TROUBLE.
    """
    options = _parse(arguments)
    stop_on_sigterm("nothing was published")
    everything = collect(options.results)
    inputs = {f"{number} {result.run}": result.digest for number, result in enumerate(everything)}
    shown = newest(everything)
    earlier = finished(options.output, STEP, inputs, {"format": FORMAT})
    if earlier is None:
        with staging() as staged:
            _write(staged, everything, shown)
            summary = {"results": len(shown), "runs": len(everything)}
            publish(staged, options.output, step=STEP, inputs=inputs, settings={"format": FORMAT}, summary=summary)
    print(table(shown))
    if any(result["reduced"] for result in shown):
        print(f"* {REMARK}")
    what = f"{len(shown)} of {len(everything)} run(s), the last of each configuration"
    print(f"{'Drew' if earlier is None else 'Nothing to do:'} {what}: {options.output / CHART}")
    return OK


def table(results: Sequence[Result]) -> str:
    """The results as a Markdown table."""
    head = (
        *("GPU", "Nodes", "GPUs", "Precision", "XLA", "Data", "Batch", "Images/s", "±", "Jitter", "Per GPU"),
        *("Of one node", "Run"),
    )
    rows = [_cells(result, results) for result in results]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, rows)])


def _cells(result: Result, among: Sequence[Result]) -> tuple[str, ...]:
    share = efficiency(result, among)
    return (
        f"{result['device']}{' *' if result['reduced'] else ''}",
        str(result.nodes),
        str(result["gpus"]),
        result.precision,
        "yes" if result["xla"] else "no",
        str(result["data"]),
        str(result["batch_size_per_gpu"]),
        f"{result['images_per_second']:.1f}",
        f"{result['uncertainty']:.1f}",
        f"{result['jitter']:.1f}",
        f"{result['images_per_second_per_gpu']:.1f}",
        "" if share is None else f"{share:.0%}",
        result.run,
    )


def _write(folder: Path, everything: Sequence[Result], shown: Sequence[Result]) -> None:
    draw(shown, folder / CHART)
    content: dict[str, Any] = {
        "results": [_content(result, shown) for result in shown],
        "earlier": [_content(result, everything) for result in everything if result not in shown],
    }
    (folder / RESULTS).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(result.row(shown) for result in shown)
    (folder / "results.csv").write_text(text.getvalue(), encoding="utf-8")
    remark = f"\n\\* {REMARK}\n" if any(result["reduced"] for result in shown) else ""
    (folder / "results.md").write_text(f"{table(shown)}\n{remark}", encoding="utf-8")


def _content(result: Result, among: Sequence[Result]) -> dict[str, Any]:
    return {"run": result.run, **result.content, "nodes": result.nodes, "efficiency": efficiency(result, among)}


# The bar chart: images per second by GPU type and count, a bar for each precision.
#
# Where one node was measured, too, bars of several say how much of that speed each of their GPUs has.


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
        for number, result in enumerate(bars):
            label = labels[result.configuration]
            hatch = (XLA_HATCH if result["xla"] else "") + (STORED_HATCH if result["data"] != "synthetic" else "")
            hatch += REDUCED_HATCH if reduced else ""
            colour = COLOURS[result.precision]
            axes.bar(
                place + number,
                result["images_per_second"],
                width=0.86,
                yerr=result["uncertainty"],
                capsize=5,
                color=colour,
                alpha=0.55 if reduced else 1.0,
                edgecolor="white" if hatch else colour,
                hatch=hatch or None,
                error_kw={"elinewidth": 1.2, "ecolor": "#222222"},
                label="_" + label if label in seen else label,
            )
            axes.annotate(
                _above(result, results),
                (place + number, result["images_per_second"] + result["uncertainty"]),
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
    ordered = list(dict.fromkeys(labels[result.configuration] for result in _by_precision(results)))
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


def _above(result: Result, results: Sequence[Result]) -> str:
    """What stands above a bar."""
    speed = f"{result['images_per_second']:,.{1 if result['reduced'] else 0}f}"
    share = efficiency(result, results)
    return speed if share is None else f"{share:.0%} of one\n{speed}"


def _best(device: str, results: Sequence[Result]) -> float:
    return max(result["images_per_second_per_gpu"] for result in results if result["device"] == device)


def _by_precision(results: Sequence[Result]) -> list[Result]:
    known = list(COLOURS)
    return sorted(
        results, key=lambda result: (known.index(result.precision), result["xla"], result["data"] != "synthetic")
    )


def _label(result: Result, among: Sequence[Result]) -> str:
    """The precision, and what else tells this result's bar from others of its precision."""
    parts = [result.precision]
    if result["xla"]:
        parts.append("XLA")
    if result["data"] != "synthetic":
        parts.append(f"{result['data']} data")
    for key, text in (("batch_size_per_gpu", "batch {}"), ("image_size", "{0} x {0} pixels")):
        if len({other[key] for other in among}) > 1:
            parts.append(text.format(result[key]))
    return ", ".join(parts)


def _group_label(group: tuple[str, int, int], bars: Sequence[Result]) -> str:
    device, nodes, count = group
    among = f"{nodes} nodes, each " if nodes > 1 else ""
    if count == 0:
        return f"{nodes} nodes, CPU" if nodes > 1 else "CPU"
    per_node = count // nodes
    stand_in = "\n(a CPU in its place)" if any(bar["virtual_devices"] for bar in bars) else ""
    return f"{device}\n{among}{per_node} GPU{'s' if per_node != 1 else ''}{stand_in}"


# The command line.


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.benchmark.chart", description=__doc__)
    parser.add_argument(
        "--results", type=Path, nargs="+", required=True, help="folders of runs, searched two levels deep"
    )
    parser.add_argument("--output", type=Path, required=True, help="where to publish table and chart")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
