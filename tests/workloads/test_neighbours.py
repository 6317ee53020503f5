"""The pipeline whose image is built: what it reads, and what its image is made of."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from slipway.infra.pipelines.contract import PipelineSettings
from slipway.infra.pipelines.discovery import apps_of, declared_steps, pipeline
from slipway.rehearse.machine.processes import free_ports
from tests.support.checkout import ROOT
from tests.support.steps import run

FOLDER = ROOT / "workloads" / "neighbours"


def settings() -> PipelineSettings:
    return pipeline("neighbours").settings.model_validate({"steps": {"fit": {"pool": "cpu"}}})


@pytest.mark.slow
@pytest.mark.parametrize(("neighbours", "least"), [(1, 0.95), (3, 0.95)])
def test_most_digits_are_read_right(tmp_path: Path, neighbours: int, least: float) -> None:
    run(
        "slipway.runtime.steps.command",
        *("--output", tmp_path / "fit", "--code", FOLDER, "--result", "accuracy=metrics.json#/accuracy"),
        *("--", sys.executable, "fit.py", "--neighbours", neighbours, "--output", tmp_path / "fit"),
    )
    metrics = json.loads((tmp_path / "fit" / "metrics.json").read_text())
    assert metrics["neighbours"] == neighbours
    assert all(least <= metrics[name] <= 1 for name in ("accuracy", "validation"))
    assert [digit["digit"] for digit in metrics["digits"]] == list(range(10))
    assert sum(digit["images"] for digit in metrics["digits"]) == 360


@pytest.mark.slow
def test_its_page_shows_each_digit_that_was_read_wrong_and_ends_when_told(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text('{"neighbours": 3, "accuracy": 0.9833}')
    (port,) = free_ports(1)
    words = ["show.py", "--fit", str(tmp_path), "--port", str(port)]
    with subprocess.Popen([sys.executable, *words], cwd=FOLDER) as running:
        deadline = time.monotonic() + 60
        while True:
            assert running.poll() is None
            assert time.monotonic() < deadline
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
                    break
            except OSError:
                time.sleep(0.1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            page = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/../fit.py", timeout=5)
        # Who says nothing is not waited for.
        with socket.create_connection(("127.0.0.1", port), 30) as silent:
            assert silent.recv(1) == b""
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
    (wrong,) = re.findall(r"98\.33% of 360 digits were read right, (\d+) were not", page)
    # Each beside the three that misled it.
    assert page.count("<svg ") == int(wrong) * 4


def test_its_page_runs_in_the_image_of_its_step() -> None:
    section = {"steps": {"fit": {"pool": "cpu"}}, "apps": {"show": {"pool": "cpu"}}}
    placed = pipeline("neighbours").settings.model_validate(section)
    *steps, (app,) = *declared_steps("neighbours", placed), apps_of("neighbours", placed)
    builds = {program.build and (program.build.context, program.build.dockerfile) for program in (*steps, app)}
    assert len(steps) > 1
    assert len(builds - {None}) == len(builds) == 1


def test_its_image_is_built_from_the_lock_file_alone() -> None:
    instructions = [
        line for line in (FOLDER / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")
    ]
    base, *rest = instructions
    assert base.startswith("FROM docker.io/library/python:3.12-slim@sha256:")
    assert [line.partition(" ")[0] for line in rest] == ["COPY", "RUN"]
    assert "--require-hashes" in rest[-1]
    assert (FOLDER / ".dockerignore").read_text().splitlines()[1:] == ["*", "!requirements.txt", "!Dockerfile"]
