"""Put the results of all benchmark runs side by side: a table, and a bar chart of GPU type, count and precision.

Takes every finished run below --results, earlier ones too; of several measurements of one configuration the last
one counts. Needs matplotlib, which `workloads.runtime.steps.packages` installs. Run as
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

from workloads.benchmark.resnet50 import REMARK
from workloads.benchmark.results import COLUMNS, Result, collect, efficiency, newest
from workloads.runtime.exits import OK, run, stop_on_sigterm
from workloads.runtime.store import finished, publish, staging

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
    inputs = {f"{number} {each.run}": each.digest for number, each in enumerate(everything)}
    shown = newest(everything)
    earlier = finished(options.output, STEP, inputs, {"format": FORMAT})
    if earlier is None:
        with staging() as staged:
            _write(staged, everything, shown)
            summary = {"results": len(shown), "runs": len(everything)}
            publish(staged, options.output, step=STEP, inputs=inputs, settings={"format": FORMAT}, summary=summary)
    print(table(shown))
    if any(each["reduced"] for each in shown):
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


def _cells(each: Result, among: Sequence[Result]) -> tuple[str, ...]:
    share = efficiency(each, among)
    return (
        f"{each['device']}{' *' if each['reduced'] else ''}",
        str(each.nodes),
        str(each["gpus"]),
        each.precision,
        "yes" if each["xla"] else "no",
        str(each["data"]),
        str(each["batch_size_per_gpu"]),
        f"{each['images_per_second']:.1f}",
        f"{each['uncertainty']:.1f}",
        f"{each['jitter']:.1f}",
        f"{each['images_per_second_per_gpu']:.1f}",
        "" if share is None else f"{share:.0%}",
        each.run,
    )


def _write(folder: Path, everything: Sequence[Result], shown: Sequence[Result]) -> None:
    from workloads.benchmark.drawing import draw

    draw(shown, folder / CHART)
    content: dict[str, Any] = {
        "results": [_content(each, shown) for each in shown],
        "earlier": [_content(each, everything) for each in everything if each not in shown],
    }
    (folder / RESULTS).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(each.row(shown) for each in shown)
    (folder / "results.csv").write_text(text.getvalue(), encoding="utf-8")
    remark = f"\n\\* {REMARK}\n" if any(each["reduced"] for each in shown) else ""
    (folder / "results.md").write_text(f"{table(shown)}\n{remark}", encoding="utf-8")


def _content(each: Result, among: Sequence[Result]) -> dict[str, Any]:
    return {"run": each.run, **each.content, "nodes": each.nodes, "efficiency": efficiency(each, among)}


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.benchmark.chart", description=__doc__)
    parser.add_argument(
        "--results", type=Path, nargs="+", required=True, help="folders of runs, searched two levels deep"
    )
    parser.add_argument("--output", type=Path, required=True, help="where to publish table and chart")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run(main)
