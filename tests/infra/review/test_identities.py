"""Who may do what, and from where control planes are reached, as reviews say it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.clouds.aws import review as aws
from slipway.infra.clouds.existing.review import VOLUME
from slipway.infra.clouds.existing.review import identities as existing
from slipway.infra.clouds.gcp import review as gcp
from slipway.infra.clouds.gcp.nodes import CLUSTER
from slipway.infra.review.facts import Identity
from slipway.infra.review.stack import KUBERNETES_PROVIDER, UNKNOWN, Resource
from tests.support.reviewing import declared, declared_stack, stack_of


def by_owner(given: Any) -> dict[str, Identity]:
    return {finding.of: finding for finding in given}


@pytest.mark.slow
def test_on_google_cloud_pods_reach_the_bucket_and_nodes_do_not() -> None:
    pods, nodes = gcp.identities(declared_stack("gcp-prod"))
    assert (pods.name, pods.may, pods.store) == ("slipway/runner", "read and write the bucket's objects", True)
    assert list(pods.clusters) == ["h100-standard", "model-training"]
    assert (nodes.name, nodes.of, nodes.store) == ("slipway-gcp-prod-nodes", "nodes", False)
    assert nodes.may == "write logs and metrics, pull images, stream images"
    assert list(nodes.clusters) == ["h100-standard", "model-training"]


def test_a_google_service_account_that_pods_impersonate() -> None:
    account = declared(gcp.ACCOUNT, "workload", {"accountId": "runs"})
    member = {"member": "serviceAccount:p.svc.id.goog[ns/sa]", "role": "roles/iam.workloadIdentityUser"}
    impersonation = declared(gcp.IMPERSONATION, "may", member, dependencies=frozenset({account.urn}))
    of_account = {"member": frozenset({account.urn})}
    grant = declared(
        gcp.BUCKET_GRANTS[0],
        "grant",
        {"member": UNKNOWN, "role": "roles/storage.admin"},
        property_dependencies=of_account,
    )
    other = declared(gcp.PROJECT_GRANTS[0], "more", {"role": "roles/own.words"}, property_dependencies=of_account)
    (identity,) = gcp.identities(stack_of(account, impersonation, grant, other))
    assert identity == Identity("runs", "pods of ns/sa", "own.words, administer buckets", [], store=True)


def test_a_service_account_without_grants_may_nothing() -> None:
    (identity,) = gcp.identities(stack_of(declared(gcp.ACCOUNT, "idle", {"accountId": UNKNOWN})))
    assert (identity.name, identity.of, identity.may) == ("idle", "whoever may use it", "nothing")


@pytest.mark.slow
def test_on_aws_pods_and_the_driver_reach_the_bucket() -> None:
    identity = by_owner(aws.identities(declared_stack("aws-prod")))
    assert [of for of, value in identity.items() if value.store] == [
        "pods of kube-system/efs-csi-node-sa",
        "pods of slipway/runner",
    ]
    run = identity["pods of slipway/runner"]
    assert (run.name, run.may, list(run.clusters)) == ("slipway-aws-prod-run", "use the bucket's objects", ["ml"])
    assert identity["nodes"].may == "join the cluster, pull images"
    assert "autoscaling" in identity["pods of kube-system/cluster-autoscaler"].may
    assert list(identity["elasticfilesystem.amazonaws.com"].clusters) == []


def role_with(policy: Any = None, attached: str = "") -> Identity:
    role = declared(aws.ROLE, "role", {"name": UNKNOWN, "assumeRolePolicy": "{"})
    of_role = {"role": frozenset({role.urn})}
    others: list[Resource] = []
    if policy is not None:
        others.append(declared(aws.INLINE, "inline", {"policy": policy}, property_dependencies=of_role))
    if attached:
        others.append(declared(aws.ATTACHMENT, "att", {"policyArn": attached}, property_dependencies=of_role))
    (identity,) = aws.identities(stack_of(role, *others))
    return identity


@pytest.mark.parametrize(
    ("policy", "may"),
    [
        ({"Statement": [{"Action": "*"}]}, "do everything"),
        ({"Statement": [{"Action": ["s3:GetObject", "s3:List*"]}, {"Action": "ec2:Run*"}]}, "call s3, ec2"),
        ({}, "nothing"),
        (UNKNOWN, "nothing"),
    ],
)
def test_what_an_inline_policy_allows(policy: Any, may: str) -> None:
    text = policy if policy is UNKNOWN else json.dumps(policy)
    result = role_with(text)
    assert (result.name, result.of, result.may, result.store) == ("role", "whoever it trusts", may, False)


def test_a_policy_of_ones_own_is_shown_by_its_name() -> None:
    assert role_with(attached="arn:aws:iam::1:policy/team/Ours").may == "Ours"
    assert role_with(attached="arn:aws:iam::aws:policy/AdministratorAccess").may == "do everything"


def test_keys_of_a_bucket_elsewhere() -> None:
    spec = {"csi": {"driver": "csi.s3", "nodeStageSecretRef": {"name": "keys", "namespace": "kube-system"}}}
    volume = declared(VOLUME, "store", {"spec": spec}, provider=f"urn:pulumi:t::s::{KUBERNETES_PROVIDER}::office")
    expected = Identity(
        "Secret kube-system/keys", "driver csi.s3", "mount the store's volume", ["office"], store=True
    )
    assert existing(stack_of(volume)) == [expected]
    assert existing(stack_of(declared(VOLUME, "nfs", {"spec": {"nfs": {"server": "filer"}}}))) == []


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "IP endpoint, for every address"),
        (
            {"controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"enabled": False}}},
            "from the VPC alone",
        ),
        (
            {
                "controlPlaneEndpointsConfig": {
                    "dnsEndpointConfig": {"allowExternalTraffic": True},
                    "ipEndpointsConfig": {"enabled": True},
                },
                "masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "198.51.100.0/24"}]},
            },
            "DNS endpoint, for whom IAM lets in; IP endpoint, for 198.51.100.0/24",
        ),
    ],
)
def test_from_where_gke_control_planes_are_reached(properties: Mapping[str, Any], said: str) -> None:
    assert gcp.endpoints(stack_of(declared(CLUSTER, "gke", properties))) == {"gke": said}


@pytest.mark.parametrize(
    ("vpc", "said"),
    [
        ({}, "public endpoint, for every address"),
        ({"publicAccessCidrs": UNKNOWN}, "public endpoint, for some networks"),
        ({"endpointPublicAccess": False, "endpointPrivateAccess": True}, "from the VPC"),
        (
            {"publicAccessCidrs": ["198.51.100.0/24"], "endpointPrivateAccess": True},
            "public endpoint, for 198.51.100.0/24; from the VPC",
        ),
    ],
)
def test_from_where_eks_control_planes_are_reached(vpc: Mapping[str, Any], said: str) -> None:
    assert aws.endpoints(stack_of(declared(aws.EKS_CLUSTER, "eks", {"vpcConfig": vpc}))) == {"eks": said}
