"""Who may use the bucket, and what becomes of what is in it."""

import json
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from slipway.infra.clouds.gcp.store import MOUNT_OPTIONS, TEMPORARY_SUFFIX
from slipway.infra.platform import POD_USER, Platform
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from slipway.runtime import store as workload_store
from tests.support.clouds.gcp import BUCKET, CLUSTER, declare, raw
from tests.support.clouds.stacks import WithApps
from tests.support.recording import Recording, is_unknown

BUCKET_GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"
PROJECT_GRANT = "gcp:projects/iAMMember:IAMMember"
ACCOUNT_GRANT = "gcp:serviceaccount/iAMMember:IAMMember"


def changed(**store: Any) -> Settings:
    return load(raw(lambda values: values["store"].update(store)))


def grants(recording: Recording) -> list[tuple[str, str, str]]:
    """Every grant that the stack makes: its type, role and member."""
    return [
        (resource.type, resource.inputs["role"], resource.inputs["member"])
        for resource in recording.resources
        if "member" in resource.inputs or "members" in resource.inputs or "policyData" in resource.inputs
    ]


def test_only_the_jobs_identity_may_use_the_bucket() -> None:
    recording = declare(load(raw(lambda values: values.update(namespace="vision", service_account="jobs"))))
    principal = (
        "principal://iam.googleapis.com/projects/999999999999/locations/global"
        "/workloadIdentityPools/a-project.svc.id.goog/subject/ns/vision/sa/jobs"
    )
    nodes = "serviceAccount:slipway-test-nodes@a-project.iam.gserviceaccount.com"
    assert sorted(grants(recording)) == [
        (PROJECT_GRANT, "roles/artifactregistry.reader", nodes),
        (PROJECT_GRANT, "roles/container.defaultNodeServiceAccount", nodes),
        (PROJECT_GRANT, "roles/serviceusage.serviceUsageConsumer", nodes),
        (BUCKET_GRANT, "roles/storage.objectUser", principal),
    ]
    assert recording.exports["dev-annotations"] == {}


def test_impersonation_lets_the_named_projects_in_through_one_account() -> None:
    recording = declare(changed(impersonation={"projects": ["other-project"]}))
    account = "slipway-test-run@a-project.iam.gserviceaccount.com"
    assert sorted(grants(recording))[3:] == [
        (
            ACCOUNT_GRANT,
            "roles/iam.workloadIdentityUser",
            "serviceAccount:a-project.svc.id.goog[slipway/runner]",
        ),
        (
            ACCOUNT_GRANT,
            "roles/iam.workloadIdentityUser",
            "serviceAccount:other-project.svc.id.goog[slipway/runner]",
        ),
        (BUCKET_GRANT, "roles/storage.objectUser", f"serviceAccount:{account}"),
    ]
    for grant in recording.of(ACCOUNT_GRANT):
        assert grant.inputs["serviceAccountId"] == f"projects/a-project/serviceAccounts/{account}"
    assert recording.exports["dev-annotations"] == {"iam.gke.io/gcp-service-account": account}


@pytest.mark.parametrize("store", [{}, {"impersonation": {"projects": []}}], ids=["direct", "impersonation"])
def test_nobody_of_a_pool_is_let_in_before_a_cluster_has_brought_the_pool(store: dict[str, Any]) -> None:
    recording = declare(changed(**store))
    cluster = recording.one(CLUSTER).urn
    for grant in (*recording.of(BUCKET_GRANT), *recording.of(ACCOUNT_GRANT)):
        assert cluster in recording.waits_for(grant)


@pytest.mark.parametrize("store", [{}, {"impersonation": {"projects": []}}], ids=["direct", "impersonation"])
def test_jobs_can_wait_for_every_grant_they_need(store: dict[str, Any]) -> None:
    recording = declare(changed(**store))
    waited = {resource._name for resource in recording.result["dev"].ready}
    assert waited == {resource.name for resource in (*recording.of(BUCKET_GRANT), *recording.of(ACCOUNT_GRANT))}


def test_the_bucket_is_regional_private_and_keeps_what_is_deleted() -> None:
    inputs = declare(changed(soft_delete_days=14)).one(BUCKET).inputs
    expected = {
        "name": "a-project-slipway-test",
        "location": "US-CENTRAL1",
        "uniformBucketLevelAccess": True,
        "publicAccessPrevention": "enforced",
        "versioning": {"enabled": False},
        "softDeletePolicy": {"retentionDurationSeconds": 14 * 86_400},
    }
    assert {key: inputs[key] for key in expected} == expected


def test_the_bucket_can_have_a_name_and_versions() -> None:
    inputs = declare(changed(bucket="my-bucket", versioning=True, old_version_days=3)).one(BUCKET).inputs
    assert inputs["name"] == "my-bucket"
    assert inputs["versioning"] == {"enabled": True}
    assert {
        "action": {"type": "Delete"},
        "condition": {"daysSinceNoncurrentTime": 3, "withState": "ARCHIVED"},
    } in inputs["lifecycleRules"]


def test_only_temporary_objects_and_old_versions_are_ever_deleted() -> None:
    rules = declare(changed()).one(BUCKET).inputs["lifecycleRules"]
    deleting = [rule["condition"] for rule in rules if rule["action"]["type"] == "Delete"]
    assert {"age": 7, "matchesSuffixes": [TEMPORARY_SUFFIX]} in deleting
    for condition in deleting:
        assert condition.get("matchesSuffixes") == [TEMPORARY_SUFFIX] or condition.get("withState") == "ARCHIVED"


def test_temporary_objects_are_those_that_steps_leave_behind() -> None:
    assert workload_store.TEMPORARY_SUFFIX == TEMPORARY_SUFFIX


def test_pods_mount_the_bucket_as_their_own_user_and_see_what_others_write() -> None:
    recording = declare(changed())
    store = recording.result["dev"].store
    options = MOUNT_OPTIONS.split(",")
    assert {f"uid={POD_USER}", f"gid={POD_USER}", "implicit-dirs", "metadata-cache:ttl-secs:0"} <= set(options)
    assert not any("file-cache" in option for option in options)
    assert store.volume.csi.driver == "gcsfuse.csi.storage.gke.io"
    assert store.volume.csi.volume_attributes["mountOptions"] == MOUNT_OPTIONS
    assert store.pod_annotations["gke-gcsfuse/volumes"] == "true"


def test_the_sidecar_asks_for_what_the_platform_says_it_does() -> None:
    store = declare(changed()).result["dev"].store
    assert store.pod_annotations["gke-gcsfuse/cpu-request"] == f"{store.sidecar.cpu}m"
    assert store.pod_annotations["gke-gcsfuse/cpu-limit"] == "0", "none, as containers of steps have none"
    for limit in ("request", "limit"):
        assert store.pod_annotations[f"gke-gcsfuse/memory-{limit}"] == f"{store.sidecar.memory}Mi"
        assert (
            store.pod_annotations[f"gke-gcsfuse/ephemeral-storage-{limit}"]
            == f"{store.sidecar.ephemeral_storage}Mi"
        )


def read_back(preview: bool, files: dict[str, str] | None = None) -> Recording:
    def then(platforms: dict[str, Platform]) -> None:
        platform = platforms["dev"]
        assert platform.store.read
        assert platform.store.browse
        writer = k8s.core.v1.ConfigMap("writer", opts=pulumi.ResourceOptions(provider=platform.provider))
        pulumi.export("text", platform.store.read("mnist/predictions.json", writer))
        pulumi.export("page", platform.store.browse("mnist/predictions.json"))
        pulumi.export("url", platform.store.url)

    return declare(changed(), preview=preview, then=then, store=files)


def test_a_file_is_read_once_what_writes_it_is_done() -> None:
    recording = read_back(preview=False, files={"mnist/predictions.json": json.dumps([7])})
    assert recording.exports["text"] == "[7]"
    (call,) = [call for call in recording.calls if call.token.endswith(":getBucketObjectContent")]
    before = recording.resources[: call.registered]
    assert "writer" in {resource.name for resource in before}
    assert recording.exports["url"] == "gs://a-project-slipway-test"
    assert recording.exports["page"] == (
        "https://console.cloud.google.com/storage/browser/a-project-slipway-test/mnist/predictions.json"
    )


def test_a_preview_does_not_ask_for_a_file_that_is_not_written_yet() -> None:
    recording = read_back(preview=True)
    assert is_unknown(recording.exports["text"])
    assert recording.exports["url"] == "gs://a-project-slipway-test", "where it will be is known before"
    assert "gcp:storage/getBucketObjectContent:getBucketObjectContent" not in {
        call.token for call in recording.calls
    }


def test_a_file_that_is_gone_fails_nothing() -> None:
    recording = read_back(preview=False, files={"mnist/metrics.json": "{}"})
    assert recording.exports.get("text") is None
    assert "page" in recording.exports, "the program went on to its end"
    assert "gcp:storage/getBucketObjectContent:getBucketObjectContent" not in {
        call.token for call in recording.calls
    }, "the provider fails the whole program where the object is gone"


def test_two_clusters_share_the_bucket_and_the_identity() -> None:
    def change(values: dict[str, Any]) -> None:
        values["clusters"]["second"] = {
            "cloud": "gcp",
            "location": "us-west4-a",
            "network": {
                "nodes_cidr": "10.16.0.0/20",
                "pods_cidr": "10.20.0.0/14",
                "services_cidr": "10.24.0.0/20",
                "control_plane_cidr": "172.16.1.0/28",
            },
            "pools": {"second-cpu": {"machine_type": "e2-standard-4"}},
        }

    recording = declare(load(raw(change)))
    assert len(recording.of(BUCKET)) == 1
    assert len(recording.of(BUCKET_GRANT)) == 1
    clusters = {cluster.urn for cluster in recording.of(CLUSTER)}
    assert clusters <= recording.waits_for(recording.one(BUCKET_GRANT))


def with_apps(**store: Any) -> Settings:
    """A stack whose request has an app that reads the store, and one that writes."""
    return WithApps.model_validate(changed(**store).model_dump())


def test_an_app_reads_the_bucket_and_writes_its_own_folder_alone() -> None:
    recording = declare(with_apps(), then=lambda _: None)
    member = "/subject/ns/slipway/sa/mnist-"
    result = {
        (resource.inputs["member"].partition(member)[2], resource.inputs["role"]): resource.inputs.get("condition")
        for resource in recording.of(BUCKET_GRANT)
        if member in resource.inputs["member"]
    }
    assert result[("serving", "roles/storage.objectViewer")] is None
    assert result[("notebook", "roles/storage.objectViewer")] is None
    condition = result[("notebook", "roles/storage.objectUser")]
    assert condition is not None
    assert condition["expression"] == (
        'resource.name.startsWith("projects/_/buckets/a-project-slipway-test/objects/mnist/notebook/")'
    )
    assert len(result) == 3
    assert recording.result["dev"].app_annotations == {}


def test_an_app_that_impersonates_has_an_account_of_its_own() -> None:
    recording = declare(with_apps(impersonation={"projects": []}), then=lambda _: None)
    annotations = recording.result["dev"].app_annotations
    assert set(annotations) == {"mnist-serving", "mnist-notebook"}
    accounts = {
        resource.name: resource.inputs["accountId"]
        for resource in recording.of("gcp:serviceaccount/account:Account")
    }
    assert accounts["workload-app-mnist-serving"] == "slipway-test-app-mnist-serving"
    assert accounts["workload"] == "slipway-test-run"
