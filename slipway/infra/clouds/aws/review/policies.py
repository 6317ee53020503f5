"""Policies about resources of AWS."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from slipway.infra.clouds.aws.nodes import CLUSTER
from slipway.infra.review.contract import Violation, policies_of
from slipway.infra.review.stack import (
    UNKNOWN,
    Properties,
    Resource,
    Stack,
    at,
    is_true,
    mapping,
    mappings,
    text,
    texts,
    whole_internet,
)
from slipway.infra.review.tables import facts_from

FACTS = facts_from(Path(__file__).parents[1] / "data" / "review.toml")


SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
DEFAULT_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
LOAD_BALANCERS = (
    "aws:lb/loadBalancer:LoadBalancer",
    "aws:alb/loadBalancer:LoadBalancer",
    "aws:elb/loadBalancer:LoadBalancer",
)


def _endpoints(stack: Stack) -> Iterator[Violation]:
    for cluster in stack.of_type(CLUSTER):
        public = at(cluster.properties, "vpcConfig", "endpointPublicAccess")
        blocks = at(cluster.properties, "vpcConfig", "publicAccessCidrs")
        if public is False or UNKNOWN in (public, blocks):
            continue
        # EKS takes an empty list for the whole Internet.
        if not blocks or whole_internet(texts(blocks)):
            yield Violation(
                cluster.urn,
                "its public endpoint is open to the whole Internet",
                "name the networks that need it under control_plane.authorized_networks of the cluster "
                "(vpcConfig.publicAccessCidrs), or set public_endpoint: false",
            )


def _groups(stack: Stack) -> Iterator[Violation]:
    for resource in stack.of_type(SECURITY_GROUP, DEFAULT_GROUP, OLD_RULE, RULE):
        if whole_internet(_sources(resource)):
            yield Violation(
                resource.urn,
                "it lets the whole Internet in",
                "name the security groups or the ranges that have to come in",
            )


def _sources(resource: Resource) -> list[str]:
    """From which blocks it lets traffic in."""
    properties = resource.properties
    if resource.type == RULE:
        return [text(properties.get("cidrIpv4")), text(properties.get("cidrIpv6"))]
    if resource.type == OLD_RULE:
        rules = [properties] if properties.get("type") == "ingress" else []
    else:
        rules = mappings(properties.get("ingress"))
    return [block for rule in rules for key in ("cidrBlocks", "ipv6CidrBlocks") for block in texts(rule.get(key))]


def _load_balancers(stack: Stack) -> Iterator[Violation]:
    for balancer in stack.of_type(*LOAD_BALANCERS):
        internal = balancer.properties.get("internal")
        if internal != UNKNOWN and not is_true(internal):
            yield Violation(balancer.urn, "it has public addresses", "set internal: true")


LIMITS: Sequence[str] = FACTS["limiting_conditions"]


def statements_of(document: object) -> list[Properties]:
    """The statements of a document; none where it is not known or no JSON."""
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except ValueError:
            return []
    content = mapping(document).get("Statement")
    return mappings(content) or ([mapping(content)] if mapping(content) else [])


def allowing(document: object) -> list[Properties]:
    """The statements of a document that allow something."""
    return [statement for statement in statements_of(document) if statement.get("Effect") == "Allow"]


def for_everybody(statement: Properties) -> bool:
    """Whether the statement is for every AWS account, without a condition that limits it to some."""
    principal = statement.get("Principal")
    named = texts(principal) or texts(mapping(principal).get("AWS"))
    return "*" in named and not any(key in LIMITS for key in condition_keys(statement))


def condition_keys(statement: Properties) -> Iterator[str]:
    """The keys of its conditions, in lower case: IAM takes them in any."""
    for tested in mapping(statement.get("Condition")).values():
        yield from (text(key).lower() for key in mapping(tested))


BUCKETS = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
ACCOUNT_BLOCK = "aws:s3/accountPublicAccessBlock:AccountPublicAccessBlock"
ACLS = ("aws:s3/bucketAcl:BucketAcl", "aws:s3/bucketAclV2:BucketAclV2", "aws:s3/bucketObject:BucketObject")
POLICY = "aws:s3/bucketPolicy:BucketPolicy"

FLAGS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")

PUBLIC_ACLS = frozenset({"public-read", "public-read-write", "authenticated-read"})
"""Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/acl-overview.html#canned-acl, 2026-11-20."""

GROUPS = "http://acs.amazonaws.com/groups/global/"
"""What the groups AllUsers and AuthenticatedUsers begin with (same page)."""


def _public(stack: Stack) -> Iterator[Violation]:
    blocks = stack.of_type(BLOCK)
    for block in [*blocks, *stack.of_type(ACCOUNT_BLOCK)]:
        off = [flag for flag in FLAGS if block.properties.get(flag) != UNKNOWN]
        off = [flag for flag in off if not is_true(block.properties.get(flag))]
        if off:
            yield Violation(
                block.urn,
                f"{', '.join(off)} {'is' if len(off) == 1 else 'are'} off, so everybody could be let in",
                "set all four of them",
            )
    for bucket in stack.of_type(*BUCKETS):
        if not stack.of_type(ACCOUNT_BLOCK) and not any(_is_of(stack, block, bucket) for block in blocks):
            yield Violation(
                bucket.urn,
                "no BucketPublicAccessBlock is declared for it, so that nobody notices when it is opened",
                "declare one for it, with all four of its flags",
            )
    for resource in stack.of_type(*BUCKETS, *ACLS):
        if acl := _open_acl(resource):
            yield Violation(resource.urn, f"its ACL {acl} lets everybody in", "remove it: buckets need no ACLs")
    for policy in stack.of_type(POLICY, *BUCKETS):
        if any(for_everybody(statement) for statement in allowing(policy.properties.get("policy"))):
            yield Violation(
                policy.urn,
                "a statement of its policy allows everybody something, on no condition that says who",
                "name the accounts or roles that need it as the Principal",
            )


def _is_of(stack: Stack, block: Resource, bucket: Resource) -> bool:
    if any(stack.source(block, "bucket", type_) is bucket for type_ in BUCKETS):
        return True
    name = text(block.properties.get("bucket"))
    return bool(name) and name == bucket.properties.get("bucket")


def _open_acl(resource: Resource) -> str:
    canned = text(resource.properties.get("acl"))
    grants = [
        *mappings(resource.properties.get("grants")),
        *mappings(at(resource.properties, "accessControlPolicy", "grants")),
    ]
    groups = (text(at(grant, "grantee", "uri") or grant.get("uri")) for grant in grants)
    open_to = next((uri.removeprefix(GROUPS) for uri in groups if uri.startswith(GROUPS)), "")
    return canned if canned in PUBLIC_ACLS else open_to


ROLE = "aws:iam/role:Role"


FEDERATION = ("AssumeRoleWithWebIdentity", "sts:AssumeRoleWithWebIdentity")


def _trust(stack: Stack) -> Iterator[Violation]:
    for role in stack.of_type(ROLE):
        for statement in allowing(role.properties.get("assumeRolePolicy")):
            if for_everybody(statement):
                reason = "any AWS account can take it on"
            elif _any_subject(statement):
                reason = (
                    "whoever has a token of the identity provider can take it on: no condition names the subject"
                )
            else:
                continue
            yield Violation(
                role.urn,
                reason,
                "name the account, service or role as the Principal, and the subject of tokens in a Condition",
            )


def _any_subject(statement: Properties) -> bool:
    federated = texts(mapping(statement.get("Principal")).get("Federated"))
    by_token = any(action in FEDERATION for action in texts(statement.get("Action")))
    return bool(federated) and by_token and not any(key.endswith(":sub") for key in condition_keys(statement))


POLICIES = policies_of(
    Path(__file__).parents[1] / "data" / "policies.toml",
    {
        "aws-public-endpoint": _endpoints,
        "aws-open-security-group": _groups,
        "aws-public-load-balancer": _load_balancers,
        "aws-public-bucket": _public,
        "aws-open-trust": _trust,
    },
)
