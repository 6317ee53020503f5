"""The repository's own stacks on Google Cloud."""

from typing import Any

import pytest

from slipway.infra.review.stack import Resource
from slipway.infra.settings.model import Settings
from tests.support.clouds.gcp import BUCKET, CLUSTER, NODE_POOL, declare
from tests.support.stack_values import stack_settings

STACKS = ["gcp-dev", "gcp-prod"]

TUTORIAL = {
    "n1-standard-4": {
        "place": "us-central1-a",
        "accelerator": {
            "type": "nvidia-tesla-t4",
            "count": 1,
            "gpuDriverInstallationConfig": {"gpuDriverVersion": "LATEST"},
        },
        "spot": False,
        "diskType": "pd-standard",
        "diskSizeGb": 300,
        "localSsds": None,
        "imageStreaming": True,
        "gvnic": True,
        "labels": {"role": "t4"},
    },
    "a3-highgpu-8g": {
        "place": "us-west4-a",
        "accelerator": {
            "type": "nvidia-h100-80gb",
            "count": 8,
            "gpuDriverInstallationConfig": {"gpuDriverVersion": "LATEST"},
        },
        "spot": True,
        "diskType": "pd-ssd",
        "diskSizeGb": 2000,
        "localSsds": {"localSsdCount": 16},
        "imageStreaming": False,
        "gvnic": False,
        "labels": {"role": "h100"},
    },
}
"""What the two GPU pools of the tutorial are, by machine type."""


@pytest.fixture(scope="module", params=STACKS)
def settings(request: pytest.FixtureRequest) -> Settings:
    return stack_settings(request.param)


def gpu_pool(machine_type: str) -> Resource:
    result = [
        pool
        for pool in declare(stack_settings("gcp-prod")).of(NODE_POOL)
        if pool.inputs["nodeConfig"]["machineType"] == machine_type
    ]
    assert len(result) == 1
    return result[0]


@pytest.mark.parametrize("machine_type", TUTORIAL)
def test_prod_has_the_tutorials_pools_key_by_key(machine_type: str) -> None:
    inputs = gpu_pool(machine_type).inputs
    config: dict[str, Any] = inputs["nodeConfig"]
    assert {
        "place": inputs["location"],
        "accelerator": config["guestAccelerators"][0],
        "spot": config["spot"],
        "diskType": config["diskType"],
        "diskSizeGb": config["diskSizeGb"],
        "localSsds": config.get("ephemeralStorageLocalSsdConfig"),
        "imageStreaming": config["gcfsConfig"]["enabled"],
        "gvnic": config["gvnic"]["enabled"],
        "labels": config["labels"],
    } == TUTORIAL[machine_type]
    assert inputs["nodeCount"] == 1
    assert "autoscaling" not in inputs
    assert inputs["nodeLocations"] == [inputs["location"]]
    assert inputs["maxPodsPerNode"] == 64
    assert config["imageType"] == "COS_CONTAINERD"
    assert config["loggingVariant"] == "DEFAULT"
    assert config["preemptible"] is False
    assert inputs["management"] == {"autoRepair": True, "autoUpgrade": True}


def test_prod_is_two_clusters_that_share_one_protected_bucket() -> None:
    recording = declare(stack_settings("gcp-prod"))
    assert {cluster.inputs["location"] for cluster in recording.of(CLUSTER)} == {"us-central1-a", "us-west4-a"}
    protected = (*recording.of(CLUSTER), *recording.of(NODE_POOL), recording.one(BUCKET))
    assert all(resource.protect for resource in protected)
    assert all(cluster.inputs["deletionProtection"] for cluster in recording.of(CLUSTER))
    assert recording.one(BUCKET).inputs["forceDestroy"] is False


def test_dev_starts_with_no_gpu_and_can_be_destroyed_whole() -> None:
    recording = declare(stack_settings("gcp-dev"))
    gpu_pools = [
        pool.inputs for pool in recording.of(NODE_POOL) if pool.inputs["nodeConfig"].get("guestAccelerators")
    ]
    assert {pool["nodeConfig"]["machineType"] for pool in gpu_pools} == {"n1-standard-4", "a3-highgpu-1g"}
    for pool in gpu_pools:
        assert pool["nodeConfig"]["spot"] is True
        assert pool["initialNodeCount"] == 0
        limits = {"totalMinNodeCount": 0, "totalMaxNodeCount": 1, "locationPolicy": "ANY"}
        assert pool["autoscaling"] == limits
    assert not any(resource.protect for resource in recording.resources)


def test_every_cluster_begins_with_a_node_for_gkes_own_pods(settings: Settings) -> None:
    recording = declare(settings)
    for cluster in settings.clusters:
        ordinary = [
            pool.inputs
            for pool in recording.of(NODE_POOL)
            if pool.name.startswith(f"{cluster}-") and not pool.inputs["nodeConfig"].get("guestAccelerators")
        ]
        assert sum(pool["initialNodeCount"] * len(pool["nodeLocations"]) for pool in ordinary) >= 1


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_they_can_be_declared(settings: Settings, preview: bool) -> None:
    recording = declare(settings, preview=preview)
    assert set(recording.result) == set(settings.clusters)
    assert len(recording.of(NODE_POOL)) == sum(len(cluster.pools) for cluster in settings.clusters.values())


def test_pods_reach_the_metadata_server_for_their_identity(settings: Settings) -> None:
    platforms = declare(settings).result
    for platform in platforms.values():
        (metadata,) = [
            entry for entry in platform.egress if entry.cidr == "169.254.169.254/32" and 80 in entry.ports
        ]
        assert list(metadata.protocols) == ["TCP"]
