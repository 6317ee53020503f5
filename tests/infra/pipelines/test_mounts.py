"""`directory` and `mounts` of a step: what they become, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.infra.pipelines.contract import StepDeclaration
from slipway.infra.pipelines.file import reading
from slipway.infra.pipelines.file.reading import Folder
from slipway.infra.pipelines.mounts import OF_SYSTEM, OURS

FILE: dict[str, Any] = {
    "description": "Programs with paths built in.",
    "parameters": {"depth": {"type": "integer", "default": 3}},
    "steps": {
        "train": {"run": ["python", "train.py"], "mounts": {"/out": "{output}"}},
        "grid": {
            "run": ["python", "train.py", "{depth}", "{output}"],
            "matrix": {"depth": [1, 2]},
            "results": {"loss": "m.json#/loss"},
        },
        "predict": {"run": ["python", "predict.py"]},
    },
}
SECTION = {"steps": {name: {"pool": "cpu"} for name in FILE["steps"]}}


def read(folder: Path, **keys: Any) -> tuple[dict[str, str], StepDeclaration]:
    """What is wrong with the file where `predict` has these keys, by key; and that step."""
    steps = {**FILE["steps"], "predict": {**FILE["steps"]["predict"], **keys}}
    if "best" in keys:
        steps["grid"] = {**steps["grid"], "best": {"by": "loss", "of": "min"}}
        del steps["predict"]["best"]
    (folder / "pipeline.yaml").write_text(yaml.safe_dump({**FILE, "steps": steps}), encoding="utf-8")
    declaration = reading.read(Folder(folder, "x", str(folder)))
    wrong = {
        problem.key.partition(": ")[2].removeprefix("steps.predict."): f"{problem.reason}; {problem.fix}"
        for problem in declaration.problems
    }
    settings = declaration.settings.model_validate(SECTION)
    return wrong, next(step for step in declaration.steps(settings) if step.name == "predict")


def test_mounts_name_the_store_other_steps_the_output_and_scratch_space(tmp_path: Path) -> None:
    mounts = {
        "/data": "{store}/uploads/",
        "/models/": "{train}/model",
        "/out": "{output}",
        "/work/data": "{scratch}",
        "/shared": {"folder": "{store}/team", "write": True},
    }
    wrong, step = read(tmp_path, mounts=mounts, directory="/out/run")
    assert wrong == {}
    assert step.command is not None
    assert {mount.path: (mount.source.text, mount.writable) for mount in step.command.mounts} == {
        "/data": ("{store}/uploads", False),
        "/models": ("{train}/model", False),
        "/out": ("{output}", True),
        "/work/data": ("{scratch}", True),
        "/shared": ("{store}/team", True),
    }
    assert step.inputs == {"train": "train"}, "what is mounted is read, and so waited for"
    assert step.command.directory == "/out/run"


@pytest.mark.parametrize(
    "path",
    ["data", "/", "/data/../etc", "/a//b", "/{store}", "/a:b", "/root/.cache", "/usr", "/usr/lib/python3", "/var"]
    + [f"{place}/x" for place in (*OURS, *OF_SYSTEM)]
    + ["/proc", "/etc", "/dev/shm", "/store", "/tmp"],
)
def test_a_bad_path_is_refused_with_a_fix(tmp_path: Path, path: str) -> None:
    wrong, step = read(tmp_path, mounts={path: "{store}"})
    assert len(wrong) == 1
    assert "mounts" in next(iter(wrong))
    assert "write" in next(iter(wrong.values()))
    assert step.command is not None
    assert not step.command.mounts, "the rest of the step is still checked"


@pytest.mark.parametrize(
    ("folder", "named"),
    [
        ("uploads", "{store}"),
        ("/uploads", "{store}"),
        ("{stor}", "{store}"),
        ("{predict}", "{output}"),
        ("{grid}", "matrix"),
        ("{depth}", "{store}"),
        ("{store}/../x", ".."),
        ("{store}/{depth}", "reference"),
        ("{store}{train}", "{store}"),
        ({"folder": "{train}", "write": True}, "{output}"),
        ({"write": True}, "folder"),
        (3, "folder"),
    ],
)
def test_a_bad_folder_is_refused_with_a_fix(tmp_path: Path, folder: object, named: str) -> None:
    wrong, _ = read(tmp_path, mounts={"/data": folder})
    assert len(wrong) == 1
    key, text = next(iter(wrong.items()))
    assert key.startswith("mounts") and named in f"{key} {text}"  # noqa: PT018


def test_mounts_that_overlap_are_refused(tmp_path: Path) -> None:
    wrong, _ = read(tmp_path, mounts={"/data": "{store}", "/data/model": "{train}", "/data/": "{output}"})
    assert len(wrong) == 2


@pytest.mark.parametrize(
    "directory", ["work", "/work", "{train}", "{store}/x", "{output}/../x", "{output}/{depth}", "{nothing}"]
)
def test_a_bad_directory_is_refused_with_a_fix(tmp_path: Path, directory: str) -> None:
    wrong, _ = read(tmp_path, directory=directory, mounts={"/data": "{store}"})
    assert wrong.keys() == {"directory"}
    assert "{output}" in wrong["directory"]


def test_what_is_known_only_when_a_program_starts_is_not_mounted(tmp_path: Path) -> None:
    wrong, _ = read(tmp_path, mounts={"/data": "{grid}"}, best=True)
    assert "best" in next(iter(wrong.values()))
    items = {"items": {"files": "{store}/days/*"}, "run": ["python", "x.py", "{item}"]}
    wrong, _ = read(tmp_path, mounts={"/out": "{output}", "/in": "{item}"}, **items)
    assert len(wrong) == 2
    assert all("item" in text for text in wrong.values())
    wrong, _ = read(tmp_path, mounts={"/data": "{store}"}, directory="{output}", **items)
    assert wrong == {}


def test_a_program_that_is_told_nothing_of_its_output_may_find_it_in_a_mount(tmp_path: Path) -> None:
    results = {"model": "model.pt"}
    assert read(tmp_path, results=results)[0].keys() == {"run"}
    assert read(tmp_path, results=results, mounts={"/out": "{output}"})[0] == {}
    assert read(tmp_path, results=results, directory="{output}/run")[0] == {}
