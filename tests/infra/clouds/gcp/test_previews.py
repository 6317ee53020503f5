"""What a preview says of changed settings of stacks on Google Cloud."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from slipway.evaluated.model import Finding
from slipway.evaluated.operations import compare_resources
from tests.support.previewing import findings, previewed

DEV = "gcp-dev"
NETWORKS = {"office": "203.0.113.0/24"}
FEW = {"pipelines.resnet": None}
"""Without its measurements, gcp-dev is evaluated in half the time."""
DELAY = {"clusters.dev.pools.train.consolidation_delay": "1m"}


def of_dev(changes: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> list[Finding]:
    return findings(DEV, changes, {**FEW, **(base or {})})


def policies(changes: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> set[tuple[str, str]]:
    """Each finding as its policy and the resource."""
    return {(finding.policy, finding.name.partition(" ")[0]) for finding in of_dev(changes, base)}


@pytest.mark.parametrize(
    ("base", "changes", "said"),
    [
        (
            {"store.versioning": True, "store.old_version_days": 30},
            {"store.old_version_days": 10},
            {("deletes-data", "store")},
        ),
        ({"store.soft_delete_days": 7}, {"store.soft_delete_days": 0}, {("safeguard-off", "store")}),
        ({"store.versioning": True}, {"store.versioning": False}, {("safeguard-off", "store")}),
        ({"clusters.dev.flow_logs": True}, {"clusters.dev.flow_logs": False}, {("safeguard-off", "network-dev")}),
        (
            {"clusters.dev.control_plane": {"authorized_networks": NETWORKS}},
            {"clusters.dev.control_plane": {"authorized_networks": NETWORKS, "dns_endpoint": False}},
            {("update-refused", "dev")},
        ),
        ({}, {"clusters.dev.pools.train.nodes": {"count": 1}}, {("ends-running-pods", "dev-train")}),
    ],
)
def test_what_keeps_guards_or_runs_less_is_said_in_this_direction_only(
    base: Mapping[str, Any], changes: Mapping[str, Any], said: set[tuple[str, str]]
) -> None:
    assert policies(changes, base) >= said
    back = policies(base or {"clusters.dev.pools.train.nodes": {"total_max": 1}}, changes)
    assert not said & back


@pytest.mark.parametrize(
    ("setting", "on", "off", "name"),
    [
        ("store.kms_key", "own", None, "store"),
        (
            "clusters.dev.control_plane",
            {"authorized_networks": NETWORKS, "secrets_key": "own"},
            {"authorized_networks": NETWORKS},
            "secrets-dev",
        ),
        ("store.access_logs", True, False, "store"),
    ],
)
def test_what_pulumi_only_forgets_is_said_with_what_it_goes_on_costing(
    setting: str, on: object, off: object, name: str
) -> None:
    left = [finding for finding in of_dev({setting: off}, {setting: on}) if finding.policy == "leaves-billed"]
    assert [entry.name.partition(" ")[0] for entry in left] == [name]
    assert all(finding.harm for finding in left)
    assert not [finding for finding in of_dev({setting: on}, {setting: off}) if finding.policy == "leaves-billed"]


def test_a_key_of_a_fixed_name_keeps_it() -> None:
    """As stacks have it that were brought up when the name of a key had no random end."""
    after = previewed(DEV, {"store.kms_key": "own"})
    key = next(resource for resource in after.of_type("gcp:kms/cryptoKey:CryptoKey") if resource.name == "store")
    named = replace(key, properties={**key.properties, "name": "store"}, ignore_changes=())
    before = replace(after, resources={**after.resources, key.urn: named})
    assert not [entry for entry in compare_resources(before, after) if entry.operation is not None]


TRAIN = {
    "machine_type": "n1-standard-4",
    "accelerator": "nvidia-tesla-t4",
    "gpus": 1,
    "spot": True,
    "nodes": {"total_min": 0, "total_max": 1},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"clusters.dev.pools.train.spot": False},
        {
            "clusters.dev.pools": {
                "cpu": {"machine_type": "e2-standard-4", "nodes": {"total_min": 1, "total_max": 2}},
                "t4": TRAIN,
                "predict": {**TRAIN, "machine_type": "n1-standard-8"},
            },
            "pipelines.mnist.steps.train.pool": "t4",
        },
        {"clusters.dev.pools.train.zones": ["us-central1-b"]},
        {"clusters.dev.pools.train.machine_type": "n1-standard-8"},
    ],
    ids=["spot", "rename", "zones", "machine-type"],
)
def test_a_pool_that_goes_or_whose_nodes_go_says_which_jobs_end(changes: Mapping[str, Any]) -> None:
    matching = of_dev(changes)
    [ended] = [
        finding
        for finding in matching
        if (finding.policy, finding.name.split()[0]) == ("ends-running-pods", "dev-train")
    ]
    assert "mnist-train" in ended.reason


def test_objects_that_a_shorter_time_deletes_are_had_back_from_soft_delete_only() -> None:
    matching = of_dev({"store.old_version_days": 10}, {"store.old_version_days": 30})
    [finding] = [finding for finding in matching if finding.policy == "deletes-data"]
    assert finding.harm
    assert "daysSinceNoncurrentTime 30 → 10" in finding.reason
    assert "soft delete" in finding.reason


def test_protection_that_is_switched_off_is_said_of_everything_that_it_kept() -> None:
    base = {"protect": True, "store.versioning": True}
    off = {name for policy, name in policies({"protect": False}, base) if policy == "safeguard-off"}
    assert {"dev", "store"} <= off


def let_in(name: str, changes: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> str:
    """What is said of whom a change lets in, without whom it let in before."""
    result = [
        finding
        for finding in (of_dev(changes, base) if name == DEV else findings(name, changes, base))
        if finding.policy in {"lets-in", "opens-to-people"}
    ]
    assert all(finding.harm for finding in result)
    return "\n".join(finding.reason for finding in result)


IMPERSONATING: dict[str, Any] = {"store.impersonation": {"projects": []}}


@pytest.mark.parametrize(
    ("name", "base", "changes", "who"),
    [
        (
            DEV,
            {"clusters.dev.control_plane": {"authorized_networks": NETWORKS}},
            {"clusters.dev.control_plane": {"authorized_networks": {**NETWORKS, "home": "198.51.100.7/32"}}},
            "198.51.100.7/32",
        ),
        (
            DEV,
            {"clusters.dev.control_plane": {"authorized_networks": NETWORKS, "dns_endpoint": False}},
            {"clusters.dev.control_plane": {"authorized_networks": NETWORKS, "dns_endpoint": True}},
            "from everywhere",
        ),
        (
            DEV,
            IMPERSONATING,
            {"store.impersonation": {"projects": ["another-project"]}},
            "in the project another-project",
        ),
        ("gcp-platform", {}, {"teams.vision": {"namespace": "vision"}}, "pods of vision/runner"),
        ("gcp-batch", {}, {"clusters.batch.network": {"nodes_cidr": "10.64.0.0/19"}}, "10.64.0.0/19"),
    ],
)
def test_whoever_comes_in_is_named_and_nobody_who_goes(
    name: str, base: Mapping[str, Any], changes: Mapping[str, Any], who: str
) -> None:
    assert who in let_in(name, changes, base)
    if base:
        assert who not in let_in(name, base, {**base, **changes})


def test_a_new_cluster_opens_nothing_by_an_endpoint_that_iam_guards() -> None:
    blocks = {
        "nodes_cidr": "10.64.0.0/20",
        "pods_cidr": "10.68.0.0/14",
        "services_cidr": "10.72.0.0/20",
        "control_plane_cidr": "172.16.1.0/28",
    }
    pools = {"more": {"machine_type": "e2-standard-2"}}
    cluster = {"cloud": "gcp", "location": "europe-west4", "network": blocks, "pools": pools}
    assert "reach the API server" in let_in(DEV, {"clusters.dev.control_plane": {"authorized_networks": NETWORKS}})
    assert "from everywhere" not in let_in(DEV, {"clusters.second": cluster})


def test_a_claim_that_runs_by_the_clock_hold_cannot_go_before_them() -> None:
    def refused(changes: Mapping[str, Any]) -> list[str]:
        return [finding.name for finding in findings("gcp-batch", changes) if finding.policy == "deletion-refused"]

    bucket = {"store": {"kind": "gcs", "location": "us-central1"}}
    assert refused(bucket) == ["batch-store (PersistentVolumeClaim)"]
    # Without its CronJob its runs go, and their pods with them.
    assert not refused({**bucket, "pipelines.fraud.schedule": None})
    assert not refused({"store.location": "us-central1-b"})


@pytest.mark.slow
def test_a_pool_gets_a_compute_class_in_place_and_its_idle_nodes_go_when_that_says() -> None:
    before = previewed(DEV)
    after = previewed(DEV, DELAY)
    train = next(pool for pool in after.pools if pool.name == "train")
    assert train.scale_down
    assert train.scale_down.amount == 60
    operations = {
        item.resource.name: item.operation for item in compare_resources(before, after) if item.operation
    }
    assert (operations.pop("dev-train"), operations.pop("dev-train-compute-class")) == ("update", "create")
    assert set(operations) == {"mnist-train", "resnet-measure-train"}
    said = {finding.policy for finding in findings(DEV, DELAY)}
    assert not said & {"ends-running-pods", "pod-has-no-pool"}, said
