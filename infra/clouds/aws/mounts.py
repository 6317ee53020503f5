"""What NFS needs of a cluster's network, and of the pods that mount: the same for S3 Files and EFS."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.cluster import EksCluster
from infra.clouds.aws.names import GROUP_LIMIT, named, resource_name
from infra.clouds.aws.network import Network
from infra.clouds.aws.settings import AwsCluster
from infra.schema.base import Team

NFS_PORT = 2049

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
    tags = named(args.settings.tags, resource_name(GROUP_LIMIT, name))
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
