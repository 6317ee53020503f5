"""EKS clusters: their control plane, who reaches and destroys what, add-ons and their order."""

import json
from typing import Any

import pytest

from slipway.infra.clouds.aws.catalogue import addon_version
from slipway.infra.clouds.aws.settings import ControlPlane
from slipway.infra.review.stack import Resource
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.aws import (
    ADDON,
    ASSOCIATION,
    ATTACHMENT,
    BUCKET,
    CLUSTER,
    EFS,
    FILES,
    KEY,
    LAUNCH_TEMPLATE,
    NODE_GROUP,
    RELEASE,
    REPOSITORY,
    ROLE,
    ROLE_POLICY,
    VOLUME,
    changed,
    declare,
    raw,
    with_pool,
)
from tests.support.clouds.stacks import assert_names_fit
from tests.support.recording import Recording, is_unknown, secret_inputs

pytestmark = pytest.mark.slow

LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
ENTRY = "aws:eks/accessEntry:AccessEntry"
ACCESS_POLICY = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"


def control_plane(**keys: Any) -> Settings:
    networks = {"authorized_networks": {"office": "198.51.100.0/24"}}
    return changed(control_plane={**networks, **keys})


def protected(protect: bool, **store: Any) -> Settings:
    def change(values: dict[str, Any]) -> None:
        values["protect"] = protect
        if store:
            values["store"] = store

    return load(raw(change))


def addon(recording: Recording, name: str) -> Resource:
    return recording.one(ADDON, f"dev-{name}")


def test_the_cluster_is_what_the_settings_and_eks_practice_ask_for() -> None:
    inputs = declare(changed(kubernetes_version="1.35")).one(CLUSTER).inputs
    expected = {
        "name": "slipway-test-dev",
        "version": "1.35",
        "upgradePolicy": {"supportType": "STANDARD"},
        "bootstrapSelfManagedAddons": False,
        "kubernetesNetworkConfig": {"ipFamily": "ipv4", "serviceIpv4Cidr": "172.20.0.0/16"},
    }
    assert {key: inputs[key] for key in expected} == expected


def test_the_public_endpoint_is_open_only_to_the_networks_named() -> None:
    inputs = declare(control_plane()).one(CLUSTER).inputs["vpcConfig"]
    assert inputs["endpointPrivateAccess"] is True
    assert inputs["endpointPublicAccess"] is True
    assert inputs["publicAccessCidrs"] == ["198.51.100.0/24"]


def test_without_a_public_endpoint_only_the_vpc_reaches_it() -> None:
    settings = changed(control_plane={"public_endpoint": False})
    inputs = declare(settings).one(CLUSTER).inputs["vpcConfig"]
    assert inputs["endpointPrivateAccess"] is True
    assert inputs["endpointPublicAccess"] is False
    assert "publicAccessCidrs" not in inputs


def test_no_network_is_not_the_whole_internet() -> None:
    """EKS takes an empty list for that. A stack file that says so is refused; this is what stands behind it."""
    settings = changed()
    cluster = settings.clusters["dev"].model_copy(update={"control_plane": ControlPlane()})
    inputs = declare(settings.model_copy(update={"clusters": {"dev": cluster}})).one(CLUSTER).inputs
    assert inputs["vpcConfig"]["endpointPublicAccess"] is False


def test_nodes_and_the_control_plane_are_in_private_subnets_only() -> None:
    recording = declare(changed())
    private = {resource.urn for resource in recording.of("aws:ec2/subnet:Subnet") if "-private-" in resource.name}
    public = {resource.urn for resource in recording.of("aws:ec2/subnet:Subnet")} - private
    for resource in (recording.one(CLUSTER), *recording.of(NODE_GROUP)):
        assert public.isdisjoint(resource.dependencies)
        assert resource.dependencies & private or resource.type == NODE_GROUP


def test_admins_have_access_entries_and_nobody_is_in_a_config_map() -> None:
    role, user = "arn:aws:iam::123456789012:role/admins", "arn:aws:iam::123456789012:user/ada"
    recording = declare(changed(admins=[role, user]))
    assert recording.one(CLUSTER).inputs["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": True,
    }
    assert {resource.inputs["principalArn"] for resource in recording.of(ENTRY)} == {role, user}
    for policy in recording.of(ACCESS_POLICY):
        assert policy.inputs["policyArn"] == "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        assert policy.inputs["accessScope"] == {"type": "cluster"}
        entries = {resource.urn for resource in recording.of(ENTRY) if resource.name == policy.name}
        assert entries <= recording.waits_for(policy)


def test_admins_of_one_name_in_two_accounts_are_two_and_a_single_one_keeps_its_entry() -> None:
    first, second = (f"arn:aws:iam::{account}:role/ops" for account in ("111111111111", "222222222222"))
    both = declare(changed(admins=[first, second]))
    assert {resource.inputs["principalArn"] for resource in both.of(ENTRY)} == {first, second}
    for resource in [*both.of(ENTRY), *both.of(ACCESS_POLICY)]:
        assert not resource.aliases, "it is not known whose the earlier name was"
    alone = declare(changed(admins=[first]))
    for resource in [*alone.of(ENTRY), *alone.of(ACCESS_POLICY)]:
        assert resource.aliases == ("dev-role/ops",)
        assert resource.name in {entry.name for entry in both.of(resource.type)}


def test_control_plane_logs_go_to_a_group_that_forgets_and_is_destroyed() -> None:
    recording = declare(control_plane(logs=["audit"]))
    group, cluster = recording.one(LOG_GROUP), recording.one(CLUSTER)
    assert group.inputs["name"] == f"/aws/eks/{cluster.inputs['name']}/cluster"
    assert group.inputs["retentionInDays"] == 30
    assert cluster.inputs["enabledClusterLogTypes"] == ["audit"]
    assert group.urn in recording.waits_for(cluster), "EKS would make one itself, which nobody deletes"


def test_secrets_are_encrypted_with_a_key_that_rotates() -> None:
    recording = declare(changed())
    key = recording.one(KEY)
    assert key.inputs["enableKeyRotation"] is True
    (encryption,) = [recording.one(CLUSTER).inputs["encryptionConfig"]]
    assert encryption["resources"] == ["secrets"]
    assert ":key/" in encryption["provider"]["keyArn"]
    statement = json.loads(recording.one(ROLE_POLICY, "dev-control-plane").inputs["policy"])["Statement"][0]
    assert statement["Resource"] == [encryption["provider"]["keyArn"]]


def test_secrets_can_have_a_key_of_ones_own_and_the_stacks_key_stays() -> None:
    custom = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"
    recording = declare(control_plane(secrets_key=custom))
    assert recording.one(CLUSTER).inputs["encryptionConfig"]["provider"]["keyArn"] == custom
    assert recording.one(KEY).name == "dev", "a cluster that was created with it goes on using it"
    statement = json.loads(recording.one(ROLE_POLICY, "dev-control-plane").inputs["policy"])["Statement"][0]
    assert len(statement["Resource"]) == 2
    assert custom in statement["Resource"]


def test_the_control_plane_has_its_rights_before_it_starts() -> None:
    recording = declare(changed())
    waited = recording.waits_for(recording.one(CLUSTER))
    for token in (ATTACHMENT, ROLE_POLICY):
        granted = [resource for resource in recording.of(token) if resource.name.startswith("dev-control-plane")]
        assert granted
        assert {resource.urn for resource in granted} <= waited


@pytest.mark.parametrize(
    "name", ["vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-efs-csi-driver"]
)
def test_add_ons_are_pinned_and_are_what_is_declared(name: str) -> None:
    recording = declare(changed(kubernetes_version="1.35"))
    inputs = addon(recording, name).inputs
    assert inputs["addonName"] == name
    assert inputs["addonVersion"] == addon_version("1.35", name)
    assert inputs["resolveConflictsOnCreate"] == inputs["resolveConflictsOnUpdate"] == "OVERWRITE"


def test_the_storage_driver_knows_s3_files() -> None:
    version = addon(declare(changed()), "aws-efs-csi-driver").inputs["addonVersion"]
    assert tuple(int(part) for part in version.removeprefix("v").partition("-")[0].split(".")) >= (3, 0, 0)


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_the_network_is_there_before_nodes_and_services_after_them(preview: bool) -> None:
    recording = declare(with_pool({"instance_type": "g4dn.xlarge"}), preview=preview)
    before = {addon(recording, name).urn for name in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")}
    for group in recording.of(NODE_GROUP):
        assert before <= recording.waits_for(group)
    cpu = recording.one(NODE_GROUP, "dev-cpu").urn
    for name in ("coredns", "aws-efs-csi-driver"):
        waited = recording.waits_for(addon(recording, name))
        assert cpu in waited, "it has pods that no GPU node takes"
        assert recording.one(NODE_GROUP, "dev-train").urn not in waited


def test_the_network_plugin_has_its_rights_before_it_starts_and_enforces_policies() -> None:
    recording = declare(changed())
    plugin = addon(recording, "vpc-cni")
    association = recording.one(ASSOCIATION, "dev-vpc-cni")
    assert association.inputs["serviceAccount"] == "aws-node"
    waited = recording.waits_for(plugin)
    assert association.urn in waited
    assert addon(recording, "eks-pod-identity-agent").urn in waited
    assert json.loads(plugin.inputs["configurationValues"]) == {"enableNetworkPolicy": "true"}


def test_nodes_can_do_no_more_than_join_and_pull() -> None:
    recording = declare(changed())
    attached = {
        resource.inputs["policyArn"].rpartition("/")[2]
        for resource in recording.of(ATTACHMENT)
        if resource.name.startswith("dev-nodes-")
    }
    assert attached == {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"}
    assert [resource.name for resource in recording.of(ROLE_POLICY) if resource.name.startswith("dev-nodes")] == []
    grants = {resource.urn for resource in recording.of(ATTACHMENT) if resource.name.startswith("dev-nodes-")}
    for group in recording.of(NODE_GROUP):
        assert grants <= recording.waits_for(group)


def test_only_the_pods_meant_can_take_on_a_role_for_pods() -> None:
    recording = declare(changed())
    trusted: dict[str, dict[str, str]] = {}
    for role in recording.of(ROLE):
        (statement,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]
        if statement["Principal"]["Service"] == "pods.eks.amazonaws.com":
            assert set(statement["Action"]) == {"sts:AssumeRole", "sts:TagSession"}
            trusted[role.name] = statement["Condition"]["StringEquals"]
    for association in recording.of(ASSOCIATION):
        assert trusted.pop(association.name) == {
            "aws:RequestTag/eks-cluster-name": "slipway-test-dev",
            "aws:RequestTag/kubernetes-namespace": association.inputs["namespace"],
            "aws:RequestTag/kubernetes-service-account": association.inputs["serviceAccount"],
        }
    assert trusted == {}


KEPT = {
    "s3": {CLUSTER, NODE_GROUP, LOG_GROUP, KEY, BUCKET, FILES, REPOSITORY},
    "efs": {CLUSTER, NODE_GROUP, LOG_GROUP, KEY, EFS, REPOSITORY},
}


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
@pytest.mark.parametrize("kind", KEPT)
def test_a_protected_stack_protects_clusters_pools_and_data(preview: bool, kind: str) -> None:
    backup = {"backup": True} if kind == "efs" else {}
    recording = declare(protected(True, kind=kind, **backup), preview=preview)
    protected_ones = {resource.urn: resource for resource in recording.resources if resource.protect}
    kept = {resource.type for resource in protected_ones.values() if resource.parent not in protected_ones}
    assert kept == KEPT[kind], "and with them what belongs to them"
    for token in kept:
        assert all(resource.protect for resource in recording.of(token))
    assert recording.one(CLUSTER).inputs["deletionProtection"] is True
    assert recording.one(REPOSITORY).inputs["forceDelete"] is False
    assert all(bucket.inputs["forceDestroy"] is False for bucket in recording.of(BUCKET))


@pytest.mark.parametrize("kind", KEPT)
def test_an_unprotected_stack_can_be_destroyed_whole(kind: str) -> None:
    recording = declare(protected(False, kind=kind))
    assert [
        resource.name for resource in recording.resources if resource.protect or resource.retain_on_delete
    ] == []
    assert recording.one(CLUSTER).inputs["deletionProtection"] is False
    assert recording.one(REPOSITORY).inputs["forceDelete"] is True
    assert all(bucket.inputs["forceDestroy"] is True for bucket in recording.of(BUCKET))


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_the_platforms_provider_is_named_after_its_cluster_and_adopts_what_is_there(preview: bool) -> None:
    recording = declare(changed(), preview=preview)
    provider = recording.one("pulumi:providers:kubernetes")
    assert {provider.name} == {"dev"} == set(recording.result)
    assert provider.inputs["upsertExistingObjects"] == "true"


def test_another_cluster_of_the_same_name_is_another_cluster() -> None:
    recording = declare(changed())
    identifier = recording.one("pulumi:providers:kubernetes").inputs["clusterIdentifier"]
    assert identifier.startswith("https://"), "the endpoint: a name and an ARN come again"


def test_every_kubernetes_resource_names_its_provider() -> None:
    recording = declare(changed())
    provider = recording.one("pulumi:providers:kubernetes").urn
    ours = [resource for resource in recording.resources if resource.type.startswith("kubernetes:")]
    assert ours
    assert all(resource.provider.startswith(provider) for resource in ours)


def test_the_kubeconfig_is_secret_and_asks_the_cli_for_tokens() -> None:
    recording = declare(changed())
    assert "dev-kubeconfig" in recording.secret_exports
    assert "kubeconfig" in secret_inputs(recording.one("pulumi:providers:kubernetes"))
    kubeconfig = json.loads(recording.exports["dev-kubeconfig"])
    (user,) = kubeconfig["users"]
    assert set(user["user"]) == {"exec"}
    assert [user["user"]["exec"]["command"], *user["user"]["exec"]["args"]] == [
        *("aws", "eks", "get-token", "--cluster-name", "slipway-test-dev"),
        *("--region", "us-east-1", "--output", "json"),
    ]
    (cluster,) = kubeconfig["clusters"]
    assert cluster["cluster"]["server"].startswith("https://")
    assert cluster["cluster"]["certificate-authority-data"]


def test_people_sign_in_with_the_profile_that_the_stack_names() -> None:
    recording = declare(changed(), config={"aws:profile": "research"})
    (user,) = json.loads(recording.exports["dev-kubeconfig"])["users"]
    assert user["user"]["exec"]["args"][-2:] == ["--profile", "research"]
    assert recording.exports["dev-connect"].endswith(" --profile research")


def test_a_first_preview_knows_no_endpoint_and_makes_none_up() -> None:
    recording = declare(changed(), preview=True)
    assert is_unknown(recording.exports["dev-kubeconfig"])


def test_people_are_told_how_to_connect() -> None:
    recording = declare(changed())
    assert recording.exports["dev-connect"] == (
        "aws eks update-kubeconfig --name slipway-test-dev --region us-east-1 --alias slipway-test-dev"
    )
    context = json.loads(recording.exports["dev-kubeconfig"])["current-context"]
    assert recording.exports["dev-kubectl"] == f"kubectl --context {context}"


def test_images_keep_their_tags_and_are_scanned() -> None:
    recording = declare(changed())
    inputs = recording.one(REPOSITORY).inputs
    assert inputs["imageTagMutability"] == "IMMUTABLE"
    assert inputs["imageScanningConfiguration"] == {"scanOnPush": True}
    policy = json.loads(recording.one("aws:ecr/lifecyclePolicy:LifecyclePolicy").inputs["policy"])
    assert [rule["selection"]["tagStatus"] for rule in policy["rules"]] == ["untagged"]


def test_names_fit_awss_limits_and_stay_apart() -> None:
    stack = "a-stack-whose-name-is-much-longer-than-anything-that-aws-would-take-for-the-name-of-a-role"
    settings = with_pool({"instance_type": "p5.48xlarge", "zones": ["us-east-1a"], "efa": True})
    recordings = [declare(settings, stack=f"{stack}-{suffix}") for suffix in "ab"]
    limits = {
        CLUSTER: ("name", 100),
        ROLE: ("name", 64),
        BUCKET: ("bucket", 63),
        LAUNCH_TEMPLATE: ("name", 128),
        REPOSITORY: ("name", 256),
        "aws:ec2/securityGroup:SecurityGroup": ("name", 255),
        "aws:ec2/placementGroup:PlacementGroup": ("name", 255),
        VOLUME: ("metadata", 63),
    }
    assert_names_fit(recordings, limits)


def test_a_stack_name_may_have_characters_that_aws_has_not() -> None:
    recording = declare(changed(), stack="My_Stack.1")
    assert recording.one(CLUSTER).inputs["name"] == "slipway-my-stack-1-dev"
    assert recording.one(BUCKET).inputs["bucket"] == "slipway-my-stack-1-000000000000-us-east-1"
    assert recording.one(VOLUME).inputs["metadata"]["name"] == "slipway-my-stack-1-store"


def test_declaring_twice_declares_the_same() -> None:
    def told(recording: Recording) -> list[tuple[str, str, str]]:
        return sorted(
            (resource.type, resource.name, json.dumps(resource.inputs, sort_keys=True, default=str))
            for resource in recording.resources
        )

    first, second = (declare(changed(), then=lambda _: None) for _ in range(2))
    assert told(first) == told(second)
    assert len(told(first)) > 50


def test_nothing_runs_on_the_cluster_before_it_can() -> None:
    recording = declare(changed())
    release = recording.one(RELEASE)
    waited = recording.waits_for(release)
    assert addon(recording, "coredns").urn in waited
    assert recording.one(NODE_GROUP, "dev-cpu").urn in waited
