"""The report: one HTML file that shows a rehearsal and needs nothing else."""

import base64
import platform
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import quote

import jinja2
import yaml
from markupsafe import Markup, escape
from pulumi.output import Unknown

from slipway import files
from slipway.evaluated.cost import cost
from slipway.evaluated.diagram import diagram
from slipway.evaluated.model import Cost
from slipway.evaluated.paid import cause_words, ratio
from slipway.evaluated.phrasing import money
from slipway.evaluated.schedule import JobDuration
from slipway.evaluated.scheduling import pool_of_nodes
from slipway.infra.clouds.registry import CLOUDS, emulators, reviews
from slipway.infra.platform import Resources
from slipway.infra.review.contract import reviewed
from slipway.infra.review.stack import Resource, Stack
from slipway.rehearse.output import charts
from slipway.rehearse.output.comparison import Comparison, shown_whole
from slipway.rehearse.output.outcome import Configuration, Outcome
from slipway.rehearse.output.results import CollectedResults, JobResults, ShownNumber
from slipway.rehearse.output.terminal import (
    ending,
    format_output,
    own_lines,
    place_of,
    pods_of,
    times,
    without_tables,
)
from slipway.rehearse.state import JobRecord, Phase, Place, ServiceRecord, kept

SDKS = tuple(cloud.sdk for cloud in CLOUDS.values() if cloud.sdk)
PACKAGES = ("pulumi", *SDKS, "pulumi-kubernetes", "tensorflow", "tensorflow-cpu", "keras")

NAMES = {"cpu": "CPU", "memory": "Memory", "ephemeral_storage": "Scratch", "gpus": "GPUs"}

NARROW = 4
"""Columns of a table that leaves room for a picture beside it."""

IMAGE_LIMIT = 2 * 1024 * 1024
"""Bytes of a picture beyond which the report only says where it lies."""

TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
"""One for all reports of a process: compiling the template takes longer than filling it in."""


def code(text: object) -> Markup:
    """``text`` for HTML, with what stands in backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


TEMPLATES.filters["code"] = code


def write_report(place: Place, outcome: Outcome) -> Path:
    """Writes ``report.html`` and returns where it is."""
    page = TEMPLATES.get_template("report.html.j2").render(context(place, outcome))
    file = place.folder / "report.html"
    files.write(file, page)
    return file


def context(place: Place, outcome: Outcome) -> dict[str, Any]:
    """What the template shows."""
    resources = outcome.evaluation.resources
    custom = [resource for resource in resources.values() if resource.custom]
    stack = stack_of(outcome.options.stack, resources, outcome.configuration)
    bill = cost_of(stack, outcome.records)
    return {
        "stack": outcome.options.stack,
        "when": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(outcome.began)),
        "seconds": outcome.ended - outcome.began,
        "verdict": _verdict(outcome),
        "cost": bill if bill.most_hourly is not None else None,
        "money": money,
        "paid": bill.run and bill.run.paid,
        "ratio": ratio,
        "cause_words": cause_words,
        "log_of": {
            record.urn: f"logs/{quote(place.log(record.name).name)}"
            for record in (*outcome.records, *outcome.services)
        },
        "tiles": [
            ("Jobs", len(outcome.records), _count_phases(outcome.records)),
            ("Resources", len(custom), "declared, none created"),
            *result_tiles(outcome.results, outcome.comparisons),
        ],
        "records": outcome.records,
        "used": outcome.used,
        "services": [(service, ending(service)) for service in outcome.services],
        "pods_of": pods_of,
        "times": times,
        "failures": [
            (record, own_lines(record, place.log(record.name)))
            for record in outcome.records
            if record.phase is Phase.FAILED
        ],
        "architecture": diagram(stack),
        "timeline": charts.timeline(outcome.records, outcome.executed),
        "pipelines": pipeline_sections(outcome.results, outcome.comparisons),
        "problems": outcome.results.problems,
        "shares": {record.urn: shares(record) for record in (*outcome.records, *outcome.services)},
        "amounts": NAMES,
        "remarks": [*outcome.configuration.remarks, *outcome.only_said],
        "overlay": _yaml(outcome.configuration.overlay),
        "outputs": {
            name: dedent(format_output(output.shown)).strip()
            for name, output in sorted(without_tables(outcome.evaluation.outputs, outcome.results).items())
            if not isinstance(output.shown, Unknown)
        },
        "versions": versions(),
    }


def _yaml(overlay: Mapping[str, Any]) -> str:
    """The overlay as the stack file has it."""
    return yaml.safe_dump(overlay, sort_keys=False).strip() if overlay else ""


def stack_of(name: str, resources: Mapping[str, Resource], configuration: Configuration) -> Stack:
    """The stack as previews see it, with these evaluated ``resources``, by URN."""
    standing = [
        node for emulator in emulators(configuration.settings.request) for node in emulator.standing_nodes()
    ]
    declared = Stack(name, resources, configuration.values, pools=[pool_of_nodes(node) for node in standing])
    return reviewed(declared, reviews())


def cost_of(stack: Stack, records: Sequence[JobRecord]) -> Cost:
    """The stack's cost at list prices, as a preview has it, with the times that its Jobs took here."""
    took = {
        record.name: JobDuration(record.seconds, "rehearsed", record.parts)
        for record in records
        if record.phase.good and record.seconds
    }
    return cost(stack, today=date.today(), measured=took)


def pipeline_sections(results: CollectedResults, comparisons: Sequence[Comparison]) -> dict[str, dict[str, Any]]:
    """What the template shows of each pipeline: Jobs, numbers that several have, comparisons, other files."""
    sections: dict[str, dict[str, Any]] = {}
    for pipeline in dict.fromkeys([*results.pipelines, *(comparison.pipeline for comparison in comparisons)]):
        jobs = results.pipelines.get(pipeline, [])
        own_comparisons = [comparison for comparison in comparisons if comparison.pipeline == pipeline]
        whole = shown_whole(jobs, own_comparisons)
        sections[pipeline] = {
            "jobs": [template_values(job) for job in reversed(whole)],
            "numbers": repeated_numbers(_single(jobs, own_comparisons)),
            "comparisons": [(comparison, *charts.draw(comparison)) for comparison in own_comparisons],
            "files": [(other.title, place_of(job, other), other.copied) for job in whole for other in job.others],
        }
    return sections


def _single(jobs: Sequence[JobResults], comparisons: Sequence[Comparison]) -> list[JobResults]:
    """The ``jobs`` that run no variant."""
    compared = {variant.record.name for comparison in comparisons for variant in comparison.variants}
    return [job for job in jobs if job.job not in compared]


def result_tiles(results: CollectedResults, comparisons: Sequence[Comparison] = ()) -> list[tuple[str, str, str]]:
    """Title, value and detail of each number that one Job of a pipeline has, and of how many rows are right.

    For variants it is the number that decides which is best.
    """
    tiles: list[tuple[str, str, str]] = []
    for pipeline, jobs in results.pipelines.items():
        single = _single(jobs, comparisons)
        repeated = {number.title for _, number in repeated_numbers(single)}
        tiles += [
            (table.title, f"{table.right}/{table.known}", f"right, {pipeline}")
            for result in single
            for table in result.tables
            if table.known
        ]
        tiles += [
            (number.title, number.text, pipeline)
            for result in single
            for number in result.numbers
            if number.title not in repeated
        ]
    tiles += [
        (table.title, f"{len(table.rows) - table.failed}/{len(table.rows)}", f"done, {pipeline}")
        for pipeline, jobs in results.pipelines.items()
        for result in _single(jobs, comparisons)
        for table in result.tables
        if table.of_items
    ]
    tiles += [
        (
            comparison.measures[comparison.by],
            comparison.best.numbers[comparison.by].text,
            f"best of {len(comparison.variants)}: {comparison.best.label}",
        )
        for comparison in comparisons
        if comparison.best is not None
    ]
    return tiles


def repeated_numbers(jobs: Sequence[JobResults]) -> list[tuple[str, ShownNumber]]:
    """The numbers whose title several of a pipeline's ``jobs`` have, each with its Job's name."""
    count = Counter(number.title for job in jobs for number in job.numbers)
    return [(job.job, number) for job in jobs for number in job.numbers if count[number.title] > 1]


def template_values(results: JobResults) -> dict[str, Any]:
    """What the template shows of one Job's results."""
    tables = [table for table in results.tables if table.rows]
    return {
        "tables": tables,
        # A narrow table leaves room for a picture beside it.
        "beside": bool(tables) and all(len(table.headings) <= NARROW for table in tables),
        "copies": {table.path: kept(results.job, table.path) for table in tables},
        "pictures": [
            (shown_picture.title, kept(results.job, shown_picture.path), _embed(shown_picture.file))
            for shown_picture in results.pictures
        ],
        "pages": [(page.title, kept(results.job, page.path), _embed_page(page.file)) for page in results.pages],
        "curves": [(curve.declared.title, charts.curves(curve)) for curve in results.curves if curve.points],
    }


def shares(record: JobRecord | ServiceRecord) -> dict[str, tuple[str, str, float]]:
    """By resource: the pod's request, what its node can allocate, and the share of the first in the second."""
    wanted, capacity = record.requested, record.allocatable
    if wanted is None or capacity is None:
        return {}
    return {
        key: (
            amount(wanted, key),
            amount(capacity, key),
            min(getattr(wanted, key) / max(getattr(capacity, key), 1), 1.0),
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
    """The versions of Python, the system and the packages that matter."""
    software = {"Python": platform.python_version(), "System": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        try:
            software[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return software


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
    counts = Counter(record.phase for record in records)
    return ", ".join(f"{count} {phase}" for phase, count in counts.items())


def _embed(file: Path) -> str:
    return "" if file.stat().st_size > IMAGE_LIMIT else _data_uri(file.read_bytes(), "image/png")


PAGE_LIMIT = 4 * 1024 * 1024
"""Bytes of an HTML file that the report has in itself; of a larger one it says where it is."""

_ALONE = (
    '<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "img-src data:; font-src data:; media-src data:; style-src 'unsafe-inline'\">"
)
"""Keeps a page that is embedded from loading anything, as the report itself loads nothing."""


def _embed_page(file: Path) -> str:
    return "" if file.stat().st_size > PAGE_LIMIT else _ALONE + file.read_text(encoding="utf-8")


def _data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
