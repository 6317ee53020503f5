"""Pipelines that a folder declares in ``pipeline.yaml``: what stack files may say of them, and their steps."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.infra.pipelines.contract import Best, StepDeclaration, Variant
from slipway.infra.pipelines.discovery import declared_steps, location, pipeline
from slipway.infra.pipelines.file.reading import Folder
from slipway.infra.pipelines.results import Column, Curves, File, Number, Picture, Table, heading
from slipway.infra.places import VARIABLE
from slipway.infra.schema.secret_values import MASK
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.refusals import the_problem
from tests.support.stack_values import GCP, changed

IMAGE = f"registry.example.com/team/churn@sha256:{'0' * 64}"
CHURN: Mapping[str, Any] = {
    "description": "Who will leave.",
    "parameters": {
        "trees": {"type": "integer", "default": 300, "minimum": 1, "description": "Trees of the forest."},
        "balanced": {"type": "boolean", "default": False},
        "note": {"type": "string", "default": "a {brace}"},
    },
    "steps": {
        "prepare": {
            "run": ["python", "prepare.py", "--seed", 1, "--output", "{output}"],
            "requirements": "requirements.txt",
        },
        "train": {
            "run": ["python", "train.py", "--data={prepare}", "--trees", "{trees}", "--output", "{output}"],
            "environment": {"BALANCED": "{balanced}", "NOTE": "{note} {{literal}}", "WORKERS": 4},
            "secrets": {"TRACKING_KEY": "tracking-key"},
            "image": IMAGE,
            "resources": {"gpus": 1, "cpu": "2", "memory": "6Gi", "ephemeral_storage": "8Gi"},
            "time_limit": "30m",
            "results": {"accuracy": "metrics.json#/test/accuracy", "curve": "curve.png", "model": "model.pkl"},
            "best": {"by": "accuracy"},
            "rehearsal": {"run": ["python", "small.py", "{prepare}", "{trees}"], "requirements": "small.txt"},
        },
        "report": {"run": ["sh", "-c", "cat {train}/x"], "after": ["prepare"], "code": "report"},
    },
}
PLACED = {"prepare": {"pool": "cpu"}, "train": {"pool": "train"}, "report": {"pool": "cpu"}}
LOCK = f"numpy==2.0.0 --hash=sha256:{'0' * 64}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder elsewhere on this machine with everything that `CHURN` names."""
    made = tmp_path / "churn"
    (made / "report").mkdir(parents=True)
    (made / "pipeline.yaml").write_text(yaml.safe_dump(dict(CHURN), sort_keys=False), encoding="utf-8")
    for name in ("requirements.txt", "small.txt"):
        (made / name).write_text(LOCK, encoding="utf-8")
    for name in ("prepare.py", "train.py", "small.py"):
        (made / name).write_text("", encoding="utf-8")
    return made


def stack(folder: Path, **section: Any) -> dict[str, Any]:
    secrets = {"tracking-key": MASK}
    return changed(GCP, {"pipelines.churn": {"uses": str(folder), "steps": PLACED, **section}, "secrets": secrets})


def steps_of(folder: Path, **section: Any) -> Sequence[StepDeclaration]:
    settings = load(stack(folder, **section)).pipelines["churn"]
    return declared_steps(str(folder), settings)


def test_the_first_file_of_the_readme_is_a_pipeline(folder: Path) -> None:
    [first, *_] = re.findall("```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (folder / "pipeline.yaml").write_text(first, encoding="utf-8")
    settings: Any = load(stack(folder, steps={"train": {"pool": "cpu"}})).pipelines["churn"]
    assert settings.steps.train.pool == "cpu"


def test_its_parameters_and_steps_are_keys_of_the_stack_file(folder: Path) -> None:
    settings: Any = load(stack(folder, trees=500)).pipelines["churn"]
    assert (settings.trees, settings.balanced, settings.note) == (500, False, "a {brace}")
    assert settings.steps.train.pool == "train"
    assert (settings.steps.train.gpus, settings.steps.train.memory) == (1, "6Gi")
    assert (settings.steps.train.cpu, settings.steps.train.ephemeral_storage) == ("2", "8Gi")
    assert settings.steps.train.time_limit == "30m"
    assert settings.steps.train.image == IMAGE
    assert type(settings).__doc__ == "Who will leave."


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"trees": 0}, "trees"),
        ({"trees": "many"}, "trees"),
        ({"tree": 5}, "tree"),
        ({"balanced": 7}, "balanced"),
        ({"steps": {**PLACED, "train": {"pool": "cpu", "gpus": 1}}}, "steps.train.gpus"),
        ({"steps": {**PLACED, "train": {}}}, "steps.train.pool"),
        ({"steps": {**PLACED, "train": {"matrix": {"pool": ["train", "cpu"]}}}}, "steps.train.matrix.pool[1]"),
    ],
)
def test_a_wrong_value_is_refused_at_its_key(folder: Path, section: dict[str, Any], key: str) -> None:
    assert the_problem(stack(folder, **section)).key == f"slipway:pipelines.churn.{key}"


@pytest.mark.parametrize(
    ("resources", "key"),
    [
        ({"gpus": 1}, "resources.gpus"),
        ({"cpu": "64"}, "resources.cpu"),
        ({"memory": "1Ti"}, "resources.memory"),
        ({"ephemeral_storage": "1Ti"}, "resources.ephemeral_storage"),
    ],
)
def test_what_no_node_has_is_named_in_the_file_that_asks_for_it(
    folder: Path, resources: dict[str, Any], key: str
) -> None:
    content = changed(CHURN, {"steps.train.resources": resources})
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    (name,), placed = resources, {**PLACED, "train": {"pool": "cpu"}}
    problem = the_problem(stack(folder, steps=placed))
    assert problem.key == f"{folder}/pipeline.yaml: steps.train.{key}"
    assert problem.fix.endswith(f"; for this stack alone, there is `slipway:pipelines.churn.steps.train.{name}`")
    placed["train"] |= resources
    assert the_problem(stack(folder, steps=placed)).key == f"slipway:pipelines.churn.steps.train.{name}"


def test_references_become_values_and_inputs(folder: Path) -> None:
    prepare, train, report = steps_of(folder, trees=500, balanced=True)
    assert prepare.module is None
    assert prepare.arguments == ["python", "prepare.py", "--seed", "1", "--output", "{output}"]
    assert prepare.requirements == f"{folder}/requirements.txt"
    assert train.arguments == ["python", "train.py", "--data={prepare}", "--trees", "500", "--output", "{output}"]
    assert train.inputs == {"prepare": "prepare"}
    assert train.environment == {"BALANCED": "true", "NOTE": "a {{brace}} {{literal}}", "WORKERS": "4"}
    assert train.secrets == {"TRACKING_KEY": "tracking-key"}
    assert train.command is not None
    assert train.command.code == str(folder)
    assert train.command.substitute is not None
    assert train.command.substitute.run == ["python", "small.py", "{prepare}", "500"]
    assert train.command.substitute.requirements == f"{folder}/small.txt"
    assert (report.inputs, list(report.after)) == ({"train": "train"}, ["prepare"])
    assert report.command is not None
    assert report.command.code == f"{folder}/report"


def test_a_text_says_what_kind_of_result_it_is(folder: Path) -> None:
    assert steps_of(folder)[1].results == (
        Number(name="accuracy", title="Accuracy", path="metrics.json", select="/test/accuracy"),
        Picture(name="curve", title="Curve", path="curve.png"),
        File(name="model", title="Model", path="model.pkl"),
    )


def test_a_matrix_makes_a_step_of_each_combination(folder: Path) -> None:
    places = {**PLACED, "train": {"matrix": {"pool": ["train", "predict"], "trees": [10, 200]}}}
    variants = [step for step in steps_of(folder, steps=places) if step.variant]
    assert [step.name for step in variants] == [
        "train-train-10", "train-train-200", "train-predict-10", "train-predict-200",
    ]  # fmt: skip
    assert variants[1].variant == Variant("train", {"pool": "train", "trees": 200})
    assert variants[1].best == Best("accuracy", "max")
    assert [step.placed_by.pool for step in variants] == ["train", "train", "predict", "predict"]
    assert [step.arguments[4] for step in variants] == ["10", "200", "10", "200"]
    assert steps_of(folder, steps=places)[-1].inputs == {"train": "train"}


def test_the_stack_file_replaces_an_axis_of_the_file(folder: Path) -> None:
    content = {
        **CHURN,
        "steps": {**CHURN["steps"], "train": {**CHURN["steps"]["train"], "matrix": {"trees": [1, 2]}}},
    }
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    assert [step.name for step in steps_of(folder)][1:3] == ["train-1", "train-2"]
    places = {**PLACED, "train": {"pool": "train", "matrix": {"trees": [3]}}}
    assert [step.name for step in steps_of(folder, steps=places)][1:2] == ["train-3"]


def test_long_results_have_their_own_keys(folder: Path) -> None:
    results = {
        "worst": {
            "table": "m.json#/worst",
            "columns": {"customer": "text", "risk": "percent"},
            "title": "Risky",
        },
        "history": {"curves": "m.json#/history", "draw": ["loss"]},
        "share": {"number": "m.json#/share", "format": "percent"},
    }
    content = {**CHURN, "steps": {"prepare": {"run": ["x", "{output}"], "results": results}}}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    assert steps_of(folder, steps={"prepare": {"pool": "cpu"}})[0].results == (
        Table(
            name="worst",
            title="Risky",
            path="m.json",
            select="/worst",
            columns=(
                Column(key="customer", title="Customer"),
                Column(key="risk", title="Risk", format="percent"),
            ),
        ),
        Curves(name="history", title="History", path="m.json", select="/history", curves=("loss",)),
        Number(name="share", title="Share", path="m.json", select="/share", format="percent"),
    )
    assert not pipeline(str(folder)).problems


def test_a_path_out_of_the_repository_means_the_same_folder_in_another_revision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert location("../churn").path == ROOT.parent / "churn"
    monkeypatch.setenv(VARIABLE, str(tmp_path / "checkout"))
    assert location("../churn") == Folder(tmp_path / "churn", "../churn", f"{tmp_path}/churn")
    assert location("./workloads/mnist/") == Folder(ROOT / "workloads/mnist", "workloads/mnist", "workloads/mnist")
    assert location("~/churn").path == Path.home() / "churn"


@pytest.mark.parametrize(
    ("name", "title"),
    [("auc", "AUC"), ("val_rmse", "Val RMSE"), ("odds-api", "Odds api"), ("topK", "TopK"), ("", "")],
)
def test_a_name_without_a_title_is_a_heading(name: str, title: str) -> None:
    assert heading(name) == title
