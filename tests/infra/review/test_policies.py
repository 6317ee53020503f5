"""The clouds' own policies: for each what trips it, and what is alike but right."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from slipway.infra.clouds.aws.review.policies import FLAGS
from slipway.infra.clouds.gcp.review import policies
from slipway.infra.review.contract import Policy
from slipway.infra.review.stack import UNKNOWN, Resource, Stack
from tests.support.clouds import aws
from tests.support.reviewing import REVIEWS, declared, declared_stack, stack_of

POLICIES: Mapping[str, Policy] = {policy.id: policy for review in REVIEWS for policy in review.policies}

Resources = Resource | Sequence[Resource]


def bucket(**properties: Any) -> Resource:
    return declared("gcp:storage/bucket:Bucket", properties={"publicAccessPrevention": "enforced", **properties})


def gke(**properties: Any) -> Resource:
    return declared("gcp:container/cluster:Cluster", properties={"removeDefaultNodePool": True, **properties})


def authorized(*blocks: str, **more: Any) -> dict[str, Any]:
    return {"masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": block} for block in blocks], **more}}


def gke_pool(cluster: Resource | None = None, **properties: Any) -> list[Resource]:
    depends = {"cluster": frozenset({cluster.urn})} if cluster else {}
    pool = declared("gcp:container/nodePool:NodePool", "pool", properties, property_dependencies=depends)
    return [pool, *([cluster] if cluster else [])]


def grant(type_: str, role: str, member: Any = "user:a@example.com", **more: Any) -> Resource:
    return declared(type_, "grant", {"role": role, "member": member, **more})


GCP: list[tuple[str, Resources, Resources]] = [
    ("gcp-public-bucket", bucket(publicAccessPrevention="inherited"), bucket()),
    ("gcp-public-bucket", declared("gcp:storage/bucket:Bucket"), bucket(publicAccessPrevention=UNKNOWN)),
    (
        "gcp-public-bucket",
        grant("gcp:storage/bucketIAMMember:BucketIAMMember", "roles/storage.objectViewer", "allUsers"),
        grant("gcp:storage/bucketIAMMember:BucketIAMMember", "roles/storage.objectViewer", UNKNOWN),
    ),
    (
        "gcp-public-bucket",
        declared(
            "gcp:storage/bucketIAMBinding:BucketIAMBinding",
            properties={"role": "r", "members": ["allAuthenticatedUsers"]},
        ),
        declared("gcp:storage/bucketIAMBinding:BucketIAMBinding", properties={"role": "r", "members": UNKNOWN}),
    ),
    (
        "gcp-public-bucket",
        declared("gcp:storage/bucketACL:BucketACL", properties={"roleEntities": ["READER:allUsers"]}),
        declared("gcp:storage/bucketACL:BucketACL", properties={"roleEntities": ["READER:user-a@example.com"]}),
    ),
    (
        "gcp-bucket-in-another-region",
        [bucket(location="us-central1"), gke(location="us-west4-a")],
        [bucket(location="US-CENTRAL1"), gke(location="us-central1-a")],
    ),
    (
        "gcp-bucket-in-another-region",
        [bucket(location="europe-west4"), gke(location="us-central1")],
        [bucket(location="EU"), gke(location="us-central1")],
    ),
    (
        "gcp-nodes-in-every-zone",
        gke_pool(gke(location="us-central1"), nodeCount=1),
        gke_pool(gke(location="us-central1"), nodeCount=1, nodeLocations=["us-central1-a"]),
    ),
    (
        "gcp-nodes-in-every-zone",
        gke_pool(gke(location="us-central1"), nodeCount=1),
        gke_pool(gke(location="us-central1-a"), nodeCount=1),
    ),
    ("gcp-public-endpoint", gke(), gke(controlPlaneEndpointsConfig={"ipEndpointsConfig": {"enabled": False}})),
    ("gcp-public-endpoint", gke(**authorized("0.0.0.0/1", "128.0.0.0/1")), gke(**authorized("198.51.100.0/24"))),
    (
        "gcp-public-endpoint",
        gke(**authorized("198.51.100.0/24", gcpPublicCidrsAccessEnabled=True)),
        gke(privateClusterConfig={"enablePrivateEndpoint": True}),
    ),
    ("gcp-public-endpoint", gke(), gke(masterAuthorizedNetworksConfig=UNKNOWN)),
    # Authorized networks that are on, and none.
    ("gcp-public-endpoint", gke(), gke(masterAuthorizedNetworksConfig={})),
    (
        "gcp-open-firewall",
        declared("gcp:compute/firewall:Firewall", properties={"sourceRanges": ["0.0.0.0/0"], "allows": [{}]}),
        declared("gcp:compute/firewall:Firewall", properties={"sourceRanges": ["10.0.0.0/8"], "allows": [{}]}),
    ),
    (
        "gcp-open-firewall",
        declared("gcp:compute/firewall:Firewall", properties={"sourceRanges": ["::/0"], "allows": [{}]}),
        declared("gcp:compute/firewall:Firewall", properties={"sourceRanges": ["0.0.0.0/0"], "denies": [{}]}),
    ),
    (
        "gcp-public-load-balancer",
        declared("gcp:compute/forwardingRule:ForwardingRule"),
        declared(
            "gcp:compute/forwardingRule:ForwardingRule", properties={"loadBalancingScheme": "INTERNAL_MANAGED"}
        ),
    ),
    (
        "gcp-iam-everyone",
        grant("gcp:cloudrunv2/serviceIamMember:ServiceIamMember", "roles/run.invoker", "allUsers"),
        grant("gcp:cloudrunv2/serviceIamMember:ServiceIamMember", "roles/run.invoker"),
    ),
    (
        "gcp-iam-everyone",
        grant("gcp:serviceaccount/iAMMember:IAMMember", "r", "principalSet://iam.googleapis.com/pools/p/*"),
        grant("gcp:serviceaccount/iAMMember:IAMMember", "r", "principalSet://iam.googleapis.com/pools/p/a.b/c"),
    ),
]


ALL_FLAGS = dict.fromkeys(FLAGS, True)


def s3(*others: Resource, **properties: Any) -> list[Resource]:
    """A bucket that strangers are kept out of, with this on top."""
    block = declared(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "block",
        ALL_FLAGS,
        property_dependencies={"bucket": frozenset({declared(aws.BUCKET).urn})},
    )
    return [declared(aws.BUCKET, properties=properties), block, *others]


def s3_policy(**statement: Any) -> list[Resource]:
    document = {"Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", **statement}]}
    return s3(declared("aws:s3/bucketPolicy:BucketPolicy", "policy", {"policy": json.dumps(document)}))


def blocked(**flags: Any) -> Resource:
    return declared("aws:s3/accountPublicAccessBlock:AccountPublicAccessBlock", properties={**ALL_FLAGS, **flags})


def eks(**vpc: Any) -> Resource:
    return declared(aws.CLUSTER, properties={"vpcConfig": vpc})


def template(**properties: Any) -> Resource:
    return declared(aws.LAUNCH_TEMPLATE, properties={"metadataOptions": {"httpTokens": "required"}, **properties})


def rule(**properties: Any) -> Resource:
    return declared("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", properties=properties)


def document(**statement: Any) -> str:
    return json.dumps({"Statement": {"Effect": "Allow", "Resource": "*", **statement}})


def role(**statement: Any) -> Resource:
    return declared(
        aws.ROLE, properties={"assumeRolePolicy": document(**{"Action": "sts:AssumeRole", **statement})}
    )


AWS: list[tuple[str, Resources, Resources]] = [
    ("aws-public-bucket", declared(aws.BUCKET), s3()),
    ("aws-public-bucket", s3(blocked(blockPublicAcls=False)), s3(blocked())),
    ("aws-public-bucket", declared(aws.BUCKET), [declared(aws.BUCKET), blocked()]),
    ("aws-public-bucket", s3(acl="public-read"), s3(acl="private")),
    ("aws-public-bucket", s3_policy(Principal="*"), s3_policy(Principal={"AWS": "arn:aws:iam::1:role/a"})),
    (
        "aws-public-bucket",
        s3_policy(Principal={"AWS": ["*"]}, Condition={"Bool": {"aws:SecureTransport": "true"}}),
        s3_policy(Principal="*", Condition={"StringEquals": {"aws:PrincipalOrgID": "o-1"}}),
    ),
    ("aws-public-bucket", s3_policy(Principal="*"), s3_policy(Principal="*", Effect="Deny")),
    (
        "aws-public-bucket",
        s3(
            declared(
                "aws:s3/bucketAcl:BucketAcl",
                properties={
                    "accessControlPolicy": {
                        "grants": [{"grantee": {"uri": "http://acs.amazonaws.com/groups/global/AllUsers"}}]
                    }
                },
            )
        ),
        s3(declared("aws:s3/bucketAcl:BucketAcl", properties={"accessControlPolicy": UNKNOWN})),
    ),
    ("aws-public-endpoint", eks(), eks(endpointPublicAccess=False)),
    ("aws-public-endpoint", eks(publicAccessCidrs=["0.0.0.0/0"]), eks(publicAccessCidrs=["198.51.100.0/24"])),
    ("aws-public-endpoint", eks(publicAccessCidrs=[]), eks(publicAccessCidrs=UNKNOWN)),
    ("aws-open-security-group", rule(cidrIpv4="0.0.0.0/0"), rule(cidrIpv4="10.0.0.0/16")),
    ("aws-open-security-group", rule(cidrIpv6="::/0"), rule(cidrIpv4=UNKNOWN)),
    (
        "aws-open-security-group",
        declared("aws:ec2/securityGroup:SecurityGroup", properties={"ingress": [{"cidrBlocks": ["0.0.0.0/0"]}]}),
        declared("aws:ec2/securityGroup:SecurityGroup", properties={"egress": [{"cidrBlocks": ["0.0.0.0/0"]}]}),
    ),
    (
        "aws-public-load-balancer",
        declared("aws:lb/loadBalancer:LoadBalancer"),
        declared("aws:lb/loadBalancer:LoadBalancer", properties={"internal": True}),
    ),
    ("aws-open-trust", role(Principal={"AWS": "*"}), role(Principal={"Service": "ec2.amazonaws.com"})),
    (
        "aws-open-trust",
        role(Principal={"Federated": "arn:aws:iam::1:oidc-provider/t"}, Action="sts:AssumeRoleWithWebIdentity"),
        role(
            Principal={"Federated": "arn:aws:iam::1:oidc-provider/t"},
            Action="sts:AssumeRoleWithWebIdentity",
            Condition={"StringLike": {"token.actions.githubusercontent.com:sub": "repo:a/b:*"}},
        ),
    ),
]


def volume(driver: str, **more: Any) -> Resource:
    spec = {"csi": {"driver": driver}, **more}
    return declared("kubernetes:core/v1:PersistentVolume", properties={"spec": spec})


def pod(**csi: Any) -> Resource:
    template = {"spec": {"volumes": [{"name": "store", "csi": {"driver": "s3.csi.aws.com", **csi}}]}}
    return declared("kubernetes:batch/v1:Job", properties={"spec": {"template": template}})


EXISTING: list[tuple[str, Resources, Resources]] = [
    ("store-cannot-rename", volume("s3.csi.aws.com"), volume("efs.csi.aws.com")),
    ("store-cannot-rename", volume("s3.csi.scality.com"), volume("s3.csi.aws.com", accessModes=["ReadOnlyMany"])),
    ("store-cannot-rename", pod(), pod(readOnly=True)),
    (
        "store-cannot-rename",
        volume("s3.csi.aws.com", mountOptions=["allow-delete"]),
        volume("s3.csi.aws.com", mountOptions=["read-only"]),
    ),
]

CASES = [*GCP, *AWS, *EXISTING]


def violating(policy: str, resources: Resources, name: str = "test") -> list[str]:
    stack = stack_of(*([resources] if isinstance(resources, Resource) else resources), name=name)
    violations = list(POLICIES[policy].check(stack))
    assert all(
        violation.resource in stack.resources and violation.reason and violation.fix for violation in violations
    )
    return [violation.resource for violation in violations]


@pytest.mark.parametrize(
    ("policy", "wrong", "right"), CASES, ids=[f"{policy}-{number}" for number, (policy, *_) in enumerate(CASES)]
)
def test_what_trips_a_policy_and_what_does_not(policy: str, wrong: Resources, right: Resources) -> None:
    assert len(violating(policy, wrong)) == 1
    assert violating(policy, right) == []


def test_every_policy_has_a_case() -> None:
    """Those of Autopilot have theirs in ``test_autopilot.py``: they need the stack file beside the resources."""
    elsewhere = {policy.id for policy in policies.POLICIES}
    assert {policy for policy, *_ in CASES} | elsewhere == set(POLICIES)


def blind(value: Any, depth: int) -> Any:
    """``value`` with everything that lies ``depth`` levels deep unknown."""
    if depth == 0:
        return UNKNOWN
    if isinstance(value, Mapping):
        return {key: blind(value_, depth - 1) for key, value_ in value.items()}
    return [blind(entry, depth - 1) for entry in value] if isinstance(value, list) else value


@pytest.mark.parametrize("depth", range(6))
@pytest.mark.parametrize("policy", POLICIES)
def test_policies_bear_unknown_values_anywhere(policy: str, depth: int) -> None:
    for _, wrong, right in CASES:
        for resources in (wrong, right):
            for entry in [resources] if isinstance(resources, Resource) else resources:
                properties = blind(entry.properties, depth) if depth else dict.fromkeys(entry.properties, UNKNOWN)
                violating(policy, declared(entry.type, properties=properties))


STACKS = ["gcp-dev", "gcp-prod", "aws-dev", "aws-prod", "local", "onprem", "openshift"]


def findings(stack: Stack) -> list[tuple[str, str, str]]:
    return [
        (policy.id, finding.resource, finding.reason)
        for policy in POLICIES.values()
        for finding in policy.check(stack)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", STACKS)
def test_the_repositorys_stacks_keep_the_policies_of_their_clouds(name: str) -> None:
    stack = declared_stack(name)
    suppressed = stack.configuration.get("slipway:policies", {}).get("suppress", {})
    assert [finding for finding in findings(stack) if finding[0] not in suppressed] == []


def test_a_cluster_away_from_its_bucket_is_told_with_the_price_of_reading() -> None:
    [result] = [
        finding for finding in findings(declared_stack("gcp-prod")) if finding[0] == "gcp-bucket-in-another-region"
    ]
    assert result[1].endswith("::h100-standard")
    assert "it is in us-west4 and the bucket" in result[2]
    assert "$0.02 per GB" in result[2]
