"""What a stack file may not say of the benchmark."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.accelerators import accelerators
from slipway.infra.settings.loading import load
from tests.support.refusals import Case, named, problems, the_problem
from tests.support.stack_values import EXISTING, GCP, GONE, changed
from workloads.benchmark.pipeline import Benchmark

BENCHMARK = "pipelines.benchmark"
T4, H100 = f"{BENCHMARK}.runs.t4", f"{BENCHMARK}.runs.h100"

STACK: Mapping[str, Any] = changed(
    GCP,
    {
        "pipelines.mnist": GONE,
        BENCHMARK: {
            "runs": {
                "t4": {"pool": "train", "gpus": 1, "precisions": ["fp32", "fp16"]},
                "h100": {"pool": "predict", "gpus": 1, "precisions": ["bf16"]},
            },
            "chart": {"pool": "cpu"},
        },
    },
)
REFUSED: list[Case] = [
    ({f"{T4}.precisions": ["fp16", "bf16"]}, f"{T4}.precisions", "compute capability 7.5", "newer GPUs"),
    ({f"{T4}.precisions": ["fp16", "fp16"]}, f"{T4}.precisions", "twice", "once"),
    ({f"{T4}.precisions": []}, f"{T4}.precisions", "empty", "at least one"),
    ({f"{T4}.precisions": ["fp64"]}, f"{T4}.precisions[0]", "not one of", "`fp16`"),
    ({f"{T4}.batch_size": 0}, f"{T4}.batch_size", "below 1", "1 or more"),
    ({f"{T4}.data": "sinthetic"}, f"{T4}.data", "none of the kinds", "`synthetic`"),
    ({f"{T4}.data": "gs://somewhere"}, f"{T4}.data", "none of the kinds", "`store:<path>`"),
    ({f"{T4}.data": "store:/imagenet"}, f"{T4}.data", "not a folder below", "relative"),
    ({f"{T4}.data": "generated"}, f"{T4}.data", "no step writes", "`images: {pool: …}`"),
    ({f"{T4}.pool": "trane"}, f"{T4}.pool", "no cluster of the stack", "`train`"),
    ({f"{T4}.gpus": 2}, f"{T4}.gpus", "one node of pool `train` has 1", "`gpus: 1`"),
    ({f"{T4}.ephemeral_storage": "1Gi"}, f"{T4}.ephemeral_storage", "CUDA libraries", "2Gi"),
    ({f"{BENCHMARK}.runs.T4": {"pool": "cpu"}}, f"{BENCHMARK}.runs.T4", "not a Kubernetes name", "lower-case"),
    (
        {f"{BENCHMARK}.runs.{'r' * 41}": {"pool": "cpu"}},
        f"{BENCHMARK}.runs.{'r' * 41}",
        "41 characters",
        "shorten",
    ),
    ({f"{BENCHMARK}.runs": {}}, f"{BENCHMARK}.runs", "empty", "at least one"),
    ({f"{BENCHMARK}.chart": GONE}, f"{BENCHMARK}.chart", "required", "needs no GPU"),
    ({f"{BENCHMARK}.chart.pool": "train"}, f"{BENCHMARK}.chart.gpus", "paid for and idle", "`cpu`"),
]


def test_a_right_one_is_taken() -> None:
    benchmark = load(STACK).pipelines["benchmark"]
    assert isinstance(benchmark, Benchmark)
    run = benchmark.runs["t4"]
    assert (run.batch_size, run.batches, run.warm_up) == (64, 100, 10)
    assert "benchmark" not in load(GCP).pipelines


@pytest.mark.parametrize(("changes", "key", "reason", "fix"), named(REFUSED))
def test_refused(changes: dict[str, Any], key: str, reason: str, fix: str) -> None:
    problem = the_problem(changed(STACK, changes))
    assert problem.key == f"slipway:{key}"
    assert reason in problem.reason
    assert fix in problem.fix


def test_bfloat16_is_refused_on_a_cluster_that_is_there_already_too() -> None:
    def stack(accelerator: str | None) -> dict[str, Any]:
        pool = {**EXISTING["clusters"]["here"]["pools"]["cpu"], "gpus": 1, "accelerator": accelerator}
        run = {"pool": "gpu", "gpus": 1, "precisions": ["bf16"]}
        return changed(
            EXISTING,
            {
                "clusters.here.pools.gpu": pool,
                BENCHMARK: {"runs": {"one": run}, "chart": {"pool": "cpu"}},
            },
        )

    assert "compute capability 7.0" in the_problem(stack("nvidia-tesla-v100")).reason
    assert "benchmark" in load(stack("nvidia-l4")).pipelines


def test_everything_wrong_is_said_at_once() -> None:
    wrong = {f"{T4}.data": "x", f"{T4}.batch_size": "many", f"{H100}.gpus": 3}
    assert {problem.key.removeprefix("slipway:") for problem in problems(changed(STACK, wrong))} >= {
        f"{T4}.data",
        f"{T4}.batch_size",
        f"{H100}.gpus",
    }


def test_every_accelerator_has_its_compute_capability() -> None:
    capabilities = {name: gpu.compute_capability for name, gpu in accelerators().items()}
    assert capabilities["nvidia-tesla-t4"] == (7, 5)
    assert capabilities["nvidia-h100-80gb"] == (9, 0)
    assert capabilities["nvidia-rtx-pro-6000"] == (12, 0)
    assert all((6, 0) <= capability < (13, 0) for capability in capabilities.values())
