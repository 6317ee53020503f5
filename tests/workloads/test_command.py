from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.workloads.steps import only_error, run
from workloads.runtime.exits import BAD_INPUT
from workloads.runtime.outputs import NO_RESULT

TRAIN = """
import json, os, sys
output, accuracy = sys.argv[1:3]
with open(f"{output}/metrics.json", "w") as file:
    json.dump({"test": {"accuracy": float(accuracy)}}, file)
print("data:", sys.argv[3:])
"""


def train(tmp_path: Path, name: str, accuracy: object, *flags: object, code: int = 0) -> str:
    (tmp_path / "train.py").write_text(TRAIN)
    return run(
        "runtime.command", "--output", tmp_path / name, "--step", f"churn.{name}", "--code", tmp_path, *flags,
        "--", sys.executable, "train.py", tmp_path / name, accuracy, code=code,
    )  # fmt: skip


def test_a_finished_step_does_nothing(tmp_path: Path) -> None:
    assert "Published 1 files" in train(tmp_path, "train", 0.5, "--result", "accuracy=metrics.json#/test/accuracy")
    assert train(tmp_path, "train", 0.5).startswith("Nothing to do: ")


def test_all_results_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    output = train(
        tmp_path, "train", 0.5, "--result", "accuracy=metrics.json#/test/acuracy", "--result", "curve=curve.png",
        code=NO_RESULT,
    )  # fmt: skip

    error = only_error(output)
    assert "accuracy: metrics.json has no /test/acuracy; /test has accuracy" in error
    assert "curve: there is no file curve.png. It wrote metrics.json" in error
    assert not (tmp_path / "train" / "manifest.json").exists()


def test_the_best_of_several_is_taken(tmp_path: Path) -> None:
    inputs = []
    for name, accuracy in (("train-1", 0.5), ("train-2", 0.75), ("train-3", 0.25)):
        train(tmp_path, name, accuracy)
        inputs += ["--input", f"{name}={tmp_path / name}"]

    output = run(
        "runtime.command", "--output", tmp_path / "report", *inputs,
        "--best", "train=max:metrics.json#/test/accuracy:train-1,train-2,train-3",
        "--", "echo", "from {best:train}",
    )  # fmt: skip

    assert "The best of train is train-2: metrics.json#/test/accuracy is 0.75, the largest of 3" in output
    assert f"from {tmp_path / 'train-2'}\n" in output
    assert json.loads((tmp_path / "report" / "manifest.json").read_text())["summary"]["best"]["train"]["is"] == (
        "train-2"
    )


def test_a_program_that_is_not_there_is_named_with_its_step(tmp_path: Path) -> None:
    output = run(
        "runtime.command", "--output", tmp_path / "x", "--step", "churn.fit", "--", "torchrum", code=BAD_INPUT
    )
    assert only_error(output).startswith("error: churn.fit: there is no program 'torchrum' in this image")
