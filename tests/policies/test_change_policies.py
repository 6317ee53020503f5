"""What is said of an update that deletes what holds data, or that is refused."""

import json
import re
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from slipway.evaluated.model import Finding, Suppressed
from slipway.evaluated.operations import compare_resources
from slipway.infra.clouds.registry import reviews
from slipway.infra.review.contract import Harm, Severity, reviewed
from slipway.infra.review.stack import UNKNOWN, Resource, Stack
from slipway.infra.settings.model import Settings
from slipway.policies.changes import Change
from slipway.policies.check import CHANGE_POLICIES, check, check_change, policies, suppressions_of
from tests.support.checkout import ROOT
from tests.support.reviewing import declared

TODAY = date(2026, 11, 22)

BUCKET = "gcp:storage/bucket:Bucket"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"
SET = "kubernetes:apps/v1:StatefulSet"
BUDGET = "kubernetes:policy/v1:PodDisruptionBudget"
LABEL = "eks.amazonaws.com/nodegroup"
PATCH = "kubernetes:core/v1:NodePatch"
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


DEPLOYMENT = "kubernetes:apps/v1:Deployment"
CRON_JOB = "kubernetes:batch/v1:CronJob"
SERVICE = "kubernetes:core/v1:Service"
EKS = "aws:eks/cluster:Cluster"
GROUP = "aws:eks/nodeGroup:NodeGroup"


def eks(key: object = "arn:aws:kms:one", subnets: object = "subnet-a", **more: Any) -> Resource:
    encryption = {"provider": {"keyArn": key}, "resources": ["secrets"]}
    return declared(EKS, "ml", {"encryptionConfig": encryption, "vpcConfig": {"subnetIds": [subnets]}, **more})


def group(least: int, most: int) -> Resource:
    scaling = {"minSize": least, "maxSize": most, "desiredSize": 0}
    return declared(GROUP, "gpu", {"scalingConfig": scaling}, ignore_changes=("scalingConfig.desiredSize",))


def team_volume(handle: str) -> Resource:
    spec = {
        "claimRef": {"name": "store", "namespace": "research"},
        "csi": {"driver": "efs.csi.aws.com", "volumeHandle": handle},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    return on_cluster(VOLUME, "store-research", spec=spec)


def keyed_by(arn: str, **properties: Any) -> Resource:
    return declared("aws:efs/fileSystem:FileSystem", "store", {"kmsKeyId": arn, **properties})


def logs(**properties: Any) -> Resource:
    return declared("aws:cloudwatch/logGroup:LogGroup", "audit", properties)


def of_size(size: str, **spec: Any) -> Resource:
    return claim(resources={"requests": {"storage": size}}, **spec)


def here(path: str) -> Resource:
    return replace(declared("pulumi:providers:kubernetes", "here", {"kubeconfig": path}), urn=PROVIDER)


FILES = declared("aws:efs/fileSystem:FileSystem", "files")
BACKUP = declared(
    "aws:efs/backupPolicy:BackupPolicy",
    "files",
    {"backupPolicy": {"status": "ENABLED"}},
    property_dependencies={"fileSystemId": frozenset({FILES.urn})},
)
ML = on_cluster(NAMESPACE, "ml")
DATABASE = on_cluster(SET, "db", "ml", spec={"volumeClaimTemplates": [{}]})
GONE = "the stack no longer has it"

OUTCOMES: dict[str, tuple[Any, Any, str, tuple[str, ...]]] = {
    "replaced bucket": (bucket(), bucket("US-EAST1"), "deletes-data", ("another location", "cannot be restored")),
    "soft delete": (
        bucket(days=30),
        bucket("US-EAST1"),
        "deletes-data",
        ("for 30 days", "no bucket has its name"),
    ),
    "full bucket": (
        *(bucket(empties=False), bucket("US-EAST1", empties=True), "deletion-refused"),
        ("half-way", "forceDestroy is off"),
    ),
    "emptied as last declared": (bucket(), bucket("US-EAST1", empties=False), "deletes-data", ()),
    "protected": (
        *(bucket(protect=True), bucket("US-EAST1", protect=True), "deletion-refused"),
        ("it is protected",),
    ),
    "protected thing": (declared("test:index:Thing", protect=True), None, "deletion-refused", ()),
    "retained": (bucket(retain_on_delete=True), None, "leaves-billed", ()),
    "retained and replaced": (bucket(retain_on_delete=True), bucket("US-EAST1"), "leaves-billed", ()),
    "protected and retained": (
        *(bucket(protect=True, retain_on_delete=True), None, "deletion-refused"),
        ("it is protected",),
    ),
    "update in place": (bucket(), bucket(days=7), "", ()),
    "new bucket": ([], bucket(), "", ()),
    "files": (FILES, None, "deletes-data", ("file system and everything", "cannot be restored", GONE)),
    "files with backups": ([FILES, BACKUP], None, "deletes-data", ("daily backups for 35 days",)),
    "aws bucket": (
        *(declared("aws:s3/bucket:Bucket", "it", {"forceDestroy": True}), None, "deletes-data"),
        ("bucket and everything in it",),
    ),
    "registry": (
        *(declared("aws:ecr/repository:Repository", "it", {"forceDelete": True}), None, "deletes-data"),
        ("every image in it",),
    ),
    "key": (
        *(declared("aws:kms/key:Key", "it", {"deletionWindowInDays": 7}), None, "deletes-data"),
        ("for 7 days its deletion can be cancelled",),
    ),
    "disk": (declared("aws:ebs/volume:Volume", "it"), None, "deletes-data", ("everything on it",)),
    "logs": (logs(), None, "deletes-data", ("all logs in it",)),
    "address": (declared("aws:ec2/eip:Eip", "it", {"domain": "vpc"}), None, "deletes-data", ("public address",)),
    "cluster": (declared("gcp:container/cluster:Cluster", "it"), None, "deletes-data", ("the cluster",)),
    "unknown cloud": (declared("azure:storage/share:Bucket", "it"), None, "deletes-data", ("everything in it",)),
    "guarded GKE": (
        *(declared("gcp:container/cluster:Cluster", "it", {"deletionProtection": True}), None, "deletion-refused"),
        ("deletionProtection",),
    ),
    "guarded EKS": (
        *(declared(EKS, "it", {"deletionProtection": True}), None, "deletion-refused"),
        ("deletionProtection",),
    ),
    **{
        f"no data: {type_}": (on_cluster(type_, "it"), None, "", ())
        for type_ in (
            *("kubernetes:core/v1:ConfigMap", "kubernetes:batch/v1:Job"),
            *("gcp:storage/bucketIAMMember:BucketIAMMember", "aws:s3/filesFileSystem:FilesFileSystem"),
        )
    },
    "claim": (
        *(claim(), claim("vision"), "deletes-data"),
        ("another metadata.namespace", "the cluster's default storage class is Retain"),
    ),
    "claim with class": (
        *(claim(storageClassName="fast"), claim("vision"), "deletes-data"),
        ("the storage class fast",),
    ),
    "namespace with claim": ([ML, claim()], [claim()], "deletes-data", ("its namespace ml goes",)),
    "kept namespace": ([replace(ML, retain_on_delete=True), claim()], [claim()], "", ()),
    "namespace with StatefulSet": ([ML, DATABASE], [DATABASE], "deletes-data", ("claims of the StatefulSet db",)),
    "perhaps the same cluster": (
        *([here("~/.kube/config"), claim()], [here("~/.kube/other"), claim()], "deletes-data"),
        ("the provider here is replaced", "unless both lead to the same server"),
    ),
    "key of EKS": (
        *(eks(), eks("arn:aws:kms:two"), "update-refused"),
        ("another encryptionConfig.provider.keyArn is not carried out", "leave the key"),
    ),
    "subnets of EKS": (
        *(eks(), eks(subnets="subnet-b"), "update-refused"),
        ("another vpcConfig.subnetIds is not carried out", "leave `zones`"),
    ),
    "larger group": (
        *(group(0, 1), group(0, 2), "ends-running-pods"),
        ("desired size in the state", "pulumi refresh"),
    ),
    "refused group": (group(0, 1), group(1, 1), "update-refused", ()),
    "volume of another stack": (
        *(team_volume("fs-1"), team_volume("fs-2"), "deletion-refused"),
        ("claim store in namespace research", "destroy the stack that runs Jobs in research first"),
    ),
    "same volume": (team_volume("fs-1"), team_volume("fs-1"), "", ()),
    "volume with its claim": (
        [team_volume("fs-1"), on_cluster(CLAIM, "store", "research", spec={})],
        [team_volume("fs-2"), on_cluster(CLAIM, "store", "research", spec={})],
        *("", ()),
    ),
    "smaller claim": (of_size("20Gi"), of_size("10Gi"), "update-refused", ()),
    "larger claim": (of_size("10Gi"), of_size("20Gi"), "", ()),
    "larger claim, no class": (
        of_size("10Gi", storageClassName=""),
        of_size("20Gi", storageClassName=""),
        *("update-refused", ()),
    ),
    "larger claim, class": (
        of_size("10Gi", storageClassName="premium-rwo"),
        of_size("20Gi", storageClassName="premium-rwo"),
        *("", ()),
    ),
    "same claim, no class": (
        of_size("10Gi", storageClassName=""),
        of_size("10240Mi", storageClassName=""),
        *("", ()),
    ),
    "shorter retention": (
        *(logs(retentionInDays=90), logs(retentionInDays=7), "deletes-data"),
        ("retentionInDays 90 → 7",),
    ),
    "longer retention": (logs(retentionInDays=7), logs(retentionInDays=90), "", ()),
    "audit log off": (
        declared(EKS, "ml", {"enabledClusterLogTypes": ["api", "audit"]}),
        declared(EKS, "ml", {"enabledClusterLogTypes": ["api"]}),
        *("safeguard-off", ('"audit"',)),
    ),
    "audit log on": (
        declared(EKS, "ml", {"enabledClusterLogTypes": ["api"]}),
        declared(EKS, "ml", {"enabledClusterLogTypes": ["api", "audit"]}),
        *("", ()),
    ),
    "closed endpoint": (
        declared(EKS, "ml", {"vpcConfig": {"endpointPublicAccess": True}}),
        declared(EKS, "ml", {"vpcConfig": {"endpointPublicAccess": False}}),
        *("update-refused", ("fails half-way",)),
    ),
    "renamed namespace": (
        [
            declared(NAMESPACE, "ml", {"metadata": {"name": "ml"}}, provider=PROVIDER),
            on_cluster(DEPLOYMENT, "page", "ml"),
        ],
        [
            declared(NAMESPACE, "ml", {"metadata": {"name": "t"}}, provider=PROVIDER),
            on_cluster(DEPLOYMENT, "page", "t"),
        ],
        *("deletes-namespace", ("namespace ml", "page", "metadata.name")),
    ),
    "app": (
        [
            on_cluster(SERVICE, "page", "ml", spec={"selector": {"app": "page"}}),
            on_cluster(DEPLOYMENT, "page", "ml", spec={"template": {"metadata": {"labels": {"app": "page"}}}}),
        ],
        [],
        *("stops-answering", ("page.ml",)),
    ),
    "service of no app": ([on_cluster(SERVICE, "nodes", "ml", spec={"selector": {"app": "page"}})], [], "", ()),
    "schedule": (
        [on_cluster(CRON_JOB, "credit", "ml", spec={"schedule": "0 3 * * *", "timeZone": "Europe/Berlin"})],
        [],
        *("stops-answering", ("credit", "0 3 * * * Europe/Berlin")),
    ),
    "opened endpoint": (
        declared(EKS, "ml", {"vpcConfig": {"endpointPublicAccess": False}}),
        declared(EKS, "ml", {"vpcConfig": {"endpointPublicAccess": True}}),
        *("lets-in", ()),
    ),
    "token of a file system": (keyed_by("one", creationToken="slipway-dev-store"), keyed_by("one"), "", ()),
    "key of a file system": (
        *(keyed_by("one", creationToken="slipway-dev-store"), keyed_by("two"), "deletes-data"),
        ("kmsKeyId",),
    ),
}
"""By name: the resources before and after an update, the policy that it breaks, and what is said of it."""

ERRORS = {"deletes-data", "deletion-refused", "update-refused"}


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_update_breaks_the_one_policy_that_is_about_it(name: str) -> None:
    before, after, policy, parts = OUTCOMES[name]
    findings = found(before, after)
    assert [finding.policy for finding in findings] == [policy] * bool(policy)
    for finding in findings:
        assert (finding.severity is Severity.ERROR) == (policy in ERRORS)
        assert (finding.harm, finding.new) == (True, True)
        text = f"{finding.reason} {finding.fix}"
        assert [part for part in parts if part not in text] == []
        assert "creationToken" not in text


@pytest.mark.parametrize(("policy", "lost"), [("Retain", False), (None, False), ("Delete", True)])
def test_a_volume_with_the_policy_retain_keeps_the_data_of_its_claim(policy: str | None, lost: bool) -> None:
    volume = on_cluster(VOLUME, "disk", spec={"persistentVolumeReclaimPolicy": policy})
    names = {finding.name for finding in found([volume, claim(volumeName="disk", storageClassName="")], None)}
    assert {name.partition(" ")[0] for name in names} == ({"models", "disk"} if lost else set())


@pytest.mark.parametrize(("policy", "lost"), [("Retain", False), (None, True)])
def test_the_reclaim_policy_of_a_storage_class_counts(policy: str | None, lost: bool) -> None:
    class_ = on_cluster("kubernetes:storage.k8s.io/v1:StorageClass", "fast", reclaimPolicy=policy)
    assert bool(found([class_, claim(storageClassName="fast")], [class_])) == lost


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


def test_a_refused_update_can_be_suppressed_with_a_reason() -> None:
    after = stack(eks("arn:aws:kms:two"), update_refused={"reason": "the key is the same, by another name"})
    findings, suppressed = update(stack(eks()), after)
    assert findings == []
    assert [each.why for each in suppressed] == ["the key is the same, by another name"]


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


@pytest.mark.parametrize(
    ("tolerates", "keeps_patch", "refused"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_a_taint_is_not_taken_back_while_pods_need_it_gone(
    tolerates: bool, keeps_patch: bool, refused: bool
) -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    labels = on_cluster(PATCH, "n1")
    labels = replace(
        labels, urn=f"{labels.urn}-labels", properties={"metadata": {"name": "n1", "labels": {"p": "a"}}}
    )
    given, none = (on_cluster(PATCH, "n1", spec={"taints": taints}) for taints in ([taint], []))
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}] if tolerates else []
    pod = {"containers": [], "nodeSelector": {"p": "a"}, "tolerations": tolerations}
    job = on_cluster("kubernetes:batch/v1:Job", "train", "ml", spec={"template": {"spec": pod}})
    findings = found([labels, given, job], [labels, job, *([none] if keeps_patch else [])])
    assert ("deletion-refused" in {finding.policy for finding in findings}) is refused


def test_every_policy_about_a_change_says_which_harm_a_breach_does() -> None:
    assert {policy.id: policy.harm for policy in CHANGE_POLICIES} == {
        "deletes-data": Harm.LOSS,
        "deletes-namespace": Harm.LOSS,
        "lets-in": Harm.OPENING,
        "opens-to-people": Harm.OPENING,
        "safeguard-off": Harm.OPENING,
        "ends-running-pods": Harm.INTERRUPTION,
        "deletes-queue": Harm.INTERRUPTION,
        "stops-answering": Harm.INTERRUPTION,
        "deletes-queue-api": Harm.INTERRUPTION,
        "password-out-of-step": Harm.INTERRUPTION,
        "volume-out-of-reach": Harm.INTERRUPTION,
        "deletion-refused": Harm.REFUSAL,
        "update-refused": Harm.REFUSAL,
        "leaves-billed": Harm.COST,
        "not-comparable": None,
    }


def test_messages_name_stack_file_keys_that_exist() -> None:
    sources = list((ROOT / "slipway").rglob("*.py"))
    named = {key for file in sources for key in re.findall(r"`slipway:([a-z_]+)", file.read_text("utf-8"))}
    assert "secrets" in named
    assert named <= set(Settings.model_fields)


def test_fixes_of_policies_name_no_field_of_kubernetes() -> None:
    sources = [file.read_text("utf-8") for file in (ROOT / "slipway" / "policies").glob("*.py")]
    assert not [text for text in sources if re.search(r"\b(valueFrom|envFrom)\.", text)]
