"""The pipelines that have a `pipeline.yaml`, rehearsed whole: a matrix and an app, JAX on a GPU."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.rehearse.test_end_to_end import rehearse, table
from tests.support.rehearsing import log, stack_file

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

CPU = {"pool": "cpu"}
PIPELINES = {
    "handwriting": {"epochs": 6, "steps": {"prepare": CPU, "train": {"pool": "train", "nodes": 1, "gpus": 1}}},
    "neighbours": {"steps": {"fit": CPU}, "apps": {"show": CPU}},
}
VARIANTS = {f"neighbours-fit-{number}" for number in (1, 3, 9)}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments that rehearse the clusters of gcp-dev with the examples as its pipelines."""
    file = tmp_path_factory.mktemp("settings") / "examples.yaml"
    stack_file(file, "gcp-dev", pipelines=PIPELINES, registry=CPU)
    return ["--config-file", str(file)]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory, settings: list[str]) -> tuple[Path, str]:
    """A folder in which the examples were rehearsed once, the training in JAX evicted on its way."""
    folder = tmp_path_factory.mktemp("examples") / "out"
    done = rehearse("gcp-dev", folder, *settings, "--disrupt", "handwriting-train")
    if done.returncode and re.search(r"error sending request|failed to fetch", done.stdout + done.stderr, re.I):
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_best_of_the_classifiers_is_shown(rehearsed: tuple[Path, str]) -> None:
    folder, output = rehearsed
    assert {name for name in table(output) if name.startswith("neighbours-fit")} == VARIANTS
    metrics = {
        path.parents[1].name: content(path)
        for path in (folder / "store" / "neighbours").glob("fit-*/*/metrics.json")
    }
    best = max(metrics, key=lambda name: metrics[name]["validation"])
    assert len({scores["validation"] for scores in metrics.values()}) > 1
    assert content(folder / "outputs.json")["neighbours"]["accuracy"][best] > 0.9
    shown = log(folder, "neighbours-show")
    assert f"{metrics[best]['accuracy']:.2%}" in shown


def test_the_report_shows_the_results_of_all(rehearsed: tuple[Path, str]) -> None:
    folder, _ = rehearsed
    report = (folder / "report.html").read_text(encoding="utf-8")
    for title in ("Read right in cross-validation", "Each digit"):
        assert title in report


def test_a_training_in_jax_that_is_evicted_goes_on_after_its_last_epoch(rehearsed: tuple[Path, str]) -> None:
    folder, output = rehearsed
    training = log(folder, "handwriting-train")
    assert "SIGTERM" in training
    printed = [int(epoch) for epoch in re.findall(r"Epoch (\d+)/6", training)]
    # No epoch is trained twice. One line is missing where the node goes between a checkpoint and its line.
    assert printed == sorted(set(printed)), printed
    assert len(printed) >= 5
    assert printed[-1] == 6
    assert len(content(folder / "results" / "handwriting-train" / "metrics.json")["history"]) == 6
    assert re.search(r"handwriting-train +train \(nvidia-tesla-t4\)", output)


def test_a_second_rehearsal_of_them_runs_no_job(rehearsed: tuple[Path, str], settings: list[str]) -> None:
    folder, _ = rehearsed
    done = rehearse("gcp-dev", folder, *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b0 Jobs run\b", done.stdout)
