"""Node pools on GKE: every key of a pool reaches its resource, and GPU pools are what GKE makes of them."""

from typing import Any

import pytest

from slipway.infra.clouds.gcp.nodes import fewest_nodes
from slipway.infra.clouds.gcp.rules.clusters import ONLY
from slipway.infra.clouds.gcp.settings import GcpPool
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.support.clouds.gcp import NODE_POOL, declare, raw, with_pool
from tests.support.recording import Recording

H100 = {"machine_type": "a3-highgpu-8g", "accelerator": "nvidia-h100-80gb", "disk_type": "pd-ssd"}
T4 = {"machine_type": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "gpus": 1}
A_ZONE = "us-central1-a"


def declared(pool: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return dict(declare(with_pool(pool, **cluster)).one(NODE_POOL, "dev-extra").inputs)


def at(inputs: Any, path: str) -> Any:
    """The value at a dotted path; None where any part of it is missing."""
    for key in path.split("."):
        if inputs is None:
            return None
        inputs = inputs[int(key)] if key.isdigit() else inputs.get(key)
    return inputs


KEYS = [
    ("machine_type", {"machine_type": "n1-standard-8"}, "nodeConfig.machineType", "n1-standard-8"),
    ("accelerator", T4, "nodeConfig.guestAccelerators.0.type", "nvidia-tesla-t4"),
    ("gpus", {**T4, "gpus": 2}, "nodeConfig.guestAccelerators.0.count", 2),
    (
        "gpu_sharing",
        {**T4, "gpu_sharing": {"strategy": "MPS", "clients": 4}},
        "nodeConfig.guestAccelerators.0.gpuSharingConfig",
        {"gpuSharingStrategy": "MPS", "maxSharedClientsPerGpu": 4},
    ),
    (
        "gpu_partition",
        {**H100, "spot": True, "gpu_partition": "1g.10gb"},
        "nodeConfig.guestAccelerators.0.gpuPartitionSize",
        "1g.10gb",
    ),
    ("nodes", {"machine_type": "e2-standard-4", "nodes": {"count": 2}}, "nodeCount", 2),
    (
        "consolidation_delay",
        {**T4, "consolidation_delay": "5m", "nodes": {"total_max": 1}, "labels": {"role": "t4"}},
        "nodeConfig.labels",
        {"role": "t4", "cloud.google.com/compute-class": "slipway-consolidation-delay"},
    ),
    (
        "zones",
        {"machine_type": "e2-standard-4", "zones": ["us-central1-b"]},
        "nodeLocations",
        ["us-central1-b"],
    ),
    ("spot", {**T4, "spot": True}, "nodeConfig.spot", True),
    (
        "reservation",
        {**T4, "reservation": "mine"},
        "nodeConfig.reservationAffinity",
        {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": ["mine"],
        },
    ),
    (
        "flex_start",
        {"machine_type": "a3-highgpu-1g", "accelerator": "nvidia-h100-80gb", "flex_start": True}
        | {"nodes": {"total_max": 1}},
        "nodeConfig.flexStart",
        True,
    ),
    (
        "queued_provisioning",
        {"machine_type": "a3-highgpu-1g", "accelerator": "nvidia-h100-80gb", "flex_start": True}
        | {"nodes": {"total_max": 2}, "queued_provisioning": True},
        "queuedProvisioning.enabled",
        True,
    ),
    (
        "max_run_duration",
        {**T4, "spot": True, "max_run_duration": "12h"},
        "nodeConfig.maxRunDuration",
        "43200s",
    ),
    ("disk_type", {"machine_type": "n1-standard-4", "disk_type": "pd-ssd"}, "nodeConfig.diskType", "pd-ssd"),
    ("disk_size_gb", {"machine_type": "n1-standard-4", "disk_size_gb": 321}, "nodeConfig.diskSizeGb", 321),
    (
        "local_ssd_count",
        {"machine_type": "n1-standard-4", "local_ssd_count": 2},
        "nodeConfig.ephemeralStorageLocalSsdConfig.localSsdCount",
        2,
    ),
    (
        "image_streaming",
        {"machine_type": "n1-standard-4", "image_streaming": False},
        "nodeConfig.gcfsConfig.enabled",
        False,
    ),
    ("gvnic", {"machine_type": "n1-standard-4", "gvnic": False}, "nodeConfig.gvnic.enabled", False),
    (
        "placement",
        {"machine_type": "g2-standard-4", "accelerator": "nvidia-l4", "placement": "compact", "zones": [A_ZONE]},
        "placementPolicy",
        {"type": "COMPACT"},
    ),
    ("max_pods_per_node", {"machine_type": "n1-standard-4", "max_pods_per_node": 32}, "maxPodsPerNode", 32),
    ("labels", {"machine_type": "n1-standard-4", "labels": {"role": "t4"}}, "nodeConfig.labels", {"role": "t4"}),
    (
        "resource_labels",
        {"machine_type": "n1-standard-4", "resource_labels": {"team": "vision"}},
        "nodeConfig.resourceLabels",
        {"team": "vision"},
    ),
    (
        "taints",
        {"machine_type": "n1-standard-4", "taints": [{"key": "own", "value": "x", "effect": "NoExecute"}]},
        "nodeConfig.taints",
        [{"key": "own", "value": "x", "effect": "NO_EXECUTE"}],
    ),
]


def pool_for(key: str) -> str:
    return key.replace("_", "-")


@pytest.fixture(scope="module")
def one_pool_per_key() -> Recording:
    def change(values: dict[str, Any]) -> None:
        # Nobody else asks for nodes by queued provisioning.
        values["kueue"] = {}
        values["clusters"]["dev"]["pools"].update({pool_for(key): pool for key, pool, _, _ in KEYS})

    return declare(load(raw(change)))


@pytest.mark.parametrize(("key", "path", "expected"), [(key, *rest) for key, _, *rest in KEYS])
def test_a_key_reaches_the_node_pool(one_pool_per_key: Recording, key: str, path: str, expected: Any) -> None:
    assert at(one_pool_per_key.one(NODE_POOL, f"dev-{pool_for(key)}").inputs, path) == expected


def test_every_key_of_a_pool_is_tried_above() -> None:
    assert {case[0] for case in KEYS} == set(GcpPool.model_fields) - set(ONLY)


NODES = [
    ({}, None, 1),
    ({"count": 0}, None, 0),
    ({"min": 1, "max": 3}, {"minNodeCount": 1, "maxNodeCount": 3}, None),
    ({"total_min": 0, "total_max": 4}, {"totalMinNodeCount": 0, "totalMaxNodeCount": 4}, None),
    ({"total_max": 4}, {"totalMinNodeCount": 0, "totalMaxNodeCount": 4}, None),
]


@pytest.mark.parametrize(("nodes", "limits", "count"), NODES)
def test_a_pool_is_fixed_or_has_the_autoscalers_limits(
    nodes: dict[str, Any], limits: dict[str, Any] | None, count: int | None
) -> None:
    inputs = declared({**T4, "spot": True, "nodes": nodes})
    assert inputs.get("nodeCount") == count
    assert inputs.get("autoscaling") == (limits and {**limits, "locationPolicy": "ANY"})


def test_a_gpu_pool_takes_any_zone_with_capacity_and_a_cpu_pool_spreads() -> None:
    scaled = {"nodes": {"total_max": 3}}
    policies = [
        declared(pool)["autoscaling"]["locationPolicy"]
        for pool in ({**T4, **scaled}, {"machine_type": "e2-standard-4", **scaled})
    ]
    assert policies == ["ANY", "BALANCED"]


@pytest.mark.slow
def test_a_gpu_pool_starts_in_the_zones_that_offer_its_gpu() -> None:
    assert declared({**T4, "nodes": {"total_max": 1}})["nodeLocations"] == [
        "us-central1-a",
        "us-central1-b",
        "us-central1-c",
        "us-central1-f",
    ]
    assert declared({**T4, "zones": ["us-central1-c"]})["nodeLocations"] == ["us-central1-c"]
    assert len(declared({**T4, "nodes": {"min": 0, "max": 1}})["nodeLocations"]) == 3, "as many as GKE would take"


def test_a_pool_that_scales_starts_with_what_its_limits_say() -> None:
    empty = declared({**T4, "spot": True, "nodes": {"total_min": 0, "total_max": 1}})
    one = declared({**T4, "zones": ["us-central1-a"], "nodes": {"total_min": 1, "total_max": 1}})
    per_zone = declared({"machine_type": "e2-standard-4", "nodes": {"min": 2, "max": 3}})
    assert [pool["initialNodeCount"] for pool in (empty, one, per_zone)] == [0, 1, 2]


def test_a_cpu_pool_starts_with_its_minimum_and_a_gpu_pool_with_no_more_than_that() -> None:
    three_zones = {"zones": ["us-central1-a", "us-central1-b", "us-central1-c"]}
    cpu = {"machine_type": "e2-standard-4", **three_zones}
    roomy = declared({**cpu, "nodes": {"total_min": 1, "total_max": 3}})
    tight = declared({**cpu, "nodes": {"total_min": 1, "total_max": 2}})
    gpu = declared({**T4, **three_zones, "nodes": {"total_min": 1, "total_max": 3}})
    assert [pool["initialNodeCount"] for pool in (roomy, tight, gpu)] == [1, 0, 0]


@pytest.mark.slow
def test_pods_of_a_pool_with_a_class_select_and_tolerate_it() -> None:
    pool = {**T4, "nodes": {"total_max": 1}, "consolidation_delay": "1m"}
    recording = declare(with_pool(pool))
    (declared_class,) = [resource for resource in recording.resources if resource.type.endswith(":ComputeClass")]
    name = declared_class.inputs["metadata"]["name"]
    seen = recording.result["dev"].pools["extra"]
    assert list(seen.selector.values()) == [name]
    assert name in {taint.value for taint in seen.taints}
    assert declared_class.inputs["spec"]["priorities"] == [{"nodepools": ["extra"]}]
    assert recording.one(NODE_POOL, "dev-extra").urn in recording.waits_for(declared_class)


@pytest.mark.parametrize(
    "wrong", [{"consolidation_delay": "90s"}, {"consolidation_delay": "2d"}, {"nodes": {"count": 1}}]
)
def test_a_delay_that_gke_does_not_take_is_refused(wrong: dict[str, Any]) -> None:
    pool = {**T4, "nodes": {"total_max": 1}, "consolidation_delay": "1m", **wrong}
    with pytest.raises(SettingsError, match="consolidation_delay"):
        declare(with_pool(pool))


def test_what_the_autoscaler_does_is_no_drift() -> None:
    recording = declare(with_pool({"machine_type": "e2-standard-4", "nodes": {"count": 2}}))
    scaled, fixed = recording.one(NODE_POOL, "dev-train"), recording.one(NODE_POOL, "dev-extra")
    assert set(scaled.ignore_changes) == {"initialNodeCount", "nodeCount"}
    assert set(fixed.ignore_changes) == {"initialNodeCount"}, "a changed count has to be carried out"


@pytest.mark.parametrize("pool", [T4, {**H100, "spot": True}], ids=["attached", "built-in"])
def test_a_gpu_pool_declares_the_taint_that_gke_would_add(pool: dict[str, Any]) -> None:
    custom = {"key": "team", "value": "a", "effect": "PreferNoSchedule"}
    taints = declared({**pool, "taints": [custom]})["nodeConfig"]["taints"]
    assert taints == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"},
        {"key": "team", "value": "a", "effect": "PREFER_NO_SCHEDULE"},
    ]


def test_a_gpu_pool_always_says_which_driver_and_how_many_gpus() -> None:
    for pool, count in ((T4, 1), ({**H100, "spot": True}, 8)):
        (accelerator,) = declared(pool)["nodeConfig"]["guestAccelerators"]
        assert accelerator["gpuDriverInstallationConfig"] == {"gpuDriverVersion": "LATEST"}
        assert accelerator["count"] == count


def test_bundled_local_ssds_are_declared_as_they_will_be() -> None:
    inputs = declared({**H100, "spot": True})
    assert inputs["nodeConfig"]["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 16}


def test_upgrades_of_gpu_pools_need_no_spare_gpu() -> None:
    assert declared(T4)["upgradeSettings"] == {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 1}
    assert declared({"machine_type": "n1-standard-4"})["upgradeSettings"]["maxSurge"] == 1


def test_flex_start_gets_what_gke_demands_of_it() -> None:
    inputs = declared(
        {
            "machine_type": "a3-highgpu-1g",
            "accelerator": "nvidia-h100-80gb",
            "flex_start": True,
            "nodes": {"total_max": 1},
        }
    )
    assert inputs["nodeConfig"]["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert inputs["management"]["autoRepair"] is False
    assert inputs["initialNodeCount"] == 0
    assert inputs["autoscaling"]["locationPolicy"] == "ANY"
    assert "upgradeSettings" not in inputs


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_cpu_pools_come_before_gpu_pools(preview: bool) -> None:
    recording = declare(with_pool({**H100, "spot": True}), preview=preview)
    cpu = recording.one(NODE_POOL, "dev-cpu").urn
    for gpu in ("dev-train", "dev-extra"):
        assert cpu in recording.waits_for(recording.one(NODE_POOL, gpu))
    assert recording.waits_for(recording.one(NODE_POOL, "dev-cpu")).isdisjoint(
        {recording.one(NODE_POOL, "dev-train").urn}
    )


def test_gpu_pools_do_not_wait_for_one_another() -> None:
    recording = declare(with_pool({**H100, "spot": True}))
    train, extra = recording.one(NODE_POOL, "dev-train"), recording.one(NODE_POOL, "dev-extra")
    assert extra.urn not in recording.waits_for(train)
    assert train.urn not in recording.waits_for(extra)


def test_nodes_are_private_hardened_and_know_only_their_own_account() -> None:
    recording = declare(with_pool(T4))
    for pool in recording.of(NODE_POOL):
        config = pool.inputs["nodeConfig"]
        assert pool.inputs["networkConfig"]["enablePrivateNodes"] is True
        assert config["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
        assert config["kubeletConfig"]["insecureKubeletReadonlyPortEnabled"] == "FALSE"
        assert config["shieldedInstanceConfig"]["enableIntegrityMonitoring"] is True
        assert config["serviceAccount"] == "slipway-test-nodes@a-project.iam.gserviceaccount.com"


def test_a_replaced_pool_frees_its_name_and_its_gpus_first() -> None:
    for pool in declare(with_pool(T4)).of(NODE_POOL):
        assert pool.delete_before_replace
        assert pool.create_timeout == "45m"


def test_a_zonal_cluster_keeps_its_pools_in_its_zone() -> None:
    assert declared(T4, location="us-central1-a")["nodeLocations"] == ["us-central1-a"]


def test_long_pool_names_are_cut_where_gke_wants_it() -> None:
    long = "a-pool-whose-name-goes-on-for-much-longer-than-gke-allows"
    assert len(long) > 40

    def change(values: dict[str, Any]) -> None:
        values["clusters"]["dev"]["pools"][long] = {"machine_type": "e2-standard-4"}

    recording = declare(load(raw(change)))
    name = recording.one(NODE_POOL, f"dev-{long}").inputs["name"]
    assert len(name) <= 40
    assert recording.result["dev"].pools[long].selector == {"cloud.google.com/gke-nodepool": name}


def test_pods_of_several_nodes_are_told_of_their_network() -> None:
    interconnect = declare(with_pool(T4)).result["dev"].pools["extra"].interconnect
    assert interconnect.environment == {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "1"}


def test_of_a_cpu_pools_network_nothing_is_known() -> None:
    assert declare(with_pool({"machine_type": "n2-standard-4"})).result["dev"].pools["extra"].interconnect is None


@pytest.mark.parametrize(
    ("nodes", "least"),
    [
        ({"count": 2}, 4),
        ({"min": 1, "max": 3}, 2),
        ({"max": 3}, 0),
        ({"total_min": 1, "total_max": 3}, 1),
        ({"total_max": 3}, 0),
    ],
)
def test_the_nodes_that_stay_are_counted_over_all_zones(nodes: dict[str, int], least: int) -> None:
    pool = {"machine_type": "e2-standard-4", "nodes": nodes, "zones": ["us-central1-a", "us-central1-b"]}
    recording = declare(with_pool(pool))
    assert recording.result["dev"].pools["extra"].min_nodes == least
    # Previews read it from the pool that is declared.
    assert fewest_nodes(recording.one(NODE_POOL, "dev-extra").inputs) == least
