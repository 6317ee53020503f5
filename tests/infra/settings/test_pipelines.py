"""The names of a stack's pipelines, and the folders that they run."""

import json
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.kubernetes.shipping.code_folder import code_files
from slipway.infra.kubernetes.shipping.sizes import ShippingError
from slipway.infra.pipelines.file.reading import Folder, read
from slipway.infra.placed import OWN_NAMES, Command
from slipway.infra.settings.loading import load
from tests.infra.pipelines.shop import written
from tests.support.refusals import the_problem
from tests.support.stack_values import GCP, changed

MNIST = GCP["pipelines"]["mnist"]
RENAME = "choose another name"


MEASURING = {
    "uses": "resnet",
    "steps": {"measure": {"gpus": 1, "matrix": {"pool": ["train"]}}, "chart": {"pool": "cpu"}},
}


def test_one_pipeline_runs_twice_under_names_of_ones_own() -> None:
    pipelines = load(changed(GCP, {"pipelines.on-h100": {**MNIST, "uses": "mnist", "epochs": 2}})).pipelines
    assert list(pipelines) == ["mnist", "on-h100"]
    assert pipelines["on-h100"] == type(pipelines["mnist"]).model_validate({**MNIST, "uses": "mnist", "epochs": 2})


def test_a_section_that_says_nothing_is_none() -> None:
    assert "resnet" not in load(changed(GCP, {"pipelines.resnet": None})).pipelines


@pytest.mark.parametrize(
    ("sections", "key", "names"),
    [
        (
            {"a": MEASURING, "a-measure": {**MNIST, "uses": "mnist"}},
            "a-measure",
            ["`a-measure-train`", "`measure-train`", "`a`"],
        ),
        ({"show": MEASURING}, "show", []),
        ({"gates": MEASURING}, "gates", []),
        ({"cuda": MEASURING}, "cuda", ["the libraries of GPU steps"]),
    ],
)
def test_a_name_that_would_mean_two_things_is_refused(
    sections: dict[str, Any], key: str, names: list[str]
) -> None:
    problem = the_problem(changed(GCP, {f"pipelines.{name}": section for name, section in sections.items()}))
    assert problem.key == f"slipway:pipelines.{key}"
    assert [name for name in names if name not in problem.reason] == []
    assert RENAME in problem.fix


def test_more_steps_than_a_stack_can_have_are_refused(tmp_path: Path) -> None:
    """Before anything else of the file is examined: 1,000 steps took half a minute of CPU time."""
    steps = {f"s{number}": {"run": ["date"]} for number in range(1000)}
    (tmp_path / "pipeline.yaml").write_text(json.dumps({"description": "x", "steps": steps}), encoding="utf-8")
    refusals = read(Folder(tmp_path, "workloads/x", str(tmp_path))).problems
    assert [problem.key for problem in refusals] == ["workloads/x/pipeline.yaml: steps"]
    assert "1000 steps" in refusals[0].reason


def test_more_variants_than_a_pipeline_can_have_are_refused(tmp_path: Path) -> None:
    step = {
        "run": ["python", "train.py", "--output", "{output}", "--width", "{width}"],
        "matrix": {"width": list(range(100))},
    }
    declared = {
        "description": "Four sweeps.",
        "parameters": {"width": {"type": "integer", "default": 1}},
        "steps": {f"train-{number}": step for number in range(4)},
    }
    folder = written(tmp_path / "sweeps", declared)
    steps = {name: {"pool": "cpu"} for name in declared["steps"]}
    problem = the_problem(changed(GCP, {"pipelines": {"sweeps": {"uses": str(folder), "steps": steps}}}))
    assert problem.key == "slipway:pipelines.sweeps"
    assert "400 steps" in problem.reason


@pytest.mark.parametrize("pattern", ["*/" * 200 + "*", "**/" * 12 + "x.py"])
def test_a_pattern_that_takes_too_long_is_refused(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "main.py").write_text("", encoding="utf-8")
    with pytest.raises(ShippingError, match="a pattern has"):
        code_files(Command(tmp_path, (pattern,)), ["python", "main.py"])


@pytest.mark.parametrize("name", [*OWN_NAMES, "T4", "t" * 41])
def test_a_name_that_no_pipeline_can_have_is_refused(name: str) -> None:
    """Network policies select pods by the pipeline's name: `mover` and gates may connect to everything."""
    problem = the_problem(changed(GCP, {f"pipelines.{name}": MEASURING}))
    assert (problem.key, problem.value) == (f"slipway:pipelines.{name}", name)


def test_what_is_wrong_below_a_misspelt_pipeline_is_said_as_well() -> None:
    section = {**MNIST, "epochs": 0}
    assert the_problem(changed(GCP, {"pipelines.a": {**section, "uses": "mnist"}})).key.endswith("a.epochs")
    with pytest.raises(Exception, match=r"(?s)pipelines\.mnits.*did you mean `mnist`.*pipelines\.mnits\.epochs"):
        load(changed(GCP, {"pipelines.mnits": section}))
