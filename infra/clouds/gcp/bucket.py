"""The bucket that is the stack's store, and what becomes of its temporary and old objects."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.clouds.gcp.keys import Key
from infra.clouds.gcp.names import bucket_name
from infra.clouds.gcp.settings import GcsStore

TEMPORARY_SUFFIX = ".slipway-partial"
"""How the names of files end that a step writes beside their target before it renames them.

A killed step leaves them behind.
"""

DAY = 86_400


@dataclass(frozen=True)
class StoreBucketArgs:
    """``key`` encrypts new objects. With ``protect`` neither Pulumi nor a destroy deletes the bucket; ``after`` is
    what has to be there first."""

    project: str
    store: GcsStore
    key: Key | None
    protect: bool
    after: Sequence[pulumi.Resource]


def store_bucket(name: str, args: StoreBucketArgs) -> gcp.storage.Bucket:
    """A regional bucket with uniform access and public access prevention."""
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
        encryption=gcp.storage.BucketEncryptionArgs(default_kms_key_name=args.key.name) if args.key else None,
        force_destroy=not args.protect,
        opts=pulumi.ResourceOptions(
            protect=args.protect, depends_on=[*args.after, *(args.key.ready if args.key else ())]
        ),
    )


def access_logs(project: str, after: Sequence[pulumi.Resource]) -> None:
    """Logs who reads and writes objects: the audit logs that Google recommends over a bucket's usage logs, whose
    delivery it does not promise (https://docs.cloud.google.com/storage/docs/access-logs, 2026-11-22).

    A project has one such configuration for Cloud Storage. It stays when the stack is destroyed: another stack, or
    whoever else reads these logs, would lose them.
    """
    gcp.projects.IAMAuditConfig(
        "store",
        project=project,
        service="storage.googleapis.com",
        audit_log_configs=[
            gcp.projects.IAMAuditConfigAuditLogConfigArgs(log_type=kind) for kind in ("DATA_READ", "DATA_WRITE")
        ],
        opts=pulumi.ResourceOptions(depends_on=after, retain_on_delete=True),
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
