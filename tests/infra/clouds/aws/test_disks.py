"""Disks for the services of pipelines on EKS, which has none by itself."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.infra.clouds.aws.charts import DISK_CHART, DISK_CLASS, DISK_SCRIPT, disk_objects
from slipway.infra.clouds.aws.emulator import Emulator as AwsEmulator
from slipway.infra.clouds.aws.platforms import platforms
from slipway.infra.review.stack import Stack
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.clouds.aws import ADDON, ASSOCIATION, NODE_GROUP, RELEASE, raw
from tests.support.json_server import serving
from tests.support.previewing import previewed
from tests.support.recording import Recording, record

CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
SET = "kubernetes:apps/v1:StatefulSet"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"


def with_services() -> Recording:
    request = replace(load(raw()).request, has_services=True)
    return record(lambda: platforms(request), {}, preview=False, emulators=[AwsEmulator(request)])


def before(stack: Stack, urn: str) -> set[str]:
    """The URNs of everything that is created before a resource, and so deleted after it."""
    seen: set[str] = set()
    pending = {urn}
    while pending:
        needs = stack.resources[pending.pop()].needs if pending else frozenset[str]()
        pending |= {need for need in needs if need in stack.resources} - seen
        seen |= needs
    return seen


def deletion(stack: Stack) -> str:
    return next(
        resource.urn for resource in stack.of_type(RELEASE) if resource.properties["name"] == "disk-deletion"
    )


@pytest.mark.parametrize("name", ["aws-batch", "aws-serving"], ids=["queue", "notebook"])
def test_the_driver_and_a_node_stay_until_no_disk_is_left(name: str) -> None:
    stack = previewed(name)
    waits = deletion(stack)
    users = [
        resource
        for resource in stack.of_type(SET, CLAIM)
        if DISK_CLASS in str(resource.properties) and resource.urn != waits
    ]
    assert users
    assert all(waits in before(stack, user.urn) for user in users)
    outlive = before(stack, waits)
    assert {resource.urn for resource in stack.of_type(CLASS)} <= outlive
    assert {
        resource.urn for resource in stack.of_type(ADDON) if "ebs" in resource.properties["addonName"]
    } <= outlive
    assert {resource.urn for resource in stack.of_type(ASSOCIATION) if "disks" in resource.name} <= outlive
    assert {resource.urn for resource in stack.of_type(NODE_GROUP)} & outlive


def test_the_chart_is_in_the_repository_and_has_what_its_values_say() -> None:
    # Pulumi looks for it from the root of the project, and keeps the path in its state.
    assert not Path(DISK_CHART).is_absolute()
    assert yaml.safe_load((ROOT / DISK_CHART / "Chart.yaml").read_text("utf-8"))["version"]
    (template,) = (ROOT / DISK_CHART / "templates").iterdir()
    assert "".join(template.read_text("utf-8").split()) == "{{-range.Values.objects}}---{{toYaml.}}{{-end}}"


def test_what_waits_comes_with_the_deletion_alone_and_may_only_list_volumes() -> None:
    made = {disk_object["kind"]: disk_object for disk_object in disk_objects("python")}
    assert {entry["metadata"]["annotations"]["helm.sh/hook"] for entry in made.values()} == {"pre-delete"}
    assert made["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["list"]}
    ]
    weights = {kind: int(value["metadata"]["annotations"]["helm.sh/hook-weight"]) for kind, value in made.items()}
    assert all(weights["Job"] > weight for kind, weight in weights.items() if kind != "Job")
    job = made["Job"]["spec"]
    pod = job["template"]["spec"]
    assert pod["serviceAccountName"] == made["ServiceAccount"]["metadata"]["name"]
    (container,) = pod["containers"]
    assert container["command"] == ["python3", "-c", DISK_SCRIPT.read_text("utf-8")]
    # Helm waits for longer than the pod does, which says what is left.
    release = next(
        resource for resource in with_services().of(RELEASE) if resource.inputs["name"] == "disk-deletion"
    )
    limit = int(container["args"][container["args"].index("--limit") + 1])
    assert limit < job["activeDeadlineSeconds"] <= release.inputs["timeout"]


def volume(storage_class: str | None = DISK_CLASS, phase: str = "Released") -> dict[str, Any]:
    claim = {"namespace": "slipway", "name": "data-queue-0"}
    return {
        "metadata": {"name": "pvc-1"},
        "spec": {"storageClassName": storage_class, "claimRef": claim},
        "status": {"phase": phase},
    }


def waited(
    answers: list[tuple[int, list[dict[str, Any]]]], folder: Path, limit: float
) -> subprocess.CompletedProcess[str]:
    """What the pod's program says to an API server that gives these answers, the last of them again and again."""
    (folder / "token").write_text("of-the-service-account\n")
    left = iter(answers[:-1])

    def answer(method: str, path: str, _: object) -> tuple[int, object]:
        assert (method, path) == ("GET", "/api/v1/persistentvolumes")
        status, volumes = next(left, answers[-1])
        return status, {"items": volumes}

    with serving(answer) as api:
        options = ["--storage-class", DISK_CLASS, "--limit", str(limit), "--api", f"http://{api.address}"]
        command = [
            sys.executable,
            "-c",
            DISK_SCRIPT.read_text("utf-8"),
            *options,
            "--service-account",
            str(folder),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_it_waits_for_the_volumes_of_its_class_only(tmp_path: Path) -> None:
    others = [volume("gp2"), volume(None)]
    done = waited([(200, [volume(), *others]), (503, []), (200, others)], tmp_path, 60)
    assert done.returncode == 0, done.stdout
    assert "slipway/data-queue-0" in done.stdout


def test_it_names_what_is_left_when_the_time_is_over(tmp_path: Path) -> None:
    failed = waited([(200, [volume(phase="Bound")])], tmp_path, 1)
    assert failed.returncode == 1
    assert "pvc-1 (Bound, claim slipway/data-queue-0)" in failed.stdout
