"""Filestore as the store of GKE clusters: what is declared, and which instances Google would refuse."""

from typing import Any

import pytest

from slipway.evaluated.model import Operation
from slipway.evaluated.operations import compare_resources
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.gcp import BUCKET, CLUSTER, CPU_POOL, declare, raw
from tests.support.previewing import previewed
from tests.support.refusals import Case, named, problems, the_problem

INSTANCE = "gcp:filestore/instance:Instance"
VOLUME = "kubernetes:core/v1:PersistentVolume"

STORE: dict[str, Any] = {"kind": "filestore", "location": "us-central1-a"}
SECOND = {
    "cloud": "gcp",
    "location": "us-central1-b",
    "network": {
        "nodes_cidr": "10.32.0.0/20",
        "pods_cidr": "10.36.0.0/14",
        "services_cidr": "10.40.0.0/20",
        "control_plane_cidr": "172.16.0.16/28",
    },
    "pools": {"other": CPU_POOL},
}


def values(*, protect: bool = False, second: dict[str, Any] | None = None, **store: Any) -> dict[str, Any]:
    def change(given: dict[str, Any]) -> None:
        given["protect"] = protect
        given["store"] = {**STORE, **store}
        if second:
            given["clusters"]["second"] = second

    return raw(change)


def settings(**changes: Any) -> Settings:
    return load(values(**changes))


def test_the_stack_creates_the_instance_and_every_cluster_mounts_it() -> None:
    recording = declare(settings(second=SECOND, size="2Ti"))
    instance = recording.one(INSTANCE).inputs
    assert (instance["fileShares"]["name"], instance["fileShares"]["capacityGb"]) == ("store", 2048)
    assert (instance["tier"], instance["location"]) == ("BASIC_HDD", "us-central1-a")
    volumes = recording.of(VOLUME)
    assert len(volumes) == 2
    for volume in volumes:
        spec = volume.inputs["spec"]
        assert spec["accessModes"] == ["ReadWriteMany"]
        assert spec["csi"]["driver"] == "filestore.csi.storage.gke.io"
        assert spec["csi"]["volumeHandle"] == "modeInstance/us-central1-a/slipway-test-store/store"
        assert spec["csi"]["volumeAttributes"] == {"ip": "203.0.113.10", "volume": "store"}
    claim = recording.result["dev"].store.claim
    assert (claim.access_mode, claim.storage_class) == ("ReadWriteMany", "")
    assert {resource.inputs["metadata"]["name"] for resource in volumes} == {"slipway-test-store"}


def test_only_the_nodes_of_the_clusters_mount_the_share() -> None:
    instance = declare(settings(second=SECOND)).one(INSTANCE).inputs
    assert instance["fileShares"]["nfsExportOptions"] == [
        {"ipRanges": ["10.0.0.0/20", "10.32.0.0/20"], "accessMode": "READ_WRITE", "squashMode": "NO_ROOT_SQUASH"}
    ]


def test_a_larger_instance_leaves_the_claim_that_cannot_grow_as_it_is() -> None:
    changes = compare_resources(previewed("gcp-batch"), previewed("gcp-batch", {"store.size": "2Ti"}))
    operations = {change.resource.type: change.operation for change in changes if change.operation}
    assert operations == {INSTANCE: Operation.UPDATE, VOLUME: Operation.UPDATE}


def test_nodes_get_the_driver_and_the_project_its_api_and_there_is_no_bucket() -> None:
    recording = declare(settings())
    addons = recording.one(CLUSTER).inputs["addonsConfig"]
    assert addons["gcpFilestoreCsiDriverConfig"] == {"enabled": True}
    services = {resource.inputs["service"] for resource in recording.of("gcp:projects/service:Service")}
    assert "file.googleapis.com" in services
    assert recording.of(BUCKET) == []


def test_a_stack_with_a_bucket_has_nothing_of_filestore() -> None:
    recording = declare(load(raw()))
    assert "gcpFilestoreCsiDriverConfig" not in recording.one(CLUSTER).inputs["addonsConfig"]
    assert "file.googleapis.com" not in {
        resource.inputs["service"] for resource in recording.of("gcp:projects/service:Service")
    }


def test_a_protected_stack_keeps_its_files() -> None:
    instance = declare(settings(protect=True)).one(INSTANCE)
    assert instance.inputs["deletionProtectionEnabled"] is True
    assert instance.protect


SIZES: list[Case] = [
    ({"size": "100Gi"}, "store.size", "1Ti to 65433Gi", "`1Ti`"),
    ({"tier": "BASIC_SSD"}, "store.size", "2560Gi to 65433Gi", "`2560Gi`"),
    ({"tier": "ZONAL", "size": "1100Gi"}, "store.size", "in steps of 256Gi", "`1280Gi`"),
    ({"tier": "ZONAL", "size": "11Ti"}, "store.size", "10Ti to 100Ti in steps of 2560Gi", "`12800Gi`"),
    ({"tier": "ZONAL", "size": "9985Gi"}, "store.size", "ZONAL", "`10Ti`"),
    ({"tier": "ENTERPRISE", "location": "us-central1", "size": "20Ti"}, "store.size", "1Ti to 10Ti", "`10Ti`"),
]

PLACES: list[Case] = [
    ({"location": "us-central1"}, "store.location", "in a zone", "`us-central1-a`"),
    ({"tier": "REGIONAL"}, "store.location", "in a region", "`us-central1`"),
    ({"location": "us-west4-a"}, "store.location", "cluster `dev` is in us-central1", "`us-central1-a`"),
]


@pytest.mark.parametrize(("store", "key", "reason", "fix"), named([*SIZES, *PLACES]))
def test_what_google_has_no_instance_of_is_refused_with_the_nearest_that_it_has(
    store: dict[str, Any], key: str, reason: str, fix: str
) -> None:
    problem = the_problem(values(**store))
    assert problem.key == f"slipway:{key}"
    assert reason in problem.reason
    assert fix in problem.fix


@pytest.mark.parametrize(
    "store",
    [
        {"size": "1Ti"},
        {"size": "1025Gi"},
        {"tier": "ZONAL", "size": "1280Gi"},
        {"tier": "ZONAL", "size": "12800Gi"},
        {"tier": "ENTERPRISE", "location": "us-central1"},
    ],
)
def test_what_google_has_is_accepted(store: dict[str, Any]) -> None:
    load(values(**store))


def test_all_that_is_wrong_is_said_at_once() -> None:
    refused = problems(values(tier="REGIONAL", location="us-west4-a", size="10Gi"))
    assert {problem.key for problem in refused} == {"slipway:store.location", "slipway:store.size"}
    assert len(refused) == 3


def test_teams_are_refused_since_they_would_share_all_files() -> None:
    with_teams = values() | {"teams": {"research": {"namespace": "research"}}}
    assert "every team's Jobs" in the_problem(with_teams).reason
