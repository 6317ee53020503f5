"""The pipeline whose image is built: what it reads, and what its image is made of."""

import json
import sys
from pathlib import Path

import pytest

from infra.pipelines.contract import PipelineSettings
from infra.pipelines.discovery import declared_steps, pipeline
from tests.support.checkout import ROOT
from tests.workloads.steps import run

FOLDER = ROOT / "workloads" / "neighbours"


def settings() -> PipelineSettings:
    return pipeline("neighbours").settings.model_validate({"steps": {"fit": {"pool": "cpu"}}})


@pytest.mark.parametrize(("neighbours", "least"), [(1, 0.95), (3, 0.95)])
def test_most_digits_are_read_right(tmp_path: Path, neighbours: int, least: float) -> None:
    run(
        "runtime.command",
        *("--output", tmp_path / "fit", "--code", FOLDER, "--result", "accuracy=metrics.json#/accuracy"),
        *("--", sys.executable, "fit.py", "--neighbours", neighbours, "--output", tmp_path / "fit"),
    )
    found = json.loads((tmp_path / "fit" / "metrics.json").read_text())
    assert least <= found["accuracy"] <= 1
    assert [each["digit"] for each in found["digits"]] == list(range(10))
    assert sum(each["images"] for each in found["digits"]) == 360


def test_its_image_is_built_from_the_lock_file_alone() -> None:
    (step,) = declared_steps("neighbours", settings())
    assert step.build is not None
    instructions = [
        line for line in (FOLDER / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")
    ]
    base, *rest = instructions
    assert base.startswith("FROM docker.io/library/python:3.12-slim@sha256:")
    assert [line.partition(" ")[0] for line in rest] == ["COPY", "RUN"]
    assert "--require-hashes" in rest[-1]
    assert (FOLDER / ".dockerignore").read_text().splitlines()[1:] == ["*", "!requirements.txt", "!Dockerfile"]
