"""Apps on GPUs: they have the libraries that GPU steps have, and wait for what these wait for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.gcp.emulator import Emulator
from slipway.infra.program import declare
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.clouds import gcp
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


def values(folder: Path, apps: Mapping[str, Any]) -> dict[str, Any]:
    """A stack whose pool `train` has nodes with one GPU."""

    def change(values: dict[str, Any]) -> None:
        steps = {"fit": {"pool": "cpu"}}
        values["pipelines"] = {"tried": {"uses": str(folder), "steps": steps, "apps": dict(apps)}}

    return gcp.raw(change)


def run(folder: Path, apps: Mapping[str, Any]) -> Recording:
    result = values(folder, apps)
    configuration = {f"slipway:{key}": value for key, value in result.items()} | {"gcp:project": "a-project"}
    emulators = [Emulator(load(result).request)]
    return record(lambda: declare(ROOT), configuration, preview=False, emulators=emulators)


def pod(recording: Recording, kind: str, name: str) -> Mapping[str, Any]:
    return recording.one(kind, f"tried-{name}").inputs["spec"]["template"]["spec"]


def parts(container: Mapping[str, Any]) -> list[list[str]]:
    """The commands of the container that start one another: the last one is the app's own."""
    words = [*container["command"], *container["args"]]
    ends = [index for index, word in enumerate(words) if word == "--"]
    begins = [0, *(end + 1 for end in ends)]
    return [words[begin:end] for begin, end in zip(begins, [*ends, len(words)], strict=True)]


def waits_for(recording: Recording, kind: str, name: str) -> set[str]:
    live = recording.waits_for(recording.one(kind, f"tried-{name}"))
    return {resource.name for resource in recording.of(JOB) if resource.urn in live}


@pytest.mark.slow
def test_a_program_on_gpus_starts_with_the_libraries_that_its_image_lacks(folder: Path) -> None:
    recording = run(folder, {"ask": ON_GPU})
    (container,) = pod(recording, DEPLOYMENT, "ask")["containers"]
    test, before, custom = parts(container)
    assert test[:3] == ["python", "-m", "slipway.runtime.gates.gpus"]
    assert before[:4] == ["python3", "-m", "slipway.runtime.supplied", "--libraries"]
    assert before[4].startswith("/store/cuda/libraries/")
    assert before[5:] == ["--code", "/bundle/code"]
    assert custom == ["python", "ask.py", "--port", "8080"]
    assert container["workingDir"] == "/bundle"
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume.get("emptyDir") for volume in pod(recording, DEPLOYMENT, "ask")["volumes"]}
    assert mounted["shared-memory"] == "/dev/shm"
    assert volumes["shared-memory"] == {"medium": "Memory", "sizeLimit": "2Gi"}
    assert {volume_mount["mountPath"]: volume_mount.get("readOnly") for volume_mount in container["volumeMounts"]}[
        "/store"
    ] is True
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    bundle = next(
        resource
        for resource in recording.of("kubernetes:core/v1:ConfigMap")
        if resource.name == "tried-ask-bundle"
    )
    assert any("supplied.py" in entry for entry in bundle.inputs["data"])


@pytest.mark.slow
def test_a_notebook_on_gpus_has_them_too(folder: Path) -> None:
    (container,) = pod(run(folder, {"notes": ON_GPU}), STATEFUL_SET, "notes")["containers"]
    _, before, custom = parts(container)
    assert before[:3] == ["python3", "-m", "slipway.runtime.supplied"]
    assert custom[:3] == ["python3", "-m", "slipway.features.notebook.pod.serve"]


@pytest.mark.slow
def test_an_app_tests_its_gpus_in_its_own_pods_and_waits_for_the_gates(folder: Path) -> None:
    recording = run(folder, {"ask": ON_GPU})
    result = waits_for(recording, DEPLOYMENT, "ask")
    assert {"cuda-libraries", "store-gate-dev"} <= result
    assert not [job.name for job in recording.of(JOB) if "accelerator" in job.name]
    (container,) = pod(recording, DEPLOYMENT, "ask")["containers"]
    test, _, _ = parts(container)
    assert test[3] == "--tensorflow"
    assert any(argument.startswith("--libraries=/store/cuda/libraries/") for argument in test)
    assert test[test.index("--passed") + 1] == "/tmp/gpu-test", "an app may not write what others rely on"
    assert "initContainers" not in pod(recording, DEPLOYMENT, "ask"), "Autopilot takes none with GPUs"
    bundle = recording.one("kubernetes:core/v1:ConfigMap", "tried-ask-bundle")
    assert any("gpus.py" in entry for entry in bundle.inputs["data"])


def test_an_image_of_its_own_lacks_nothing_and_is_not_started_by_a_python_it_may_not_have(folder: Path) -> None:
    recording = run(folder, {"binary": ON_GPU})
    (container,) = pod(recording, DEPLOYMENT, "binary")["containers"]
    assert (container["command"], container.get("args")) == (["/bin/server"], ["8080"])
    assert not any(name.startswith("cuda") for name in waits_for(recording, DEPLOYMENT, "binary"))


def test_on_a_cpu_nothing_of_it_is_there(folder: Path) -> None:
    recording = run(folder, {"ask": {"pool": "cpu"}})
    (container,) = pod(recording, DEPLOYMENT, "ask")["containers"]
    assert container["command"] == ["python"]
    assert not any(resource.name.startswith("cuda") for resource in recording.of(JOB))


@pytest.mark.slow
def test_its_identity_reads_the_bucket_and_writes_nothing(folder: Path) -> None:
    grants = [resource.inputs for resource in run(folder, {"ask": ON_GPU}).of(READER)]
    (custom,) = [grant for grant in grants if grant["member"].endswith("/sa/tried-ask")]
    assert custom["role"] == "roles/storage.objectViewer"


def test_too_little_scratch_space_for_the_libraries_is_refused(folder: Path) -> None:
    with pytest.raises(SettingsError) as error:
        load(values(folder, {"ask": {**ON_GPU, "ephemeral_storage": "1Gi"}}))
    (problem,) = error.value.problems
    assert problem.key == "slipway:pipelines.tried.apps.ask.ephemeral_storage"
    assert "CUDA libraries" in problem.reason
