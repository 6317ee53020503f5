"""The report: one HTML file that shows a rehearsal and needs nothing else."""

import base64
import json
import platform
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from infra.clouds.registry import CLOUDS
from infra.platform import Resources
from offline.preview.phrasing import money
from offline.rehearsal import charts, graph
from offline.rehearsal.cost import priced
from offline.rehearsal.job_records import JobRecord, Phase
from offline.rehearsal.session import Outcome
from offline.rehearsal.state import Place
from offline.rehearsal.summary import LOG_LINES, ON_A_CPU, last_lines, throughput_title, without_predictions

SDKS = tuple(cloud.sdk for cloud in CLOUDS.values() if cloud.sdk)
PACKAGES = ("pulumi", *SDKS, "pulumi-kubernetes", "tensorflow", "tensorflow-cpu", "keras")

NAMES = {"cpu": "CPU", "memory": "Memory", "ephemeral_storage": "Scratch", "gpus": "GPUs"}

IMAGE_LIMIT = 2 * 1024 * 1024
"""Bytes of a picture beyond which the report only says where it lies."""


def write_report(place: Place, outcome: Outcome) -> Path:
    """Writes ``report.html`` and returns where it is."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.get_template("report.html.j2").render(context(place, outcome))
    file = place.folder / "report.html"
    temporary = file.with_suffix(".partial")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(file)
    return file


def context(place: Place, outcome: Outcome) -> dict[str, Any]:
    """What the template shows."""
    resources = outcome.evaluation.resources
    records = {each.urn: each for each in outcome.records}
    artifacts = outcome.artifacts
    known = [each for each in artifacts.predictions if each.label is not None]
    custom = [each for each in resources.values() if each.custom]
    bill = priced(outcome.options.stack, resources, outcome.configuration, outcome.records)
    return {
        "stack": outcome.options.stack,
        "when": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(outcome.began)),
        "seconds": outcome.ended - outcome.began,
        "verdict": _verdict(outcome),
        "cost": bill if bill.most_hourly is not None else None,
        "money": money,
        "log_of": {each.urn: f"logs/{quote(place.log(each.name).name)}" for each in outcome.records},
        "tiles": [
            ("Jobs", len(records), _count_phases(outcome.records)),
            ("Resources", len(custom), "declared, none created"),
            *(
                [("Right", f"{sum(bool(each.right) for each in known)}/{len(known)}", "digits read")]
                if known
                else []
            ),
            *([("Accuracy", f"{artifacts.accuracy:.1%}", "on the test images")] if artifacts.accuracy else []),
        ],
        "records": outcome.records,
        "by_urn": records,
        "Phase": Phase,
        "failures": [
            (each, last_lines(place.log(each.name), LOG_LINES))
            for each in outcome.records
            if each.phase is Phase.FAILED
        ],
        "graph": graph.draw(resources, outcome.pools),
        "box": (graph.WIDTH, graph.HEIGHT),
        "timeline": charts.timeline(outcome.records, outcome.executed),
        "charts": charts.curves(artifacts.history),
        "predictions": artifacts.predictions,
        "unreadable": artifacts.unreadable,
        "sheet": _data_uri(artifacts.contact_sheet),
        "throughput": artifacts.throughput,
        "throughput_title": throughput_title(artifacts.throughput),
        "on_a_cpu": ON_A_CPU if any(each.reduced for each in artifacts.throughput) else "",
        "shares": {each.urn: shares(each) for each in outcome.records},
        "amounts": NAMES,
        "remarks": outcome.configuration.remarks,
        "overlay": json.dumps(outcome.configuration.overlay, indent=2) if outcome.configuration.overlay else "",
        "outputs": {
            name: _text(each.shown)
            for name, each in sorted(without_predictions(outcome.evaluation.outputs).items())
            if each.known
        },
        "versions": versions(),
    }


def shares(record: JobRecord) -> dict[str, tuple[str, str, float]]:
    """By resource: what the pod asked for, what its node can allocate, and the first as part of the second."""
    wanted, there = record.requested, record.allocatable
    if wanted is None or there is None:
        return {}
    return {
        key: (
            amount(wanted, key),
            amount(there, key),
            min(getattr(wanted, key) / max(getattr(there, key), 1), 1.0),
        )
        for key in NAMES
    }


def amount(resources: Resources, key: str) -> str:
    """An amount with its unit, as people write it."""
    value = int(getattr(resources, key))
    if key == "cpu":
        return f"{value / 1000:g}"
    if key == "gpus":
        return str(value)
    if value < 1024:
        return f"{value} MiB"
    return f"{value / 1024:.0f} GiB" if value >= 100 * 1024 else f"{value / 1024:.3g} GiB"


def versions() -> dict[str, str]:
    """What ran."""
    found = {"Python": platform.python_version(), "System": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _verdict(outcome: Outcome) -> tuple[str, str]:
    if outcome.interrupted:
        return "interrupted", "Interrupted: the next rehearsal goes on from here"
    if outcome.evaluation.failed:
        return (
            "failed",
            f"Failed: {len(outcome.evaluation.failed)} of {len(outcome.evaluation.resources)} resources",
        )
    return "succeeded", "Rehearsed on this CPU: every Job succeeded"


def _count_phases(records: list[JobRecord]) -> str:
    counts: dict[Phase, int] = {}
    for each in records:
        counts[each.phase] = counts.get(each.phase, 0) + 1
    return ", ".join(f"{count} {phase}" for phase, count in counts.items())


def _data_uri(file: Path | None) -> str:
    if file is None or file.stat().st_size > IMAGE_LIMIT:
        return ""
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode()


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_text(each)}" for key, each in value.items())  # pyright: ignore[reportUnknownVariableType]
    return json.dumps(value, default=str)
