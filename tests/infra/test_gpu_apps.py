"""Apps on GPUs: they have the libraries that GPU steps have, and wait for what these wait for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.clouds.gcp.emulator import Emulator
from infra.program import declare
from infra.schema.problems import SettingsError
from infra.settings.loading import load
from tests.support import gcp
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record

PIPELINE = """
description: Answers on GPUs.
steps:
  fit:
    run: [python, fit.py, --output, "{output}"]
apps:
  ask:
    kind: program
    run: [python, ask.py, --port, "{port}"]
    port: 8080
  notes:
    kind: notebook
  binary:
    kind: program
    run: [/bin/server, "{port}"]
    port: 8080
    image: example/server@sha256:1111111111111111111111111111111111111111111111111111111111111111
"""

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
JOB = "kubernetes:batch/v1:Job"
READER = "gcp:storage/bucketIAMMember:BucketIAMMember"
ON_GPU = {"pool": "train", "gpus": 1, "cpu": "1", "memory": "4Gi"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    for name in ("fit", "ask"):
        (tmp_path / f"{name}.py").write_text("")
    return tmp_path


def values(folder: Path, apps: Mapping[str, Any], most: int = 3) -> dict[str, Any]:
    """A stack whose pool `train` has ``most`` nodes at most, each with one GPU."""

    def change(values: dict[str, Any]) -> None:
        values["clusters"]["dev"]["pools"]["train"]["nodes"]["total_max"] = most
        steps = {"fit": {"pool": "cpu"}}
        values["pipelines"] = {"tried": {"uses": str(folder), "steps": steps, "apps": dict(apps)}}

    return gcp.raw(change)


def run(folder: Path, apps: Mapping[str, Any], most: int = 3) -> Recording:
    found = values(folder, apps, most)
    configuration = {f"slipway:{key}": each for key, each in found.items()} | {"gcp:project": "a-project"}
    emulators = [Emulator(load(found).request)]
    return record(lambda: declare(ROOT), configuration, preview=False, emulators=emulators)


def pod(recording: Recording, kind: str, name: str) -> Mapping[str, Any]:
    return recording.one(kind, f"tried-{name}").inputs["spec"]["template"]["spec"]


def waits_for(recording: Recording, kind: str, name: str) -> set[str]:
    there = recording.waits_for(recording.one(kind, f"tried-{name}"))
    return {each.name for each in recording.of(JOB) if each.urn in there}


@pytest.mark.slow
def test_a_program_on_gpus_starts_with_the_libraries_that_its_image_lacks(folder: Path) -> None:
    recording = run(folder, {"ask": ON_GPU})
    (container,) = pod(recording, DEPLOYMENT, "ask")["containers"]
    assert container["command"] == ["python3"]
    before, own = container["args"][: container["args"].index("--")], container["args"][-4:]
    assert before[:3] == ["-m", "workloads.runtime.supplied", "--libraries"]
    assert before[3].startswith("/store/cuda/libraries/")
    assert before[4:] == ["--into", "/tmp/libraries", "--code", "/bundle/code"]
    assert own == ["python", "ask.py", "--port", "8080"]
    assert container["workingDir"] == "/bundle"
    assert {volume_mount["mountPath"]: volume_mount.get("readOnly") for volume_mount in container["volumeMounts"]}[
        "/store"
    ] is True
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    bundle = next(each for each in recording.of("kubernetes:core/v1:ConfigMap") if each.name == "tried-ask-bundle")
    assert any("supplied.py" in each for each in bundle.inputs["data"])


@pytest.mark.slow
def test_a_notebook_on_gpus_has_them_too(folder: Path) -> None:
    (container,) = pod(run(folder, {"notes": ON_GPU}), STATEFUL_SET, "notes")["containers"]
    assert container["args"][:2] == ["-m", "workloads.runtime.supplied"]
    own = container["args"][container["args"].index("--") + 1 :]
    assert own[:3] == ["python3", "-m", "workloads.apps.notebook.serve"]


@pytest.mark.slow
def test_an_app_waits_for_its_gpus_as_a_step_does(folder: Path) -> None:
    recording = run(folder, {"ask": ON_GPU})
    found = waits_for(recording, DEPLOYMENT, "ask")
    assert {"cuda-libraries", "accelerator-gate-train", "devices-gate-dev", "store-gate-dev"} <= found
    gate = next(each for each in recording.of(JOB) if each.name.startswith("accelerator"))
    (container,) = gate.inputs["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "workloads.gates.accelerator"]
    assert any(argument.startswith("--libraries=/store/cuda/libraries/") for argument in container["args"])


@pytest.mark.slow
def test_a_gate_that_would_wait_for_what_the_app_holds_is_not_there(folder: Path) -> None:
    found = waits_for(run(folder, {"ask": ON_GPU}, most=1), DEPLOYMENT, "ask")
    assert not any(each.startswith("accelerator") for each in found)
    assert "cuda-libraries" in found


def test_an_image_of_its_own_lacks_nothing_and_is_not_started_by_a_python_it_may_not_have(folder: Path) -> None:
    recording = run(folder, {"binary": ON_GPU})
    (container,) = pod(recording, DEPLOYMENT, "binary")["containers"]
    assert (container["command"], container.get("args")) == (["/bin/server"], ["8080"])
    found = waits_for(recording, DEPLOYMENT, "binary")
    assert not any(each.startswith(("accelerator", "cuda")) for each in found)
    assert any(each.startswith("devices") for each in found)


def test_on_a_cpu_nothing_of_it_is_there(folder: Path) -> None:
    recording = run(folder, {"ask": {"pool": "cpu"}})
    (container,) = pod(recording, DEPLOYMENT, "ask")["containers"]
    assert container["command"] == ["python"]
    assert not any(each.name.startswith(("cuda", "accelerator")) for each in recording.of(JOB))


@pytest.mark.slow
def test_its_identity_reads_the_bucket_and_writes_nothing(folder: Path) -> None:
    grants = [each.inputs for each in run(folder, {"ask": ON_GPU}).of(READER)]
    (own,) = [grant for grant in grants if grant["member"].endswith("/sa/tried-ask")]
    assert own["role"] == "roles/storage.objectViewer"


def test_too_little_scratch_space_for_the_libraries_is_refused(folder: Path) -> None:
    with pytest.raises(SettingsError) as error:
        load(values(folder, {"ask": {**ON_GPU, "ephemeral_storage": "1Gi"}}))
    (problem,) = error.value.problems
    assert problem.key == "slipway:pipelines.tried.apps.ask.ephemeral_storage"
    assert "CUDA libraries" in problem.reason
