"""The kind `notebook`: what a stack with one declares."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.infra.program import declare
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record

PIPELINE: Mapping[str, Any] = {
    "description": "Tries a notebook.",
    "steps": {"train": {"run": ["python", "train.py", "--output", "{output}"]}},
    "apps": {
        "serving": {"kind": "program", "image": f"i@sha256:{'1' * 64}", "run": ["serve", "{port}"], "port": 8501},
        "notebook": {"kind": "notebook", "serving": "serving"},
    },
}

ON_CPU = {"pool": "cpu"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(PIPELINE), encoding="utf-8")
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    return tmp_path


def run(folder: Path, notebook: Mapping[str, Any] | None, **more: Any) -> Recording:
    nodes = {"selector": {"a": "b"}, "cpu": "8", "memory": "32Gi", "ephemeral_storage": "40Gi"}
    gpu = {**nodes, "selector": {"a": "gpu"}, "accelerator": "nvidia-tesla-t4", "gpus": 1}
    section = {"notebook": dict(notebook)} if notebook else {}
    values: dict[str, Any] = {
        "clusters": {
            "here": {"cloud": "existing", "kubeconfig": "/nowhere", "pools": {"cpu": nodes, "gpu": gpu}},
        },
        "store": {"kind": "pvc", "access_mode": "ReadWriteMany", "storage_class": "shared"},
        "pipelines": {
            "tried": {"uses": str(folder), "steps": {"train": ON_CPU}, "apps": {"serving": ON_CPU, **section}}
        },
        **more,
    }
    emulators = [ExistingEmulator(load(values).request)]
    configuration = {f"slipway:{key}": value for key, value in values.items()}
    return record(lambda: declare(ROOT), configuration, preview=False, emulators=emulators)


def only(recording: Recording, kind: str, name: str) -> Mapping[str, Any]:
    (inputs,) = [
        resource.inputs
        for resource in recording.of(f"kubernetes:{kind}")
        if resource.inputs["metadata"]["name"] == name
    ]
    return inputs


def test_it_runs_on_a_gpu_with_its_folder_and_the_store_for_reading(folder: Path) -> None:
    recording = run(folder, {"pool": "gpu", "gpus": 1, "storage": "20Gi", "idle": "30m"})
    (stateful,) = recording.of("kubernetes:apps/v1:StatefulSet")
    spec = stateful.inputs["spec"]
    assert spec["replicas"] == 1
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    started = [*container["command"], *container["args"]]
    # The GPU is tested first. TensorFlow's image for GPUs lacks libraries, which come next.
    assert started[:3] == ["python", "-m", "slipway.runtime.gates.gpus"]
    supplied = started[started.index("--") + 1 :]
    assert supplied[:3] == ["python3", "-m", "slipway.runtime.supplied"]
    assert supplied[supplied.index("--") + 1 :] == [
        *("python3", "-m", "slipway.features.notebook.pod.serve", "--folder", "/data"),
        *("--listen", "*", "--port", "8888", "--idle", "1800"),
    ]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    mounts = {
        volume_mount["mountPath"]: volume_mount.get("readOnly", False)
        for volume_mount in container["volumeMounts"]
    }
    assert mounts["/store"] is True
    assert mounts["/data"] is False
    assert container["readinessProbe"]["httpGet"]["path"] == "/api"
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert environment["SERVING_ADDRESS"] == "tried-serving:8501"
    assert environment["SLIPWAY_PIPELINE"] == "/store/tried"
    assert pod["automountServiceAccountToken"] is False
    claims = recording.of("kubernetes:core/v1:PersistentVolumeClaim")
    assert claims[-1].inputs["spec"]["resources"]["requests"]["storage"] == "20Gi"


@pytest.mark.slow
def test_a_change_of_a_step_does_not_restart_it(folder: Path) -> None:
    recording = run(folder, {"pool": "cpu"})
    shipped = [
        key
        for resource in recording.of("kubernetes:core/v1:ConfigMap")
        if resource.inputs["metadata"]["name"].startswith("tried-notebook-bundle")
        for key in resource.inputs["data"]
    ]
    assert any("requirements.txt" in key for key in shipped)
    assert not any("train" in key for key in shipped)


@pytest.mark.slow
def test_the_token_is_generated_and_nowhere_in_the_pods_words(folder: Path) -> None:
    recording = run(folder, {"pool": "cpu"})
    (stateful,) = recording.of("kubernetes:apps/v1:StatefulSet")
    (container,) = stateful.inputs["spec"]["template"]["spec"]["containers"]
    assert {"name": "JUPYTER_TOKEN", "value": "$(NOTEBOOK_TOKEN)"} in container["env"]
    secret = only(recording, "core/v1:Secret", "tried-notebook-token")
    token = secret["stringData"]["token"]
    assert token not in json.dumps(stateful.inputs["spec"]["template"])
    assert set(recording.exports["tried"]["tokens"]) == {"notebook"}


def test_the_outputs_say_how_to_open_it(folder: Path) -> None:
    recording = run(folder, {"pool": "cpu"})
    assert recording.exports["tried"]["apps"]["notebook"] == "make open APP=tried.notebook STACK=test"


@pytest.mark.parametrize(("idle", "reason"), [("299s", "while somebody reads"), ("0h", "no time at all")])
def test_nobody_loses_variables_at_once(folder: Path, idle: str, reason: str) -> None:
    with pytest.raises(SettingsError) as refused:
        run(folder, {"pool": "cpu", "idle": idle})
    [problem] = refused.value.problems
    assert problem.key.endswith("notebook.idle")
    assert reason in problem.reason


def test_a_stack_without_one_has_nothing_of_it(folder: Path) -> None:
    recording = run(folder, None)
    assert recording.of("kubernetes:batch/v1:CronJob") == []
    assert recording.of("kubernetes:apps/v1:StatefulSet") == []
