"""The benchmark pipeline: measure ResNet-50 on each GPU pool, then draw all results that the store has."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from slipway.infra.accelerators import accelerator
from slipway.infra.pipelines.contract import (
    MultiNodeSettings,
    Nodes,
    Pipeline,
    PipelineSettings,
    Section,
    StepDeclaration,
    StepSettings,
    stored,
)
from slipway.infra.pipelines.results import Column, Number, Picture, Table
from slipway.infra.schema.base import Int, refuse
from slipway.infra.schema.names import name_findings
from slipway.infra.schema.paths import STORED, below_problem
from slipway.infra.schema.problems import Finding, did_you_mean, listed
from slipway.infra.schema.quantities import seconds

Precision = Literal["fp32", "fp16", "bf16"]
"""What a training computes in."""

SYNTHETIC, GENERATED = "synthetic", "generated"

NAME_LIMIT = 40
"""Characters of a run's name, of which those of its steps, Jobs and labels are made."""

BFLOAT16_SINCE = (8, 0)
"""The compute capability of Ampere, which brought bfloat16 (docs.nvidia.com/deeplearning/transformer-engine,
"Datatype and hardware support matrix", read 2026-11-20)."""


def _data(value: str) -> str:
    if value in {SYNTHETIC, GENERATED}:
        return value
    inside = value.removeprefix(STORED)
    if inside == value:
        raise refuse(
            "none of the kinds of data that there are",
            did_you_mean(
                value,
                (SYNTHETIC, GENERATED),
                f"write `{SYNTHETIC}`, `{GENERATED}`, or `{STORED}<path>` for a folder in the store",
            ),
        )
    if why := below_problem(inside):
        raise refuse(
            f"not a folder below the store's root: {why}",
            f"write a relative path such as `{STORED}uploads/imagenet`",
        )
    return value


Data = Annotated[str, AfterValidator(_data)]
"""What a run trains on."""


class Run(MultiNodeSettings):
    """One GPU pool, and what is measured on it: ResNet-50 trained in each precision, one step after the other.

    With `nodes`, so many nodes of the pool train it together. Where there is a run on one, too, the chart shows
    what share of its images per second each GPU still has.
    """

    precisions: list[Precision] = Field(
        default=["fp32", "fp16"],
        min_length=1,
        description="One step for each. `fp32` computes convolutions in TF32 on GPUs that have it; `fp16` scales "
        "the loss; `bf16` takes an A100, an L4 or newer.",
    )
    batch_size: Int = Field(default=64, ge=1, description="Images per step on each GPU.")
    batches: Int = Field(default=100, ge=1, le=1_000_000, description="Timed steps.")
    warm_up: Int = Field(default=10, ge=1, le=100_000, description="Steps before; the first of them compiles.")
    xla: bool = Field(default=False, description="Whether XLA compiles the forward and the backward pass.")
    data: Data = Field(
        default=SYNTHETIC,
        description="`synthetic` trains on numbers that lie on the GPU; `generated` reads the JPEGs that the "
        "benchmark's `images` step writes to the store; `store:<path>` reads a folder of TFRecords as they are "
        "made of ImageNet.",
    )


class Images(StepSettings):
    """The step that writes JPEG images to the store, for runs with `data: generated`."""

    count: Int = Field(default=1024, ge=1, le=1_000_000, description="How many, of 110 kB each.")


class Benchmark(PipelineSettings):
    """Measure how fast GPUs train ResNet-50, and draw all runs side by side.

    GPUs wait for the steps of other pipelines on the same pool, so that a node is asked for once.
    """

    # Of this pipeline it is what is measured, and so nobody but `up` runs it.
    runs: dict[str, Run] = Field(  # pyright: ignore[reportIncompatibleVariableOverride]
        min_length=1, description="What is measured, by a name for it."
    )
    seed: Int = Field(default=1, ge=0, le=2**31 - 1, description="Seed of every random choice.")
    images: Images | None = Field(default=None, description="Writes the images of runs with `data: generated`.")
    chart: StepSettings = Field(description="Draws the results of all runs in the store; needs no GPU.")


def check_names(section: Section[Benchmark]) -> Iterator[Finding]:
    """Findings about the names of runs."""
    for name in section.settings.runs:
        at = section.key("runs", name)
        if len(name) > NAME_LIMIT:
            reason = f"{len(name)} characters, and a run's name has at most {NAME_LIMIT}: its Jobs' names hold it"
            yield Finding(at, name, reason, "shorten it")
        else:
            yield from name_findings(at, name)


def check_precisions(section: Section[Benchmark]) -> Iterator[Finding]:
    """Findings about precisions that stand there twice, and those that GPUs do not compute in."""
    for name, run in section.settings.runs.items():
        at = section.key("runs", name)
        if twice := [precision for precision, count in Counter(run.precisions).items() if count > 1]:
            reason = f"{listed(twice, 'and')} stands there twice"
            yield Finding((*at, "precisions"), run.precisions, reason, "write each once")
        _, pool = section.pools.get(run.pool, (None, None))
        gpu = accelerator(pool.gpu_type) if pool is not None and pool.gpu_type else None
        if gpu is None or "bf16" not in run.precisions or gpu.compute_capability >= BFLOAT16_SINCE:
            continue
        major, minor = gpu.compute_capability
        yield Finding(
            (*at, "precisions"),
            run.precisions,
            f"`{gpu.name}` of pool `{run.pool}` has compute capability {major}.{minor}, and bfloat16 needs "
            f"{BFLOAT16_SINCE[0]}.{BFLOAT16_SINCE[1]}",
            "leave `bf16` out, or take a pool with newer GPUs",
            read=((*at, "pool"), *section.pool_keys(run.pool, "gpus")),
        )


def check_data(section: Section[Benchmark]) -> Iterator[Finding]:
    """Findings about images that no step writes."""
    for name, run in section.settings.runs.items():
        if run.data == GENERATED and section.settings.images is None:
            yield Finding(
                section.key("runs", name, "data"),
                run.data,
                "no step writes the images: `images` is not there",
                f"add `images: {{pool: …}}` to `{'.'.join(map(str, section.at))}`, with a pool without GPUs",
                read=(section.key("images"),),
            )


def steps(settings: Benchmark) -> list[StepDeclaration]:
    """A step for each run and precision, the chart, and the images where a run reads them.

    On each pool they come one after the other, so that none disturbs another's figures, and after the steps of
    other pipelines there: a GPU node is then started once, for what others need it for, and not for this.
    """
    runs: list[StepDeclaration] = []
    for name, run in settings.runs.items():
        for precision in run.precisions:
            before = [step.name for step in runs if step.placed_by.pool == run.pool]
            runs.append(_measuring(f"{name}-{precision}", run, precision, settings.seed, before))
    images = settings.images if any(run.data == GENERATED for run in settings.runs.values()) else None
    return [*runs, _chart(settings.chart, runs), *([_images(images, settings.seed)] if images else [])]


def _measuring(name: str, run: Run, precision: Precision, seed: int, before: list[str]) -> StepDeclaration:
    data = {SYNTHETIC: SYNTHETIC, GENERATED: "{images}"}.get(run.data) or stored(run.data)
    return StepDeclaration(
        name=name,
        module="workloads.benchmark.resnet50",
        placed_by=run,
        nodes=Nodes(run.nodes, wait=seconds(run.wait)) if run.nodes > 1 else None,
        arguments=[
            *("--output", "{output}", "--precision", precision, "--xla" if run.xla else "--no-xla"),
            *("--batch-size", str(run.batch_size), "--batches", str(run.batches)),
            *("--warm-up", str(run.warm_up), "--gpus", str(run.gpus), "--data", data, "--seed", str(seed)),
        ],
        inputs={"images": "images"} if run.data == GENERATED else {},
        after=before,
        runs_last=True,
        results=(
            Number(
                name="images_per_second",
                title="Images per second",
                path="result.json",
                select="/images_per_second",
                remark="/remark",
            ),
        ),
    )


def _chart(settings: StepSettings, runs: list[StepDeclaration]) -> StepDeclaration:
    return StepDeclaration(
        name="chart",
        module="workloads.benchmark.chart",
        placed_by=settings,
        # Every run in the store is drawn, those of earlier settings and of stacks that share it, too.
        arguments=["--results", "{pipeline}", "--output", "{output}"],
        inputs={run.name: run.name for run in runs},
        requirements="workloads/benchmark/requirements.txt",
        results=(
            Table(
                name="throughput",
                title="ResNet-50 training throughput",
                path="results.json",
                select="/results",
                columns=(
                    Column(key="device", title="GPU"),
                    Column(key="nodes", title="Nodes", format="integer"),
                    Column(key="gpus", title="GPUs", format="integer"),
                    Column(key="precision", title="Precision"),
                    Column(key="xla", title="XLA"),
                    Column(key="data", title="Data"),
                    Column(key="images_per_second", title="Images/s", format="number"),
                    # No "percent", which ends at 100: by the luck of a measurement it is a little more.
                    Column(key="efficiency", title="A GPU's share of one node's", format="number"),
                    Column(key="run", title="Run"),
                ),
                bars="images_per_second",
                spread="uncertainty",
                caveat="A CPU took small steps in place of the GPUs: these figures say nothing about the GPUs.",
                caveat_when="reduced",
            ),
            Picture(name="chart", title="ResNet-50 training throughput", path="throughput.png"),
        ),
    )


def _images(settings: Images, seed: int) -> StepDeclaration:
    return StepDeclaration(
        name="images",
        module="workloads.benchmark.images",
        placed_by=settings,
        arguments=["--output", "{output}", "--count", str(settings.count), "--seed", str(seed)],
    )


PIPELINE = Pipeline(
    settings=Benchmark,
    steps=steps,
    checks=(check_names, check_precisions, check_data),
    measures_devices=True,
    starter={
        "runs": {"gpu": {"pool": "gpu", "gpus": 1, "cpu": "2", "memory": "10Gi", "time_limit": "4h"}},
        "chart": {"pool": "cpu", "cpu": "1", "memory": "2Gi"},
    },
)
