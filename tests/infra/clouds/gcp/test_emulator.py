"""The emulated Google Cloud: it answers for everything declared, and its nodes are those that pods are sent to."""

import base64
from typing import Any

import pytest

from slipway.infra.clouds.gcp.emulator import Emulator as GcpEmulator
from slipway.infra.emulator import EMULATED_CA_CERTIFICATE
from slipway.infra.settings.loading import load
from tests.support.clouds.emulation import NoFiles, assert_nodes_are_as_promised, nodes_of
from tests.support.clouds.gcp import NODE_POOL, declare, raw, with_pool

H100 = {
    "machine_type": "a3-highgpu-8g",
    "accelerator": "nvidia-h100-80gb",
    "disk_type": "pd-ssd",
    "spot": True,
    "nodes": {"total_max": 2},
}

VARIANTS: dict[str, dict[str, Any]] = {
    "cpu": {"machine_type": "e2-standard-8", "nodes": {"count": 2}, "labels": {"role": "cpu"}},
    "h100": H100,
    "partitioned": {**H100, "gpu_partition": "1g.10gb"},
    "shared": {
        "machine_type": "n1-standard-8",
        "accelerator": "nvidia-tesla-t4",
        "gpus": 2,
        "gpu_sharing": {"clients": 3},
        "nodes": {"min": 0, "max": 2},
    },
    "zonal": {"machine_type": "e2-standard-4", "zones": ["us-central1-b"], "nodes": {"min": 1, "max": 5}},
    "local-ssd": {"machine_type": "n1-standard-8", "local_ssd_count": 2, "disk_size_gb": 50},
    "many-pods": {"machine_type": "e2-standard-8", "max_pods_per_node": 256},
    "tainted": {"machine_type": "e2-standard-4", "taints": [{"key": "team", "value": "a"}]},
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=list(VARIANTS))
def test_nodes_are_what_the_platform_promises_of_its_pools(variant: dict[str, Any]) -> None:
    assert_nodes_are_as_promised(declare(with_pool(variant)), "dev")


def test_nodes_have_the_labels_that_gke_adds() -> None:
    settings = with_pool(VARIANTS["shared"])
    labels = nodes_of(declare(settings))["extra"].labels
    expected = {
        "cloud.google.com/gke-nodepool": "extra",
        "cloud.google.com/gke-accelerator": "nvidia-tesla-t4",
        "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
        "cloud.google.com/gke-max-shared-clients-per-gpu": "3",
        "node.kubernetes.io/instance-type": "n1-standard-8",
        "topology.kubernetes.io/region": "us-central1",
    }
    assert expected.items() <= labels.items()
    assert "cloud.google.com/gke-spot" not in labels


def test_shared_and_partitioned_gpus_count_as_pods_see_them() -> None:
    for variant, gpus in (("shared", 6), ("partitioned", 56), ("h100", 8)):
        settings = with_pool(VARIANTS[variant])
        recording = declare(settings)
        assert nodes_of(recording)["extra"].allocatable.gpus == gpus
        assert recording.result["dev"].pools["extra"].shared_gpus is (variant != "h100")


def test_a_mistake_in_a_declaration_shows_in_its_nodes() -> None:
    settings = load(raw())
    inputs = dict(declare(settings).one(NODE_POOL, "dev-train").inputs)
    config = {**inputs["nodeConfig"], "taints": [], "machineType": "n1-standard-8"}
    (node,) = GcpEmulator(settings.request).nodes(NODE_POOL, "dev-train", {**inputs, "nodeConfig": config})
    (right,) = GcpEmulator(settings.request).nodes(NODE_POOL, "dev-train", inputs)
    assert node.taints == []
    assert node.allocatable.cpu > right.allocatable.cpu


@pytest.mark.parametrize(
    "store",
    [{}, {"impersonation": {"projects": []}}, {"kms_key": "own", "access_logs": True}],
    ids=["direct", "impersonation", "hardened"],
)
def test_every_resource_on_google_cloud_has_an_answer(store: dict[str, Any]) -> None:
    settings = load(raw(lambda values: values["store"].update(store)))
    emulator = GcpEmulator(settings.request)
    for resource in declare(settings).resources:
        outputs = emulator.outputs(resource.type, resource.name, resource.inputs)
        if resource.type.startswith("gcp:"):
            assert outputs is not None, f"no answer for {resource.type}"
            assert outputs["id"]
        else:
            assert outputs is None


def test_what_it_makes_up_is_well_formed_and_clearly_fake() -> None:
    recording = declare(load(raw()))
    pem = base64.b64decode(EMULATED_CA_CERTIFICATE, validate=True).decode()
    assert pem.startswith("-----BEGIN CERTIFICATE-----\n")
    assert pem.endswith("-----END CERTIFICATE-----\n")
    assert ".gke.goog.invalid" in recording.exports["dev-kubeconfig"]


def test_a_missing_object_is_missing() -> None:
    emulator = GcpEmulator(load(raw()).request)
    with pytest.raises(FileNotFoundError):
        emulator.call(
            "gcp:storage/getBucketObjectContent:getBucketObjectContent", {"bucket": "b", "name": "x"}, NoFiles()
        )
    assert emulator.call("gcp:compute/getZones:getZones", {}, NoFiles()) is None
