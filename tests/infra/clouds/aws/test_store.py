"""The store on AWS: who may use it, what it is mounted through, and in which order it comes and goes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from slipway.infra.platform import POD_USER, Platform
from slipway.infra.review.stack import Resource
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.aws import (
    ACCOUNT,
    ADDON,
    ASSOCIATION,
    BUCKET,
    EFS,
    FILES,
    ROLE,
    ROLE_POLICY,
    VOLUME,
    declare,
    raw,
    with_store,
)
from tests.support.clouds.stacks import WithApps
from tests.support.recording import Recording

SYNC = "aws:s3/filesSynchronizationConfiguration:FilesSynchronizationConfiguration"
POLICY = "aws:s3/bucketPolicy:BucketPolicy"
LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
VERSIONING = "aws:s3/bucketVersioning:BucketVersioning"
ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"

KINDS: Mapping[str, tuple[str, str, str, str]] = {
    "s3": (
        FILES,
        "aws:s3/filesMountTarget:FilesMountTarget",
        "aws:s3/filesAccessPoint:FilesAccessPoint",
        "aws:s3/filesFileSystemPolicy:FilesFileSystemPolicy",
    ),
    "efs": (
        EFS,
        "aws:efs/mountTarget:MountTarget",
        "aws:efs/accessPoint:AccessPoint",
        "aws:efs/fileSystemPolicy:FileSystemPolicy",
    ),
}
"""Per kind of store: its file system, mount targets, access point and policy."""

KEY = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"


def s3(**store: Any) -> Settings:
    return with_store(kind="s3", **store)


def efs(**store: Any) -> Settings:
    return with_store(kind="efs", **store)


def statements(resource: Resource, key: str = "policy") -> list[dict[str, Any]]:
    document = json.loads(resource.inputs[key])
    assert document["Version"] == "2012-10-17"
    return document["Statement"]


def allowed(given: Sequence[Mapping[str, Any]], prefix: str) -> dict[str, list[str]]:
    """The resources of each action that begins with ``prefix``."""
    return {
        action: list(statement["Resource"])
        for statement in given
        for action in statement["Action"]
        if action.startswith(prefix)
    }


def test_the_bucket_is_private_owned_versioned_and_encrypted() -> None:
    recording = declare(s3())
    assert recording.one(BUCKET).inputs["bucket"] == f"slipway-test-{ACCOUNT}-us-east-1"
    block = recording.one("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock").inputs
    settings = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    assert [block[key] for key in settings] == [True] * 4
    owner = recording.one("aws:s3/bucketOwnershipControls:BucketOwnershipControls").inputs
    assert owner["rule"] == {"objectOwnership": "BucketOwnerEnforced"}
    assert recording.one(VERSIONING).inputs["versioningConfiguration"] == {"status": "Enabled"}
    (rule,) = recording.one(ENCRYPTION).inputs["rules"]
    assert rule["applyServerSideEncryptionByDefault"] == {"sseAlgorithm": "AES256"}


@pytest.mark.slow
def test_the_bucket_can_have_a_name_and_a_key() -> None:
    recording = declare(s3(bucket="my-bucket", kms_key=KEY))
    assert recording.one(BUCKET).inputs["bucket"] == "my-bucket"
    (rule,) = recording.one(ENCRYPTION).inputs["rules"]
    assert rule["applyServerSideEncryptionByDefault"] == {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": KEY}
    assert rule["bucketKeyEnabled"] is True
    for name in ("store-sync", "store-mount", "run"):
        (grant,) = [
            statement
            for statement in statements(recording.one(ROLE_POLICY, name))
            if any(action.startswith("kms:") for action in statement["Action"])
        ]
        assert grant["Resource"] == [KEY]
        assert grant["Condition"] == {"StringEquals": {"kms:ViaService": "s3.us-east-1.amazonaws.com"}}


EXISTING = {"kind": "existing-s3", "bucket": "team-data", "folder": "vision/slipway"}


def test_of_an_existing_bucket_nothing_is_declared_and_the_own_roles_reach_the_folder_alone() -> None:
    recording = declare(with_store(**EXISTING))
    assert not [resource for resource in recording.resources if resource.type.startswith("aws:s3/bucket")]
    files = recording.one("aws:s3/filesFileSystem:FilesFileSystem").inputs
    bucket = "arn:aws:s3:::team-data"
    assert (files["bucket"], files["prefix"]) == (bucket, "vision/slipway/")
    policies = [resource for resource in recording.resources if resource.type == "aws:iam/rolePolicy:RolePolicy"]
    named = {
        name
        for resource in policies
        for statement in statements(resource)
        for name in statement["Resource"]
        if name.startswith("arn:aws:s3:::")
    }
    # Names are listed in the whole bucket; what is in objects is the folder's alone.
    assert named - {bucket}
    assert all(name.startswith(f"{bucket}/vision/slipway/") for name in named - {bucket})


def test_what_is_no_bucket_or_no_folder_is_refused_together() -> None:
    with pytest.raises(SettingsError) as error:
        with_store(kind="existing-s3", bucket="s3://team-data/x", folder="../*", location="x")
    keys = {problem.key for problem in error.value.problems}
    assert keys >= {"slipway:store.bucket", "slipway:store.folder", "slipway:store.location"}


def test_nobody_reads_the_bucket_without_tls() -> None:
    (statement,) = statements(declare(s3()).one(POLICY))
    bucket = f"arn:aws:s3:::slipway-test-{ACCOUNT}-us-east-1"
    assert statement == {
        "Effect": "Deny",
        "Principal": "*",
        "Action": ["s3:*"],
        "Resource": [bucket, f"{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def test_only_unfinished_uploads_and_old_versions_are_ever_deleted() -> None:
    rules = declare(s3(old_version_days=3)).one(LIFECYCLE).inputs["rules"]
    assert {rule["status"] for rule in rules} == {"Enabled"}
    actions = [
        {key: value for key, value in rule.items() if key not in {"id", "status", "filter"}} for rule in rules
    ]
    assert actions == [
        {"abortIncompleteMultipartUpload": {"daysAfterInitiation": 7}},
        {
            "noncurrentVersionExpiration": {"noncurrentDays": 3},
            "expiration": {"expiredObjectDeleteMarker": True},
        },
    ]


def test_the_jobs_identity_reaches_the_stores_objects_and_nothing_else() -> None:
    recording = declare(load(raw(lambda values: values.update(namespace="vision", service_account="jobs"))))
    association = recording.one(ASSOCIATION, "run").inputs
    assert (association["namespace"], association["serviceAccount"]) == ("vision", "jobs")
    bucket = f"arn:aws:s3:::slipway-test-{ACCOUNT}-us-east-1"
    allowed_ = statements(recording.one(ROLE_POLICY, "run"))
    assert allowed(allowed_, "") == {
        "s3:GetObject": [f"{bucket}/store/*"],
        "s3:PutObject": [f"{bucket}/store/*"],
        "s3:DeleteObject": [f"{bucket}/store/*"],
        "s3:AbortMultipartUpload": [f"{bucket}/store/*"],
        "s3:ListBucket": [bucket],
    }
    (listing,) = [finding for finding in allowed_ if "s3:ListBucket" in finding["Action"]]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["store", "store/*"]}}
    assert recording.result["dev"].service_account_annotations == {}


@pytest.mark.slow
def test_an_app_reads_the_stores_objects_and_writes_its_own_folder_alone() -> None:
    recording = declare(WithApps.model_validate(s3().model_dump()), then=lambda _: None)
    bucket = f"arn:aws:s3:::slipway-test-{ACCOUNT}-us-east-1"
    reading = {"s3:GetObject": [f"{bucket}/store/*"], "s3:ListBucket": [bucket]}
    assert allowed(statements(recording.one(ROLE_POLICY, "app-mnist-serving")), "") == reading
    writing = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
    custom = {action: [f"{bucket}/store/mnist/notebook/*"] for action in writing}
    assert allowed(statements(recording.one(ROLE_POLICY, "app-mnist-notebook")), "") == {**reading, **custom}
    association = recording.one(ASSOCIATION, "app-mnist-serving").inputs
    assert association["serviceAccount"] == "mnist-serving"


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
@pytest.mark.parametrize("kind", KINDS)
def test_jobs_wait_for_their_identity_and_their_volume(kind: str, preview: bool) -> None:
    recording = declare(with_store(kind=kind), preview=preview)
    waited = {resource._name for resource in recording.result["dev"].ready}
    assert {resource.name for resource in recording.of(VOLUME)} <= waited
    if kind == "s3":
        assert {recording.one(ASSOCIATION, "run").name, recording.one(ROLE_POLICY, "run").name} <= waited
    else:
        assert [resource.name for resource in recording.of(ASSOCIATION) if resource.name == "run"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_nfs_is_open_to_the_nodes_in_every_zone_and_to_nobody_else(kind: str) -> None:
    recording = declare(with_store(kind=kind))
    (rule,) = recording.of(INGRESS)
    assert (rule.inputs["ipProtocol"], rule.inputs["fromPort"], rule.inputs["toPort"]) == ("tcp", 2049, 2049)
    assert "cidrIpv4" not in rule.inputs
    _, target, _, _ = KINDS[kind]
    targets = recording.of(target)
    assert len({resource.inputs["subnetId"] for resource in targets}) == 2
    for target_ in targets:
        assert target_.inputs["securityGroups"] == [rule.inputs["securityGroupId"]]
    (nodes,) = {rule.inputs["referencedSecurityGroupId"]}
    assert nodes != rule.inputs["securityGroupId"]


def entrance(recording: Recording, kind: str) -> tuple[Any, Any]:
    """The user of a store's access point, and the folder that it begins at."""
    inputs = recording.one(KINDS[kind][2]).inputs
    if kind == "efs":
        return inputs["posixUser"], (inputs["rootDirectory"]["path"], inputs["rootDirectory"]["creationInfo"])
    ((user,), (root,)) = inputs["posixUsers"], inputs["rootDirectories"]
    return user, (root["path"], root["creationPermissions"][0])


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_pods_write_belongs_to_their_user(kind: str) -> None:
    user, root = entrance(declare(with_store(kind=kind)), kind)
    assert user == {"uid": POD_USER, "gid": POD_USER}
    assert root == ("/store", {"ownerUid": POD_USER, "ownerGid": POD_USER, "permissions": "0770"})


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_driver_mounts_and_only_through_the_access_point(kind: str) -> None:
    recording = declare(with_store(kind=kind))
    files, _, _, policy = KINDS[kind]
    (statement,) = statements(recording.one(policy))
    service = "s3files" if kind == "s3" else "elasticfilesystem"
    assert statement["Action"] == [f"{service}:ClientMount", f"{service}:ClientWrite"], "and not as root"
    role = recording.one(ROLE, "dev-storage").inputs["name"]
    assert statement["Principal"] == {"AWS": f"arn:aws:iam::{ACCOUNT}:role/{role}"}
    conditions = {key: value for entry in statement["Condition"].values() for key, value in entry.items()}
    assert "/fsap-" in conditions[f"{service}:AccessPointArn"]
    assert len(recording.of(files)) == 1


def test_the_drivers_rights_are_on_the_one_file_system_and_bucket() -> None:
    recording = declare(s3())
    allowed_ = statements(recording.one(ROLE_POLICY, "store-mount"))
    bucket = f"arn:aws:s3:::slipway-test-{ACCOUNT}-us-east-1"
    assert allowed(allowed_, "s3:") == {
        "s3:ListBucket": [bucket],
        "s3:GetObject": [f"{bucket}/*"],
        "s3:GetObjectVersion": [f"{bucket}/*"],
    }
    ((mount,), (write,)) = allowed(allowed_, "s3files:").values()
    assert mount == write
    assert mount.startswith(f"arn:aws:s3files:us-east-1:{ACCOUNT}:file-system/fs-")


def test_synchronizing_is_for_s3_files_of_this_account_only() -> None:
    recording = declare(s3())
    (trust,) = statements(recording.one(ROLE, "store-sync"), "assumeRolePolicy")
    assert trust["Principal"] == {"Service": "elasticfilesystem.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {"aws:SourceAccount": ACCOUNT},
        "ArnLike": {"aws:SourceArn": f"arn:aws:s3files:us-east-1:{ACCOUNT}:file-system/*"},
    }
    bucket = f"arn:aws:s3:::slipway-test-{ACCOUNT}-us-east-1"
    for action, resources in allowed(statements(recording.one(ROLE_POLICY, "store-sync")), "s3:").items():
        assert resources in ([bucket], [f"{bucket}/*"]), action


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_the_file_system_finds_a_bucket_with_versions_and_a_role_with_rights(preview: bool) -> None:
    """S3 Files does not check the role when it is made: it would stay in `creating`."""
    recording = declare(s3(), preview=preview)
    waited = recording.waits_for(recording.one(FILES))
    needed = (recording.one(VERSIONING), recording.one(ENCRYPTION), recording.one(ROLE_POLICY, "store-sync"))
    assert {resource.urn for resource in needed} <= waited


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_volume_goes_before_everything_that_it_is_mounted_through(kind: str, preview: bool) -> None:
    """What a resource waits for when it is created is what outlives it when the stack is destroyed."""
    recording = declare(with_store(kind=kind), preview=preview)
    waited = recording.waits_for(recording.one(VOLUME))
    for token in (*KINDS[kind], INGRESS):
        assert {resource.urn for resource in recording.of(token)} <= waited
    assert recording.one(ADDON, "dev-aws-efs-csi-driver").urn in waited
    if kind == "s3":
        assert recording.one(BUCKET).urn in waited
        assert recording.one(ROLE_POLICY, "store-mount").urn in waited
        assert recording.one(BUCKET).urn in recording.waits_for(recording.one(FILES))


@pytest.mark.parametrize("kind", KINDS)
def test_another_namespace_gets_another_volume(kind: str) -> None:
    """Kubernetes binds a volume that was bound once to no claim of another namespace."""
    volume = declare(with_store(kind=kind)).one(VOLUME)
    assert "spec.claimRef" in volume.replace_on_changes
    assert volume.delete_before_replace


@pytest.mark.parametrize("kind", KINDS)
def test_pods_claim_the_one_volume_and_several_nodes_may_write(kind: str) -> None:
    recording = declare(with_store(kind=kind))
    volume = recording.one(VOLUME).inputs
    assert volume["spec"]["accessModes"] == ["ReadWriteMany"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    claim = volume["spec"]["claimRef"]
    assert (claim["namespace"], claim["name"]) == ("slipway", "store")
    source = volume["spec"]["csi"]
    assert source["driver"] == "efs.csi.aws.com"
    kind_of, _, handle = source["volumeHandle"].rpartition(":fs-")
    assert kind_of == ("s3files" if kind == "s3" else "") or source["volumeHandle"].startswith("fs-")
    assert "::fsap-" in source["volumeHandle"]
    assert handle or kind == "efs"
    store = recording.result["dev"].store
    assert store.claim.access_mode == "ReadWriteMany"
    assert store.claim.storage_class == ""


def test_efs_is_mounted_encrypted_and_as_the_driver() -> None:
    assert declare(efs()).one(VOLUME).inputs["spec"]["mountOptions"] == ["tls", "iam"]


@pytest.mark.slow
def test_efs_is_encrypted_and_as_the_settings_say() -> None:
    recording = declare(efs(backup=True, kms_key=KEY))
    inputs = recording.one(EFS).inputs
    assert inputs["encrypted"] is True
    assert inputs["kmsKeyId"] == KEY
    assert inputs["throughputMode"] == "elastic"
    assert inputs["lifecyclePolicies"] == [
        {"transitionToIa": "AFTER_30_DAYS"},
        {"transitionToPrimaryStorageClass": "AFTER_1_ACCESS"},
    ]
    backup = recording.one("aws:efs/backupPolicy:BackupPolicy").inputs
    assert backup["backupPolicy"] == {"status": "ENABLED"}


def test_copies_leave_the_file_system_when_nobody_uses_them() -> None:
    inputs = declare(s3()).one(SYNC).inputs
    assert inputs["expirationDataRules"] == [{"daysAfterLastAccess": 30}]
    (rule,) = inputs["importDataRules"]
    assert (rule["prefix"], rule["trigger"]) == ("", "ON_FILE_ACCESS")


@pytest.mark.slow
def test_people_are_told_where_the_results_are() -> None:
    def then(platforms: Mapping[str, Platform]) -> None:
        store = platforms["dev"].store
        assert store.browse
        pulumi.export("page", store.browse("mnist/run"))
        # The results arrive in the bucket only a while after the Job that wrote them.
        assert store.read is None
        k8s.core.v1.ConfigMap("one", opts=pulumi.ResourceOptions(provider=platforms["dev"].provider))

    recording = declare(s3(), then=then)
    assert recording.exports["dev-store"] == f"s3://slipway-test-{ACCOUNT}-us-east-1/store"
    assert recording.exports["page"] == (
        "https://us-east-1.console.aws.amazon.com/s3/buckets/"
        f"slipway-test-{ACCOUNT}-us-east-1?prefix=store/mnist/run/"
    )
    assert declare(efs()).exports["dev-store"].startswith("efs://fs-")


def test_where_the_store_will_be_is_known_before_it_is_there() -> None:
    assert declare(s3(), preview=True).exports["dev-store"] == f"s3://slipway-test-{ACCOUNT}-us-east-1/store"
