"""Managed node groups: from a pool's settings to its launch template and ``aws.eks.NodeGroup``."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from slipway.infra.clouds.aws.catalogue import instance_type
from slipway.infra.clouds.aws.nodes import DISK_TYPE
from slipway.infra.clouds.aws.roles import (
    GROUP_LIMIT,
    LAUNCH_TEMPLATE_LIMIT,
    named,
    node_group_name,
    resource_name,
)
from slipway.infra.clouds.aws.settings import AwsCluster, AwsPool
from slipway.infra.platform import GPU_RESOURCE, Interconnect, Taint
from slipway.infra.schema.taints import CLOUD_EFFECTS, pool_taints

GPU_PRESENT_LABEL = f"{GPU_RESOURCE}.present"
"""What the device plugin's chart schedules by where no node feature discovery runs.

Source: ``affinity`` in the values of NVIDIA/k8s-device-plugin's pinned chart.
"""

ACCELERATOR_LABEL = "k8s.amazonaws.com/accelerator"
"""Tells the Cluster Autoscaler that a node will have GPUs, so that it waits for them instead of adding another.

Source: "Special note on GPU instances" in cluster-autoscaler/cloudprovider/aws/README.md of
kubernetes/autoscaler, 2026-08-22.
"""

ROOT_DEVICE = "/dev/xvda"
"""Of Amazon Linux 2023. Source: https://docs.aws.amazon.com/linux/al2023/ug/ec2.html, 2026-11-20."""

EFA_RESOURCE = "vpc.amazonaws.com/efa"
"""The extended resource that AWS's device plugin for EFA advertises, one for each interface.

Source: https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html, November 2026.
"""

INSTANCE_STORE = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="BOUNDARY"

--BOUNDARY
Content-Type: application/node.eks.aws

---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  instance:
    localStorage:
      strategy: RAID0

--BOUNDARY--
"""
"""User data of nodes whose NVMe disks become one, on which the kubelet and containerd keep what they have.

EKS adds what joins the node to its cluster, and nodeadm merges both.

Source: nodeadm/doc/examples.md and nodeadm/api/v1alpha1/nodeconfig_types.go of awslabs/amazon-eks-ami, 2026-07-23.
"""

NCCL_SOCKETS = {"NCCL_SOCKET_NTHREADS": "2", "NCCL_NSOCKS_PERTHREAD": "8"}
"""What NCCL chooses by itself on AWS's interface, which in a pod it does not see: there it would send all that
goes to another node through one connection, and AWS gives one connection 5 Gbit/s, or 10 in a placement group.

Sources: ``ncclNetSocketGetNsockNthread`` in src/transport/net_socket.cc of NVIDIA/nccl, read in November 2026: it
looks at ``/sys/class/net/<interface>/device/vendor``, and a pod's interface has no device.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html, as documented in 2025.
"""


@dataclass(frozen=True)
class NodeGroupArgs:
    """``subnets`` are the cluster's private ones by zone, ``role`` is the nodes'.

    ``after`` is what has to be there first.
    """

    cluster: AwsCluster
    pool: AwsPool
    eks: aws.eks.Cluster
    subnets: Mapping[str, aws.ec2.Subnet]
    role: aws.iam.Role
    protect: bool
    after: Sequence[pulumi.Resource]


def taints(pool: AwsPool) -> list[Taint]:
    """All taints of the pool's nodes."""
    return pool_taints(pool.taints, gpus=pool.has_gpus)


def labels(pool: AwsPool) -> dict[str, str]:
    """The labels that the node group puts on its nodes, beside EKS's own."""
    gpu = {GPU_PRESENT_LABEL: "true", ACCELERATOR_LABEL: pool.gpu_type} if pool.gpu_type else {}
    return {**gpu, **pool.labels}


def scales(pool: AwsPool) -> bool:
    """Whether the autoscaler decides how many nodes there are."""
    return pool.nodes.max is not None


def interconnect(pool: AwsPool) -> Interconnect | None:
    """What GPU nodes of the pool reach one another by; None for CPU pools and types that the catalogue lacks.

    Without EFA, pods use the one interface of the node, which is on one of its network cards.
    """
    machine = instance_type(pool.instance_type)
    if machine is None or not machine.gpus:
        return None
    if not pool.efa:
        return Interconnect(environment=NCCL_SOCKETS)
    # The provider's name is for plugins of NCCL up to 1.5 (doc/efa-env-var.md of aws/aws-ofi-nccl, August 2026).
    # In an image without a plugin NCCL falls back to sockets.
    return Interconnect(EFA_RESOURCE, machine.network_cards, environment={"FI_PROVIDER": "efa", **NCCL_SOCKETS})


def node_group(name: str, pool_name: str, args: NodeGroupArgs, parent: pulumi.Resource) -> aws.eks.NodeGroup:
    """Declares the pool ``pool_name`` of a cluster, with its launch template."""
    cluster, pool = args.cluster, args.pool
    template = launch_template(name, args, parent)
    return aws.eks.NodeGroup(
        name,
        region=cluster.region,
        cluster_name=args.eks.name,
        node_group_name=node_group_name(pool_name),
        node_role_arn=args.role.arn,
        subnet_ids=[args.subnets[zone].id for zone in pool.zones or cluster.zones],
        # With the driver, where there are GPUs.
        ami_type="AL2023_x86_64_NVIDIA" if pool.has_gpus else "AL2023_x86_64_STANDARD",
        capacity_type=_capacity_type(pool),
        version=pool.kubernetes_version or cluster.kubernetes_version,
        launch_template=aws.eks.NodeGroupLaunchTemplateArgs(
            id=template.id, version=template.latest_version.apply(str)
        ),
        labels=labels(pool),
        taints=[
            aws.eks.NodeGroupTaintArgs(key=taint.key, value=taint.value, effect=CLOUD_EFFECTS[taint.effect])
            for taint in taints(pool)
        ],
        scaling_config=aws.eks.NodeGroupScalingConfigArgs(
            min_size=pool.least_nodes,
            # EKS takes no group that could never have a node.
            max_size=max(pool.most_nodes, 1),
            desired_size=pool.least_nodes,
        ),
        update_config=aws.eks.NodeGroupUpdateConfigArgs(
            max_unavailable=1,
            # Takes the old node away first: a spare GPU is rarely to be had, and no update would ever start.
            update_strategy="MINIMAL" if pool.has_gpus else "DEFAULT",
        ),
        tags={**pool.tags, **named(name)},
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=args.after,
            protect=args.protect,
            # What the autoscaler does to a group is no drift.
            ignore_changes=["scalingConfig.desiredSize"] if scales(pool) else [],
            # A group's name is taken until the old one is gone, and so are its GPUs.
            delete_before_replace=True,
            custom_timeouts=pulumi.CustomTimeouts(create="45m", update="2h", delete="1h"),
        ),
    )


def launch_template(name: str, args: NodeGroupArgs, parent: pulumi.Resource) -> aws.ec2.LaunchTemplate:
    """The machines of the pool. EKS adds the image, the cluster's security group and how a node joins."""
    cluster, pool = args.cluster, args.pool
    tags = {**pool.tags, **named(name)}
    return aws.ec2.LaunchTemplate(
        name,
        region=cluster.region,
        name=resource_name(LAUNCH_TEMPLATE_LIMIT, name),
        # Here and not in the group: a Capacity Block demands it, and a changed type then rolls through the group
        # instead of replacing it.
        instance_type=pool.instance_type,
        metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled",
            http_tokens="required",
            # No answer from the metadata service passes on from the node to its pods, and so not the node's role.
            http_put_response_hop_limit=1,
        ),
        block_device_mappings=[
            aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
                device_name=ROOT_DEVICE,
                ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                    encrypted="true",
                    volume_type=DISK_TYPE,
                    volume_size=pool.disk_size_gb,
                    delete_on_termination="true",
                ),
            )
        ],
        user_data=base64.b64encode(INSTANCE_STORE.encode()).decode() if pool.instance_store else None,
        instance_market_options=(
            aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")
            if pool.capacity_block
            else None
        ),
        capacity_reservation_specification=_reservation(pool),
        network_interfaces=_efa_interfaces(name, args, parent),
        placement=_placement(name, args, parent),
        tag_specifications=[
            aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=tags)
            for kind in ("instance", "network-interface", "volume")
        ],
        tags=tags,
        opts=pulumi.ResourceOptions(parent=parent, delete_before_replace=True),
    )


def _capacity_type(pool: AwsPool) -> str:
    if pool.capacity_block:
        return "CAPACITY_BLOCK"
    return "SPOT" if pool.spot else "ON_DEMAND"


def _reservation(pool: AwsPool) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    reservation = pool.capacity_block or pool.capacity_reservation
    if reservation is None:
        return None
    return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_target=(
            aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
                capacity_reservation_id=reservation
            )
        )
    )


def _efa_interfaces(
    name: str, args: NodeGroupArgs, parent: pulumi.Resource
) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs] | None:
    """An ordinary interface on the first network card, and an EFA-only one on every card, which has no IP address.

    Source: "Maximize network bandwidth on Amazon EC2 instances with multiple network cards",
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html, 2026-11-20.
    """
    machine = instance_type(args.pool.instance_type)
    if not args.pool.efa or machine is None:
        return None
    group = _efa_security_group(name, args, parent)
    ours = args.eks.vpc_config.cluster_security_group_id
    return [
        aws.ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=0,
            device_index=0,
            interface_type="interface",
            # EKS adds the cluster's group by itself only where a template has no interfaces.
            security_groups=[ours, group.id],
            delete_on_termination="true",
        ),
        *(
            aws.ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=card,
                device_index=0 if card else 1,
                interface_type="efa-only",
                security_groups=[group.id],
                delete_on_termination="true",
            )
            for card in range(machine.network_cards)
        ),
    ]


def _efa_security_group(name: str, args: NodeGroupArgs, parent: pulumi.Resource) -> aws.ec2.SecurityGroup:
    """Lets the pool's nodes talk to one another over EFA, which needs a rule for its own group in both directions.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html, step 1, 2026-11-20.
    """
    region = args.cluster.region
    tags = {**args.pool.tags, **named(f"{name}-efa")}
    group = aws.ec2.SecurityGroup(
        f"{name}-efa",
        region=region,
        name=resource_name(GROUP_LIMIT, name, "efa"),
        description="EFA between the nodes of the pool",
        vpc_id=args.eks.vpc_config.vpc_id,
        tags=tags,
        opts=pulumi.ResourceOptions(parent=parent, delete_before_replace=True),
    )
    for rule in (aws.vpc.SecurityGroupIngressRule, aws.vpc.SecurityGroupEgressRule):
        rule(
            f"{name}-efa",
            region=region,
            security_group_id=group.id,
            referenced_security_group_id=group.id,
            ip_protocol="-1",
            description="All traffic within the group",
            tags=tags,
            opts=pulumi.ResourceOptions(parent=parent),
        )
    return group


def _placement(
    name: str, args: NodeGroupArgs, parent: pulumi.Resource
) -> aws.ec2.LaunchTemplatePlacementArgs | None:
    """Nodes with EFA stand close together: in a placement group, unless they are in capacity that is reserved.

    Instances of a Capacity Block stand close together without one, and what is reserved outside a placement group
    is not there for instances in one: they could fail to start although they are paid for. Sources:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-blocks.html and
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/cr-cpg.html, 2026-11-22.
    """
    if not args.pool.efa or args.pool.capacity_block or args.pool.capacity_reservation:
        return None
    group = aws.ec2.PlacementGroup(
        name,
        region=args.cluster.region,
        name=resource_name(GROUP_LIMIT, name),
        strategy="cluster",
        tags={**args.pool.tags, **named(name)},
        opts=pulumi.ResourceOptions(parent=parent, delete_before_replace=True),
    )
    return aws.ec2.LaunchTemplatePlacementArgs(group_name=group.name)
