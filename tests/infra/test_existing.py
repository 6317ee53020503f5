"""Clusters that are already there: nothing of them is created, no token is copied, and rehearsals need none."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.existing.cluster import platforms
from infra.existing.emulator import ExistingEmulator
from infra.platform import Resources, Taint
from infra.settings.loading import load
from infra.settings.model import Settings
from tests.support.recording import Recording, record

KUBECONFIG = {
    "current-context": "kind",
    "contexts": [{"name": "kind", "context": {}}, {"name": "lab", "context": {}}],
    "users": [{"name": "me", "user": {"token": "very-secret"}}],
}


def settings(tmp_path: Path, store: dict[str, Any] | None = None, **cluster: Any) -> Settings:
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG), encoding="utf-8")
    pools = {
        "cpu": {"selector": {"role": "cpu"}, "cpu": "3920m", "memory": "12Gi", "nodes": 2},
        "gpu": {
            "selector": {"role": "gpu"},
            "taints": [{"key": "nvidia.com/gpu", "value": "present"}],
            "cpu": "4",
            "memory": "8Gi",
            "ephemeral_storage": "30Gi",
            "accelerator": "nvidia-tesla-t4",
            "gpus": 1,
        },
    }
    here = {"cloud": "existing", "kubeconfig": str(tmp_path / "kubeconfig"), "pools": pools, **cluster}
    return load({"clusters": {"here": here}, "store": store or {"kind": "pvc"}})


def declared(given: Settings, preview: bool = False) -> Recording:
    return record(lambda: platforms(given), {}, preview=preview)


def provider(recording: Recording) -> dict[str, Any]:
    return dict(recording.one("pulumi:providers:kubernetes", "here").inputs)


@pytest.mark.parametrize(("context", "used"), [(None, "kind"), ("lab", "lab")])
def test_the_provider_gets_the_path_and_a_context_spelt_out(
    tmp_path: Path, context: str | None, used: str
) -> None:
    inputs = provider(declared(settings(tmp_path, context=context)))
    assert inputs["kubeconfig"] == str(tmp_path / "kubeconfig")
    assert inputs["context"] == used
    assert inputs["upsertExistingObjects"] in (True, "true")


def test_no_token_reaches_the_engine(tmp_path: Path) -> None:
    recording = declared(settings(tmp_path))
    assert "very-secret" not in repr(recording.resources)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kubeconfig": "/nowhere/kubeconfig"}, "/nowhere/kubeconfig cannot be read"),
        ({"context": "prod"}, "has no context 'prod'; its contexts: kind, lab"),
    ],
)
def test_what_is_missing_is_said_but_stops_no_preview(
    tmp_path: Path, change: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    given = settings(tmp_path, **change)
    recording = declared(given, preview=True)
    assert recording.one("pulumi:providers:kubernetes", "here")
    assert len(said) == 1
    assert words in said[0]
    assert "slipway:clusters.here" in said[0]


@pytest.mark.parametrize("content", ["", "[]", "not: a kubeconfig", "contexts: null"])
def test_a_file_that_is_no_kubeconfig_stops_no_preview(
    tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    given = settings(tmp_path)
    (tmp_path / "kubeconfig").write_text(content, encoding="utf-8")
    declared(given, preview=True)
    assert len(said) == 1


def test_by_default_nothing_but_the_provider_is_declared(tmp_path: Path) -> None:
    recording = declared(settings(tmp_path))
    assert [each.token for each in recording.resources if each.custom] == ["pulumi:providers:kubernetes"]


def test_a_host_path_becomes_a_volume_for_the_one_claim(tmp_path: Path) -> None:
    given = settings(tmp_path, {"kind": "pvc", "host_path": "/data", "size": "5Gi"})
    seen: list[Any] = []
    recording = record(lambda: seen.append(platforms(given)["here"].store.claim), {}, preview=False)
    volume = recording.one("kubernetes:core/v1:PersistentVolume")
    assert volume.inputs["spec"]["hostPath"]["path"] == "/data"
    assert volume.inputs["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume.inputs["spec"]["claimRef"]["namespace"] == given.namespace
    assert volume.provider.startswith(recording.one("pulumi:providers:kubernetes").urn)
    (claim,) = seen
    assert (claim.storage_class, claim.volume_name) == ("", volume.inputs["metadata"]["name"])


@pytest.mark.parametrize(("wanted", "asked"), [(None, None), ("fast", "fast")])
def test_a_storage_class_is_passed_on(tmp_path: Path, wanted: str | None, asked: str | None) -> None:
    given = settings(tmp_path, {"kind": "pvc", "storage_class": wanted})
    seen: list[Any] = []
    record(lambda: seen.append(platforms(given)["here"].store.claim), {}, preview=False)
    assert seen[0].storage_class == asked


def test_pools_are_as_the_settings_describe_them(tmp_path: Path) -> None:
    given = settings(tmp_path)
    seen: list[Any] = []
    record(lambda: seen.append(platforms(given)["here"].pools), {}, preview=False)
    pools = seen[0]
    assert pools["cpu"].allocatable == Resources(cpu=3920, memory=12 * 1024, ephemeral_storage=20 * 1024)
    assert pools["cpu"].max_nodes == 2
    assert pools["gpu"].taints == [Taint("nvidia.com/gpu", "present", "NoSchedule")]
    assert pools["gpu"].accelerator == "nvidia-tesla-t4"
    assert pools["gpu"].fingerprint != pools["cpu"].fingerprint


def test_the_emulator_has_the_nodes_that_the_settings_describe(tmp_path: Path) -> None:
    nodes = {node.pool: node for node in ExistingEmulator(settings(tmp_path)).standing_nodes()}
    assert nodes["cpu"].count == 2
    assert nodes["cpu"].labels == {"role": "cpu"}
    assert nodes["gpu"].allocatable == Resources(cpu=4000, memory=8192, ephemeral_storage=30 * 1024, gpus=1)
    assert nodes["gpu"].taints == [Taint("nvidia.com/gpu", "present", "NoSchedule")]
    assert nodes["gpu"].accelerator == "nvidia-tesla-t4"
