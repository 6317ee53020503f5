"""What a stack file may not say: refused once, with its key, the reason, and the fix."""

from typing import Any

import pytest

from tests.support.refusals import FREE_NETWORK, POOL, SECOND, STEPS, TRAIN, Case, named, the_problem
from tests.support.stack_values import EXISTING, GCP, GONE, changed

MNIST = "pipelines.mnist"

SHAPES: list[Case] = [
    ({f"{TRAIN}.acelerator": "x"}, f"{TRAIN}.acelerator", "no such key", "`accelerator`"),
    ({f"{TRAIN}.colour": "x"}, f"{TRAIN}.colour", "no such key", "`machine_type`"),
    ({"stores": 1}, "stores", "no such key", "`store`"),
    ({f"{TRAIN}.machine_type": GONE}, f"{TRAIN}.machine_type", "required", "n1-standard-4"),
    ({"store": GONE}, "store", "required", "store"),
    ({"store.location": GONE}, "store.location", "required", "Region"),
    ({f"{STEPS}.train": GONE}, f"{STEPS}.train", "required", "Trains"),
    ({f"{TRAIN}.disk_size_gb": "big"}, f"{TRAIN}.disk_size_gb", "not a whole number", "whole number"),
    ({f"{TRAIN}.disk_size_gb": 5}, f"{TRAIN}.disk_size_gb", "below 10", "10 or more"),
    ({f"{TRAIN}.max_pods_per_node": 300}, f"{TRAIN}.max_pods_per_node", "above 256", "256 or less"),
    ({f"{TRAIN}.spot": "perhaps"}, f"{TRAIN}.spot", "neither true nor false", "`true`"),
    ({f"{TRAIN}.zones": "us-central1-a"}, f"{TRAIN}.zones", "not a list", "a list"),
    ({f"{TRAIN}.nodes": 3}, f"{TRAIN}.nodes", "not a section", "key: value"),
    ({f"{TRAIN}.labels": {"tier": True}}, f"{TRAIN}.labels.tier", "not text", "quotes"),
    ({f"{TRAIN}.gpu_driver": "LASTEST"}, f"{TRAIN}.gpu_driver", "not one of", "`LATEST`"),
    ({f"{TRAIN}.gpu_driver": 7}, f"{TRAIN}.gpu_driver", "not one of", "`DEFAULT`"),
    ({"clusters.dev.cloud": "gpc"}, "clusters.dev.cloud", "not one of", "`gcp`"),
    ({"clusters.dev.cloud": GONE}, "clusters.dev.cloud", "required", "`existing`"),
    ({"store.kind": "hdfs"}, "store.kind", "not one of", "`gcs`"),
    ({f"{STEPS}.train.memory": "8GB"}, f"{STEPS}.train.memory", "not a size", "`8Gi`"),
    ({f"{STEPS}.train.cpu": "two"}, f"{STEPS}.train.cpu", "not an amount of CPU", "`500m`"),
    ({f"{STEPS}.train.cpu": 0}, f"{STEPS}.train.cpu", "above zero", "`500m`"),
    ({f"{STEPS}.train.time_limit": "2 hours"}, f"{STEPS}.train.time_limit", "not a duration", "`12h`"),
    ({f"{STEPS}.train.image": "tensorflow/tensorflow:2.21.0"}, f"{STEPS}.train.image", "digest", "@sha256:"),
    ({f"{STEPS}.train.image": f"x@sha256:{'g' * 64}"}, f"{STEPS}.train.image", "digest", "@sha256:"),
    ({"clusters.dev.network.pods_cidr": "10.4.0.0"}, "clusters.dev.network.pods_cidr", "not a block", "/20"),
    ({"clusters.dev.network.pods_cidr": "10.4.0.1/14"}, "clusters.dev.network.pods_cidr", "mask", "10.4.0.0/14"),
    ({"clusters.dev.network.pods_cidr": "fd00::/64"}, "clusters.dev.network.pods_cidr", "IPv6", "IPv4"),
    ({"clusters.dev.network.pods_cidr": "ten"}, "clusters.dev.network.pods_cidr", "not a block", "10.0.0.0/20"),
    (
        {"clusters.dev.maintenance.start": "2026-01-03 02:00:00 +0000 UTC"},
        "clusters.dev.maintenance.start",
        "RFC 3339",
        "in quotes",
    ),
    ({f"{MNIST}.dataset": {"name": "idx", "source": "/abs"}}, f"{MNIST}.dataset.source", "below the store", "rel"),
    ({f"{MNIST}.learning_rates": {"first": 0.1}}, f"{MNIST}.learning_rates.first", "whole number", "whole number"),
]

UNITS: list[Case] = [
    ({f"{STEPS}.train.memory": 8192}, f"{STEPS}.train.memory", "8192 bytes", "`8192Mi`"),
    ({f"{STEPS}.train.memory": "512Ki"}, f"{STEPS}.train.memory", "524288 bytes", "`512Mi`"),
    ({f"{STEPS}.train.memory": "8 gb"}, f"{STEPS}.train.memory", "not a size", "`8Gi`"),
    ({f"{STEPS}.train.memory": "lots"}, f"{STEPS}.train.memory", "not a size", "`4Gi`"),
    ({f"{STEPS}.train.memory": "8Pi"}, f"{STEPS}.train.memory", "any machine", "`4Gi`"),
    ({f"{STEPS}.train.memory": "8Gi\n"}, f"{STEPS}.train.memory", "U+000A", "remove"),
    ({f"{STEPS}.train.cpu": 2000}, f"{STEPS}.train.cpu", "2000 cores", "`2000m`"),
    ({f"{STEPS}.train.cpu": True}, f"{STEPS}.train.cpu", "not text", "quotes"),
    ({f"{STEPS}.train.time_limit": "999999999d"}, f"{STEPS}.train.time_limit", "longer than a year", "`7d`"),
    ({f"{STEPS}.train.time_limit": "2h\n"}, f"{STEPS}.train.time_limit", "U+000A", "remove"),
    ({f"{MNIST}.epochs": True}, f"{MNIST}.epochs", "true or false", "a number"),
    ({f"{MNIST}.min_accuracy": True}, f"{MNIST}.min_accuracy", "true or false", "a number"),
    ({f"{TRAIN}.gpus": True}, f"{TRAIN}.gpus", "true or false", "a number"),
    ({f"{MNIST}.learning_rates": {0: True}}, f"{MNIST}.learning_rates.0", "true or false", "a number"),
    ({f"{MNIST}.learning_rates": {0: 0.1, "0": 0.2}}, f"{MNIST}.learning_rates.0", "the same key", "remove"),
    (
        {f"{MNIST}.learning_rates": {0: 0.1, "3": 0.1, "03": 0.2}},
        f"{MNIST}.learning_rates.03",
        "whole number",
        "`3`",
    ),
]

IMAGE = f"{STEPS}.train.image"
DIGEST = f"@sha256:{'0' * 64}"
IMAGES: list[Case] = [
    ({IMAGE: f"{name}{DIGEST}"}, IMAGE, "no registry can have", "<registry>/<name>")
    for name in (
        *("a//b", "a/b/", "a..b", "-a/b", "a:b/c:", "ghcr.io:x/a", "a/B", "a___b", "a:.v1", "a b", "a@b"),
        "n" * 256,
    )
] + [
    ({IMAGE: f"ghcr.io:99999/a{DIGEST}"}, IMAGE, "ports are 1 to 65535", "<registry>/<name>"),
]

NUL = "\x00"
PATHS: list[Case] = [
    ({f"{MNIST}.dataset": {"name": "idx", "source": source}}, f"{MNIST}.dataset.source", reason, "relative")
    for source, reason in (
        ("a/../b", "other folders"),
        ("./a", "other folders"),
        ("a//b", "empty"),
        ("~/mnist", "home directory"),
        ("a" * 256, "longer than 255"),
        ("a/" * 2100, "longer than 4096"),
    )
] + [
    ({f"{MNIST}.dataset": {"name": "idx", "source": f"a{NUL}b"}}, f"{MNIST}.dataset.source", "U+0000", "remove"),
    ({f"{MNIST}.predict.images": f"im{NUL}ages"}, f"{MNIST}.predict.images", "U+0000", "remove"),
    ({f"{MNIST}.predict.images": "store:"}, f"{MNIST}.predict.images", "the store's root", "relative"),
    ({f"{MNIST}.predict.images": "store:/etc"}, f"{MNIST}.predict.images", "the store's root", "relative"),
    ({f"{MNIST}.predict.images": "store:a/../../b"}, f"{MNIST}.predict.images", "the store's root", "relative"),
    ({f"{MNIST}.predict.images": "~/digits"}, f"{MNIST}.predict.images", "home directory", "relative"),
    ({f"{MNIST}.predict.images": "a/../../b"}, f"{MNIST}.predict.images", "other folders", "relative"),
    ({f"{TRAIN}.labels": {"role": "a\u200bb"}}, f"{TRAIN}.labels.role", "U+200B", "remove"),
    ({f"{TRAIN}.zones": ["us-central1-a\x1b[2J"]}, f"{TRAIN}.zones[0]", "U+001B", "remove"),
]

NAMES: list[Case] = [
    ({"namespace": "Slipway"}, "namespace", "not a Kubernetes name", "lower-case"),
    ({"namespace": "n" * 64}, "namespace", "64 characters", "shorten"),
    ({"namespace": "kube-system"}, "namespace", "every cluster has", "another name"),
    ({"namespace": "default"}, "namespace", "every cluster has", "another name"),
    ({"service_account": "a.b"}, "service_account", "not a Kubernetes name", "lower-case"),
    ({"service_account": "default"}, "service_account", "every namespace", "another name"),
    ({f"{POOL}.Big": {"machine_type": "e2-standard-4"}}, f"{POOL}.Big", "not a Kubernetes name", "lower-case"),
    ({f"{POOL}.{'p' * 70}": {"machine_type": "e2-standard-4"}}, f"{POOL}.{'p' * 70}", "70 characters", "shorten"),
    ({f"{POOL}.4cpu": {"machine_type": "e2-standard-4"}}, f"{POOL}.4cpu", "begins with a letter", "letter"),
    (
        {"clusters.2nd": {**SECOND, "network": FREE_NETWORK}},
        "clusters.2nd",
        "begins with a letter",
        "letter",
    ),
    ({f"{TRAIN}.labels": {"-x": "y"}}, f"{TRAIN}.labels.-x", "not a label key", "correct"),
    ({f"{TRAIN}.labels": {"role": "a b"}}, f"{TRAIN}.labels.role", "not a label value", "correct"),
    (
        {f"{TRAIN}.labels": {"cloud.google.com/gke-accelerator": "t4"}},
        f'{TRAIN}.labels["cloud.google.com/gke-accelerator"]',
        "reserved",
        "of your own",
    ),
    ({f"{TRAIN}.resource_labels": {"Team": "ml"}}, f"{TRAIN}.resource_labels.Team", "label key", "correct"),
    ({f"{TRAIN}.resource_labels": {"team": "M L"}}, f"{TRAIN}.resource_labels.team", "label value", "correct"),
    ({"clusters.dev.labels": {"goog-x": "y"}}, "clusters.dev.labels.goog-x", "label key", "correct"),
    ({f"{TRAIN}.taints": [{"key": "a b"}]}, f"{TRAIN}.taints[0].key", "not a taint key", "correct"),
    (
        {f"{TRAIN}.taints": [{"key": "a", "value": "!"}]},
        f"{TRAIN}.taints[0].value",
        "not a taint value",
        "correct",
    ),
    ({f"{TRAIN}.taints": [{"key": "a"}, {"key": "a"}]}, f"{TRAIN}.taints", "2 times", "one of them"),
    ({f"{TRAIN}.taints": [{"key": "nvidia.com/gpu"}]}, f"{TRAIN}.taints[0].key", "has the taint", "remove"),
    (
        {"clusters.west": {**SECOND, "network": FREE_NETWORK, "pools": {"cpu": {"machine_type": "e2-medium"}}}},
        "clusters.west.pools.cpu",
        "cluster `dev` has a pool of that name",
        "rename",
    ),
    (
        {
            "clusters.dev-west": {
                **SECOND,
                "network": FREE_NETWORK,
                "pools": {"y": {"machine_type": "e2-standard-4"}},
            },
            "clusters.dev.pools.west-y": {"machine_type": "e2-standard-4"},
        },
        "clusters.dev-west.pools.y",
        "like pool `west-y` of cluster `dev`",
        "rename",
    ),
]

STORE: list[Case] = [
    ({"store": {"kind": "pvc"}}, "store.kind", "on Google Cloud", "`kind: gcs`"),
    ({"store.location": "us-central1-a"}, "store.location", "not a region", "us-central1"),
    ({"store.bucket": "My_Bucket"}, "store.bucket", "not a bucket name", "another"),
    ({"store.bucket": "a.example.com"}, "store.bucket", "dots", "another"),
    ({"store.bucket": "my-google-data"}, "store.bucket", "google", "another"),
    ({"store.bucket": "b" * 64}, "store.bucket", "63", "another"),
    (
        {"store.impersonation": {"projects": ["My Project"]}},
        "store.impersonation.projects[0]",
        "not a project ID",
        "6 to 30",
    ),
    ({"store.soft_delete_days": 91}, "store.soft_delete_days", "above 90", "90 or less"),
    ({"store.soft_delete_days": 3}, "store.soft_delete_days", "at least 7 days", "write 0, or 7"),
    ({"protect": True, "store.soft_delete_days": 0}, "store.versioning", "gone", "`versioning: true`"),
]

RUNS: list[Case] = [
    ({f"{STEPS}.train.ephemeral_storage": "1Gi"}, f"{STEPS}.train.ephemeral_storage", "CUDA libraries", "2Gi"),
    ({f"{STEPS}.train.pool": "trian"}, f"{STEPS}.train.pool", "no cluster", "`train`"),
    ({f"{STEPS}.train.pool": "gpu-west"}, f"{STEPS}.train.pool", "no cluster", "`cpu`, `predict` or `train`"),
    ({"clusters": None}, "clusters", "empty", "key: value"),
    ({"clusters.dev": None}, "clusters.dev", "empty", "or remove the key"),
    ({"clusters.dev.cloud": None}, "clusters.dev.cloud", "empty", "`gcp`"),
    ({f"{TRAIN}.machine_type": None}, f"{TRAIN}.machine_type", "empty", "or remove the key"),
    ({f"{TRAIN}.gpu_driver": None}, f"{TRAIN}.gpu_driver", "empty", "`LATEST`"),
    ({f"{STEPS}.train.memory": None}, f"{STEPS}.train.memory", "empty", "or remove the key"),
    ({f"{MNIST}.epochs": None}, f"{MNIST}.epochs", "empty", "whole number"),
    ({f"{STEPS}.train.gpus": 2}, f"{STEPS}.train.gpus", "has 1", "`gpus: 1`"),
    ({f"{STEPS}.train.gpus": 0}, f"{STEPS}.train.gpus", "paid for and idle", "`cpu`"),
    ({f"{STEPS}.prepare.gpus": 1}, f"{STEPS}.prepare.gpus", "no GPUs", "`train`"),
    ({f"{STEPS}.train.cpu": "4"}, f"{STEPS}.train.cpu", "3170m of CPU", "cpu: 2920m"),
    ({f"{STEPS}.train.memory": "14Gi"}, f"{STEPS}.train.memory", "11005Mi of memory", "memory: 10493Mi"),
    (
        {f"{STEPS}.train.ephemeral_storage": "40Gi"},
        f"{STEPS}.train.ephemeral_storage",
        "the store's mount takes 5120Mi",
        "ephemeral_storage: 39756Mi",
    ),
    (
        {f"{TRAIN}.gpu_sharing": {"clients": 4}, f"{STEPS}.train.gpus": 2},
        f"{STEPS}.train.gpus",
        "one share",
        "`gpus: 1`",
    ),
    ({f"{MNIST}.dataset": {"name": "idx"}}, f"{MNIST}.dataset.source", "which is not said", "uploads/mnist"),
    ({f"{MNIST}.dataset": {"name": "images"}}, f"{MNIST}.dataset.source", "which is not said", "store:uploads"),
    (
        {f"{MNIST}.dataset": {"name": "images", "source": "~/digits"}},
        f"{MNIST}.dataset.source",
        "not a folder below this repository",
        "store:uploads/images",
    ),
    (
        {f"{MNIST}.dataset": {"name": "images", "source": "store:/digits"}},
        f"{MNIST}.dataset.source",
        "not a folder below the store's root",
        "store:uploads/images",
    ),
    (
        {f"{MNIST}.dataset": {"name": "digits", "source": "x"}},
        f"{MNIST}.dataset.source",
        "not read",
        "`name: idx`",
    ),
    ({f"{MNIST}.learning_rates": {3: 0.1}}, f"{MNIST}.learning_rates", "first epoch", "0: 0.001"),
    ({f"{MNIST}.learning_rates": {0: 0.1, -1: 0.1}}, f"{MNIST}.learning_rates.-1", "from 0", "0 or more"),
    ({f"{MNIST}.learning_rates": {0: 0}}, f"{MNIST}.learning_rates.0", "not above zero", "0.001"),
    ({f"{MNIST}.learning_rates": {0: float("nan")}}, f"{MNIST}.learning_rates.0", "not above zero", "0.001"),
    ({f"{MNIST}.predict.images": "/etc"}, f"{MNIST}.predict.images", "below this repository", "store:"),
    ({f"{MNIST}.predict.images": "store:../x"}, f"{MNIST}.predict.images", "the store's root", "relative"),
    ({f"{MNIST}.min_accuracy": 90}, f"{MNIST}.min_accuracy", "above 1", "1"),
    ({f"{MNIST}.seed": 2**31}, f"{MNIST}.seed", "above 2147483647", "2147483647 or less"),
]

HERE = "clusters.here.pools.cpu"
THERE = {"cloud": "existing", "pools": {"other": {"selector": {"a": "b"}, "cpu": "1", "memory": "1Gi"}}}
USES_GPU = {f"{STEPS}.{step}.gpus": 1 for step in ("prepare", "train", "predict")}
ON_EXISTING: list[Case] = [
    ({"store": {"kind": "gcs", "location": "us-central1"}}, "store.kind", "`here` was there before", "kind: pvc"),
    ({"clusters.there": THERE}, "store.kind", "belongs to one cluster", "keep one"),
    ({"store.host_path": "/data", "store.storage_class": "fast"}, "store.host_path", "StorageClass", "remove"),
    ({"store.host_path": "data"}, "store.host_path", "absolute", "/var/lib"),
    *(
        ({"store.host_path": path}, "store.host_path", reason, "/var/lib/slipway")
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
    ({"store.host_path": "/da\x00ta"}, "store.host_path", "U+0000", "remove"),
    ({"store.storage_class": "Fast Disks"}, "store.storage_class", "not the name", "kubectl get"),
    ({"store.storage_class": "c" * 254}, "store.storage_class", "254 characters", "kubectl get"),
    ({"store.size": "10Gi\n"}, "store.size", "U+000A", "remove"),
    ({"store.size": "900Pi"}, "store.size", "more than 1Pi", "`4Gi`"),
    ({"clusters.here.kubeconfig": "~/.ku\x00be"}, "clusters.here.kubeconfig", "U+0000", "remove"),
    ({"store.host_path": "/data", f"{HERE}.nodes": 2}, "store.host_path", "not on the others", "one node"),
    ({f"{HERE}.selector": {}}, f"{HERE}.selector", "empty", "at least one"),
    ({f"{HERE}.selector": {"a": "b c"}}, f"{HERE}.selector.a", "not a label value", "correct"),
    ({f"{STEPS}.train.memory": "9Gi"}, f"{STEPS}.train.memory", "8192Mi of memory", "memory: 8192Mi"),
    ({f"{HERE}.gpus": 1, **USES_GPU}, f"{HERE}.accelerator", "what they are", "nvidia-tesla-t4"),
    ({f"{HERE}.accelerator": "nvidia-tesla-t4", **USES_GPU}, f"{HERE}.gpus", "no number", "kubectl describe node"),
    (
        {f"{HERE}.accelerator": "nvidia-t4", f"{HERE}.gpus": 1, **USES_GPU},
        f"{HERE}.accelerator",
        "catalogue",
        "`nvidia-tesla-t4`",
    ),
    ({f"{HERE}.memory": 8192}, f"{HERE}.memory", "8192 bytes", "`8192Mi`"),
    ({f"{HERE}.cpu": GONE}, f"{HERE}.cpu", "required", "kubectl describe node"),
]


@pytest.mark.parametrize(
    ("changes", "key", "reason", "fix"), named([*SHAPES, *UNITS, *IMAGES, *PATHS, *NAMES, *STORE, *RUNS])
)
def test_is_refused_once_with_its_key_reason_and_fix(
    changes: dict[str, Any], key: str, reason: str, fix: str
) -> None:
    problem = the_problem(changed(GCP, changes))
    assert problem.key == f"slipway:{key}"
    assert reason in problem.reason
    assert fix in problem.fix


@pytest.mark.parametrize(("changes", "key", "reason", "fix"), named(ON_EXISTING))
def test_is_refused_on_a_cluster_that_is_already_there(
    changes: dict[str, Any], key: str, reason: str, fix: str
) -> None:
    problem = the_problem(changed(EXISTING, changes))
    assert problem.key == f"slipway:{key}"
    assert reason in problem.reason
    assert fix in problem.fix
