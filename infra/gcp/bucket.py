"""The bucket that is the stack's store, and what becomes of its temporary and old objects."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.gcp.names import bucket_name
from infra.gcp.settings import GcsStore

TEMPORARY_SUFFIX = ".slipway-partial"
"""How the names of files end that a step writes beside their target before it renames them.

A killed step leaves them behind.
"""

DAY = 86_400


@dataclass(frozen=True)
class StoreBucketArgs:
    """With ``protect`` neither Pulumi nor a destroy deletes it; ``after`` is what has to be there first."""

    project: str
    store: GcsStore
    protect: bool
    after: Sequence[pulumi.Resource]


def store_bucket(name: str, args: StoreBucketArgs) -> gcp.storage.Bucket:
    """A regional bucket that nobody outside the project can be let into by mistake."""
    return gcp.storage.Bucket(
        name,
        name=bucket_name(args.project, args.store.bucket),
        project=args.project,
        location=args.store.location.upper(),
        storage_class="STANDARD",
        uniform_bucket_level_access=True,
        public_access_prevention="enforced",
        versioning=gcp.storage.BucketVersioningArgs(enabled=args.store.versioning),
        soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(
            retention_duration_seconds=args.store.soft_delete_days * DAY
        ),
        lifecycle_rules=_lifecycle(args.store),
        force_destroy=not args.protect,
        opts=pulumi.ResourceOptions(protect=args.protect, depends_on=args.after),
    )


def _lifecycle(store: GcsStore) -> list[gcp.storage.BucketLifecycleRuleArgs]:
    return [
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type="Delete"),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(
                age=store.temporary_days, matches_suffixes=[TEMPORARY_SUFFIX]
            ),
        ),
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type="AbortIncompleteMultipartUpload"),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(age=store.temporary_days),
        ),
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type="Delete"),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(
                days_since_noncurrent_time=store.old_version_days, with_state="ARCHIVED"
            ),
        ),
    ]
