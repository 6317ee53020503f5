"""What is said of an update that deletes what holds data, or that is refused."""

import json
import re
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from infra.clouds.registry import reviews
from infra.review.contract import Harm, Severity, reviewed
from infra.review.stack import UNKNOWN, Resource, Stack
from infra.settings.model import Settings
from offline.evaluated.model import Finding, Suppressed
from offline.evaluated.operations import compare_resources
from offline.policies.changes import Change
from offline.policies.check import CHANGE_POLICIES, check, check_change, policies, suppressions_of
from tests.support.checkout import ROOT
from tests.support.reviewing import declared

TODAY = date(2026, 11, 22)

BUCKET = "gcp:storage/bucket:Bucket"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"
SET = "kubernetes:apps/v1:StatefulSet"
BUDGET = "kubernetes:policy/v1:PodDisruptionBudget"
LABEL = "eks.amazonaws.com/nodegroup"
RBAC = "kubernetes:rbac.authorization.k8s.io/v1:"
NAMESPACE = "kubernetes:core/v1:Namespace"
PROVIDER = "urn:pulumi:test::slipway::pulumi:providers:kubernetes::here"


def stack(*resources: Resource, **suppressions: dict[str, Any]) -> Stack:
    configuration = {
        "slipway:policies": {"suppress": {key.replace("_", "-"): each for key, each in suppressions.items()}}
    }
    return reviewed(
        Stack("test", {resource.urn: resource for resource in resources}, configuration=configuration), reviews()
    )


def update(before: Stack, after: Stack) -> tuple[list[Finding], list[Suppressed]]:
    change = Change(before, after, compare_resources(before, after))
    return check_change(change, suppressions_of(after.configuration), TODAY)


def found(before: Resource | list[Resource], after: Resource | list[Resource] | None) -> list[Finding]:
    old = before if isinstance(before, list) else [before]
    new = [] if after is None else after if isinstance(after, list) else [after]
    return update(stack(*old), stack(*new))[0]


def said(before: Resource | list[Resource], after: Resource | list[Resource] | None) -> dict[str, tuple[str, str]]:
    """By the name of the resource, the policy and the reason."""
    return {each.name.partition(" ")[0]: (each.policy, each.reason) for each in found(before, after)}


def bucket(location: str = "US-CENTRAL1", *, days: int = 0, empties: bool = True, **more: Any) -> Resource:
    properties = {
        "name": "store",
        "location": location,
        "forceDestroy": empties,
        "softDeletePolicy": {"retentionDurationSeconds": days * 86_400},
    }
    return declared(BUCKET, "store", properties, **more)


def on_cluster(type_: str, name: str, namespace: str = "", **properties: Any) -> Resource:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return declared(type_, name, {"metadata": metadata, **properties}, provider=PROVIDER)


def claim(namespace: str = "ml", **spec: Any) -> Resource:
    return on_cluster(CLAIM, "models", namespace, spec={"accessModes": ["ReadWriteOnce"], **spec})


def test_a_replaced_bucket_reports_the_loss_its_reason_and_its_recovery() -> None:
    [finding] = found(bucket(), bucket("US-EAST1"))
    assert (finding.policy, finding.severity, finding.harm, finding.new) == (
        "deletes-data",
        Severity.ERROR,
        True,
        True,
    )
    assert finding.reason.startswith(
        "deletes the bucket and everything in it, old versions included: another location"
    )
    assert "it cannot be restored" in finding.reason
    assert "leave location as before" in finding.fix


def test_soft_delete_reports_its_duration_and_the_needed_name() -> None:
    policy, reason = said(bucket(days=30), bucket("US-EAST1"))["store"]
    assert policy == "deletes-data"
    assert "for 30 days" in reason
    assert "while no bucket has its name" in reason


def test_a_bucket_that_cannot_be_emptied_fails_the_update_half_way() -> None:
    policy, reason = said(bucket(empties=False), bucket("US-EAST1"))["store"]
    assert policy == "deletion-refused"
    assert "fails half-way" in reason
    assert "forceDestroy is off" in reason


def test_protection_in_the_state_counts_and_not_in_the_change() -> None:
    """A bucket is deleted as the last update left it."""
    assert said(bucket(empties=False), bucket("US-EAST1", empties=True))["store"][0] == "deletion-refused"
    assert said(bucket(empties=True), bucket("US-EAST1", empties=False))["store"][0] == "deletes-data"


def test_a_protected_resource_is_refused_and_not_lost() -> None:
    [finding] = found(bucket(protect=True), bucket("US-EAST1", protect=True))
    assert (finding.policy, finding.severity, finding.harm) == ("deletion-refused", Severity.ERROR, True)
    assert "it is protected" in finding.reason
    [other] = found(declared("test:index:Thing", protect=True), None)
    assert other.policy == "deletion-refused"


def test_a_retained_resource_keeps_its_data() -> None:
    for after in (None, bucket("US-EAST1")):
        # What it still has is still billed.
        assert [each.policy for each in found(bucket(retain_on_delete=True), after)] == ["leaves-billed"]


def test_a_protected_resource_is_refused_even_if_it_is_retained() -> None:
    [finding] = found(bucket(protect=True, retain_on_delete=True), None)
    assert finding.policy == "deletion-refused"
    assert "it is protected" in finding.reason


def test_an_update_in_place_and_a_new_resource_lose_nothing() -> None:
    assert found(bucket(), bucket(days=7)) == []
    assert found([], bucket()) == []


@pytest.mark.parametrize(
    ("type_", "properties", "words"),
    [
        ("aws:efs/fileSystem:FileSystem", {}, "the file system and everything in it"),
        ("aws:s3/bucket:Bucket", {"forceDestroy": True}, "the bucket and everything in it"),
        ("aws:ecr/repository:Repository", {"forceDelete": True}, "every image in it"),
        ("aws:kms/key:Key", {"deletionWindowInDays": 7}, "for 7 days its deletion can be cancelled"),
        ("aws:ebs/volume:Volume", {}, "the volume and everything on it"),
        ("aws:cloudwatch/logGroup:LogGroup", {}, "the log group and all logs in it"),
        ("aws:ec2/eip:Eip", {"domain": "vpc"}, "a public address"),
        ("gcp:container/cluster:Cluster", {}, "the cluster and everything in it"),
        ("azure:storage/share:Bucket", {}, "it and everything in it"),
    ],
)
def test_resources_that_hold_data_on_any_cloud(type_: str, properties: dict[str, Any], words: str) -> None:
    policy, reason = said(declared(type_, "it", properties), None)["it"]
    assert policy == "deletes-data"
    assert words in reason
    assert "the stack no longer has it" in reason


@pytest.mark.parametrize(
    ("type_", "guard"),
    [("gcp:container/cluster:Cluster", "deletionProtection"), ("aws:eks/cluster:Cluster", "deletionProtection")],
)
def test_a_clouds_own_protection_refuses(type_: str, guard: str) -> None:
    policy, reason = said(declared(type_, "it", {guard: True}), None)["it"]
    assert policy == "deletion-refused"
    assert guard in reason


def test_backups_of_a_file_system_are_mentioned() -> None:
    files = declared("aws:efs/fileSystem:FileSystem", "files")
    backup = declared(
        "aws:efs/backupPolicy:BackupPolicy",
        "files",
        {"backupPolicy": {"status": "ENABLED"}},
        property_dependencies={"fileSystemId": frozenset({files.urn})},
    )
    assert "keeps its daily backups for 35 days" in said([files, backup], None)["files"][1]
    assert "it cannot be restored" in said(files, None)["files"][1]


@pytest.mark.parametrize(
    "type_",
    [
        "kubernetes:core/v1:ConfigMap",
        "kubernetes:batch/v1:Job",
        NAMESPACE,
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        "aws:s3/filesFileSystem:FilesFileSystem",
    ],
)
def test_resources_that_hold_no_data(type_: str) -> None:
    assert found(on_cluster(type_, "it"), None) == []


def test_a_claim_that_the_cluster_fills_goes_with_its_volume() -> None:
    policy, reason = said(claim(), claim("vision"))["models"]
    assert policy == "deletes-data"
    assert "deletes the claim and everything in it: another metadata.namespace" in reason
    assert "unless the reclaim policy of the cluster's default storage class is Retain" in reason
    assert "the storage class fast" in said(claim(storageClassName="fast"), None)["models"][1]


@pytest.mark.parametrize(("policy", "lost"), [("Retain", False), (None, False), ("Delete", True)])
def test_a_volume_with_the_policy_retain_keeps_the_data_of_its_claim(policy: str | None, lost: bool) -> None:
    volume = on_cluster(VOLUME, "disk", spec={"persistentVolumeReclaimPolicy": policy})
    there = said([volume, claim(volumeName="disk", storageClassName="")], None)
    assert set(there) == ({"models", "disk"} if lost else set())


@pytest.mark.parametrize(("policy", "lost"), [("Retain", False), (None, True)])
def test_the_reclaim_policy_of_a_storage_class_counts(policy: str | None, lost: bool) -> None:
    class_ = on_cluster("kubernetes:storage.k8s.io/v1:StorageClass", "fast", reclaimPolicy=policy)
    assert bool(found([class_, claim(storageClassName="fast")], [class_])) == lost


def test_a_deleted_namespace_deletes_its_unchanged_claims() -> None:
    namespace = on_cluster(NAMESPACE, "ml")
    policy, reason = said([namespace, claim()], [claim()])["models"]
    assert policy == "deletes-data"
    assert "its namespace ml goes, with all that is in it" in reason
    kept = replace(namespace, retain_on_delete=True)
    assert found([kept, claim()], [claim()]) == []


def test_a_deleted_namespace_deletes_the_claims_of_its_stateful_sets() -> None:
    set_ = on_cluster("kubernetes:apps/v1:StatefulSet", "db", "ml", spec={"volumeClaimTemplates": [{}]})
    policy, reason = said([on_cluster(NAMESPACE, "ml"), set_], [set_])["ml"]
    assert policy == "deletes-data"
    assert "the claims of the StatefulSet db included" in reason


def test_data_on_a_possibly_identical_cluster_are_lost_conditionally() -> None:
    old, new = (
        replace(declared("pulumi:providers:kubernetes", "here", {"kubeconfig": path}), urn=PROVIDER)
        for path in ("~/.kube/config", "~/.kube/other")
    )
    policy, reason = said([old, claim()], [new, claim()])["models"]
    assert policy == "deletes-data"
    assert "the provider here is replaced" in reason
    assert reason.endswith(", unless both lead to the same server, which this preview does not look up")


def test_the_changed_stacks_file_suppresses_with_a_reason() -> None:
    before, reason = stack(bucket()), {"reason": "It is empty.", "resources": ["store"]}
    findings, suppressed = update(before, stack(bucket("US-EAST1"), deletes_data=reason))
    assert findings == []
    assert [(each.finding.policy, each.why) for each in suppressed] == [("deletes-data", "It is empty.")]
    elsewhere = {"reason": "It is empty.", "resources": ["other"]}
    assert update(before, stack(bucket("US-EAST1"), deletes_data=elsewhere))[0]


@pytest.mark.parametrize(("until", "counts"), [(None, False), ("2026-11-21", False), ("2026-11-22", True)])
def test_a_suppression_of_an_earlier_change_counts_only_until_its_last_day(
    until: str | None, counts: bool
) -> None:
    reason = {"reason": "It is empty.", **({"until": until} if until else {})}
    findings, suppressed = update(
        stack(bucket(), deletes_data=reason), stack(bucket("US-EAST1"), deletes_data=reason)
    )
    assert (len(findings), len(suppressed)) == ((0, 1) if counts else (1, 0))
    assert all("suppression" in finding.reason for finding in findings)


def test_suppressions_of_change_policies_are_never_unused() -> None:
    there = stack(bucket(), deletes_data={"reason": "It was empty."}, deletion_refused={"reason": "It was."})
    findings, _ = check(there, suppressions_of(there.configuration), TODAY)
    assert [finding for finding in findings if finding.policy.endswith("-suppression")] == []


def test_ids_differ_from_those_of_all_other_policies() -> None:
    assert not {change_policy.id for change_policy in CHANGE_POLICIES} & {policy.id for policy in policies()}


EKS = "aws:eks/cluster:Cluster"
GROUP = "aws:eks/nodeGroup:NodeGroup"


def eks(key: object = "arn:aws:kms:one", subnets: object = "subnet-a", **more: Any) -> Resource:
    encryption = {"provider": {"keyArn": key}, "resources": ["secrets"]}
    return declared(EKS, "ml", {"encryptionConfig": encryption, "vpcConfig": {"subnetIds": [subnets]}, **more})


def group(least: int, most: int) -> Resource:
    scaling = {"minSize": least, "maxSize": most, "desiredSize": 0}
    return declared(GROUP, "gpu", {"scalingConfig": scaling}, ignore_changes=("scalingConfig.desiredSize",))


@pytest.mark.parametrize(
    ("after", "reason", "fix"),
    [
        (
            eks("arn:aws:kms:two"),
            "another encryptionConfig.provider.keyArn is not carried out: EKS keeps",
            "leave the key",
        ),
        (
            eks(subnets="subnet-b"),
            "another vpcConfig.subnetIds is not carried out: EKS takes other subnets",
            "leave `zones`",
        ),
    ],
    ids=["key", "subnets"],
)
def test_an_update_that_the_cloud_refuses_is_an_error_with_its_reason(
    after: Resource, reason: str, fix: str
) -> None:
    [finding] = found(eks(), after)
    assert (finding.policy, finding.severity, finding.harm) == ("update-refused", Severity.ERROR, True)
    assert finding.reason.startswith(reason)
    assert finding.fix.startswith(fix)


def test_a_refused_update_can_be_suppressed_with_a_reason() -> None:
    after = stack(eks("arn:aws:kms:two"), update_refused={"reason": "the key is the same, by another name"})
    findings, suppressed = update(stack(eks()), after)
    assert findings == []
    assert [each.why for each in suppressed] == ["the key is the same, by another name"]


def test_an_update_that_ends_running_pods_is_a_warning() -> None:
    [finding] = found(group(0, 1), group(0, 2))
    assert (finding.policy, finding.severity, finding.harm) == ("ends-running-pods", Severity.WARNING, True)
    assert "desired size in the state" in finding.reason
    assert "pulumi refresh" in finding.fix


def test_a_refused_update_ends_nothing() -> None:
    assert [each.policy for each in found(group(0, 1), group(1, 1))] == ["update-refused"]


def team_volume(handle: str) -> Resource:
    spec = {
        "claimRef": {"name": "store", "namespace": "research"},
        "csi": {"driver": "efs.csi.aws.com", "volumeHandle": handle},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    return on_cluster(VOLUME, "store-research", spec=spec)


def test_a_volume_that_another_stack_claims_cannot_be_replaced() -> None:
    [finding] = found(team_volume("fs-1"), team_volume("fs-2"))
    assert (finding.policy, finding.severity, finding.harm) == ("deletion-refused", Severity.ERROR, True)
    assert "claim store in namespace research, which another stack has" in finding.reason
    assert "destroy the stack that runs Jobs in research first" in finding.fix
    assert found(team_volume("fs-1"), team_volume("fs-1")) == []


def test_a_volume_that_the_stack_claims_itself_is_replaced_with_its_claim() -> None:
    held = on_cluster(CLAIM, "store", "research", spec={})
    assert [each.policy for each in found([team_volume("fs-1"), held], [team_volume("fs-2"), held])] == []


def test_a_claim_that_shrinks_is_refused() -> None:
    small, large = (claim(resources={"requests": {"storage": size}}) for size in ("10Gi", "20Gi"))
    assert [each.policy for each in found(large, small)] == ["update-refused"]
    assert found(small, large) == []


@pytest.mark.parametrize(("class_", "refused"), [("", True), ("premium-rwo", False)])
def test_a_claim_that_grows_on_a_class_that_lets_none_grow_is_refused(class_: str, refused: bool) -> None:
    small, large = (
        claim(storageClassName=class_, resources={"requests": {"storage": size}}) for size in ("10Gi", "20Gi")
    )
    assert [each.policy for each in found(small, large)] == ["update-refused"] * refused
    assert found(small, claim(storageClassName=class_, resources={"requests": {"storage": "10240Mi"}})) == []


def test_a_shorter_retention_is_a_loss_of_data_with_both_numbers() -> None:
    before, after = (
        declared("aws:cloudwatch/logGroup:LogGroup", "audit", {"retentionInDays": days}) for days in (90, 7)
    )
    [finding] = found(before, after)
    assert (finding.policy, finding.severity, finding.harm) == ("deletes-data", Severity.ERROR, True)
    assert "retentionInDays 90 → 7" in finding.reason
    assert found(after, before) == []


def test_each_safeguard_that_is_switched_off_is_named() -> None:
    before, after = (declared(EKS, "ml", {"enabledClusterLogTypes": logs}) for logs in (["api", "audit"], ["api"]))
    [finding] = found(before, after)
    assert (finding.policy, finding.severity, finding.harm) == ("safeguard-off", Severity.WARNING, True)
    assert '"audit"' in finding.reason
    assert found(after, before) == []


def test_a_closed_endpoint_of_the_api_server_is_refused() -> None:
    before, after = (declared(EKS, "ml", {"vpcConfig": {"endpointPublicAccess": on}}) for on in (True, False))
    [finding] = found(before, after)
    assert (finding.policy, finding.severity, finding.harm) == ("update-refused", Severity.ERROR, True)
    assert "fails half-way" in finding.reason
    assert [each.policy for each in found(after, before)] == ["lets-in"]


GKE_POOL = "gcp:container/nodePool:NodePool"


@pytest.mark.parametrize("goes", ["replaced", "renamed", "deleted"])
@pytest.mark.parametrize(
    ("type_", "key", "values"),
    [(GROUP, "capacityType", ("SPOT", "ON_DEMAND")), (GKE_POOL, "nodeConfig", ({"spot": True}, {"spot": False}))],
)
def test_a_node_pool_that_goes_ends_what_runs_on_it(
    type_: str, key: str, values: tuple[object, object], goes: str
) -> None:
    selector = {"eks.amazonaws.com/nodegroup": "t4", "cloud.google.com/gke-nodepool": "t4"}
    properties = {
        "nodeGroupName": "t4",
        "name": "t4",
        "clusterName": "here",
        "cluster": "here",
        "labels": selector,
        "scalingConfig": {"minSize": 1, "maxSize": 1},
        "nodeCount": 1,
    }
    pod = {"containers": [{"name": "main", "image": "train"}]}
    job = on_cluster("kubernetes:batch/v1:Job", "train", "ml", spec={"template": {"spec": pod}})
    before = declared(type_, "here-t4", {**properties, key: values[0]})
    after = {
        "replaced": [declared(type_, "here-t4", {**properties, key: values[1]})],
        "renamed": [declared(type_, "here-t4-new", {**properties, "nodeGroupName": "new", "name": "new"})],
        "deleted": [],
    }[goes]
    findings = found([before, job], [*after, job])
    [finding] = [each for each in findings if each.policy == "ends-running-pods"]
    assert (finding.severity, finding.harm, finding.resource) == (Severity.WARNING, True, before.urn)
    assert "`t4`" in finding.reason
    assert "train" in finding.reason


def access_entry(principal: str) -> list[Resource]:
    entry = declared(
        "aws:eks/accessEntry:AccessEntry", principal, {"principalArn": principal, "clusterName": "ml"}
    )
    policy = declared(
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        principal,
        {
            "principalArn": UNKNOWN,
            "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
            "clusterName": "ml",
            "accessScope": {"type": "cluster"},
        },
        property_dependencies={"principalArn": frozenset({entry.urn})},
    )
    return [entry, policy]


def reachable(*blocks: str) -> list[Resource]:
    return [declared(EKS, "ml", {"vpcConfig": {"endpointPublicAccess": True, "publicAccessCidrs": [*blocks]}})]


def trusting(*principals: str, **condition: Any) -> list[Resource]:
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": [*principals]}, **condition}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    return [declared("aws:iam/role:Role", "deploy", {"assumeRolePolicy": document})]


def readable_by(*principals: str) -> list[Resource]:
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", "Principal": {"AWS": [*principals]}}
    document = json.dumps({"Version": "2012-10-17", "Statement": statement})
    return [declared("aws:s3/bucketPolicy:BucketPolicy", "store", {"policy": document})]


def bound(*people: str) -> list[Resource]:
    role = {"kind": "ClusterRole", "name": "admin"}
    subjects = [{"kind": "User", "name": person} for person in people]
    return [on_cluster(f"{RBAC}RoleBinding", "admins", "ml", roleRef=role, subjects=subjects)]


ROLE_ARN, OTHER = "arn:aws:iam::111111111111:role/ops", "arn:aws:iam::222222222222:role/ops"


@pytest.mark.parametrize(
    ("before", "after", "principal"),
    [
        (access_entry(ROLE_ARN), [*access_entry(ROLE_ARN), *access_entry(OTHER)], OTHER),
        (reachable("192.0.2.0/24"), reachable("192.0.2.0/24", "198.51.100.0/24"), "198.51.100.0/24"),
        (trusting(ROLE_ARN), trusting(ROLE_ARN, OTHER), OTHER),
        (
            trusting(ROLE_ARN, Condition={"Bool": {"aws:MultiFactorAuthPresent": "true"}}),
            trusting(ROLE_ARN),
            ROLE_ARN,
        ),
        (readable_by(ROLE_ARN), readable_by(ROLE_ARN, OTHER), OTHER),
        (bound("jane"), bound("jane", "joe"), "joe"),
    ],
    ids=["admin", "network", "trust", "condition", "bucket", "rbac"],
)
def test_whoever_is_let_in_by_a_change_is_named(
    before: list[Resource], after: list[Resource], principal: str
) -> None:
    findings = [each for each in found(before, after) if each.policy == "lets-in"]
    assert [(finding.severity, finding.harm) for finding in findings] == [(Severity.WARNING, True)]
    assert principal in findings[0].reason
    assert "lets-in" not in {each.policy for each in found(before, before)}


@pytest.mark.parametrize(
    ("before", "after", "opens"),
    [
        (["10.0.0.0/8"], ["10.1.0.0/16"], False),
        (["10.1.0.0/16"], ["10.0.0.0/8"], True),
        ([], ["192.0.2.0/24"], False),
        (["192.0.2.0/24"], [], True),
        (["::/0"], ["2001:db8::/32"], False),
        (["::/0"], ["192.0.2.0/24"], True),
    ],
    ids=["narrower", "wider", "no longer everybody", "everybody", "narrower IPv6", "IPv4 beside IPv6"],
)
def test_a_network_inside_one_that_was_let_in_is_not_told(
    before: list[str], after: list[str], opens: bool
) -> None:
    policies = {finding.policy for finding in found(reachable(*before), reachable(*after))}
    assert ("lets-in" in policies) == opens


def test_services_of_aws_and_roles_of_the_stack_are_nobody_from_outside() -> None:
    trusted = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "eks.amazonaws.com"}}
    own = {"Effect": "Allow", "Action": "s3:GetObject", "Principal": {"AWS": "[nodes.arn]"}}
    after = [
        declared("aws:iam/role:Role", "nodes", {"assumeRolePolicy": json.dumps({"Statement": [trusted]})}),
        declared("aws:s3/bucketPolicy:BucketPolicy", "store", {"policy": json.dumps({"Statement": [own]})}),
    ]
    assert found([], after) == []


def test_nothing_has_to_protect_an_address() -> None:
    address, logs = declared("aws:ec2/eip:Eip", "nat"), declared("aws:cloudwatch/logGroup:LogGroup", "audit")
    production = replace(stack(address, logs), name="prod")
    findings, _ = check(production, {}, TODAY)
    assert [finding.resource for finding in findings if finding.policy == "production-unprotected"] == [logs.urn]


def eks_pool(version: str, name: str = "queue") -> Resource:
    properties = {
        "nodeGroupName": name,
        "clusterName": "here",
        "labels": {},
        "scalingConfig": {"minSize": 1, "maxSize": 1},
        "launchTemplate": {"version": version},
    }
    return declared(GROUP, f"here-{name}", properties)


def queue(**budget: Any) -> list[Resource]:
    labels = {"app": "queue"}
    pod = {"containers": [{"name": "main", "image": "valkey"}], "nodeSelector": {LABEL: "queue"}}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return [
        on_cluster(SET, "queue", "ml", spec={"replicas": 1, "template": template}),
        on_cluster(BUDGET, "queue", "ml", spec={"selector": {"matchLabels": labels}, **budget}),
    ]


@pytest.mark.parametrize(
    ("budget", "refused"),
    [
        ({"minAvailable": 1}, True),
        ({"minAvailable": "100%"}, True),
        ({"maxUnavailable": 0}, True),
        ({"maxUnavailable": 1}, False),
        ({"minAvailable": 0}, False),
        ({}, False),
    ],
)
def test_a_pool_whose_pods_no_budget_lets_go_cannot_be_updated(budget: dict[str, Any], refused: bool) -> None:
    rest = [*queue(**budget), eks_pool("1", "other")]
    findings = found([eks_pool("1"), *rest], [eks_pool("2"), *rest])
    assert ("update-refused" in {each.policy for each in findings}) == refused
    if refused:
        (finding,) = (each for each in findings if each.policy == "update-refused")
        assert finding.resource == eks_pool("1").urn
        assert "kubectl delete pod -n ml -l app=queue" in finding.fix
    moved = found([eks_pool("1"), *rest], [eks_pool("1"), *rest[:-1], eks_pool("2", "other")])
    assert "update-refused" not in {each.policy for each in moved}, "it runs on another pool"


def test_a_file_system_keeps_what_it_was_created_with() -> None:
    files = "aws:efs/fileSystem:FileSystem"
    before = declared(files, "store", {"creationToken": "slipway-dev-store", "kmsKeyId": "arn:aws:kms:one"})
    assert found(before, declared(files, "store", {"kmsKeyId": "arn:aws:kms:one"})) == []
    [finding] = found(before, declared(files, "store", {"kmsKeyId": "arn:aws:kms:two"}))
    assert finding.policy == "deletes-data"
    assert "kmsKeyId" in finding.reason
    assert "creationToken" not in finding.reason


def test_every_policy_about_a_change_says_which_harm_a_breach_does() -> None:
    assert {policy.id: policy.harm for policy in CHANGE_POLICIES} == {
        "deletes-data": Harm.LOSS,
        "deletes-model-versions": Harm.LOSS,
        "lets-in": Harm.OPENING,
        "opens-to-people": Harm.OPENING,
        "safeguard-off": Harm.OPENING,
        "ends-running-pods": Harm.INTERRUPTION,
        "deletes-queue": Harm.INTERRUPTION,
        "deletes-queue-api": Harm.INTERRUPTION,
        "password-out-of-step": Harm.INTERRUPTION,
        "volume-out-of-reach": Harm.INTERRUPTION,
        "deletion-refused": Harm.REFUSAL,
        "update-refused": Harm.REFUSAL,
        "leaves-billed": Harm.COST,
        "not-comparable": None,
    }


def test_messages_name_stack_file_keys_that_exist() -> None:
    sources = [file for room in ("infra", "offline", "tools") for file in (ROOT / room).rglob("*.py")]
    named = {key for file in sources for key in re.findall(r"`slipway:([a-z_]+)", file.read_text("utf-8"))}
    assert "secrets" in named
    assert named <= set(Settings.model_fields)


def test_fixes_of_policies_name_no_field_of_kubernetes() -> None:
    sources = [file.read_text("utf-8") for file in (ROOT / "offline" / "policies").glob("*.py")]
    assert not [text for text in sources if re.search(r"\b(valueFrom|envFrom)\.", text)]
