"""What updates in place do, after the tables: each entry can be read, and each condition tells changes apart."""

from typing import Any

import pytest

from slipway.infra.clouds.registry import reviews
from slipway.infra.kubernetes.review import REVIEW as KUBERNETES
from slipway.infra.review.effects import Effects, Replacing
from slipway.infra.review.facts import Effect
from slipway.infra.review.property_diff import Difference, differences, parse_path
from slipway.infra.review.stack import UNKNOWN
from tests.support.reviewing import REVIEWS, declared

EKS = "aws:eks/cluster:Cluster"
GROUP = "aws:eks/nodeGroup:NodeGroup"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
ENDS, REFUSED, NOTE = Effect.ENDS_WORK, Effect.REFUSED, Effect.NOTE


def effects(type_: str, before: dict[str, Any], after: dict[str, Any], ignoring: str = "") -> list[Effect]:
    ignored = (ignoring,) if ignoring else ()
    old, new = (declared(type_, "it", each, ignore_changes=ignored) for each in (before, after))
    found = [
        difference
        for difference in differences(before, after)
        if difference.path != ("scalingConfig", "desiredSize") or not ignored
    ]
    return [each.fact.effect for each in Effects([*REVIEWS, KUBERNETES]).of(old, new, found)]


def scaling(least: int, most: int, desired: int) -> dict[str, Any]:
    return {"scalingConfig": {"minSize": least, "maxSize": most, "desiredSize": desired}}


def claim(size: str) -> dict[str, Any]:
    return {"spec": {"resources": {"requests": {"storage": size}}}}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("1.35", "1.36", [NOTE]),
        ("1.34", "1.36", [REFUSED, NOTE]),
        ("1.36", "1.35", [REFUSED]),
        ("1.9", "1.10", [NOTE]),
    ],
)
def test_a_cluster_upgrades_by_one_version_and_never_downgrades(
    before: str, after: str, found: list[Effect]
) -> None:
    assert effects(EKS, {"version": before}, {"version": after}) == found


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        # The autoscaler runs a node that the state knows nothing of.
        (scaling(0, 1, 0), scaling(0, 2, 0), [ENDS]),
        (scaling(0, 1, 0), scaling(1, 1, 1), [REFUSED, ENDS]),
        # A pool of two nodes begins to scale: as many nodes as before are between its limits.
        (scaling(2, 2, 2), scaling(1, 3, 1), [ENDS]),
        (scaling(3, 3, 3), scaling(0, 2, 0), [REFUSED, ENDS]),
    ],
)
def test_limits_of_a_scaled_group_must_fit_its_number_of_nodes(
    before: dict[str, Any], after: dict[str, Any], found: list[Effect]
) -> None:
    assert effects(GROUP, before, after, "scalingConfig.desiredSize") == found


def test_shrinking_a_fixed_group_ends_running_pods() -> None:
    assert effects(GROUP, scaling(1, 1, 1), scaling(2, 2, 2)) == []
    assert effects(GROUP, scaling(2, 2, 2), scaling(1, 1, 1)) == [ENDS]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("10Gi", "20Gi", []),
        ("20Gi", "10Gi", [REFUSED]),
        ("1Ti", "900Gi", [REFUSED]),
        ("1024Mi", "1Gi", []),
    ],
)
def test_a_claim_never_shrinks(before: str, after: str, found: list[Effect]) -> None:
    assert effects(CLAIM, claim(before), claim(after)) == found


def test_another_pod_range_of_a_subnet_is_refused() -> None:
    before, after = (
        {"secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": block}]}
        for block in ("10.4.0.0/14", "10.8.0.0/14")
    )
    assert effects("gcp:compute/subnetwork:Subnetwork", before, after) == [REFUSED]


def test_each_in_place_entry_says_what_to_do_and_replaces_nothing() -> None:
    replacing = Replacing(reviews())
    for review in [*REVIEWS, KUBERNETES]:
        for type_, facts in review.in_place().items():
            assert replacing.knows(type_)
            for fact in facts:
                assert fact.source.url.startswith("https://")
                assert bool(fact.fix) == (fact.effect is not Effect.NOTE)
                for path in fact.paths:
                    difference = Difference(parse_path(path), "a", "b")
                    assert not replacing.find_forcing(type_, [difference], {}, {}), f"{type_} {path}"


LOGS = "aws:cloudwatch/logGroup:LogGroup"
LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
RELEASE = "kubernetes:helm.sh/v3:Release"
DELETES, UNGUARDS, CUTS_OFF = Effect.DELETES_DATA, Effect.UNGUARDS, Effect.CUTS_OFF


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (90, 30, [DELETES]),
        (30, 90, []),
        (None, 30, [DELETES]),
        (0, 30, [DELETES]),
        (30, 0, []),
        (30, None, []),
        (90, UNKNOWN, []),
    ],
)
def test_a_shorter_retention_deletes_what_is_older(before: Any, after: Any, found: list[Effect]) -> None:
    assert effects(LOGS, {"retentionInDays": before}, {"retentionInDays": after}) == found


def expiring(*days: int) -> dict[str, Any]:
    return {"rules": [{"id": str(each), "expiration": {"days": number}} for each, number in enumerate(days)]}


def test_another_rule_that_expires_objects_deletes_them() -> None:
    assert effects(LIFECYCLE, expiring(30), expiring(30, 7)) == [DELETES]
    assert effects(LIFECYCLE, expiring(30), expiring(7)) == [DELETES]
    assert effects(LIFECYCLE, expiring(30, 7), expiring(30)) == []


def test_durations_are_compared() -> None:
    def images(older_than: str) -> dict[str, Any]:
        return {"cleanupPolicies": [{"id": "old", "condition": {"olderThan": older_than}}]}

    repository = "gcp:artifactregistry/repository:Repository"
    assert effects(repository, images("15d"), images("36h")) == [DELETES]
    assert effects(repository, images("36h"), images("15d")) == []


@pytest.mark.parametrize(
    ("type_", "before", "after", "found"),
    [
        (EKS, {"enabledClusterLogTypes": ["api", "audit"]}, {"enabledClusterLogTypes": ["api"]}, [UNGUARDS]),
        (EKS, {"enabledClusterLogTypes": ["audit"]}, {"enabledClusterLogTypes": ["api"]}, [UNGUARDS]),
        (EKS, {"enabledClusterLogTypes": ["audit"]}, {}, [UNGUARDS]),
        (EKS, {"enabledClusterLogTypes": ["api"]}, {"enabledClusterLogTypes": ["audit", "api"]}, []),
        (EKS, {"enabledClusterLogTypes": ["api", "audit"]}, {"enabledClusterLogTypes": ["audit", "api"]}, []),
        (EKS, {"deletionProtection": True}, {"deletionProtection": False}, [UNGUARDS]),
        (EKS, {"deletionProtection": False}, {"deletionProtection": True}, []),
        (EKS, {"vpcConfig": {"endpointPublicAccess": True}}, {"vpcConfig": {}}, [CUTS_OFF]),
        ("aws:s3/bucket:Bucket", {"forceDestroy": False}, {"forceDestroy": True}, [UNGUARDS]),
        ("aws:s3/bucket:Bucket", {"forceDestroy": True}, {"forceDestroy": False}, []),
        (
            "aws:efs/backupPolicy:BackupPolicy",
            {"backupPolicy": {"status": "ENABLED"}},
            {"backupPolicy": {"status": "DISABLED"}},
            [UNGUARDS],
        ),
        (
            "aws:s3/bucketVersioning:BucketVersioning",
            {"versioningConfiguration": {"status": "Suspended"}},
            {"versioningConfiguration": {"status": "Enabled"}},
            [],
        ),
    ],
)
def test_a_safeguard_that_is_switched_off_is_told_from_one_that_is_switched_on(
    type_: str, before: dict[str, Any], after: dict[str, Any], found: list[Effect]
) -> None:
    assert effects(type_, before, after) == found


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (["a"], ["a", "b"], [NOTE]),
        (["b"], ["a", "b"], [NOTE]),
        (["a", "b"], ["b"], [ENDS]),
        (["a"], ["b"], [ENDS]),
    ],
)
@pytest.mark.parametrize("type_", ["gcp:container/nodePool:NodePool", "gcp:container/cluster:Cluster"])
def test_zones_that_come_to_a_pool_end_nothing(
    type_: str, before: list[str], after: list[str], found: list[Effect]
) -> None:
    assert effects(type_, {"nodeLocations": before}, {"nodeLocations": after}) == found


def test_a_group_in_a_capacity_block_takes_another_template_without_nodes_only() -> None:
    def group(version: str, **more: str) -> dict[str, Any]:
        return {"launchTemplate": {"version": version}, **more}

    block = {"capacityType": "CAPACITY_BLOCK"}
    assert effects(GROUP, group("1", **block), group("2", **block)) == [REFUSED, ENDS]
    assert effects(GROUP, group("1"), group("2")) == [ENDS]
