"""The store as pods see it: a volume of the EFS CSI driver, claimed in their namespace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from slipway.infra.clouds.aws.bucket import StoreBucket, StoreBucketArgs, existing_bucket, store_bucket
from slipway.infra.clouds.aws.cluster import EksCluster
from slipway.infra.clouds.aws.network import AccessLogsArgs, Network, access_logs
from slipway.infra.clouds.aws.roles import (
    FILE_SYSTEM_LIMIT,
    GROUP_LIMIT,
    RoleArgs,
    Statement,
    allow,
    document,
    named,
    resource_name,
    role,
    role_policy,
    trust,
)
from slipway.infra.clouds.aws.settings import AwsCluster, EfsStore, ExistingS3Store, S3Store
from slipway.infra.objects import file_system_store, file_system_volume
from slipway.infra.platform import POD_USER, Store
from slipway.infra.schema.base import Team
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT

NFS_PORT = 2049

BucketStore = S3Store | ExistingS3Store

Target = TypeVar("Target", aws.efs.MountTarget, aws.s3.FilesMountTarget)

ROOT = "store"
"""The folder of a file system that is the store's root, and so the prefix of its objects in a bucket.

A folder below the root, because an access point makes that one for its user; the root itself is root's.
"""


def team_root(team: str) -> str:
    """The folder of a file system that is a team's store, and the prefix of its objects.

    Beside `ROOT` and not in it: an access point makes its folder, and a folder on the way to it would be root's.
    """
    return f"{ROOT}-{team}"


@dataclass(frozen=True)
class MountArgs:
    """The cluster that mounts, with its settings and its network, and the teams whose Jobs do."""

    settings: AwsCluster
    cluster: EksCluster
    network: Network
    account: pulumi.Output[str]
    protect: bool
    teams: Mapping[str, Team] = field(default_factory=dict[str, Team])


@dataclass(frozen=True)
class Mountable:
    """A file system for the EFS CSI driver: the handle of its volume, and what has to be there to mount it.

    ``made_of`` are the resources that the handle names, and those that hold the files.
    ``teams`` are the handles of volumes whose root is the folder of a team, `team_root`, by the team's name.
    """

    handle: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]
    mount_options: Sequence[str] = field(default_factory=list[str])
    teams: Mapping[str, pulumi.Output[str]] = field(default_factory=dict[str, pulumi.Output[str]])
    made_of: Sequence[pulumi.Resource] = ()


def nfs_security_group(
    name: str, args: MountArgs
) -> tuple[aws.ec2.SecurityGroup, aws.vpc.SecurityGroupIngressRule]:
    """The mount targets' security group, and its one rule: NFS, from the cluster's nodes only."""
    tags = named(resource_name(GROUP_LIMIT, name))
    group = aws.ec2.SecurityGroup(
        name,
        region=args.settings.region,
        name=resource_name(GROUP_LIMIT, name),
        description="Mount targets of the store",
        vpc_id=args.network.vpc.id,
        tags=tags,
        opts=pulumi.ResourceOptions(delete_before_replace=True),
    )
    rule = aws.vpc.SecurityGroupIngressRule(
        name,
        region=args.settings.region,
        security_group_id=group.id,
        referenced_security_group_id=args.cluster.security_group,
        ip_protocol="tcp",
        from_port=NFS_PORT,
        to_port=NFS_PORT,
        description="NFS from the nodes",
        tags=tags,
        opts=pulumi.ResourceOptions(parent=group),
    )
    return group, rule


def mount_targets(
    kind: type[Target],
    name: str,
    args: MountArgs,
    files: pulumi.CustomResource,
    group: aws.ec2.SecurityGroup,
) -> list[Target]:
    """A mount target of the file system ``files`` in every zone."""
    return [
        kind(
            f"{name}-{zone}",
            region=args.settings.region,
            file_system_id=files.id,
            subnet_id=subnet.id,
            security_groups=[group.id],
            opts=pulumi.ResourceOptions(parent=files),
        )
        for zone, subnet in args.network.private.items()
    ]


MOUNT_OPTIONS = ("tls", "iam")
"""Encrypted, and as the driver's own role: without `iam` the mount is anonymous, and no policy can name it."""


def elastic_file_system(name: str, store: EfsStore, args: MountArgs) -> Mountable:
    """An encrypted file system, with a mount target in every zone and an access point for the pods' user."""
    region, tags = args.settings.region, named(resource_name(FILE_SYSTEM_LIMIT, name))
    # The provider makes a creation token up for each file system. EFS refuses one of this stack's name for the
    # successor of a file system that is replaced, which is still there then.
    files = aws.efs.FileSystem(
        name,
        region=region,
        encrypted=True,
        kms_key_id=store.kms_key,
        throughput_mode="elastic",
        # One transition per policy, as EFS wants it. What is read comes back.
        lifecycle_policies=[
            aws.efs.FileSystemLifecyclePolicyArgs(transition_to_ia="AFTER_30_DAYS"),
            aws.efs.FileSystemLifecyclePolicyArgs(transition_to_primary_storage_class="AFTER_1_ACCESS"),
        ],
        tags=tags,
        opts=pulumi.ResourceOptions(protect=args.protect),
    )
    child = pulumi.ResourceOptions(parent=files)
    aws.efs.BackupPolicy(
        name,
        region=region,
        file_system_id=files.id,
        backup_policy=aws.efs.BackupPolicyBackupPolicyArgs(status="ENABLED" if store.backup else "DISABLED"),
        opts=child,
    )
    group, rule = nfs_security_group(f"{name}-mount", args)
    targets = mount_targets(aws.efs.MountTarget, name, args, files, group)

    def access_point_to(label: str, folder: str) -> aws.efs.AccessPoint:
        return aws.efs.AccessPoint(
            label,
            region=region,
            file_system_id=files.id,
            posix_user=aws.efs.AccessPointPosixUserArgs(uid=POD_USER, gid=POD_USER),
            root_directory=aws.efs.AccessPointRootDirectoryArgs(
                path=f"/{folder}",
                creation_info=aws.efs.AccessPointRootDirectoryCreationInfoArgs(
                    owner_uid=POD_USER, owner_gid=POD_USER, permissions="0770"
                ),
            ),
            tags=tags,
            opts=child,
        )

    access_point = access_point_to(name, ROOT)
    teams = {team: access_point_to(f"{name}-{team}", team_root(team)) for team in args.teams}
    points = [access_point.arn, *(access.arn for access in teams.values())]
    # Without a policy, whoever reaches a mount target may do everything.
    policy = aws.efs.FileSystemPolicy(
        name,
        region=region,
        file_system_id=files.id,
        policy=document(
            {
                **allow(
                    ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
                    [files.arn],
                    {
                        "Bool": {"aws:SecureTransport": "true"},
                        "StringEquals": {
                            "elasticfilesystem:AccessPointArn": points if teams else access_point.arn
                        },
                    },
                ),
                "Principal": {"AWS": args.cluster.storage.node_role.arn},
            }
        ),
        opts=child,
    )
    return Mountable(
        handle=pulumi.Output.concat(files.id, "::", access_point.id),
        ready=[rule, *targets, access_point, *teams.values(), policy],
        mount_options=MOUNT_OPTIONS,
        teams={team: pulumi.Output.concat(files.id, "::", point.id) for team, point in teams.items()},
        made_of=[files, access_point],
    )


KEPT_DAYS = 30
"""Days after its last use when a file's copy leaves S3 Files' own storage; the object stays."""

# Amazon S3 Files renames and appends, as Mountpoint for S3 cannot. What is written arrives in the bucket as
# objects about a minute after the last write. Source of the facts below, unless they say another:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-files.html and the pages below it, 2026-11-20.
SERVICE = "elasticfilesystem.amazonaws.com"
"""Who synchronizes: S3 Files runs on EFS."""

LARGEST_IMPORT = 52_673_613_135_872
"""Bytes: the limit of a file's size on the file system, and so no limit. From the resource's own example."""


def s3_files(name: str, store: BucketStore, bucket: StoreBucket, args: MountArgs) -> Mountable:
    """A file system over the bucket, with a mount target in every zone and an access point for the pods' user.

    Deleted before the bucket. S3 refuses that while anything written has not arrived there yet.
    """
    region, tags = args.settings.region, named(name)
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
            statements=_sync_statements(store, bucket, args),
        ),
    )
    files = aws.s3.FilesFileSystem(
        name,
        region=region,
        bucket=bucket.arn,
        prefix=bucket.prefix or None,
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
            aws.s3.FilesSynchronizationConfigurationExpirationDataRuleArgs(days_after_last_access=KEPT_DAYS)
        ],
        opts=child,
    )
    group, rule = nfs_security_group(f"{name}-mount", args)
    targets = mount_targets(aws.s3.FilesMountTarget, name, args, files, group)

    def access_point_to(label: str, folder: str) -> aws.s3.FilesAccessPoint:
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

    access_point = access_point_to(name, ROOT)
    teams = {team: access_point_to(f"{name}-{team}", team_root(team)) for team in args.teams}
    driver = args.cluster.storage.node_role
    mount = ["s3files:ClientMount", "s3files:ClientWrite"]
    points = [access_point.arn, *(access.arn for access in teams.values())]
    through_it = {"ArnEquals": {"s3files:AccessPointArn": points if teams else access_point.arn}}
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
            allow(["s3:ListBucket"], [bucket.arn]),
            allow(["s3:GetObject", "s3:GetObjectVersion"], [bucket.objects("")]),
            *kms_statements(store, region, ["kms:Decrypt"]),
        ],
    )
    return Mountable(
        handle=pulumi.Output.concat("s3files:", files.id, "::", access_point.id),
        ready=[synchronized, rule, *targets, access_point, *teams.values(), policy, mounting],
        teams={team: pulumi.Output.concat("s3files:", files.id, "::", point.id) for team, point in teams.items()},
        made_of=[*bucket.created, files, access_point],
    )


def kms_statements(store: BucketStore, region: str, actions: Sequence[str]) -> list[Statement]:
    """Lets S3 use the bucket's key for whoever has them; nothing where the keys are S3's own."""
    if store.kms_key is None:
        return []
    return [allow(actions, [store.kms_key], {"StringEquals": {"kms:ViaService": f"s3.{region}.amazonaws.com"}})]


def _sync_statements(store: BucketStore, bucket: StoreBucket, args: MountArgs) -> list[Statement]:
    """What S3 Files asks for to follow the bucket: its objects, and rules of EventBridge that it makes itself."""
    region = args.settings.region
    owned = {"StringEquals": {"aws:ResourceAccount": args.account}}
    rules = "arn:aws:events:*:*:rule/"
    return [
        allow(["s3:ListBucket", "s3:ListBucketVersions"], [bucket.arn], owned),
        allow(
            ["s3:AbortMultipartUpload", "s3:DeleteObject*", "s3:GetObject*", "s3:List*", "s3:PutObject*"],
            [bucket.objects("")],
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


DRIVER = "efs.csi.aws.com"

SIZE = "1Gi"
"""Kubernetes wants one; the file systems have no size."""


@dataclass(frozen=True)
class TeamStore:
    """The store of one team, what its Jobs' own identity may do to it, and ``app`` as `AwsStore` has it."""

    store: Store
    statements: Sequence[Statement] = ()
    app: Callable[[str | None], Sequence[Statement]] = lambda _: ()


@dataclass(frozen=True)
class AwsStore:
    """The store, what to wait for before the first pod, and what the Jobs' own identity may do to it.

    ``teams`` are the stores of other teams' stacks, by the team's name. ``app`` says what the identity of an app
    may do to it that has the folder of its own, or None, which it is given.
    """

    store: Store
    ready: Sequence[pulumi.Resource]
    statements: Sequence[Statement] = ()
    teams: Mapping[str, TeamStore] = field(default_factory=dict[str, TeamStore])
    app: Callable[[str | None], Sequence[Statement]] = lambda _: ()


def s3_store(name: str, settings: BucketStore, namespace: str, args: MountArgs) -> AwsStore:
    """A bucket, mounted through S3 Files.

    Nothing of it is read back by the program: a result is in the bucket only a while after the Job that wrote it
    is done.
    """
    region = args.settings.region
    bucket = _bucket(name, settings, args)
    mountable = s3_files(name, settings, bucket, args)
    volume = _volume(name, namespace, mountable, args)

    def store(root: str, volume: k8s.core.v1.PersistentVolume) -> Store:
        folder = f"{bucket.prefix}{root}"
        url = pulumi.Output.concat("s3://", bucket.name, f"/{folder}")
        mounted = file_system_store(url, SIZE, volume, mountable.made_of)
        arguments = {"region": region, "bucket": bucket.name, "folder": folder}
        return replace(mounted, browse=_browse(region, bucket.name, folder), reader=arguments)

    return AwsStore(
        store=store(ROOT, volume),
        ready=[volume],
        statements=_bucket_statements(settings, bucket, region, ROOT),
        app=partial(_app_statements, settings, bucket, region, ROOT),
        teams={
            team: TeamStore(
                store(team_root(team), volume),
                _bucket_statements(settings, bucket, region, team_root(team)),
                partial(_app_statements, settings, bucket, region, team_root(team)),
            )
            for team, volume in _team_volumes(name, mountable, args).items()
        },
    )


def _bucket(name: str, settings: BucketStore, args: MountArgs) -> StoreBucket:
    """The bucket of the store, which is declared, with its access logs, where the stack creates it."""
    if isinstance(settings, ExistingS3Store):
        return existing_bucket(settings)
    bucket = store_bucket(name, StoreBucketArgs(settings, args.settings, args.account, args.protect))
    if settings.access_logs:
        access_logs(name, AccessLogsArgs(bucket.created[0], args.settings, args.account, args.protect))
    return bucket


def efs_store(name: str, settings: EfsStore, namespace: str, args: MountArgs) -> AwsStore:
    """An EFS file system. Pods have it through the mount only, and need no rights of their own."""
    mountable = elastic_file_system(name, settings, args)
    volume = _volume(name, namespace, mountable, args)
    handle = mountable.handle.apply(lambda handle: handle.partition(":")[0])

    def store(root: str, volume: k8s.core.v1.PersistentVolume) -> Store:
        url = pulumi.Output.concat("efs://", handle, f"/{root}")
        return file_system_store(url, SIZE, volume, mountable.made_of)

    return AwsStore(
        store=store(ROOT, volume),
        ready=[volume],
        teams={
            team: TeamStore(store(team_root(team), volume))
            for team, volume in _team_volumes(name, mountable, args).items()
        },
    )


def readable(store: Store, arguments: Mapping[str, str]) -> Store:
    """``store``, which another stack has, with what shows it; ``arguments`` are its `Store.reader` there."""
    return replace(store, browse=_browse(arguments["region"], arguments["bucket"], arguments["folder"]))


def _browse(
    region: str, bucket: pulumi.Input[str], root: str
) -> Callable[[pulumi.Input[str]], pulumi.Output[str]]:
    def browse(path: pulumi.Input[str]) -> pulumi.Output[str]:
        return pulumi.Output.concat(
            f"https://{region}.console.aws.amazon.com/s3/buckets/", bucket, f"?prefix={root}/", path, "/"
        )

    return browse


def _team_volumes(name: str, mountable: Mountable, args: MountArgs) -> dict[str, k8s.core.v1.PersistentVolume]:
    return {
        team: _volume(f"{name}-{team}", args.teams[team].namespace, replace(mountable, handle=handle), args)
        for team, handle in mountable.teams.items()
    }


def _volume(name: str, namespace: str, mountable: Mountable, args: MountArgs) -> k8s.core.v1.PersistentVolume:
    """Goes before anything that it is mounted through, which the driver still needs to unmount it."""
    return k8s.core.v1.PersistentVolume(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=resource_name(KUBERNETES_NAME_LIMIT, name)),
        spec=file_system_volume(
            SIZE,
            namespace,
            mount_options=list(mountable.mount_options) or None,
            csi=k8s.core.v1.CSIPersistentVolumeSourceArgs(driver=DRIVER, volume_handle=mountable.handle),
        ),
        opts=pulumi.ResourceOptions(
            provider=args.cluster.provider,
            depends_on=[args.cluster.storage.addon, *mountable.ready],
            # A volume's handle cannot change, and its name is taken until the old one is gone.
            delete_before_replace=True,
            # Once bound, it takes no claim of another namespace.
            replace_on_changes=["spec.claimRef"],
        ),
    )


def _bucket_statements(settings: BucketStore, bucket: StoreBucket, region: str, root: str) -> list[Statement]:
    """Read, write, list and delete objects below ``root``; nothing on the bucket itself or beside that prefix."""
    return [
        allow(
            ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            [bucket.objects(f"{root}/")],
        ),
        bucket.listing(root),
        *kms_statements(settings, region, ["kms:Decrypt", "kms:GenerateDataKey"]),
    ]


def _app_statements(
    settings: BucketStore, bucket: StoreBucket, region: str, root: str, folder: str | None
) -> list[Statement]:
    """Read and list the objects below ``root``; write and delete only those below its ``folder``, if any."""
    reading = [
        allow(["s3:GetObject"], [bucket.objects(f"{root}/")]),
        bucket.listing(root),
    ]
    if folder is None:
        return [*reading, *kms_statements(settings, region, ["kms:Decrypt"])]
    return [
        *reading,
        allow(
            ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"],
            [bucket.objects(f"{root}/{folder}/")],
        ),
        *kms_statements(settings, region, ["kms:Decrypt", "kms:GenerateDataKey"]),
    ]
