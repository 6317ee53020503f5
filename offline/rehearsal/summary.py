"""What a rehearsal says at its end."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.kubernetes.results import SHOW
from infra.review.properties import mapping
from infra.schema.printable import printable, printable_lines
from offline.engine.resources import StackOutput
from offline.rehearsal.job_records import JobRecord, Phase
from offline.rehearsal.job_results import Artifacts, Prediction, Throughput

STYLES = {Phase.SUCCEEDED: "green", Phase.UNCHANGED: "green", Phase.FAILED: "red", Phase.INTERRUPTED: "yellow"}

LOG_LINES = 20
"""Lines of a failed Job's log that are shown."""


def failures(
    console: Console, records: Sequence[JobRecord], log_of: Mapping[str, Path], refused: Mapping[str, str]
) -> None:
    """For each failed Job its reason, the end of its log, and what was not run because of it.

    ``refused`` are the reasons of other resources that could not be created, by name.
    """
    for name, reason in refused.items():
        console.print(Text(printable_lines(f"{name} failed: {reason}"), style="bold red"), soft_wrap=True)
    for record in records:
        if record.phase is not Phase.FAILED:
            continue
        console.print()
        console.print(Text(printable_lines(f"{record.name} failed: {record.reason}"), "bold red"), soft_wrap=True)
        lines = last_lines(log_of[record.name], LOG_LINES) if record.attempts or record.started else []
        if lines == [record.reason]:
            continue
        for line in lines:
            console.print(Text(f"  │ {printable(line)}"), soft_wrap=True)
        if lines:
            console.print(Text(f"  whole log: {log_of[record.name]}", "dim"), soft_wrap=True)
    not_run = [record.name for record in records if record.phase is Phase.NOT_RUN]
    if not_run:
        why = "failed" if refused or any(each.phase is Phase.FAILED for each in records) else "was interrupted"
        console.print(Text(f"Not run, for they need what {why}: {', '.join(not_run)}"), soft_wrap=True)


def jobs_table(records: Sequence[JobRecord]) -> Table:
    """Job, pool, wall time, result."""
    table = Table(title="Jobs", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("Job", "Pool", "Wall time", "Result"):
        right, whole = column == "Wall time", column == "Job"
        # Where the terminal is narrow, the pool gives way: a Job's name is what people copy.
        table.add_column(column, justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for record in records:
        pool = record.pool + (f" ({record.accelerator})" if record.accelerator else "")
        result = str(record.phase)
        if record.phase is Phase.FAILED and record.exit_code:
            result += f", exit code {record.exit_code}"
        if record.attempts > 1:
            result += f", {record.attempts} pods"
        seconds = f"{record.seconds:.1f} s" if record.started else ""
        table.add_row(record.name, Text(printable(pool)), seconds, Text(result, STYLES.get(record.phase, "dim")))
    return table


def predictions_table(predictions: Sequence[Prediction]) -> Table:
    """Image, digit, confidence, truth."""
    known = [each for each in predictions if each.label is not None]
    right = f", {sum(bool(each.right) for each in known)} of {len(known)} right" if known else ""
    table = Table(title=f"Predictions{right}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("Image")
    table.add_column("Digit", justify="right")
    table.add_column("Confidence", justify="right")
    table.add_column("Label", justify="right")
    for each in predictions:
        label = "" if each.label is None else str(each.label)
        style = "red" if each.right is False else ""
        image = Text(printable(each.image))
        table.add_row(image, str(each.digit), f"{100 * each.confidence:.1f} %", label, style=style)
    return table


def throughput_table(throughput: Sequence[Throughput]) -> Table:
    """Device, count, precision, images per second, and the run that measured it."""
    table = Table(title=throughput_title(throughput), title_justify="left", box=None, padding=(0, 2, 0, 0))
    device = "In place of" if any(each.reduced for each in throughput) else "GPU"
    for column in (device, "GPUs", "Precision", "Images/s", "±", "Run"):
        table.add_column(column, justify="right" if column in {"GPUs", "Images/s", "±"} else "left")
    for each in throughput:
        kind = f"{each.precision}{', XLA' if each.xla else ''}{', stored data' if each.data == 'stored' else ''}"
        speed, sure = f"{each.images_per_second:,.1f}", f"{each.uncertainty:.1f}"
        device, run = Text(printable(each.device)), Text(printable(each.run))
        table.add_row(device, str(each.gpus), kind, speed, sure, run)
    return table


def throughput_title(throughput: Sequence[Throughput]) -> str:
    """What the table of ``throughput`` is of."""
    where = " on this CPU" if any(each.reduced for each in throughput) else ""
    return f"ResNet-50 training throughput{where}"


ON_A_CPU = "This CPU took small steps in place of the GPUs: these figures say nothing about the GPUs."

SHOWN_PREDICTIONS = 20


def results(console: Console, records: Sequence[JobRecord], artifacts: Artifacts) -> None:
    """The tables of Jobs, of predictions and of throughput."""
    console.print()
    console.print(jobs_table(records))
    if artifacts.predictions:
        console.print()
        console.print(predictions_table(artifacts.predictions[:SHOWN_PREDICTIONS]))
        if (more := len(artifacts.predictions) - SHOWN_PREDICTIONS) > 0:
            console.print(Text(f"… and {more} more in predictions.json", "dim"))
    for image, reason in artifacts.unreadable:
        console.print(Text(printable(f"{image} could not be read: {reason}"), "yellow"), soft_wrap=True)
    for problem in artifacts.problems:
        console.print(Text(problem, "yellow"), soft_wrap=True)
    if artifacts.throughput:
        console.print()
        console.print(throughput_table(artifacts.throughput))
        if any(each.reduced for each in artifacts.throughput):
            console.print(Text(ON_A_CPU, "yellow"), soft_wrap=True)


def stack_outputs(console: Console, outputs: Mapping[str, StackOutput]) -> None:
    """What `pulumi stack output` would show."""
    shown = without_predictions(outputs)
    if not shown:
        return
    console.print()
    console.print(Text("Stack outputs", "italic"))
    for name, each in sorted(shown.items()):
        # Never wrapped: people copy commands from here.
        console.print(Text.assemble((f"{name}: ", "bold"), printable_lines(_value(each))), soft_wrap=True)


def without_predictions(outputs: Mapping[str, StackOutput]) -> dict[str, StackOutput]:
    """``outputs`` without predictions, which have a table of their own, and without what only `make show` reads.

    A text in the predictions' place stays.
    """
    return {
        name: each
        for name, each in outputs.items()
        if name != SHOW and (name != "predictions" or isinstance(each.value, str))
    }


def _value(output: StackOutput) -> str:
    if not output.known:
        return "unknown, for what it comes from did not run"
    if entries := mapping(output.shown):
        return "".join(f"\n  {key}: {value}" for key, value in sorted(entries.items()))
    return output.shown if isinstance(output.shown, str) else json.dumps(output.shown)


def last_lines(file: Path, count: int) -> list[str]:
    """The last lines of a log; none where there is no log."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
    except OSError:
        return []
