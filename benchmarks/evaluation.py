"""Time the evaluation of stacks with more and more pipelines, to see that it grows with them and no faster.

Each pipeline is the MNIST pipeline under a name of its own, declared by the same code as in a stack, on a stand-in
cluster and in preview mode. Each size is evaluated in a process of its own, and only the evaluation is timed, in
seconds of CPU: importing the SDK is done before. Run as `python -m benchmarks.evaluation`.
"""

import argparse
import gc
import json
import os
import platform as machine
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from benchmarks.training import processor
from slipway.engine.evaluate import evaluate
from slipway.infra.kubernetes import job
from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.pipelines.discovery import DeclaredPipeline, pipeline
from slipway.infra.pipelines.images import CPU_IMAGE
from slipway.infra.placement.placing import place
from slipway.infra.platform import Platform, Pool, Resources, Store, Taint

ROOT = Path(__file__).resolve().parents[1]

SIZES = (10, 100, 1000)

SETTINGS = pipeline("mnist").settings.model_validate(
    {
        "steps": {
            "prepare": {"pool": "cpu"},
            "train": {"pool": "gpu", "gpus": 1},
            "predict": {"pool": "gpu", "gpus": 1},
        }
    }
)


@dataclass(frozen=True)
class Measured:
    """One evaluation: seconds of CPU, and the process's peak memory in bytes."""

    pipelines: int
    resources: int
    seconds: float
    memory: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table; returns 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument("sizes", type=int, nargs="*", default=SIZES, metavar="PIPELINES")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.once:
        print(json.dumps(vars(measure(options.sizes[0]))), flush=True)
        # An orderly end would look for garbage in all that is there.
        os._exit(0)
    print(f"{processor()}, Python {machine.python_version()}, median of {options.rounds}\n")
    print("pipelines  resources  seconds  per pipeline  ratio  peak memory")
    first = None
    for size in options.sizes:
        rounds = [_apart(size) for _ in range(options.rounds)]
        seconds = statistics.median(round.seconds for round in rounds)
        first = first or seconds / size
        print(
            f"{size:9,}  {rounds[0].resources:9,}  {seconds:7.2f}  {1000 * seconds / size:9.1f} ms"
            f"  {seconds / size / first:5.2f}  {max(round.memory for round in rounds) / 1e6:8,.0f} MB",
            flush=True,
        )
    return 0


def _apart(size: int) -> Measured:
    """Measures in another process, where nothing is left of the sizes before."""
    command = [sys.executable, "-m", "benchmarks.evaluation", "--once", str(size)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return Measured(**json.loads(done.stdout))


def measure(size: int) -> Measured:
    """Evaluates a stack with ``size`` pipelines, after a small one that imports whatever is needed."""
    gc.disable()  # As in a preview's workers.
    evaluate(lambda: declare(1), project="slipway", stack="warm-up", config={}, preview=True)
    begin = time.process_time()
    evaluation = evaluate(lambda: declare(size), project="slipway", stack="benchmark", config={}, preview=True)
    seconds = time.process_time() - begin
    # In KiB on Linux, in bytes on macOS (getrusage(2)).
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Measured(size, len(evaluation.resources), seconds, peak)


def declare(size: int) -> None:
    """Declares ``size`` pipelines on a stand-in cluster."""
    platform = _platform()
    workspaces = {platform.name: Workspace(platform.name, WorkspaceArgs(platform, "slipway", "runner", False))}
    gates = Gates(CPU_IMAGE)
    names = ["mnist", *(f"mnist-{number}" for number in range(1, size))]
    pipelines = [DeclaredPipeline(name, "mnist", SETTINGS) for name in names]
    placed = place(pipelines, {platform.name: platform}, gates, ROOT)
    job.declare([step for steps in placed.values() for step in steps], workspaces, ROOT)


def _platform() -> Platform:
    sizes = Resources(cpu=8000, memory=32000, ephemeral_storage=100_000)
    taint = Taint("nvidia.com/gpu", "present", "NoSchedule")
    pools = [
        Pool("cpu", "here", {"pool": "cpu"}, [], sizes, max_nodes=3),
        Pool("gpu", "here", {"pool": "gpu"}, [taint], replace(sizes, gpus=1), 1, accelerator="nvidia-tesla-t4"),
    ]
    volume = k8s.core.v1.VolumeArgs(
        name="store",
        persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name="store"),
    )
    return Platform(
        name="here",
        provider=k8s.Provider("here", kubeconfig="{}"),
        kubeconfig=pulumi.Output.secret("{}"),
        pools={pool.name: pool for pool in pools},
        store=Store(url="pvc://slipway/store", volume=volume),
        service_account_annotations={},
        ready=(),
        connect="",
        kubectl="kubectl",
    )


if __name__ == "__main__":
    sys.exit(main())
