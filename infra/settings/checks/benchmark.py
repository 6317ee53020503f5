"""What the benchmark is told to measure."""

from collections import Counter
from collections.abc import Iterator

from infra.accelerators import accelerator
from infra.schema.findings import Finding, Path, listed
from infra.schema.kubernetes_names import name_findings
from infra.settings.parsing import Reading
from infra.settings.pipelines import GENERATED, BenchmarkRun

NAME_LIMIT = 40
"""Characters of a run's name, of which those of its steps, Jobs and labels are made."""

BFLOAT16_SINCE = (8, 0)
"""The compute capability of Ampere, which brought bfloat16 (docs.nvidia.com/deeplearning/transformer-engine,
"Datatype and hardware support matrix", read 2026-11-20)."""


def check(reading: Reading) -> Iterator[Finding]:
    """Findings about the runs' names and precisions, and the images that they read."""
    benchmark = reading.draft.pipelines.benchmark
    if benchmark is None:
        return
    for name, run in benchmark.runs.items():
        at: Path = ("pipelines", "benchmark", "runs", name)
        yield from _name(at, name)
        yield from _precisions(at, run)
        yield from _bfloat16(at, run, reading)
        if run.data == GENERATED and benchmark.images is None:
            yield Finding(
                (*at, "data"),
                run.data,
                "no step writes the images: `images` is not there",
                "add `images: {pool: …}` to `pipelines.benchmark`, with a pool without GPUs",
                read=(("pipelines", "benchmark", "images"),),
            )


def _name(at: Path, name: str) -> Iterator[Finding]:
    if len(name) > NAME_LIMIT:
        reason = f"{len(name)} characters, and a run's name has at most {NAME_LIMIT}: its Jobs' names hold it"
        yield Finding(at, name, reason, "shorten it")
    else:
        yield from name_findings(at, name)


def _precisions(at: Path, run: BenchmarkRun) -> Iterator[Finding]:
    twice = [each for each, count in Counter(run.precisions).items() if count > 1]
    if twice:
        yield Finding(
            (*at, "precisions"), run.precisions, f"{listed(twice, 'and')} stands there twice", "write each once"
        )


def _bfloat16(at: Path, run: BenchmarkRun, reading: Reading) -> Iterator[Finding]:
    if "bf16" not in run.precisions:
        return
    for cluster, content in reading.draft.clusters.items():
        pool = content.pools.get(run.pool)
        gpu = accelerator(pool.gpu_type) if pool is not None and pool.gpu_type else None
        if pool is None or gpu is None or gpu.compute_capability >= BFLOAT16_SINCE:
            continue
        major, minor = gpu.compute_capability
        yield Finding(
            (*at, "precisions"),
            run.precisions,
            f"`{gpu.name}` of pool `{run.pool}` has compute capability {major}.{minor}, and bfloat16 needs "
            f"{BFLOAT16_SINCE[0]}.{BFLOAT16_SINCE[1]}",
            "leave `bf16` out, or take a pool with newer GPUs",
            read=(
                (*at, "pool"),
                *(("clusters", cluster, "pools", run.pool, key) for key in pool.node_keys["gpus"]),
            ),
        )
