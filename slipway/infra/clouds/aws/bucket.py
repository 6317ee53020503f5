"""The bucket that is the stack's store, and what becomes of its unfinished uploads and old versions."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from slipway.infra.clouds.aws.roles import Statement, allow, bucket_name, deny, document, named
from slipway.infra.clouds.aws.settings import AwsCluster, ExistingS3Store, S3Store


@dataclass(frozen=True)
class StoreBucketArgs:
    """``account`` is the account's id. With ``protect`` neither Pulumi nor a destroy deletes it."""

    store: S3Store
    cluster: AwsCluster
    account: pulumi.Output[str]
    protect: bool


@dataclass(frozen=True)
class StoreBucket:
    """A bucket by its name and ARN. ``created`` is the bucket where the stack creates it; ``ready`` is how it has
    to be before anything is in it. ``prefix`` is the beginning of the names of all objects that are the stack's.
    """

    name: pulumi.Input[str]
    arn: pulumi.Input[str]
    created: Sequence[aws.s3.Bucket] = ()
    ready: Sequence[pulumi.Resource] = ()
    prefix: str = ""

    def objects(self, below: str) -> pulumi.Output[str]:
        """The ARN of the stack's objects whose names, after the prefix, begin with ``below``."""
        return pulumi.Output.concat(self.arn, f"/{self.prefix}{below}*")

    def listing(self, root: str) -> Statement:
        """Lets a role list the names in the folder ``root``, and no others."""
        folder = f"{self.prefix}{root}"
        return allow(["s3:ListBucket"], [self.arn], {"StringLike": {"s3:prefix": [folder, f"{folder}/*"]}})


def existing_bucket(store: ExistingS3Store) -> StoreBucket:
    """A bucket that is there already, and of which nothing is declared."""
    return StoreBucket(store.bucket, f"arn:aws:s3:::{store.bucket}", prefix=f"{store.folder.strip('/')}/")


def store_bucket(name: str, args: StoreBucketArgs) -> StoreBucket:
    """A bucket that blocks public access and refuses requests without TLS."""
    region, store = args.cluster.region, args.store
    bucket = aws.s3.Bucket(
        name,
        region=region,
        bucket=bucket_name(store.bucket, args.account, region),
        force_destroy=not args.protect,
        tags=named(name),
        opts=pulumi.ResourceOptions(protect=args.protect),
    )
    child = pulumi.ResourceOptions(parent=bucket)
    private, owned = no_public_access(name, bucket, region)
    versioned = aws.s3.BucketVersioning(
        name,
        region=region,
        bucket=bucket.bucket,
        versioning_configuration=aws.s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
        opts=child,
    )
    encrypted = aws.s3.BucketServerSideEncryptionConfiguration(
        name,
        region=region,
        bucket=bucket.bucket,
        rules=[
            aws.s3.BucketServerSideEncryptionConfigurationRuleArgs(
                apply_server_side_encryption_by_default=(
                    aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
                        sse_algorithm="aws:kms" if store.kms_key else "AES256", kms_master_key_id=store.kms_key
                    )
                ),
                # Otherwise every object is a call to KMS, and billed.
                bucket_key_enabled=store.kms_key is not None,
            )
        ],
        opts=child,
    )
    encrypted_on_the_way = aws.s3.BucketPolicy(
        name,
        region=region,
        bucket=bucket.bucket,
        policy=document(tls_only(bucket)),
        # Both change who may do what to the bucket, and S3 refuses two such changes at once.
        opts=pulumi.ResourceOptions(parent=bucket, depends_on=[private]),
    )
    aws.s3.BucketLifecycleConfiguration(
        name,
        region=region,
        bucket=bucket.bucket,
        rules=_lifecycle(store),
        # Rules about versions are refused until there are any.
        opts=pulumi.ResourceOptions(parent=bucket, depends_on=[versioned]),
    )
    ready = [private, owned, versioned, encrypted, encrypted_on_the_way]
    return StoreBucket(bucket.bucket, bucket.arn, [bucket], ready)


def no_public_access(
    name: str, bucket: aws.s3.Bucket, region: str
) -> tuple[aws.s3.BucketPublicAccessBlock, aws.s3.BucketOwnershipControls]:
    """Keeps strangers from ``bucket``: neither a policy nor an ACL can let them in."""
    child = pulumi.ResourceOptions(parent=bucket)
    block = aws.s3.BucketPublicAccessBlock(
        name,
        region=region,
        bucket=bucket.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=child,
    )
    owned = aws.s3.BucketOwnershipControls(
        name,
        region=region,
        bucket=bucket.bucket,
        rule=aws.s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
        opts=child,
    )
    return block, owned


def tls_only(bucket: aws.s3.Bucket) -> Statement:
    """Refuses requests to ``bucket`` that are not encrypted on the way."""
    objects = pulumi.Output.concat(bucket.arn, "/*")
    return deny(["s3:*"], [bucket.arn, objects], {"Bool": {"aws:SecureTransport": "false"}})


def _lifecycle(store: S3Store) -> list[aws.s3.BucketLifecycleConfigurationRuleArgs]:
    """Objects that are no version of the past are never deleted: S3's rules know prefixes, not the suffix of
    temporary files, so what a killed step leaves behind stays until it runs again."""
    everything = aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix="")
    return [
        aws.s3.BucketLifecycleConfigurationRuleArgs(
            id="unfinished-uploads",
            status="Enabled",
            filter=everything,
            abort_incomplete_multipart_upload=(
                aws.s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(days_after_initiation=7)
            ),
        ),
        aws.s3.BucketLifecycleConfigurationRuleArgs(
            id="old-versions",
            status="Enabled",
            filter=everything,
            noncurrent_version_expiration=(
                aws.s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
                    noncurrent_days=store.old_version_days
                )
            ),
            # What is left of a deleted object once its versions are gone.
            expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(expired_object_delete_marker=True),
        ),
    ]
