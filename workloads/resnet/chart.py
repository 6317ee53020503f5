"""Put all measurements side by side: a table, and a bar chart of GPU type, count and precision.

Of several measurements of one configuration the newest counts. Where one node was measured, too, several say what
share of its speed each of their GPUs still has.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = {"fp32": "#4477aa", "fp32 (TF32)": "#66ccee", "bf16": "#228833", "fp16": "#ee8833"}
"""Paul Tol's palette, which most colour-blind people can tell apart."""
ALIKE = ("device", "precision", "xla", "data", "image_size", "batch_size_per_gpu", "reduced")
"""What two measurements have in common that can be compared."""

Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="what measure.py wrote")
    parser.add_argument("--beside", type=Path, help="a folder with earlier ones, three levels deep")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    files = [folder / "results.json" for folder in options.results]
    # A result is whole once its manifest is there.
    beside = options.beside.glob("*/*/manifest.json") if options.beside else ()
    earlier = [path.with_name("results.json") for path in beside]
    everything: list[Result] = []
    for path in dict.fromkeys([*(path for path in earlier if path.exists()), *files]):
        everything += [
            result for result in json.loads(path.read_text(encoding="utf-8")) if "batch_size_per_gpu" in result
        ]
    results = newest(everything)
    for result in results:
        result["efficiency"] = efficiency(result, results)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    plain = [{key: value for key, value in result.items() if not isinstance(value, dict)} for result in results]
    with (options.output / "results.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(plain[0]))
        writer.writeheader()
        writer.writerows(plain)
    draw(results, options.output / "throughput.png")
    for result in results:
        print(f"{result['device']}, {result['gpus']} GPU(s) on {result['nodes']} node(s), {result['precision']}: "
              f"{result['images_per_second']:.1f} +/- {result['uncertainty']:.1f} images/s")  # fmt: skip


def newest(results: Sequence[Result]) -> list[Result]:
    """The last measurement of each configuration, by device, count and precision."""
    last: dict[tuple[Any, ...], Result] = {}
    for result in sorted(results, key=lambda result: result["finished"]):
        last[(result["nodes"], result["gpus"], *(result[key] for key in ALIKE))] = result
    order = list(COLOURS)
    keys = ("reduced", "device", "nodes", "gpus")
    return sorted(last.values(), key=lambda one: (*(one[key] for key in keys), order.index(one["precision"])))


def efficiency(result: Result, among: Sequence[Result]) -> float | None:
    """Images per second and GPU on several nodes as a share of those on one with as many GPUs, if that was
    measured."""
    on_one = [
        other["per_gpu"]
        for other in among
        if other["nodes"] == 1 < result["nodes"]
        and other["gpus"] * result["nodes"] == result["gpus"]
        and all(other[key] == result[key] for key in ALIKE)
    ]
    return result["per_gpu"] / on_one[-1] if on_one else None


def draw(results: Sequence[Result], file: Path) -> None:
    """A PNG with a bar for each; measurements on a CPU have a panel of their own."""
    mpl.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    panels = [part for flag in (False, True) if (part := [one for one in results if one["reduced"] is flag])]
    figure = Figure(figsize=(max(6.4, 2 + 1.2 * max(map(len, panels))), 4.6 * len(panels)), layout="constrained")
    for axes, part in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        draw_panel(axes, part)
    figure.savefig(file, dpi=130)


def draw_panel(axes: Axes, results: Sequence[Result]) -> None:
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        groups.setdefault((result["device"], result["nodes"], result["gpus"]), []).append(result)
    place, ticks = 0.0, []
    for (device, nodes, gpus), bars in groups.items():
        for number, result in enumerate(bars):
            rate, above, at = result["images_per_second"], result["uncertainty"], place + number
            stored = result["data"] == "stored"
            hatch = ("//" if result["xla"] else "") + ("oo" if stored else "")
            colour = COLOURS[result["precision"]]
            axes.bar(at, rate, 0.86, yerr=above, capsize=5, color=colour, edgecolor="white", hatch=hatch)
            share = "" if result["efficiency"] is None else f"{result['efficiency']:.0%} of one\n"
            words = [result["precision"], *(["XLA"] if result["xla"] else []), *(["stored"] if stored else [])]
            said = f"{share}{rate:,.{1 if rate < 100 else 0}f}\n{', '.join(words)}"
            over = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "fontsize": 9}
            axes.annotate(said, (at, rate + above), **over)
        among = f"{nodes} nodes, " if nodes > 1 else ""
        ticks.append((place + (len(bars) - 1) / 2, f"{device}\n{among}{gpus} GPU(s)" if gpus else device))
        place += len(bars) + 0.8
    axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
    axes.set_ylim(0, 1.3 * max(one["images_per_second"] + one["uncertainty"] for one in results))
    axes.set_ylabel("images per second")
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_title("ResNet-50 training throughput", loc="left", fontweight="bold")


if __name__ == "__main__":
    main()
