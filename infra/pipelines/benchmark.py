"""The benchmark pipeline: measure ResNet-50 on each GPU pool, then draw all results that the store has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi

from infra.kubernetes.gates import Gates
from infra.kubernetes.job import StepJob
from infra.kubernetes.results import SHOW, Result, Shown
from infra.kubernetes.workspace import Workspace
from infra.pipelines import results
from infra.pipelines.cuda import with_libraries
from infra.pipelines.shipping import bundle_problems
from infra.pipelines.steps import place, stored
from infra.platform import Platform
from infra.schema.problems import Problem
from infra.settings.pipelines import Benchmark, BenchmarkRun, Precision
from infra.step import Requirements, Step

NAME = "benchmark"
KEY = "slipway:pipelines.benchmark"

MEASURES, WRITES_IMAGES, DRAWS = (f"workloads.benchmark.{name}" for name in ("resnet50", "images", "chart"))
"""What the steps run."""

REQUIREMENTS = Requirements("workloads/benchmark/requirements.txt")
"""What the chart needs that TensorFlow's image lacks."""

IMAGES = "images"
RESULT = "result.json"
CHART = "throughput.png"

MEASURED = (
    results.Number(
        name="images_per_second",
        title="Images per second",
        path=RESULT,
        select="/images_per_second",
        remark="/remark",
    ),
)
"""What is worth showing of each run."""

DRAWN = (
    results.Table(
        name="throughput",
        title="ResNet-50 training throughput",
        path="results.json",
        select="/results",
        columns=(
            results.Column(key="device", title="GPU"),
            results.Column(key="gpus", title="GPUs", format="integer"),
            results.Column(key="precision", title="Precision"),
            results.Column(key="xla", title="XLA"),
            results.Column(key="data", title="Data"),
            results.Column(key="images_per_second", title="Images/s", format="number"),
            results.Column(key="run", title="Run"),
        ),
        bars="images_per_second",
        spread="uncertainty",
        caveat="A CPU took small steps in place of the GPUs: these figures say nothing about the GPUs.",
        caveat_when="reduced",
    ),
    results.Picture(name="chart", title="ResNet-50 training throughput", path=CHART),
)
"""What is worth showing of the chart."""


@dataclass(frozen=True)
class BenchmarkSteps:
    """The steps of one run: what is measured, in this order on each pool, and the chart."""

    runs: Sequence[Step]
    chart: Step


def problems(root: Path) -> list[Problem]:
    """What keeps the pipeline's files from being shipped. ``root`` is the repository."""
    return bundle_problems(
        {
            f"{KEY}.runs": (MEASURES, None),
            f"{KEY}.images": (WRITES_IMAGES, None),
            f"{KEY}.chart": (DRAWS, REQUIREMENTS),
        },
        root,
    )


def steps(
    settings: Benchmark, platforms: Mapping[str, Platform], gates: Gates, others: Sequence[Step] = ()
) -> BenchmarkSteps:
    """The steps that ``settings`` describe.

    On each pool they come one after the other, so that none disturbs another's figures, and after those of
    ``others`` there: a GPU node is then started once, for what other pipelines need it for, and not for this.
    """
    chart = gates.guard(
        place(
            NAME,
            "chart",
            DRAWS,
            # Every run in the store is drawn, those of earlier settings and of stacks that share it, too.
            arguments=["--results", f"{{store}}/{NAME}", "--output", "{output}"],
            settings=settings.chart,
            platforms=platforms,
            requirements=REQUIREMENTS,
        )
    )
    images = _images(settings, platforms, gates)
    runs: list[Step] = []
    for name, run in settings.runs.items():
        for precision in run.precisions:
            step = _measures(f"{name}-{precision}", run, precision, settings.seed, platforms)
            if run.data == "generated" and images is not None:
                step = replace(step, inputs={IMAGES: images})
            before = [each for each in (*others, *runs) if each.pool.name == run.pool]
            step = with_libraries(replace(step, after=before), chart, gates)
            runs.append(gates.guard(step))
    return BenchmarkSteps(runs, replace(chart, results=DRAWN, inputs={step.name: step for step in runs}))


def outputs(
    pipeline: BenchmarkSteps, jobs: Mapping[str, StepJob], workspaces: Mapping[str, Workspace]
) -> dict[str, pulumi.Input[Any]]:
    """What ``pulumi stack output`` shows: images per second, or the commands that show them, and the chart."""
    store = pipeline.chart.platform.store
    chart = jobs[f"{NAME}-{pipeline.chart.name}"]
    found = Shown(jobs, workspaces)
    shown: dict[str, pulumi.Input[Any]] = {
        "store": store.url,
        "images_per_second": {
            step.name: found.value(step.name, jobs[f"{NAME}-{step.name}"], Result(RESULT), _speed)
            for step in pipeline.runs
        },
        "chart": pulumi.Output.concat(store.url, "/", chart.run.path, "/", CHART),
    }
    if store.claim is not None:
        shown["chart"] = found.command("chart", chart, Result(CHART))
    return {**shown, SHOW: found.described}


def _speed(found: dict[str, Any]) -> float | str:
    """Images per second; with what result.json remarks on them, where a CPU's small steps were measured."""
    speed = round(found["images_per_second"], 1)
    return f"{speed} ({found['remark']})" if "remark" in found else speed


def _measures(
    name: str, run: BenchmarkRun, precision: Precision, seed: int, platforms: Mapping[str, Platform]
) -> Step:
    data = {"synthetic": "synthetic", "generated": f"{{{IMAGES}}}"}.get(run.data) or stored(run.data)
    arguments = [
        *("--output", "{output}", "--precision", precision, "--xla" if run.xla else "--no-xla"),
        *("--batch-size", str(run.batch_size), "--batches", str(run.batches), "--warm-up", str(run.warm_up)),
        *("--gpus", str(run.gpus), "--data", data, "--seed", str(seed)),
    ]
    step = place(NAME, name, MEASURES, arguments=arguments, settings=run, platforms=platforms)
    return replace(step, results=MEASURED)


def _images(settings: Benchmark, platforms: Mapping[str, Platform], gates: Gates) -> Step | None:
    """The step that writes images, where a run reads them."""
    if settings.images is None or not any(run.data == "generated" for run in settings.runs.values()):
        return None
    arguments = ["--output", "{output}", "--count", str(settings.images.count), "--seed", str(settings.seed)]
    step = place(NAME, IMAGES, WRITES_IMAGES, arguments=arguments, settings=settings.images, platforms=platforms)
    return gates.guard(step)
