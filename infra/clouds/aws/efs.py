"""EFS as the store: a file system without a bucket behind it."""

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.iam_policies import allow, document
from infra.clouds.aws.mounts import ROOT, Mountable, MountArgs, mount_targets, nfs_security_group, team_root
from infra.clouds.aws.names import FILE_SYSTEM_LIMIT, named, resource_name
from infra.clouds.aws.settings import EfsStore
from infra.platform import POD_USER

MOUNT_OPTIONS = ("tls", "iam")
"""Encrypted, and as the driver's own role: without `iam` the mount is anonymous, and no policy can name it."""


def elastic_file_system(name: str, store: EfsStore, args: MountArgs) -> Mountable:
    """An encrypted file system, with a mount target in every zone and an access point for the pods' user."""
    region, tags = args.settings.region, named(args.settings.tags, resource_name(FILE_SYSTEM_LIMIT, name))
    # The provider makes a creation token up for each file system. EFS refuses one of this stack's name for the
    # successor of a file system that is replaced, which is still there then.
    files = aws.efs.FileSystem(
        name,
        region=region,
        encrypted=True,
        kms_key_id=store.kms_key,
        throughput_mode=store.throughput,
        lifecycle_policies=_lifecycle(store),
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

    def entrance_to(label: str, folder: str) -> aws.efs.AccessPoint:
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

    entrance = entrance_to(name, ROOT)
    teams = {team: entrance_to(f"{name}-{team}", team_root(team)) for team in args.teams}
    entrances = [entrance.arn, *(each.arn for each in teams.values())]
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
                        "StringEquals": {"elasticfilesystem:AccessPointArn": entrances if teams else entrance.arn},
                    },
                ),
                "Principal": {"AWS": args.cluster.storage.node_role.arn},
            }
        ),
        opts=child,
    )
    return Mountable(
        handle=pulumi.Output.concat(files.id, "::", entrance.id),
        ready=[rule, *targets, entrance, *teams.values(), policy],
        mount_options=MOUNT_OPTIONS,
        teams={team: pulumi.Output.concat(files.id, "::", each.id) for team, each in teams.items()},
        made_of=[files, entrance],
    )


def _lifecycle(store: EfsStore) -> list[aws.efs.FileSystemLifecyclePolicyArgs]:
    """One transition per policy, as EFS wants it. What is read comes back."""
    days = store.infrequent_access_days
    if days is None:
        return []
    unit = "DAY" if days == 1 else "DAYS"
    return [
        aws.efs.FileSystemLifecyclePolicyArgs(transition_to_ia=f"AFTER_{days}_{unit}"),
        aws.efs.FileSystemLifecyclePolicyArgs(transition_to_primary_storage_class="AFTER_1_ACCESS"),
    ]
