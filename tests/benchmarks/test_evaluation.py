"""The benchmark of evaluations declares what it says, and prints its table."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.evaluation import declare
from slipway.engine.evaluate import evaluate

ROOT = Path(__file__).parents[2]
JOB = "kubernetes:batch/v1:Job"


def jobs(size: int) -> set[str]:
    evaluation = evaluate(lambda: declare(size), project="p", stack="s", config={}, preview=True)
    return {resource.name for resource in evaluation.resources.values() if resource.type == JOB}


@pytest.mark.slow
def test_each_further_pipeline_brings_its_own_jobs() -> None:
    further = jobs(2) - jobs(1)
    assert further == {"mnist-1-prepare", "mnist-1-train", "mnist-1-predict"}
    assert len(jobs(4)) == len(jobs(1)) + 3 * 3


@pytest.mark.slow
def test_it_prints_a_row_for_each_size() -> None:
    command = [sys.executable, "-m", "benchmarks.evaluation", "2", "4", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    header, two, four = done.stdout.splitlines()[-3:]
    assert header.split() == ["pipelines", "resources", "seconds", "per", "pipeline", "ratio", "peak", "memory"]
    assert [row.split()[0] for row in (two, four)] == ["2", "4"]
    assert two.split()[5] == "1.00"
    assert int(four.split()[1]) - int(two.split()[1]) == 2 * 9
