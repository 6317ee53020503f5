"""What an app is told of the runs of its pipeline, and that a commit alone changes nothing of a stack."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.clouds.existing.platforms import Emulator
from infra.kubernetes import app_runs
from infra.pipelines.apps import RUNS
from infra.program import declare
from infra.settings.loading import load
from tests.infra.pipelines.shop import SHOP, stack, written
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stack_values import changed

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
APPS = {"apps": {"runs": {"kind": "mlflow", "step": "train"}}}


def declared(folder: Path, commit: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Recording:
    def revision(root: Path) -> dict[str, Any]:
        assert root == ROOT
        return {"commit": commit, "changed": False}

    monkeypatch.setattr(app_runs, "revision", revision)
    content = changed(SHOP, {**APPS, **changes})
    values = stack(written(folder, content), {"apps": {"runs": {"pool": "cpu"}}})
    pool = {"selector": {"a": "b"}, "cpu": "8", "memory": "32Gi", "ephemeral_storage": "40Gi"}
    values["clusters"] = {"here": {"cloud": "existing", "kubeconfig": "/nowhere", "pools": {"cpu": pool}}}
    values["store"] = {"kind": "pvc"}
    emulators = [Emulator(load(values).request)]
    configuration = {f"slipway:{key}": value for key, value in values.items()}
    return record(lambda: declare(ROOT), configuration, preview=False, emulators=emulators)


def test_an_app_is_told_commit_and_pools_in_a_map_that_other_runs_alone_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = declared(tmp_path / "shop", "one", monkeypatch)
    (told,) = (resource for resource in first.of(CONFIG_MAP) if app_runs.FILE in resource.inputs["data"])
    content = json.loads(told.inputs["data"][app_runs.FILE])
    assert content["commit"] == "one"
    assert {path.split("/")[1]: run["pool"] for path, run in content["runs"].items()}["train"] == "cpu"
    assert tuple(told.ignore_changes) == ("data",)

    pod = first.one(STATEFUL_SET, "shop-runs").inputs["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    file = container["args"][container["args"].index("--runs") + 1]
    (mount,) = (place for place in container["volumeMounts"] if place["name"] == RUNS)
    assert file == f"{mount['mountPath']}/{app_runs.FILE}"
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == RUNS)
    assert volume["configMap"]["name"] == told.inputs["metadata"]["name"]

    later = declared(tmp_path / "shop", "two", monkeypatch)
    (same,) = (resource for resource in later.of(CONFIG_MAP) if app_runs.FILE in resource.inputs["data"])
    assert (same.name, same.inputs["metadata"]) == (told.name, told.inputs["metadata"])
    assert later.one(STATEFUL_SET, "shop-runs").inputs == first.one(STATEFUL_SET, "shop-runs").inputs

    environment = {"steps.train.environment": {"OTHER": "1"}}
    other = declared(tmp_path / "other" / "shop", "three", monkeypatch, **environment)
    (new,) = (resource for resource in other.of(CONFIG_MAP) if app_runs.FILE in resource.inputs["data"])
    assert new.name != told.name
    assert json.loads(new.inputs["data"][app_runs.FILE])["commit"] == "three"


def test_a_folder_without_git_has_no_commit(tmp_path: Path) -> None:
    assert app_runs.revision(tmp_path) == {}
    assert len(app_runs.revision(ROOT).get("commit", "0" * 40)) == 40
