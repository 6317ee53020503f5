"""What a stack file may not say of a cluster that is already there: each refused once, with the way out."""

from typing import Any

import pytest

from slipway.infra.settings.loading import load
from tests.support.refusals import Refusal, elsewhere, wrong
from tests.support.stack_values import GONE, changed

STACK: dict[str, Any] = {
    "clusters": {
        "here": {
            "cloud": "existing",
            "device_plugin": {"declare": True},
            "pools": {
                "cpu": {"selector": {"role": "cpu"}, "cpu": "4", "memory": "12Gi"},
                "gpu": {
                    "selector": {"slipway/pool": "gpu"},
                    "label_nodes": ["gpu-1", "gpu-2.example.com"],
                    "taint_nodes": True,
                    "taints": [{"key": "nvidia.com/gpu", "value": "present"}],
                    "accelerator": "nvidia-tesla-v100",
                    "gpus": 1,
                    "cpu": "8",
                    "memory": "48Gi",
                },
            },
        }
    },
    "store": {"kind": "pvc", "access_mode": "ReadWriteMany", "storage_class": "ocs-storagecluster-cephfs"},
}
HERE = "clusters.here"
GPU = f"{HERE}.pools.gpu"
NFS = {"kind": "nfs", "server": "filer.example.com", "path": "/exports/digits"}
S3 = {"kind": "s3_compatible", "endpoint": "https://s3.example.com:9000", "bucket": "digits"}
NOTHING_ELSE = {
    f"{HERE}.access": "namespace",
    f"{HERE}.device_plugin": GONE,
    f"{GPU}.label_nodes": GONE,
    f"{GPU}.taint_nodes": GONE,
}
ONE_NODE = {f"{GPU}.label_nodes": ["gpu-1"], f"{HERE}.pools.cpu": GONE}

NETWORK = f"{GPU}.interconnect"
RDMA = {"resource": "rdma/hca"}

NETWORKS: list[Any] = [
    elsewhere({NETWORK: {"bandwidth": 100}}, f"{NETWORK}.bandwidth", "removed in", "measures"),
    elsewhere({NETWORK: {"count": 2}}, f"{NETWORK}.count", "name the `resource`"),
    elsewhere({NETWORK: {**RDMA, "resource": "hca"}}, f"{NETWORK}.resource"),
    elsewhere({NETWORK: {**RDMA, "resource": "nvidia.com/gpu"}}, f"{NETWORK}.resource", "rdma/"),
    elsewhere({NETWORK: {**RDMA, "resource": "a b/c"}}, f"{NETWORK}.resource"),
    elsewhere(
        {NETWORK: {**RDMA, "environment": {"NCCL-X": "1"}}}, f"{NETWORK}.environment.NCCL-X", "`NCCL_IB_HCA`"
    ),
    elsewhere({NETWORK: {**RDMA, "environment": {"TF_CONFIG": "1"}}}, f"{NETWORK}.environment.TF_CONFIG"),
]

STORES: list[Any] = [
    wrong("store.access_mode", GONE, "have 3 nodes", "kind: nfs"),
    wrong("store.storage_class", "ocs-storagecluster-ceph-rbd", "cephfs"),
    wrong("store.storage_class", "local-path", "kind: nfs"),
    elsewhere({"store": {"kind": "pvc", "host_path": "/data"}}, "store.host_path", "have 3", "kind: nfs"),
    elsewhere({**ONE_NODE, "store": {"kind": "pvc", "host_path": "data"}}, "store.host_path", "/var/lib"),
    elsewhere(
        {**ONE_NODE, "store": {"kind": "pvc", "host_path": "/data"}, f"{HERE}.openshift": True},
        "store.host_path",
        "SELinux",
        "StorageClass",
    ),
    elsewhere({"store": {**NFS, "path": "exports"}}, "store.path", "/exports"),
    elsewhere({"store": {**NFS, "server": "filer:/exports"}}, "store.server", "filer.example.com"),
    elsewhere({"store": {**NFS, "path": "/exports/../etc"}}, "store.path", "/exports/slipway"),
    elsewhere({"store": {**NFS, "path": "//"}}, "store.path", "/exports/slipway"),
    elsewhere({"store": {**NFS, "path": "/"}}, "store.path", "/exports/slipway"),
    elsewhere({"store": {**NFS, "server": "filer:2049"}}, "store.server"),
    elsewhere({"store": {**NFS, "server": "10.0.0.256"}}, "store.server", "filer.example.com"),
    elsewhere({"store": {**NFS, "group": 2**31}}, "store.group", "above 2147483647", "2147483647 or less"),
    elsewhere(
        {"store": {**S3, "endpoint": "https://s3.example.com:0"}}, "store.endpoint", "1 to 65535", "https://"
    ),
    elsewhere(
        {"store": {**S3, "endpoint": "https://s3.example.com:99999"}}, "store.endpoint", "1 to 65535", "https://"
    ),
    elsewhere({"store": {**S3, "endpoint": "https://s3..com"}}, "store.endpoint", "https://"),
    elsewhere({"store": {**S3, "bucket": "a..b"}}, "store.bucket"),
    elsewhere({"store": {**S3, "bucket": "10.0.0.1"}}, "store.bucket"),
    elsewhere({"store": {**S3, "prefix": "a/../b"}}, "store.prefix", "teams/digits"),
    elsewhere({"store": {**S3, "secret": "My Secret"}}, "store.secret"),
    elsewhere({"store": {**S3, "secret_namespace": "Kube"}}, "store.secret_namespace"),
    elsewhere({"store": {**S3, "endpoint": "s3.example.com"}}, "store.endpoint", "https://"),
    elsewhere({"store": {**S3, "endpoint": "https://a --cache /etc"}}, "store.endpoint", "https://"),
    elsewhere({"store": {**S3, "bucket": "s3://digits"}}, "store.bucket"),
    elsewhere({"store": {**S3, "prefix": "/a"}}, "store.prefix", "teams/digits"),
    elsewhere({"store": {**S3, "driver": "s3.csi.aws.com"}}, "store.driver", "`ru.yandex.s3.csi`"),
    elsewhere({"store": {**S3, "driver": "csi.example.com"}}, "store.driver", "`ru.yandex.s3.csi`"),
    elsewhere(
        {"store": {"kind": "gcs", "location": "us-central1"}}, "store.kind", "`here` was there before", "`nfs`"
    ),
    elsewhere({**NOTHING_ELSE, "store": NFS}, "store.kind", "`access: namespace`", "storage_class"),
]
CLUSTERS: list[Any] = [
    elsewhere({f"{HERE}.pools.gpu": GONE}, f"{HERE}.device_plugin.declare"),
    elsewhere(
        {f"{HERE}.device_plugin": GONE, f"{GPU}.gpu_sharing": {"clients": 4}},
        f"{GPU}.gpu_sharing",
        "declare: true",
    ),
    elsewhere({f"{HERE}.device_plugin": GONE, f"{GPU}.mig_strategy": "single"}, f"{GPU}.mig_strategy"),
    elsewhere(
        {**NOTHING_ELSE, f"{HERE}.device_plugin": {"declare": True}},
        f"{HERE}.device_plugin.declare",
        "GPU Operator",
    ),
    elsewhere({**NOTHING_ELSE, f"{GPU}.label_nodes": ["gpu-1"]}, f"{GPU}.label_nodes"),
]
NODES: list[Any] = [
    elsewhere({f"{GPU}.label_nodes": ["GPU 1"]}, f"{GPU}.label_nodes[0]"),
    wrong(f"{GPU}.nodes", 3, "names 2", "remove `nodes`"),
    elsewhere({f"{GPU}.label_nodes": GONE}, f"{GPU}.taint_nodes", "no `label_nodes`"),
    elsewhere({f"{GPU}.taints": GONE}, f"{GPU}.taint_nodes", "no `taints`"),
    elsewhere({f"{GPU}.taints": [{"key": "a", "effect": "NoExecute"}]}, f"{GPU}.taints[0].effect", "NoSchedule"),
    elsewhere(
        {f"{GPU}.selector": {"node.kubernetes.io/pool": "gpu"}}, f'{GPU}.selector["node.kubernetes.io/pool"]'
    ),
]

RUNTIMES: list[Any] = [
    wrong(f"{GPU}.runtime_class", "NVIDIA_1", "lower-case letters", "`kubectl get`"),
    wrong(f"{GPU}.runtime_class", "a" * 254, "254 characters"),
    wrong(f"{GPU}.runtime_class", ""),
    *(wrong(f"{GPU}.{key}", "nvidia", "did you mean `runtime_class`?") for key in ("runtimeClassName", "runtime")),
]

ABBREVIATED: list[Any] = [
    wrong(f"{GPU}.accelerator", word, f"did you mean `{meant}`?")
    for word, meant in {
        "h100": "nvidia-h100-80gb",
        "nvidia-h100": "nvidia-h100-80gb",
        "T4": "nvidia-tesla-t4",
        "nvida-t4": "nvidia-tesla-t4",
    }.items()
]
SAME = {f"{HERE}.pools.cpu.selector": {"slipway/pool": "gpu"}}
SAME_TAINTS = {f"{HERE}.pools.cpu.taints": [{"key": "nvidia.com/gpu", "value": "present"}]}
SAME_NODES: list[Any] = [
    elsewhere(
        {**SAME, **SAME_TAINTS, f"{HERE}.pools.cpu.accelerator": "nvidia-tesla-t4", f"{HERE}.pools.cpu.gpus": 1},
        f"{GPU}.selector",
        "pool `cpu`",
    ),
    elsewhere(SAME, f"{GPU}.taints"),
    elsewhere({**SAME, **SAME_TAINTS}, f"{GPU}.nodes", "of which there are 1"),
]


def test_the_stack_itself_is_right() -> None:
    load(STACK)


@pytest.mark.parametrize(
    "store",
    [
        NFS,
        S3,
        {**S3, "prefix": "team/a"},
        {**S3, "endpoint": "https://s3.example.com:65535/", "secret": "team.a-keys"},
        {**NFS, "server": "10.0.0.2"},
        {**NFS, "server": "fd00::1", "path": "/exports/slipway/"},
    ],
)
def test_stores_that_several_nodes_share_are_right(store: dict[str, Any]) -> None:
    load(changed(STACK, {"store": store}))


def test_an_admin_of_a_namespace_can_run_on_a_class() -> None:
    load(changed(STACK, NOTHING_ELSE))


def test_pools_on_one_node_need_no_shared_volume() -> None:
    same = {**SAME, **SAME_TAINTS, f"{GPU}.label_nodes": ["gpu-1"]}
    load(changed(STACK, {**same, "store.access_mode": GONE, "store.storage_class": "local-path"}))


@pytest.mark.parametrize("refusal", [*STORES, *NETWORKS, *CLUSTERS, *NODES, *RUNTIMES, *ABBREVIATED, *SAME_NODES])
def test_is_refused_once_with_its_key_and_a_way_out(refusal: Refusal) -> None:
    refusal.check(STACK)


def test_a_node_is_named_in_one_pool() -> None:
    twice = {f"{HERE}.pools.cpu.label_nodes": ["gpu-1"]}
    with pytest.raises(Exception, match="the node is named 2 times"):
        load(changed(STACK, twice))
