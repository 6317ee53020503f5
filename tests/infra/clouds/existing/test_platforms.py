"""Clusters that are already there: what is declared on them, no token is copied, and rehearsals need none."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.infra.clouds.existing.live_cluster import as_argument
from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.infra.clouds.existing.platforms import platforms, pool_of
from slipway.infra.clouds.existing.settings import ExistingPool, NfsStore
from slipway.infra.clouds.existing.store import claim_name
from slipway.infra.platform import DevicePlugin, Interconnect, Platform, Resources, Taint
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
NODE_PATCH = "kubernetes:core/v1:NodePatch"
VOLUME = "kubernetes:core/v1:PersistentVolume"


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


def test_the_context_is_one_word_too(tmp_path: Path) -> None:
    given = settings(tmp_path, kubeconfig="/no where", context="a b")
    assert platform(given).kubectl == "kubectl --kubeconfig '/no where' --context 'a b'"


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


def test_by_default_nothing_but_the_provider_is_declared(tmp_path: Path) -> None:
    recording = declared(settings(tmp_path))
    assert [resource.type for resource in recording.resources if resource.custom] == [
        "pulumi:providers:kubernetes"
    ]


def test_a_host_path_becomes_a_volume_for_the_one_claim(tmp_path: Path) -> None:
    one = {"cpu": {"selector": {"role": "cpu"}, "cpu": "4", "memory": "8Gi"}}
    given = settings(tmp_path, {"kind": "pvc", "host_path": "/data", "size": "5Gi"}, pools=one)
    seen: list[Any] = []
    recording = record(lambda: seen.append(platforms(given.request)["here"].store.claim), {}, preview=False)
    volume = recording.one(VOLUME)
    assert volume.inputs["spec"]["hostPath"]["path"] == "/data"
    assert volume.inputs["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume.inputs["spec"]["claimRef"]["namespace"] == given.namespace
    assert volume.provider.startswith(recording.one("pulumi:providers:kubernetes").urn)
    (claim,) = seen
    assert (claim.storage_class, claim.volume_name) == ("", volume.inputs["metadata"]["name"])


@pytest.mark.parametrize(("wanted", "claimed"), [(None, None), ("fast", "fast")])
def test_a_storage_class_is_passed_on(tmp_path: Path, wanted: str | None, claimed: str | None) -> None:
    given = settings(tmp_path, {**SHARED, "storage_class": wanted})
    seen: list[Any] = []
    record(lambda: seen.append(platforms(given.request)["here"].store.claim), {}, preview=False)
    assert seen[0].storage_class == claimed


def test_pools_are_as_the_settings_describe_them(tmp_path: Path) -> None:
    given = settings(tmp_path)
    seen: list[Any] = []
    record(lambda: seen.append(platforms(given.request)["here"].pools), {}, preview=False)
    pools = seen[0]
    assert pools["cpu"].allocatable == Resources(cpu=3920, memory=12 * 1024, ephemeral_storage=20 * 1024)
    assert pools["cpu"].max_nodes == 2
    assert pools["gpu"].taints == [Taint("nvidia.com/gpu", "present", "NoSchedule")]
    assert pools["gpu"].accelerator == "nvidia-tesla-t4"


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


@pytest.mark.parametrize(
    ("store", "source", "value", "url"),
    [
        (
            NFS,
            "nfs",
            {"server": "filer.example.com", "path": "/exports/digits"},
            "nfs://filer.example.com/exports/digits",
        ),
        (S3, "csi", None, "s3://digits/team/a"),
    ],
)
def test_a_shared_store_is_one_volume_for_the_one_claim(
    tmp_path: Path, store: dict[str, Any], source: str, value: dict[str, str] | None, url: str
) -> None:
    given = settings(tmp_path, store)
    volume = declared(given).one(VOLUME).inputs
    made = platform(given).store
    assert made.claim is not None
    assert volume["spec"]["accessModes"] == ["ReadWriteMany"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["spec"]["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": given.namespace,
        "name": made.claim.name,
    }
    if value:
        assert volume["spec"][source] == value
    assert (made.claim.storage_class, made.claim.access_mode) == ("", "ReadWriteMany")
    assert made.claim.volume_name == volume["metadata"]["name"]
    assert made.url == url


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


def test_every_pod_joins_the_group_of_an_nfs_folder(tmp_path: Path) -> None:
    volume = declared(settings(tmp_path, {**NFS, "group": 5555})).one(VOLUME)
    assert volume.inputs["metadata"]["annotations"] == {"pv.beta.kubernetes.io/gid": "5555"}


def test_a_bucket_is_mounted_by_the_driver_with_the_endpoint_of_the_stack_file(tmp_path: Path) -> None:
    csi = declared(settings(tmp_path, S3)).one(VOLUME).inputs["spec"]["csi"]
    assert (csi["driver"], csi["volumeHandle"]) == ("ru.yandex.s3.csi", "digits/team/a")
    assert csi["volumeAttributes"]["options"].endswith("--endpoint https://s3.example.com")
    secret = {"name": "csi-s3-secret", "namespace": "kube-system"}
    assert [csi[key] for key in ("nodeStageSecretRef", "nodePublishSecretRef")] == [secret, secret]


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


def test_named_nodes_get_the_labels_and_no_taint_unless_it_is_asked_for(tmp_path: Path) -> None:
    recording = declared(settings(tmp_path, pools=gpu(label_nodes=["gpu-1", "gpu-2"])))
    patches = {resource.inputs["metadata"]["name"]: resource for resource in recording.of(NODE_PATCH)}
    assert patches.keys() == {"gpu-1", "gpu-2"}
    for patch in patches.values():
        assert patch.inputs["metadata"]["labels"] == {"slipway/pool": "gpu"}
        assert "spec" not in patch.inputs
        assert patch.provider.startswith(recording.one("pulumi:providers:kubernetes").urn)


def test_labels_and_taints_are_patches_of_their_own_and_force_nothing(tmp_path: Path) -> None:
    """A conflict over the taints, which have one owner, then leaves the labels."""
    recording = declared(settings(tmp_path, pools=gpu(label_nodes=["gpu-1"], taint_nodes=True)))
    labels, taints = (recording.one(NODE_PATCH, f"here-gpu-gpu-1-{what}").inputs for what in ("labels", "taints"))
    assert labels["metadata"] == {"name": "gpu-1", "labels": {"slipway/pool": "gpu"}}
    assert taints == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "gpu-1"},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
    }


def test_a_node_is_read_before_it_is_patched(tmp_path: Path) -> None:
    """A patch of a node that is not there would create it, and leave it when the stack goes."""
    recording = declared(settings(tmp_path, pools=gpu(label_nodes=["gpu-1"], taint_nodes=True)))
    for patch in recording.of(NODE_PATCH):
        assert [urn for urn in patch.dependencies if urn.endswith("$kubernetes:core/v1:Node::here-gpu-gpu-1")]


def test_pods_wait_for_the_labels_of_their_nodes(tmp_path: Path) -> None:
    pool = platform(settings(tmp_path, pools=gpu(label_nodes=["gpu-1", "gpu-2"], taint_nodes=True))).pools["gpu"]
    assert len(pool.resources) == 4
    assert (pool.min_nodes, pool.max_nodes) == (2, 2)


def test_shares_of_gpus_are_what_a_node_allocates(tmp_path: Path) -> None:
    given = settings(tmp_path, pools=gpu(gpu_sharing={"clients": 4}), device_plugin={"declare": True})
    pool = platform(given).pools["gpu"]
    assert (pool.allocatable.gpus, pool.gpu_clients, pool.shared_gpus) == (8, 4, True)
    assert ExistingEmulator(given.request).standing_nodes()[0].allocatable.gpus == 8


def test_a_plain_cluster_has_its_own_device_plugin_and_our_user(tmp_path: Path) -> None:
    made = platform(settings(tmp_path))
    assert (made.device_plugin, made.pod_user) == (None, 1000)
    assert (made.creates_namespace, made.whole_cluster) == (True, True)


def test_openshift_assigns_the_user_and_the_plugin_is_told(tmp_path: Path) -> None:
    made = platform(settings(tmp_path, openshift=True, device_plugin={"declare": True}))
    assert made.pod_user is None
    assert made.device_plugin == DevicePlugin(openshift=True)


def test_an_admin_of_a_namespace_declares_nothing_beside_it(tmp_path: Path) -> None:
    given = settings(tmp_path, openshift=True, access="namespace")
    assert [resource.type for resource in declared(given).resources if resource.custom] == [
        "pulumi:providers:kubernetes"
    ]
    made = platform(given)
    assert (made.creates_namespace, made.whole_cluster) == (False, False)


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


GPU_NODES = {
    "selector": {"gpu": "h100"},
    "cpu": "4",
    "memory": "8Gi",
    "accelerator": "nvidia-h100-80gb",
    "gpus": 8,
}


def test_a_pools_network_is_as_the_settings_describe_it() -> None:
    said = {"resource": "rdma/hca", "environment": {"NCCL_IB_HCA": "mlx5"}}
    pool = ExistingPool.model_validate({**GPU_NODES, "interconnect": said})
    interconnect = pool_of("here", "gpu", pool).interconnect
    assert interconnect == Interconnect("rdma/hca", 1, {"NCCL_IB_HCA": "mlx5"})
    plain = ExistingPool.model_validate({**GPU_NODES, "interconnect": {}})
    assert pool_of("here", "gpu", plain).interconnect == Interconnect()
    assert pool_of("here", "gpu", ExistingPool.model_validate(GPU_NODES)).interconnect is None


def test_nodes_that_an_autoscaler_adds_need_not_be_there() -> None:
    nodes = {**GPU_NODES, "nodes": 3}
    assert pool_of("here", "gpu", ExistingPool.model_validate(nodes)).min_nodes == 3
    autoscaled = pool_of("here", "gpu", ExistingPool.model_validate({**nodes, "autoscaled": True}))
    assert (autoscaled.min_nodes, autoscaled.max_nodes) == (0, 3)
