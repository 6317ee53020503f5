"""The bucket as a file system: Amazon S3 Files, which renames and appends as Mountpoint for S3 cannot.

What is written arrives in the bucket as objects about a minute after the last write. Source of this module's
facts, unless it says another: https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-files.html and the pages
below it, 2026-11-20.
"""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.bucket import StoreBucket
from infra.clouds.aws.iam_policies import Statement, allow, document, trust
from infra.clouds.aws.mounts import ROOT, Mountable, MountArgs, mount_targets, nfs_security_group, team_root
from infra.clouds.aws.names import named
from infra.clouds.aws.roles import RoleArgs, role, role_policy
from infra.clouds.aws.settings import S3Store
from infra.platform import POD_USER

SERVICE = "elasticfilesystem.amazonaws.com"
"""Who synchronizes: S3 Files runs on EFS."""

LARGEST_IMPORT = 52_673_613_135_872
"""Bytes: the limit of a file's size on the file system, and so no limit. From the resource's own example."""


def s3_files(name: str, store: S3Store, bucket: StoreBucket, args: MountArgs) -> Mountable:
    """A file system over the bucket, with a mount target in every zone and an access point for the pods' user.

    Deleted before the bucket. S3 refuses that while anything written has not arrived there yet.
    """
    region, tags = args.settings.region, named(args.settings.tags, name)
    sync = role(
        f"{name}-sync",
        RoleArgs(
            description="S3 Files between the store's bucket and its file system",
            trust=trust(
                SERVICE,
                {
                    "StringEquals": {"aws:SourceAccount": args.account},
                    "ArnLike": {
                        "aws:SourceArn": pulumi.Output.concat(
                            f"arn:aws:s3files:{region}:", args.account, ":file-system/*"
                        )
                    },
                },
            ),
            tags=args.settings.tags,
            statements=_sync_statements(store, bucket.bucket, args),
        ),
    )
    files = aws.s3.FilesFileSystem(
        name,
        region=region,
        bucket=bucket.bucket.arn,
        role_arn=sync.role.arn,
        kms_key_id=store.kms_key,
        tags=tags,
        opts=pulumi.ResourceOptions(protect=args.protect, depends_on=[*bucket.ready, *sync.grants]),
    )
    child = pulumi.ResourceOptions(parent=files)
    synchronized = aws.s3.FilesSynchronizationConfiguration(
        name,
        region=region,
        file_system_id=files.id,
        import_data_rules=[
            # A file is copied from the bucket when a step opens it, not because it lists the folder.
            aws.s3.FilesSynchronizationConfigurationImportDataRuleArgs(
                prefix="", size_less_than=LARGEST_IMPORT, trigger="ON_FILE_ACCESS"
            )
        ],
        expiration_data_rules=[
            aws.s3.FilesSynchronizationConfigurationExpirationDataRuleArgs(days_after_last_access=store.cache_days)
        ],
        opts=child,
    )
    group, rule = nfs_security_group(f"{name}-mount", args)
    targets = mount_targets(aws.s3.FilesMountTarget, name, args, files, group)

    def entrance_to(label: str, folder: str) -> aws.s3.FilesAccessPoint:
        return aws.s3.FilesAccessPoint(
            label,
            region=region,
            file_system_id=files.id,
            posix_users=[aws.s3.FilesAccessPointPosixUserArgs(uid=POD_USER, gid=POD_USER)],
            root_directories=[
                aws.s3.FilesAccessPointRootDirectoryArgs(
                    path=f"/{folder}",
                    creation_permissions=[
                        aws.s3.FilesAccessPointRootDirectoryCreationPermissionArgs(
                            owner_uid=POD_USER, owner_gid=POD_USER, permissions="0770"
                        )
                    ],
                )
            ],
            tags=tags,
            opts=child,
        )

    entrance = entrance_to(name, ROOT)
    teams = {team: entrance_to(f"{name}-{team}", team_root(team)) for team in args.teams}
    driver = args.cluster.storage.node_role
    mount = ["s3files:ClientMount", "s3files:ClientWrite"]
    entrances = [entrance.arn, *(each.arn for each in teams.values())]
    through_it = {"ArnEquals": {"s3files:AccessPointArn": entrances if teams else entrance.arn}}
    # Without a policy, whoever reaches a mount target may mount.
    policy = aws.s3.FilesFileSystemPolicy(
        name,
        region=region,
        file_system_id=files.id,
        policy=document({**allow(mount, [files.arn], through_it), "Principal": {"AWS": driver.arn}}),
        opts=child,
    )
    mounting = role_policy(
        f"{name}-mount",
        driver,
        [
            allow(mount, [files.arn], through_it),
            # The driver reads large files from the bucket itself, and asks at first for a key at its root.
            allow(["s3:ListBucket"], [bucket.bucket.arn]),
            allow(["s3:GetObject", "s3:GetObjectVersion"], [pulumi.Output.concat(bucket.bucket.arn, "/*")]),
            *kms_statements(store, region, ["kms:Decrypt"]),
        ],
    )
    return Mountable(
        handle=pulumi.Output.concat("s3files:", files.id, "::", entrance.id),
        ready=[synchronized, rule, *targets, entrance, *teams.values(), policy, mounting],
        teams={team: pulumi.Output.concat("s3files:", files.id, "::", each.id) for team, each in teams.items()},
        made_of=[bucket.bucket, files, entrance],
    )


def kms_statements(store: S3Store, region: str, actions: Sequence[str]) -> list[Statement]:
    """Lets S3 use the bucket's key for whoever has them; nothing where the keys are S3's own."""
    if store.kms_key is None:
        return []
    return [allow(actions, [store.kms_key], {"StringEquals": {"kms:ViaService": f"s3.{region}.amazonaws.com"}})]


def _sync_statements(store: S3Store, bucket: aws.s3.Bucket, args: MountArgs) -> list[Statement]:
    """What S3 Files asks for to follow the bucket: its objects, and rules of EventBridge that it makes itself."""
    region = args.settings.region
    owned = {"StringEquals": {"aws:ResourceAccount": args.account}}
    rules = "arn:aws:events:*:*:rule/"
    return [
        allow(["s3:ListBucket", "s3:ListBucketVersions"], [bucket.arn], owned),
        allow(
            ["s3:AbortMultipartUpload", "s3:DeleteObject*", "s3:GetObject*", "s3:List*", "s3:PutObject*"],
            [pulumi.Output.concat(bucket.arn, "/*")],
            owned,
        ),
        allow(
            [
                *("events:DeleteRule", "events:DisableRule", "events:EnableRule"),
                *("events:PutRule", "events:PutTargets", "events:RemoveTargets"),
            ],
            [f"{rules}DO-NOT-DELETE-S3-Files*"],
            {"StringEquals": {"events:ManagedBy": SERVICE}},
        ),
        allow(
            [
                "events:DescribeRule",
                "events:ListRuleNamesByTarget",
                "events:ListRules",
                "events:ListTargetsByRule",
            ],
            [f"{rules}*"],
        ),
        *kms_statements(
            store,
            region,
            ["kms:GenerateDataKey", "kms:Encrypt", "kms:Decrypt", "kms:ReEncryptFrom", "kms:ReEncryptTo"],
        ),
    ]
