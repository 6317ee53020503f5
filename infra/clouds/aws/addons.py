"""EKS add-ons at pinned versions, in the order in which nodes and one another need them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.clouds.aws.catalogue import addon_version
from infra.clouds.aws.roles import PodIdentityArgs, named, pod_identity
from infra.clouds.aws.settings import AwsCluster

SYSTEM = "kube-system"


@dataclass(frozen=True)
class AddonsArgs:
    """``cluster_name`` is the cluster's name in EKS."""

    cluster: AwsCluster
    cluster_name: str
    eks: aws.eks.Cluster


def before_nodes(name: str, args: AddonsArgs, parent: pulumi.Resource) -> list[pulumi.Resource]:
    """What a node needs to become ready: DaemonSets, which are active before there is a node.

    The network plugin has its rights through Pod Identity, not from the nodes' role, so whose pods it is on a node
    can do no more than others. It also enforces the namespace's NetworkPolicy, which it does not do by default.
    """
    agent = _addon(name, "eks-pod-identity-agent", args, parent)
    identity = pod_identity(
        f"{name}-vpc-cni",
        _identity(args, "aws-node", ["AmazonEKS_CNI_Policy"]),
        pulumi.ResourceOptions(parent=parent),
    )
    network = _addon(
        name,
        "vpc-cni",
        args,
        parent,
        configuration={"enableNetworkPolicy": "true"},
        after=[agent, *identity.ready],
    )
    return [agent, network, _addon(name, "kube-proxy", args, parent)]


def core_dns(
    name: str, args: AddonsArgs, parent: pulumi.Resource, after: Sequence[pulumi.Resource]
) -> aws.eks.Addon:
    """Names for pods. It is a Deployment, so ``after`` has to include nodes without a GPU's taint."""
    return _addon(name, "coredns", args, parent, after=after)


@dataclass(frozen=True)
class StorageDriver:
    """The EFS CSI driver, which mounts EFS and S3 Files, and the role of its pods that mount."""

    addon: aws.eks.Addon
    node_role: aws.iam.Role


def storage_driver(
    name: str, args: AddonsArgs, parent: pulumi.Resource, after: Sequence[pulumi.Resource]
) -> StorageDriver:
    """Declares the driver. Its controller provisions nothing here, so only the pods that mount have a role.

    What that role may mount is for the store to say. Source of the service account's name and of what it needs:
    docs/iam-policy-create.md in kubernetes-sigs/aws-efs-csi-driver v3.4.1.
    """
    identity = pod_identity(
        f"{name}-storage",
        _identity(args, "efs-csi-node-sa", []),
        pulumi.ResourceOptions(parent=parent),
    )
    addon = _addon(name, "aws-efs-csi-driver", args, parent, after=[*after, *identity.ready])
    return StorageDriver(addon, identity.role)


def disk_driver(
    name: str, args: AddonsArgs, parent: pulumi.Resource, after: Sequence[pulumi.Resource]
) -> aws.eks.Addon:
    """The EBS CSI driver, whose controller creates a disk for each claim and deletes it with it.

    Source of the service account's name and of the policy:
    https://docs.aws.amazon.com/eks/latest/userguide/ebs-csi.html, 2026-11-22.
    """
    identity = pod_identity(
        f"{name}-disks",
        _identity(args, "ebs-csi-controller-sa", ["service-role/AmazonEBSCSIDriverPolicy"]),
        pulumi.ResourceOptions(parent=parent),
    )
    return _addon(name, "aws-ebs-csi-driver", args, parent, after=[*after, *identity.ready])


def _identity(args: AddonsArgs, service_account: str, managed: Sequence[str]) -> PodIdentityArgs:
    return PodIdentityArgs(
        cluster=args.eks,
        cluster_name=args.cluster_name,
        region=args.cluster.region,
        namespace=SYSTEM,
        service_account=service_account,
        tags=args.cluster.tags,
        managed=managed,
    )


def _addon(
    name: str,
    addon: str,
    args: AddonsArgs,
    parent: pulumi.Resource,
    *,
    configuration: Mapping[str, str] | None = None,
    after: Sequence[pulumi.Resource] = (),
) -> aws.eks.Addon:
    return aws.eks.Addon(
        f"{name}-{addon}",
        region=args.cluster.region,
        cluster_name=args.eks.name,
        addon_name=addon,
        addon_version=addon_version(args.cluster.kubernetes_version, addon),
        configuration_values=json.dumps(configuration) if configuration else None,
        # What the add-on brings is what is declared here; nobody's edits in the cluster stand against it.
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        tags=named(args.cluster.tags, f"{name}-{addon}"),
        opts=pulumi.ResourceOptions(parent=parent, depends_on=after),
    )
