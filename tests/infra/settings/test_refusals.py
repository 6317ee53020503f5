"""What a stack file may not say: refused once, with its key, the reason, and the fix."""

from typing import Any

import pytest

from tests.support.refusals import FREE_NETWORK, POOL, SECOND, STEPS, TRAIN, Refusal, elsewhere, wrong
from tests.support.stack_values import EXISTING, GCP, GONE

MNIST = "pipelines.mnist"

SHAPES: list[Any] = [
    wrong(f"{TRAIN}.acelerator", "x", "`accelerator`"),
    wrong(f"{TRAIN}.colour", "x", "`machine_type`"),
    wrong("stores", 1, "`store`"),
    wrong(f"{TRAIN}.machine_type", GONE, "n1-standard-4"),
    wrong("store", GONE),
    wrong("store.location", GONE),
    wrong(f"{STEPS}.train", GONE),
    wrong(f"{TRAIN}.disk_size_gb", "big"),
    wrong(f"{TRAIN}.disk_size_gb", 5, "below 10", "10 or more"),
    wrong(f"{TRAIN}.max_pods_per_node", 300, "above 256", "256 or less"),
    wrong(f"{TRAIN}.spot", "perhaps", "`true`"),
    wrong(f"{TRAIN}.zones", "us-central1-a"),
    wrong(f"{TRAIN}.nodes", 3, "key: value"),
    elsewhere({f"{TRAIN}.labels": {"tier": True}}, f"{TRAIN}.labels.tier"),
    wrong(f"{TRAIN}.disk_type", "pd-sdd", "`pd-ssd`"),
    wrong(f"{TRAIN}.disk_type", 7, "`pd-balanced`"),
    wrong("clusters.dev.cloud", "gpc", "`gcp`"),
    wrong("clusters.dev.cloud", GONE, "`existing`"),
    wrong("store.kind", "hdfs", "`gcs`"),
    wrong(f"{STEPS}.train.memory", "8GB", "`8Gi`"),
    wrong(f"{STEPS}.train.cpu", "two", "not an amount of CPU", "`500m`"),
    wrong(f"{STEPS}.train.cpu", 0, "`500m`"),
    wrong(f"{STEPS}.train.time_limit", "2 hours", "`2h`"),
    wrong(f"{STEPS}.train.time_limit", "soon", "`12h`"),
    wrong(f"{STEPS}.train.image", "tensorflow/tensorflow:2.21.0", "@sha256:"),
    wrong(f"{STEPS}.train.image", f"x@sha256:{'g' * 64}", "@sha256:"),
    wrong("clusters.dev.network.pods_cidr", "10.4.0.0", "/20"),
    wrong("clusters.dev.network.pods_cidr", "10.4.0.1/14", "10.4.0.0/14"),
    wrong("clusters.dev.network.pods_cidr", "fd00::/64", "IPv6", "IPv4"),
    wrong("clusters.dev.network.pods_cidr", "ten", "10.0.0.0/20"),
    wrong("clusters.dev.maintenance", {"recurrence": "FREQ=DAILY"}, "removed", "transformations.md"),
    wrong(f"{MNIST}.dataset", {"name": "idx", "source": "store:x"}, "`idx`"),
    wrong(f"{MNIST}.dataset", "idxx", "`idx`"),
    wrong(f"{MNIST}.learning_rates", {0: 0.1}, "not text", "in quotes"),
    wrong(f"{MNIST}.source", 7, "not text", "in quotes"),
]

UNITS: list[Any] = [
    wrong(f"{STEPS}.train.memory", 8192, "8192 bytes", "`8192Mi`"),
    wrong(f"{STEPS}.train.memory", "512Ki", "524288 bytes", "`512Mi`"),
    wrong(f"{STEPS}.train.memory", "8 gb", "`8Gi`"),
    wrong(f"{STEPS}.train.memory", "lots", "`4Gi`"),
    wrong(f"{STEPS}.train.memory", "8Pi", "`4Gi`"),
    wrong(f"{STEPS}.train.memory", "8Gi\n", "U+000A"),
    wrong(f"{STEPS}.train.cpu", 2000, "2000 cores", "`2000m`"),
    wrong(f"{STEPS}.train.cpu", True, "not an amount of CPU above zero", "`500m`"),
    wrong(f"{STEPS}.train.cpu", "2000mi", "as Kubernetes writes it", "`2000m`"),
    wrong(f"{STEPS}.train.cpu", "2 cores", "`2`"),
    wrong(f"{STEPS}.train.cpu", "500mCPU", "`500m`"),
    wrong(f"{STEPS}.train.cpu", "0.5 vCPUs", "`0.5`"),
    wrong(f"{STEPS}.train.cpu", "2Gi", "not an amount of CPU above zero", "`500m`"),
    wrong(f"{STEPS}.train.cpu", "15e-1", "not an amount of CPU above zero", "`500m`"),
    wrong(f"{STEPS}.train.cpu", "2e0", "`2`"),
    wrong(f"{STEPS}.train.memory", "1e9", "as Kubernetes writes it", "`954Mi`"),
    wrong(f"{STEPS}.train.memory", "8.5e9", "`8107Mi`"),
    wrong(f"{STEPS}.train.time_limit", "999999999d", "`7d`"),
    wrong(f"{STEPS}.train.time_limit", 90, "a number without a unit of time", "write `90s`, `90m` or `90h`"),
    wrong(f"{STEPS}.train.time_limit", "90", "`90m`"),
    wrong(f"{STEPS}.train.time_limit", 86400, "write `86400s` or `86400m`"),
    wrong(f"{STEPS}.train.time_limit", 10**9, "`12h`"),
    wrong(f"{STEPS}.train.time_limit", 1.5, "not a duration", "`12h`"),
    wrong(f"{STEPS}.train.time_limit", True, "not a duration", "`12h`"),
    wrong(f"{STEPS}.train.time_limit", 0, "no time at all"),
    wrong(f"{STEPS}.train.time_limit", "1h30m", "not a duration", "did you mean `90m`?"),
    wrong(f"{STEPS}.train.time_limit", "90 min", "`90m`"),
    wrong(f"{STEPS}.train.time_limit", "1.5 hours", "`90m`"),
    wrong(f"{STEPS}.train.time_limit", "1 day, 12h", "`36h`"),
    wrong(f"{STEPS}.train.time_limit", "2 weeks", "`14d`"),
    wrong(f"{STEPS}.train.time_limit", "2h\n", "U+000A"),
    wrong(f"{MNIST}.epochs", True),
    wrong(f"{MNIST}.min_accuracy", True),
    wrong(f"{TRAIN}.gpus", True),
    wrong(f"{MNIST}.learning_rates", True),
    wrong(f"{MNIST}.batch_size", True),
]

IMAGE = f"{STEPS}.train.image"
DIGEST = f"@sha256:{'0' * 64}"
IMAGES: list[Any] = [
    wrong(IMAGE, f"{name}{DIGEST}", "<registry>/<name>")
    for name in (
        *("a//b", "a/b/", "a..b", "-a/b", "a:b/c:", "ghcr.io:x/a", "a/B", "a___b", "a:.v1", "a b", "a@b"),
        "n" * 256,
    )
] + [
    wrong(IMAGE, f"ghcr.io:99999/a{DIGEST}", "ports are 1 to 65535", "<registry>/<name>"),
]

NUL = "\x00"
PATHS: list[Any] = [
    elsewhere({"store": {"kind": "existing-gcs", "bucket": "team-data", "folder": folder}}, "store.folder", reason)
    for folder, reason in (
        ("a/../b", "other folders"),
        ("./a", "other folders"),
        ("a//b", "empty"),
        ("/a", "absolute"),
        ("~/mnist", "home directory"),
        ("a" * 256, "longer than 255"),
        ("a/" * 2100, "longer than 4096"),
    )
] + [
    wrong(f"{MNIST}.source", f"a{NUL}b", "U+0000"),
    wrong(f"{MNIST}.images", f"im{NUL}ages", "U+0000"),
    elsewhere({f"{TRAIN}.labels": {"role": "a\u200bb"}}, f"{TRAIN}.labels.role", "U+200B"),
    elsewhere({f"{TRAIN}.zones": ["us-central1-a\x1b[2J"]}, f"{TRAIN}.zones[0]", "U+001B"),
]

NAMES: list[Any] = [
    wrong("namespace", "Slipway"),
    wrong("namespace", "n" * 64, "64 characters"),
    wrong("namespace", "kube-system"),
    wrong("namespace", "default"),
    wrong("service_account", "a.b"),
    wrong("service_account", "default"),
    wrong(f"{POOL}.Big", {"machine_type": "e2-standard-4"}),
    wrong(f"{POOL}.{'p' * 70}", {"machine_type": "e2-standard-4"}, "70 characters"),
    wrong(f"{POOL}.4cpu", {"machine_type": "e2-standard-4"}),
    wrong("clusters.2nd", {**SECOND, "network": FREE_NETWORK}),
    elsewhere({f"{TRAIN}.labels": {"-x": "y"}}, f"{TRAIN}.labels.-x"),
    elsewhere({f"{TRAIN}.labels": {"role": "a b"}}, f"{TRAIN}.labels.role"),
    elsewhere(
        {f"{TRAIN}.labels": {"cloud.google.com/gke-accelerator": "t4"}},
        f'{TRAIN}.labels["cloud.google.com/gke-accelerator"]',
    ),
    elsewhere({f"{TRAIN}.resource_labels": {"goog-x": "y"}}, f"{TRAIN}.resource_labels.goog-x"),
    elsewhere({f"{TRAIN}.resource_labels": {"Team": "ml"}}, f"{TRAIN}.resource_labels.Team"),
    elsewhere({f"{TRAIN}.resource_labels": {"team": "M L"}}, f"{TRAIN}.resource_labels.team"),
    elsewhere({f"{TRAIN}.taints": [{"key": "a b"}]}, f"{TRAIN}.taints[0].key"),
    elsewhere({f"{TRAIN}.taints": [{"key": "a", "value": "!"}]}, f"{TRAIN}.taints[0].value"),
    wrong(f"{TRAIN}.taints", [{"key": "a"}, {"key": "a"}], "2 times"),
    elsewhere({f"{TRAIN}.taints": [{"key": "nvidia.com/gpu"}]}, f"{TRAIN}.taints[0].key"),
    elsewhere(
        {"clusters.west": {**SECOND, "network": FREE_NETWORK, "pools": {"cpu": {"machine_type": "e2-medium"}}}},
        "clusters.west.pools.cpu",
        "`dev`",
    ),
    elsewhere(
        {
            "clusters.dev-west": {
                **SECOND,
                "network": FREE_NETWORK,
                "pools": {"y": {"machine_type": "e2-standard-4"}},
            },
            "clusters.dev.pools.west-y": {"machine_type": "e2-standard-4"},
        },
        "clusters.dev-west.pools.y",
        "`west-y`",
        "`dev`",
    ),
]

STORE: list[Any] = [
    elsewhere({"store": {"kind": "pvc"}}, "store.kind", "`kind: gcs`"),
    wrong("store.location", "us-central1-a", "us-central1"),
    wrong("store.bucket", "My_Bucket"),
    wrong("store.bucket", "a.example.com"),
    wrong("store.bucket", "my-google-data"),
    wrong("store.bucket", "b" * 64, "63"),
    elsewhere(
        {"store.impersonation": {"projects": ["My Project"]}},
        "store.impersonation.projects[0]",
        "not a project ID",
        "6 to 30",
    ),
    wrong("store.soft_delete_days", 91, "above 90", "90 or less"),
    wrong("store.soft_delete_days", 3, "at least 7 days", "write 0, or 7"),
    elsewhere({"protect": True, "store.soft_delete_days": 0}, "store.versioning", "`versioning: true`"),
]

RUNS: list[Any] = [
    wrong(f"{STEPS}.train.ephemeral_storage", "1Gi", "CUDA libraries", "2Gi"),
    wrong(f"{STEPS}.train.shm", "1Ti", "limit", "write `shm: "),
    wrong(f"{STEPS}.train.shm", "8gb", "not a size", "8G"),
    wrong(f"{STEPS}.train.pool", "trian", "`train`"),
    wrong(f"{STEPS}.train.pool", "gpu-west", "`cpu`", "`predict`", "`train`"),
    wrong("clusters", None, "key: value"),
    wrong("clusters.dev", None),
    wrong("clusters.dev.cloud", None, "`gcp`"),
    wrong(f"{TRAIN}.machine_type", None),
    wrong(f"{TRAIN}.disk_type", None, "`pd-ssd`"),
    wrong(f"{STEPS}.train.memory", None),
    wrong(f"{MNIST}.epochs", None),
    wrong(f"{STEPS}.train.gpus", 2, "has 1", "`gpus: 1`"),
    wrong(f"{STEPS}.train.gpus", 0, "`cpu`"),
    wrong(f"{STEPS}.prepare.gpus", 1, "no GPUs", "`train`"),
    wrong(f"{STEPS}.train.cpu", "4", "3170m of CPU", "cpu: 2920m"),
    wrong(f"{STEPS}.train.memory", "14Gi", "11005Mi of memory", "memory: 10493Mi"),
    wrong(
        f"{STEPS}.train.ephemeral_storage", "40Gi", "the store's mount takes 5120Mi", "ephemeral_storage: 39756Mi"
    ),
    elsewhere(
        {f"{TRAIN}.gpu_sharing": {"clients": 4}, f"{STEPS}.train.gpus": 2}, f"{STEPS}.train.gpus", "`gpus: 1`"
    ),
    wrong(f"{MNIST}.batch_size", 0, "below 1", "1 or more"),
    wrong(f"{MNIST}.augment", 101, "above 100", "100 or less"),
    wrong(f"{MNIST}.min_accuracy", 90, "above 1", "1"),
    wrong(f"{MNIST}.min_accuracy", float("nan")),
    wrong(f"{MNIST}.seed", 2**31, "above 2147483647", "2147483647 or less"),
]

HERE = "clusters.here.pools.cpu"
THERE = {"cloud": "existing", "pools": {"other": {"selector": {"a": "b"}, "cpu": "1", "memory": "1Gi"}}}
USES_GPU = {f"{STEPS}.{step}.gpus": 1 for step in ("prepare", "train", "predict")}
ON_EXISTING: list[Any] = [
    elsewhere({"store": {"kind": "gcs", "location": "us-central1"}}, "store.kind", "`here`", "kind: pvc"),
    elsewhere({"store": {"kind": "existing-gcs", "bucket": "team-data", "folder": "/"}}, "store.kind", "`here`"),
    elsewhere({"clusters.there": THERE}, "store.kind"),
    elsewhere({"store.host_path": "/data", "store.storage_class": "fast"}, "store.host_path"),
    wrong("store.host_path", "data", "/var/lib"),
    *(
        wrong("store.host_path", path, reason, "/var/lib/slipway")
        for path, reason in (
            ("/", "the root"),
            ("//", "empty"),
            ("/.", "other folders"),
            ("/data/../etc", "other folders"),
            ("//etc", "empty"),
            ("/etc", "`/etc` is the node's own"),
            ("/etc/", "`/etc` is the node's own"),
            ("/etc/slipway", "`/etc` is the node's own"),
            ("/proc", "`/proc` is the node's own"),
            ("/var", "`/var` is the node's own"),
            ("/home", "`/home` is the node's own"),
            ("/var/lib/kubelet/pods", "`/var/lib/kubelet` is the node's own"),
        )
    ),
    wrong("store.host_path", "/da\x00ta", "U+0000"),
    wrong("store.storage_class", "Fast Disks"),
    wrong("store.storage_class", "c" * 254, "254 characters"),
    wrong("store.size", "10Gi\n", "U+000A"),
    wrong("store.size", "900Pi", "more than 1Pi", "`4Gi`"),
    wrong("clusters.here.kubeconfig", "~/.ku\x00be", "U+0000"),
    elsewhere({"store.host_path": "/data", f"{HERE}.nodes": 2}, "store.host_path"),
    wrong(f"{HERE}.selector", {}),
    elsewhere({f"{HERE}.selector": {"a": "b c"}}, f"{HERE}.selector.a"),
    wrong(f"{STEPS}.train.memory", "9Gi", "8192Mi of memory", "memory: 8192Mi"),
    elsewhere({f"{HERE}.gpus": 1, **USES_GPU}, f"{HERE}.accelerator", "nvidia-tesla-t4"),
    elsewhere({f"{HERE}.accelerator": "nvidia-tesla-t4", **USES_GPU}, f"{HERE}.gpus"),
    elsewhere(
        {f"{HERE}.accelerator": "nvidia-t4", f"{HERE}.gpus": 1, **USES_GPU},
        f"{HERE}.accelerator",
        "`nvidia-tesla-t4`",
    ),
    wrong(f"{HERE}.memory", 8192, "8192 bytes", "`8192Mi`"),
    wrong(f"{HERE}.cpu", GONE),
]


@pytest.mark.parametrize("refusal", [*SHAPES, *UNITS, *IMAGES, *PATHS, *NAMES, *STORE, *RUNS])
def test_is_refused_once_with_its_key_reason_and_fix(refusal: Refusal) -> None:
    refusal.check(GCP)


@pytest.mark.parametrize("refusal", ON_EXISTING)
def test_is_refused_on_a_cluster_that_is_already_there(refusal: Refusal) -> None:
    refusal.check(EXISTING)
