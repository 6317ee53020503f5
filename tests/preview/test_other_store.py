"""Another bucket, file system or instance as the store is empty: all Jobs run, and no pod keeps its old claim."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from slipway.evaluated.model import Operation, Outcome
from slipway.evaluated.operations import compare_resources
from slipway.infra.review.stack import JOB, Resource, Stack
from slipway.policies.changes import Change
from slipway.policies.check import check_change
from slipway.preview.differences import compare
from tests.support.previewing import previewed

pytestmark = pytest.mark.slow

CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"
PODS = frozenset({JOB, "kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:StatefulSet"})
BUCKET = "gcp:storage/bucket:Bucket"
KEY = "arn:aws:kms:ap-south-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
FILESTORE = {"kind": "filestore", "tier": "ZONAL", "size": "1Ti"}
EXISTING = {"kind": "existing-gcs", "bucket": "team-data", "folder": "vision/slipway"}
S3 = {"kind": "s3", "old_version_days": 1}


def volumes(resource: Resource) -> list[Mapping[str, Any]]:
    return resource.properties["spec"]["template"]["spec"].get("volumes", [])


def mounting(stack: Stack) -> dict[str, Resource]:
    """What has pods that mount the store, by URN."""
    return {
        urn: each
        for urn, each in stack.resources.items()
        if each.type in PODS and any(volume["name"] == "store" for volume in volumes(each))
    }


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        pytest.param("aws-dev", S3, {**S3, "bucket": "another"}, id="s3-renamed"),
        pytest.param("aws-serving", {"kind": "s3"}, {"kind": "s3", "bucket": "another"}, id="s3-with-apps"),
        pytest.param("aws-dev", S3, {"kind": "efs"}, id="s3-to-efs"),
        pytest.param("aws-dev", {"kind": "efs"}, {"kind": "efs", "kms_key": KEY}, id="efs-encrypted-anew"),
        pytest.param("gcp-dev", {}, {"kind": "gcs", "location": "europe-west1"}, id="gcs-elsewhere"),
        pytest.param("gcp-dev", {}, EXISTING, id="gcs-to-a-bucket-that-is-there"),
        pytest.param("gcp-dev", EXISTING, {**EXISTING, "folder": "other"}, id="another-folder-of-it"),
        pytest.param(
            "gcp-dev",
            {**FILESTORE, "location": "us-central1-a"},
            {**FILESTORE, "location": "us-central1-b"},
            id="filestore-in-another-zone",
        ),
    ],
)
def test_another_store_runs_all_jobs_and_lets_go_of_the_old_claim(
    name: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    old, new = previewed(name, {"store": before} if before else {}), previewed(name, {"store": after})
    operations = {each.resource.urn: each.operation for each in compare_resources(old, new)}
    pods = mounting(new)
    assert pods
    assert {operations[urn] for urn in pods} == {Operation.REPLACE}
    # A claim under the same name goes once no pod object names it, and its volume once it is gone.
    held = [urn for urn, each in new.resources.items() if each.type in {CLAIM, VOLUME} and "store" in each.name]
    assert all(operations[urn] is Operation.REPLACE for urn in held)
    changed = [urn for urn in held if new.resources[urn].type == VOLUME]
    assert all({*changed} & pod.replace_with for pod in pods.values() if changed)
    ran = {run.urn: run.outcome for run in compare(old, new).runs}
    jobs = {urn for urn, each in pods.items() if each.type == JOB}
    assert {urn: ran.get(urn) for urn in jobs} == dict.fromkeys(jobs, Outcome.RUNS)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("aws-batch", {"store.kms_key": KEY.replace("ap-south-1", "us-east-1")}, id="efs"),
        pytest.param("gcp-batch", {"store.location": "us-central1-b"}, id="filestore"),
        pytest.param("onprem-batch", {"store.path": "/exports/other"}, id="nfs"),
    ],
)
def test_the_runs_of_a_schedule_let_go_of_the_old_claim(name: str, changes: dict[str, Any]) -> None:
    # Kubernetes deletes no claim that a pod object names, and the pods of runs by the clock stay for their logs.
    old, new = previewed(name), previewed(name, changes)
    operations = {each.resource.urn: each.operation for each in compare_resources(old, new)}
    (clock,) = new.of_type("kubernetes:batch/v1:CronJob")
    (claim,) = (each.urn for each in new.of_type(CLAIM) if each.name.endswith("-store"))
    assert operations[claim] is operations[clock.urn] is Operation.REPLACE
    assert claim in clock.replace_with
    if old.resources[claim].properties["metadata"]["name"] == new.resources[claim].properties["metadata"]["name"]:
        # Such a claim is deleted first, with its volume, and before them what is replaced with the volume.
        volume = {each.urn for each in new.of_type(VOLUME) if operations[each.urn] is Operation.REPLACE}
        assert volume
        assert volume <= clock.replace_with
    # Pulumi creates first what is replaced for the sake of something else: the provider takes over the object that
    # has the fixed name already, and the delete that follows takes it away for good.
    forced = {urn: each for urn, each in new.resources.items() if each.replace_with or each.replace_on_changes}
    assert clock.urn in forced
    assert [urn for urn, each in forced.items() if not each.delete_before_replace] == []


def test_the_bucket_that_an_existing_one_takes_the_place_of_is_lost_and_that_is_refused() -> None:
    old, new = previewed("gcp-dev"), previewed("gcp-dev", {"store": EXISTING})
    lost = [each for each in compare_resources(old, new) if each.operation is Operation.DELETE]
    assert [each.resource.name for each in lost if each.resource.type == BUCKET] == ["store"]
    findings, _ = check_change(Change(old, new, compare_resources(old, new)), {}, date(2026, 11, 26))
    (refusal,) = [each for each in findings if each.policy == "deletes-data"]
    assert "the bucket and everything in it" in refusal.reason


def test_the_same_store_replaces_no_job() -> None:
    changed = {"store": {**S3, "old_version_days": 3}}
    assert compare(previewed("aws-dev"), previewed("aws-dev", changed)).runs == []
