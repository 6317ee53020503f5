"""Buckets that strangers can read."""

from collections.abc import Iterator

from infra.clouds.gcp.review.policies.members import EVERYONE, bindings, everyone_in
from infra.review.policy import Harm, Policy, Severity, Violation
from infra.review.properties import UNKNOWN, text, texts
from infra.review.stack import Resource, Stack

BUCKET = "gcp:storage/bucket:Bucket"

GRANTS = (
    "gcp:storage/bucketIAMMember:BucketIAMMember",
    "gcp:storage/bucketIAMBinding:BucketIAMBinding",
    "gcp:storage/bucketIAMPolicy:BucketIAMPolicy",
    "gcp:storage/managedFolderIamMember:ManagedFolderIamMember",
    "gcp:storage/managedFolderIamBinding:ManagedFolderIamBinding",
    "gcp:storage/managedFolderIamPolicy:ManagedFolderIamPolicy",
)

ACCESS_LISTS = (
    "gcp:storage/bucketAccessControl:BucketAccessControl",
    "gcp:storage/bucketACL:BucketACL",
    "gcp:storage/defaultObjectAccessControl:DefaultObjectAccessControl",
    "gcp:storage/defaultObjectACL:DefaultObjectACL",
    "gcp:storage/objectAccessControl:ObjectAccessControl",
    "gcp:storage/objectACL:ObjectACL",
)

PUBLIC_ACLS = frozenset({"publicRead", "publicReadWrite", "authenticatedRead"})
"""Source: https://cloud.google.com/storage/docs/access-control/lists#predefined-acl, 2026-11-20."""


def _public(stack: Stack) -> Iterator[Violation]:
    for bucket in stack.of_type(BUCKET):
        prevention = bucket.properties.get("publicAccessPrevention")
        if prevention not in ("enforced", UNKNOWN):
            yield Violation(
                bucket.urn,
                f"publicAccessPrevention is {prevention or 'not set'}, so one binding can publish all of it",
                "set publicAccessPrevention: enforced",
            )
    for grant in stack.of_type(*GRANTS):
        for role, members in bindings(grant):
            if everyone := everyone_in(members):
                yield Violation(
                    grant.urn,
                    f"{role} for {everyone}: anyone on the Internet has it",
                    "name the accounts that need it; signed URLs let others at single objects for a time",
                )
    for listed in stack.of_type(*ACCESS_LISTS):
        if everyone := _listed(listed):
            yield Violation(
                listed.urn,
                f"{everyone}: anyone on the Internet has this access",
                "remove it, and set uniformBucketLevelAccess: true on the bucket",
            )


def _listed(resource: Resource) -> str:
    """Who of everyone an access control list names."""
    named = {text(resource.properties.get("entity")), text(resource.properties.get("predefinedAcl"))}
    named |= {each.rpartition(":")[2] for each in texts(resource.properties.get("roleEntities"))}
    return ", ".join(sorted(named & (EVERYONE | PUBLIC_ACLS)))


POLICIES = (
    Policy(
        "gcp-public-bucket",
        Severity.ERROR,
        "Buckets enforce public access prevention, and no binding or ACL is for everyone.",
        _public,
        "Set publicAccessPrevention: enforced, and name the accounts that need access.",
        harm=Harm.OPENING,
    ),
)
