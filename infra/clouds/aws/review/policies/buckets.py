"""Buckets that strangers can read, and storage that is not encrypted."""

from collections.abc import Iterator

from infra.clouds.aws.nodes import LAUNCH_TEMPLATE
from infra.clouds.aws.review.policies.statements import allowing, for_everybody
from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.properties import UNKNOWN, at, is_true, mappings, text
from infra.review.stack import Resource, Stack

BUCKETS = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
ACCOUNT_BLOCK = "aws:s3/accountPublicAccessBlock:AccountPublicAccessBlock"
ACLS = ("aws:s3/bucketAcl:BucketAcl", "aws:s3/bucketAclV2:BucketAclV2", "aws:s3/bucketObject:BucketObject")
POLICY = "aws:s3/bucketPolicy:BucketPolicy"
FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"

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
        if any(for_everybody(each) for each in allowing(policy.properties.get("policy"))):
            yield Violation(
                policy.urn,
                "a statement of its policy allows everybody something, on no condition that says who",
                "name the accounts or roles that need it as the Principal",
            )


def _is_of(stack: Stack, block: Resource, bucket: Resource) -> bool:
    if any(stack.source(block, "bucket", each) is bucket for each in BUCKETS):
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


def _unencrypted(stack: Stack) -> Iterator[Violation]:
    for system in stack.of_type(FILE_SYSTEM):
        if system.properties.get("encrypted") != UNKNOWN and not is_true(system.properties.get("encrypted")):
            yield Violation(system.urn, "its files are not encrypted at rest", "set encrypted: true")
    for template in stack.of_type(LAUNCH_TEMPLATE):
        for disk in mappings(template.properties.get("blockDeviceMappings")):
            encrypted = at(disk, "ebs", "encrypted")
            if disk.get("ebs") and encrypted != UNKNOWN and not is_true(encrypted):
                name = text(disk.get("deviceName")) or "a disk"
                yield Violation(
                    template.urn, f"{name} of its machines is not encrypted", "set ebs.encrypted: true"
                )


POLICIES = (
    Policy(
        "aws-public-bucket",
        Severity.ERROR,
        "Every bucket blocks public access, and neither policy nor ACL is for everybody.",
        _public,
        "Declare a BucketPublicAccessBlock with all four flags, and name who needs access.",
        harm=Harm.OPENING,
    ),
    Policy(
        "aws-unencrypted-storage",
        Severity.WARNING,
        "File systems and the disks of nodes are encrypted at rest.",
        _unencrypted,
        "Set encrypted: true.",
    ),
)
