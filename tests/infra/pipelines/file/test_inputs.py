"""Inputs of a pipeline: what a file and a stack file say of them, and what is wrong with that."""

from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.registry import CLOUDS
from slipway.infra.schema.inputs import data_at
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.infra.pipelines.file_problems import check, problems
from tests.support.rehearsing import pipeline_folder

DIGEST = "0123456789abcdef" * 4
IMAGE = f"registry.example.org/x@sha256:{DIGEST}"

STEPS: dict[str, Any] = {
    "prepare": {"run": "cat {tables}/*.csv > {output}/all.csv"},
    "shrink": {"items": {"files": "{images}/*.png"}, "run": ["python", "shrink.py", "{item}", "{output}"]},
    "train": {"run": ["python", "train.py", "{prepare}", "{output}"], "mounts": {"/data": "{images}/small"}},
}
FILE: dict[str, Any] = {"inputs": {"images": {"description": "Photos."}, "tables": {}}, "steps": STEPS}
WHERE: dict[str, Any] = {"images": {"url": "{store}/images", "digest": DIGEST}, "tables": "{store}/tables/"}


def stack(folder: Path, inputs: object = WHERE, file: dict[str, Any] = FILE, **more: Any) -> dict[str, Any]:
    """A stack on a cluster that is there already."""
    pipeline_folder(folder, {"shrink.py": "", "train.py": ""}, **file)
    pool = {"selector": {"a": "b"}, "cpu": "8", "memory": "32Gi", "ephemeral_storage": "64Gi", "nodes": 1}
    section = {"uses": str(folder), "inputs": inputs, "steps": {name: {"pool": "cpu"} for name in file["steps"]}}
    return {
        "clusters": {"main": {"cloud": "existing", "kubeconfig": "~/.kube/config", "pools": {"cpu": pool}}},
        "store": {"kind": "pvc", "size": "10Gi"},
        "pipelines": {"toy": section},
        **more,
    }


def test_steps_have_the_data_that_they_read(tmp_path: Path) -> None:
    raw = stack(tmp_path / "toy")
    settings = load(raw)
    steps = {step.name: step for step in _steps(settings)}
    images, tables = data_at("images", "{store}/images", DIGEST), data_at("tables", "{store}/tables")
    assert steps["prepare"].data == {"tables": tables}
    assert steps["shrink"].data == steps["train"].data == {"images": images}
    assert not settings.request.inputs, "a folder of the store needs no grants"


def _steps(settings: Any) -> Any:
    from slipway.infra.settings.pipelines import steps_if_any

    return steps_if_any("toy", settings.pipelines["toy"])


def test_everything_wrong_with_a_file_is_said_at_once(tmp_path: Path) -> None:
    file: dict[str, Any] = {
        "inputs": {"store": {}, "Photos": {}, "train": {}, "depth": {}, "grid-1": {}, "unread": {}, "images": {}},
        "parameters": {"depth": {"type": "integer", "default": 1}, "inputs": {"type": "string", "default": ""}},
        "services": {"cache": {"image": IMAGE, "run": ["x", "{images}", "{port}"], "port": 80}},
        "steps": {
            "train": {"run": ["x", "{image}", "{inputs}"], "connects": ["cache"], "after": ["grid"]},
            "grid": {
                "run": ["x", "{depth}", "{images}"],
                "matrix": {"depth": [1, 2]},
                "mounts": {"/data": {"folder": "{images}", "write": True}},
            },
        },
        "apps": {"look": {"kind": "program", "image": IMAGE, "run": ["x", "{images}"], "port": 8080}},
    }
    texts = problems(tmp_path / "toy", stack(tmp_path / "toy", file=file))
    check(
        {key: text for key, text in texts.items() if not key.startswith("stack.")},
        "inputs.store inputs.Photos inputs.train inputs.depth inputs.grid-1 parameters.inputs",
        {
            "inputs.unread": ["{unread}"],
            "services.cache.run[1]": ["input"],
            "steps.train.run[1]": ["{images}"],
            'steps.grid.mounts["/data"].write': [],
            "apps.look.run[1]": ["input"],
        },
    )


def test_a_cache_has_to_fit_beside_what_else_the_step_asks_for(tmp_path: Path) -> None:
    raw = stack(tmp_path / "toy")
    steps = raw["pipelines"]["toy"]["steps"]
    steps["prepare"]["cache"] = "20Gi"
    (prepare,) = (step for step in _steps(load(raw)) if step.name == "prepare")
    assert prepare.placed_by.asked.ephemeral_storage == 24 * 1024
    steps["prepare"]["cache"] = "61Gi"
    steps["shrink"] |= {"cache": "1Mi"}
    texts = problems(tmp_path / "toy", raw)
    check(texts, "stack.steps.shrink.cache", {"stack.steps.prepare.cache": ["cpu", "cache: 61440Mi"]})


def test_a_cache_of_a_step_that_reads_nothing_is_refused(tmp_path: Path) -> None:
    file = {"steps": {"train": {"run": ["python", "train.py", "{output}"]}}}
    raw = stack(tmp_path / "toy", file=file)
    del raw["pipelines"]["toy"]["inputs"]
    raw["pipelines"]["toy"]["steps"]["train"]["cache"] = "20Gi"
    check(problems(tmp_path / "toy", raw), "stack.steps.train.cache", {})


@pytest.mark.parametrize(
    ("images", "key", "named"),
    [
        ("gs://team-data/images", "inputs.images", ["main", "{store}/<folder>"]),
        ({"url": "s3://team-data/images", "digest": DIGEST}, "inputs.images", ["main", "{store}/<folder>"]),
        ("https://team.example/images", "inputs.images.url", ["gs://"]),
        ("gs://Team/images", "inputs.images.url", ["Team"]),
        ("{store}", "inputs.images.url", ["{store}/images"]),
        ("{store}/../images", "inputs.images.url", []),
        ("{store}/toy/train", "inputs.images", ["toy/"]),
        ("{store}/.runs", "inputs.images", [".runs/"]),
        ({"url": "{store}/images", "digest": "abc"}, "inputs.images.digest", ["own-data.md"]),
        ({"digest": DIGEST}, "inputs.images.url", []),
        (3, "inputs.images", []),
    ],
)
def test_a_wrong_place_is_refused_with_its_key(tmp_path: Path, images: object, key: str, named: list[str]) -> None:
    texts = problems(tmp_path / "toy", stack(tmp_path / "toy", {**WHERE, "images": images}))
    check(texts, "", {f"stack.{key}": named})


@pytest.mark.parametrize(
    ("inputs", "key"),
    [
        ([], "inputs"),
        ("gs://team-data/images", "inputs"),
        ({"tables": {}, "images": "gs://team-data/images"}, "inputs.images"),
        ({"tables": {}, "images": {"descripton": "Photos."}}, "inputs.images.descripton"),
        ({**FILE["inputs"], "_x": {}}, "inputs._x"),
        ({**FILE["inputs"], "model_config": {}}, "inputs.model_config"),
    ],
)
def test_what_cannot_be_read_of_a_file_is_its_only_problem(tmp_path: Path, inputs: object, key: str) -> None:
    assert problems(tmp_path / "toy", stack(tmp_path / "toy", file={**FILE, "inputs": inputs})).keys() == {key}


@pytest.mark.parametrize("cloud", ["aws", "existing", "other_stack"])
def test_only_clusters_that_can_mount_buckets_do(tmp_path: Path, cloud: str) -> None:
    request = load(stack(tmp_path / "toy")).request
    for url in ("gs://team-data/images", "s3://team-data/images"):
        assert CLOUDS[cloud].input_problem(data_at("images", url), "main", request)


def test_a_place_that_is_missing_is_named(tmp_path: Path) -> None:
    texts = problems(tmp_path / "toy", stack(tmp_path / "toy", {"images": WHERE["images"], "table": "{store}/x"}))
    assert "stack.inputs.table" in texts or "stack.inputs.tables" in texts


def test_a_rehearsal_keeps_no_digest_of_other_data(tmp_path: Path) -> None:
    def overlay(images: object) -> dict[str, Any]:
        return {"pipelines": {"toy": {"inputs": {"images": images}}}, "store_files": {"photos": str(tmp_path)}}

    load(stack(tmp_path / "toy", rehearsal=overlay("{store}/photos")))
    with pytest.raises(SettingsError) as refused:
        load(stack(tmp_path / "toy", rehearsal=overlay({"url": "{store}/photos"})))
    (problem,) = refused.value.problems
    assert problem.key == "slipway:rehearsal.pipelines.toy.inputs.images"


def test_a_pipeline_without_inputs_may_call_a_parameter_so(tmp_path: Path) -> None:
    file = {
        "parameters": {"inputs": {"type": "string"}},
        "steps": {"train": {"run": ["x", "{inputs}"]}},
    }
    assert problems(tmp_path / "toy", stack(tmp_path / "toy", "a text", file)) == {}
