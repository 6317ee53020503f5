"""The nodes of a managed node group of EKS, as its declaration and that of its launch template say them.

``group`` are the inputs of ``aws.eks.NodeGroup`` and ``template`` those of its ``aws.ec2.LaunchTemplate``
throughout, empty where it has none. What is left out has EKS's default. Sharing GPUs is not EKS's to declare: the
device plugin does it.
"""

from collections.abc import Mapping
from typing import Any

from infra.clouds.aws.catalogue import NodeShape, allocatable, instance_type, is_arm
from infra.platform import Resources, Taint
from infra.review.properties import at, mappings, strings, text, texts, whole
from infra.schema.taints import EFFECTS

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"

POOL_LABEL = "eks.amazonaws.com/nodegroup"
"""EKS puts it on every node, with the node group's name."""

DEFAULT_TYPE = "t3.medium"
DEFAULT_DISK = 20
"""GiB, of Linux. Source of both: https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html,
2026-11-20."""

Inputs = Mapping[str, Any]


def machine(group: Inputs, template: Inputs) -> str:
    """The instance type: the first where the group may have several."""
    types = texts(group.get("instanceTypes"))
    declared = template.get("instanceType") or (types[0] if types else None)
    return DEFAULT_TYPE if declared is None else text(declared)


def accelerator(group: Inputs, template: Inputs) -> str | None:
    """The accelerator that the instance type comes with."""
    known = instance_type(machine(group, template))
    return known.accelerator if known else None


def gpus(group: Inputs, template: Inputs) -> int:
    """Physical GPUs of one node."""
    known = instance_type(machine(group, template))
    return known.gpus if known else 0


def is_spot(group: Inputs) -> bool:
    """Whether AWS may take nodes back at any time."""
    return group.get("capacityType") == "SPOT"


def taints(group: Inputs) -> list[Taint]:
    """The taints that the group declares, in Kubernetes' spelling."""
    return [
        Taint(text(taint.get("key")), text(taint.get("value")), EFFECTS[taint["effect"]])
        for taint in mappings(group.get("taints"))
        if taint.get("effect") in EFFECTS
    ]


def node_resources(group: Inputs, template: Inputs, clients: int = 1) -> Resources:
    """What one node leaves to pods, of which ``clients`` share each GPU.

    Raises ValueError where the catalogue does not have its instance type.
    """
    return allocatable(NodeShape(machine(group, template), disk_size(group, template), clients))


def disk_size(group: Inputs, template: Inputs) -> int:
    """Of a node's root disk, in GiB."""
    disks = mappings(template.get("blockDeviceMappings"))
    own = whole(at(disks[0], "ebs", "volumeSize")) if disks else whole(group.get("diskSize"))
    return own or DEFAULT_DISK


def fewest_nodes(group: Inputs) -> int:
    """The nodes that are there at all times, over all zones."""
    return whole(at(group, "scalingConfig", "minSize"))


def most_nodes(group: Inputs) -> int:
    """The most nodes over all zones."""
    return whole(at(group, "scalingConfig", "maxSize"))


def labels(group: Inputs, template: Inputs) -> dict[str, str]:
    """The group's own labels, and those that EKS and the kubelet put on every node.

    Source: https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html, 2026-11-20.
    """
    kind = machine(group, template)
    return {
        **strings(group.get("labels")),
        POOL_LABEL: text(group.get("nodeGroupName")),
        "eks.amazonaws.com/capacityType": text(group.get("capacityType")) or "ON_DEMAND",
        "kubernetes.io/arch": "arm64" if is_arm(kind) else "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/region": text(group.get("region")),
    }
