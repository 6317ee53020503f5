"""Clusters that are already there: what is declared on them, no token is copied, and rehearsals need none."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.infra.clouds.existing.live_cluster import as_argument
from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.infra.clouds.existing.platforms import platforms
from slipway.infra.clouds.existing.settings import NfsStore
from slipway.infra.clouds.existing.store import claim_name
from slipway.infra.platform import Platform, Resources, Taint
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.recording import Recording, record
from tests.support.stack_values import stack_settings

KUBECONFIG = {
    "current-context": "kind",
    "contexts": [{"name": "kind", "context": {}}, {"name": "lab", "context": {}}],
    "users": [{"name": "me", "user": {"token": "very-secret"}}],
}


SHARED = {"kind": "pvc", "access_mode": "ReadWriteMany"}
NFS = {"kind": "nfs", "server": "filer.example.com", "path": "/exports/digits"}
S3 = {"kind": "s3_compatible", "endpoint": "https://s3.example.com", "bucket": "digits", "prefix": "team/a"}


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
    return load({"clusters": {"here": here}, "store": store or SHARED})


def platform(given: Settings) -> Platform:
    seen: list[Platform] = []
    record(lambda: seen.append(platforms(given.request)["here"]), {}, preview=False)
    return seen[0]


def declared(given: Settings, preview: bool = False) -> Recording:
    return record(lambda: platforms(given.request), {}, preview=preview)


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/tmp/kube", "/tmp/kube"),
        ("~/.kube/config", "~/.kube/config"),
        ("~me/.kube/my config", "~me/'.kube/my config'"),
        ("~/.kube/$(reboot)", "~/'.kube/$(reboot)'"),
        ("/tmp/a;reboot", "'/tmp/a;reboot'"),
        ("~a b/c", "'~a b/c'"),
    ],
)
def test_a_kubeconfigs_path_is_one_word_of_the_commands_to_copy(path: str, word: str) -> None:
    assert as_argument(path) == word


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
    tmp_path: Path, change: dict[str, Any], words: str, warnings: list[str]
) -> None:
    given = settings(tmp_path, **change)
    recording = declared(given, preview=True)
    assert recording.one("pulumi:providers:kubernetes", "here")
    assert len(warnings) == 1
    assert words in warnings[0]
    assert "slipway:clusters.here" in warnings[0]


@pytest.mark.parametrize("content", ["", "[]", "not: a kubeconfig", "contexts: null"])
def test_a_file_that_is_no_kubeconfig_stops_no_preview(tmp_path: Path, content: str, warnings: list[str]) -> None:
    given = settings(tmp_path)
    (tmp_path / "kubeconfig").write_text(content, encoding="utf-8")
    declared(given, preview=True)
    assert len(warnings) == 1


def test_the_emulator_has_the_nodes_that_the_settings_describe(tmp_path: Path) -> None:
    nodes = {node.pool: node for node in ExistingEmulator(settings(tmp_path).request).standing_nodes()}
    assert nodes["cpu"].count == 2
    assert nodes["cpu"].labels == {"role": "cpu"}
    assert nodes["gpu"].allocatable == Resources(cpu=4000, memory=8192, ephemeral_storage=30 * 1024, gpus=1)
    assert nodes["gpu"].taints == [Taint("nvidia.com/gpu", "present", "NoSchedule")]
    assert nodes["gpu"].accelerator == "nvidia-tesla-t4"


def test_nodes_that_two_pools_select_are_there_once_with_their_gpus(tmp_path: Path) -> None:
    same: dict[str, Any] = {key: gpu()["gpu"][key] for key in ("selector", "taints")}
    pools = {"cpu": {**same, "cpu": "6", "memory": "4Gi"}, **gpu()}
    (node,) = ExistingEmulator(settings(tmp_path, pools=pools).request).standing_nodes()
    assert node.allocatable == Resources(cpu=6000, memory=8192, ephemeral_storage=20 * 1024, gpus=2)
    assert (node.pool, node.count, node.accelerator) == ("gpu", 1, "nvidia-tesla-t4")


def test_another_server_is_another_volume_and_claim(tmp_path: Path) -> None:
    """Under its own name a claim cannot be replaced, and steps would not find their results behind it."""
    claims = [
        platform(settings(tmp_path, {**NFS, "server": server})).store.claim
        for server in ("a.example", "b.example")
    ]
    assert len({claim.name for claim in claims if claim}) == 2
    assert len({claim.volume_name for claim in claims if claim}) == 2


def test_a_volume_is_claimed_from_one_namespace_only(tmp_path: Path) -> None:
    """Kubernetes binds a volume that was bound once to no claim of another namespace."""
    given = settings(tmp_path, NFS)
    claims = [
        platform(given.model_copy(update={"namespace": namespace})).store.claim for namespace in ("old", "new")
    ]
    assert len({claim.volume_name for claim in claims if claim}) == 2


@pytest.mark.parametrize(("change", "same"), [({"size": "20Gi"}, True), ({"storage_class": "fast"}, False)])
def test_a_claim_grows_in_place_and_changes_its_class_as_another(
    tmp_path: Path, change: dict[str, str], same: bool
) -> None:
    before, after = (platform(settings(tmp_path, store)).store.claim for store in (SHARED, {**SHARED, **change}))
    assert before is not None
    assert after is not None
    assert (before.name == after.name) is same


def test_an_nfs_volume_keeps_the_name_that_it_had_while_mounts_took_options() -> None:
    store = stack_settings("onprem").store
    assert isinstance(store, NfsStore)
    assert claim_name(store, "slipway") == "store-729172b55a"


def gpu(**changes: Any) -> dict[str, Any]:
    return {
        "gpu": {
            "selector": {"slipway/pool": "gpu"},
            "taints": [{"key": "nvidia.com/gpu", "value": "present"}],
            "accelerator": "nvidia-tesla-t4",
            "gpus": 2,
            "cpu": "4",
            "memory": "8Gi",
            **changes,
        }
    }


def test_shares_of_gpus_are_what_a_node_allocates(tmp_path: Path) -> None:
    given = settings(tmp_path, pools=gpu(gpu_sharing={"clients": 4}), device_plugin={"declare": True})
    pool = platform(given).pools["gpu"]
    assert (pool.allocatable.gpus, pool.gpu_clients, pool.shared_gpus) == (8, 4, True)
    assert ExistingEmulator(given.request).standing_nodes()[0].allocatable.gpus == 8


@pytest.mark.parametrize(
    ("cluster", "standing"),
    [
        ({}, []),
        ({"access": "namespace"}, [("here", "slipway")]),
        ({"creates_namespace": False}, [("here", "slipway")]),
    ],
)
def test_a_rehearsal_finds_the_namespace_that_the_stack_does_not_create(
    tmp_path: Path, cluster: dict[str, Any], standing: list[tuple[str, str]]
) -> None:
    given = settings(tmp_path, **cluster)
    assert ExistingEmulator(given.request).standing_namespaces() == standing
    assert platform(given).creates_namespace == (not standing)
