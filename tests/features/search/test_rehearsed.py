"""A step with a search, rehearsed: a few trials, the best of which later steps read, and its pictures."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slipway.rehearse.output.outcome import Outcome
from tests.support.rehearsing import SMALL, pipeline_folder, rehearse_file, stack_file
from tests.support.servers.valkey import valkey_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TUNE = """
import importlib.util, json, math, pathlib, sys
rate, output = float(sys.argv[1]), pathlib.Path(sys.argv[2])
finds = importlib.util.find_spec("optuna") is not None
(output / "metrics.json").write_text(json.dumps({"loss": abs(math.log10(rate) + 3), "optuna": int(finds)}))
"""
READ = """
import pathlib, shutil, sys
best, output = map(pathlib.Path, sys.argv[1:])
shutil.copy(best / "trial.json", output / "read.json")
"""
DECLARED: dict[str, Any] = {
    "parameters": {"rate": {"type": "number", "default": 0.1}},
    "services": {"queue": {"kind": "valkey"}},
    "steps": {
        "tune": {
            "run": ["python", "-I", "tune.py", "{rate}", "{output}"],
            "search": {
                "parameters": {"rate": {"low": 1e-5, "high": 0.1, "log": True}},
                "trials": 40,
                "by": "loss",
                "of": "min",
                "at_once": 2,
                "queue": "queue",
            },
            "results": {"loss": "metrics.json#/loss", "optuna": "metrics.json#/optuna"},
        },
        "read": {"run": ["python", "read.py", "{tune}", "{output}"], "results": {"value": "read.json#/value"}},
    },
}


@dataclass
class Rehearsed:
    outcome: Outcome
    text: str
    folder: Path

    def read(self, path: str) -> Any:
        return json.loads((self.folder / "results" / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    valkey_program()
    folder = tmp_path_factory.mktemp("search")
    pipeline_folder(folder / "toy", {"tune.py": TUNE, "read.py": READ}, **DECLARED)
    section = {
        "uses": str(folder / "toy"),
        "steps": {"tune": SMALL, "read": SMALL},
        "services": {"queue": SMALL},
    }
    outcome, text = rehearse_file(folder / "out", stack_file(folder / "stack.yaml", pipelines={"toy": section}))
    return Rehearsed(outcome, text, folder / "out")


def test_a_few_trials_run_and_it_is_said(rehearsed: Rehearsed) -> None:
    assert rehearsed.outcome.exit_code == 0, rehearsed.text
    assert len(rehearsed.read("toy-tune/search/trials.json")) == 4
    assert "toy.tune tries 4 of 40" in rehearsed.text


def test_later_steps_read_the_best_trial(rehearsed: Rehearsed) -> None:
    losses = [row["value"] for row in rehearsed.read("toy-tune/search/trials.json")]
    assert rehearsed.read("toy-read/read.json")["value"] == min(losses)


def test_the_program_finds_nothing_of_what_chooses(rehearsed: Rehearsed) -> None:
    assert rehearsed.read("toy-tune/metrics.json")["optuna"] == 0


def test_the_report_shows_the_trials_and_the_pictures(rehearsed: Rehearsed) -> None:
    report = (rehearsed.folder / "report.html").read_text(encoding="utf-8")
    assert "trial-0003" in report
    assert report.count("data:image/png") >= 3
