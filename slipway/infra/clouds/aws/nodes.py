"""The nodes of a managed node group of EKS, as its declaration and that of its launch template say them.

``group`` are the inputs of ``aws.eks.NodeGroup`` and ``template`` those of its ``aws.ec2.LaunchTemplate``
throughout, empty where it has none. What is left out has EKS's default. Sharing GPUs is not EKS's to declare: the
device plugin does it.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from slipway.infra.clouds.aws.catalogue import NodeShape, allocatable, instance_type, is_arm
from slipway.infra.clouds.aws.settings import AwsCluster
from slipway.infra.platform import GPU_RESOURCE, Resources, Taint
from slipway.infra.review.facts import Seconds
from slipway.infra.review.stack import (
    UNLIMITED,
    NodePool,
    Properties,
    Resource,
    Stack,
    at,
    mapping,
    mappings,
    strings,
    text,
    texts,
    whole,
)
from slipway.infra.review.tables import durations
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.taints import EFFECTS

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"

DISK_TYPE = "gp3"
"""EBS type of nodes' root disks."""

POOL_LABEL = "eks.amazonaws.com/nodegroup"
"""EKS puts it on every node, with the node group's name."""

DEFAULT_TYPE = "t3.medium"
DEFAULT_DISK = 20
"""GiB, of Linux. Source of both: https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html,
2026-11-20."""

SCALE_DOWN_ARGUMENT = "scale-down-unneeded-time"
"""Of the Cluster Autoscaler: how long no pod needs a node until it may go."""

Inputs = Mapping[str, Any]


def machine_of(group: Inputs, template: Inputs) -> str:
    """The instance type: the first where the group may have several."""
    types = texts(group.get("instanceTypes"))
    declared = template.get("instanceType") or (types[0] if types else None)
    return DEFAULT_TYPE if declared is None else text(declared)


def accelerator_of(group: Inputs, template: Inputs) -> str | None:
    """The accelerator that the instance type comes with."""
    known = instance_type(machine_of(group, template))
    return known.accelerator if known else None


def gpus_of(group: Inputs, template: Inputs) -> int:
    """Physical GPUs of one node."""
    known = instance_type(machine_of(group, template))
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
    disk, store = disk_size(group, template), has_instance_store(template)
    return allocatable(NodeShape(machine_of(group, template), disk, clients, store))


def has_instance_store(template: Inputs) -> bool:
    """Whether the instance's own disks are those of its pods: what its user data tells nodeadm."""
    try:
        told = base64.b64decode(text(template.get("userData")), validate=True)
    except ValueError:
        return False
    return re.search(rb"localStorage:\s*strategy:\s*RAID0", told) is not None


def disk_size(group: Inputs, template: Inputs) -> int:
    """Of a node's root disk, in GiB."""
    disks = mappings(template.get("blockDeviceMappings"))
    size = whole(at(disks[0], "ebs", "volumeSize")) if disks else whole(group.get("diskSize"))
    return size or DEFAULT_DISK


def fewest_nodes(group: Inputs) -> int:
    """The nodes that are there at all times, over all zones."""
    return whole(at(group, "scalingConfig", "minSize"))


def most_nodes(group: Inputs) -> int:
    """The most nodes over all zones."""
    return whole(at(group, "scalingConfig", "maxSize"))


def labels_of(group: Inputs, template: Inputs) -> dict[str, str]:
    """The group's own labels, and those that EKS and the kubelet put on every node.

    Source: https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html, 2026-11-20.
    """
    kind = machine_of(group, template)
    return {
        **strings(group.get("labels")),
        POOL_LABEL: text(group.get("nodeGroupName")),
        "eks.amazonaws.com/capacityType": text(group.get("capacityType")) or "ON_DEMAND",
        "kubernetes.io/arch": "arm64" if is_arm(kind) else "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/region": text(group.get("region")),
    }


TIMES = durations(Path(__file__).parent / "data" / "times.toml")
"""How long resources take to be created, and nodes from being asked for until pods can use them."""

CLUSTER = "aws:eks/cluster:Cluster"
SUBNET = "aws:ec2/subnet:Subnet"
HELM_RELEASE = "kubernetes:helm.sh/v3:Release"


def pools(stack: Stack) -> Sequence[NodePool]:
    """The node groups that the stack declares."""
    return [_pool(stack, group) for group in stack.of_type(NODE_GROUP)]


def template(stack: Stack, group: Resource) -> Properties:
    """The properties of a group's launch template; empty where the stack does not declare it."""
    template = stack.source(group, "launchTemplate", LAUNCH_TEMPLATE)
    return template.properties if template else {}


def _pool(stack: Stack, group: Resource) -> NodePool:
    declared, machines = group.properties, template(stack, group)
    source = stack.source(group, "clusterName", CLUSTER)
    cluster = stack.called(source) if source else text(declared.get("clusterName"))
    labels = labels_of(declared, machines)
    machine, accelerator = machine_of(declared, machines), accelerator_of(declared, machines)
    return NodePool(
        urn=group.urn,
        cluster=cluster,
        name=group.name.removeprefix(f"{cluster}-"),
        labels=labels,
        taints=taints(declared),
        allocatable=_allocatable(declared, machines, _clients(stack, cluster, labels)),
        min_nodes=fewest_nodes(declared),
        max_nodes=most_nodes(declared),
        accelerator=accelerator,
        gpus=gpus_of(declared, machines),
        spot=is_spot(declared),
        machine=machine,
        boot=TIMES["boot", "gpu" if accelerator else "cpu"],
        zones=_zones(stack, group),
        faster="efa: true" if _could_have_efa(machine, machines) else "",
        queued=text(declared.get("capacityType")) == "CAPACITY_BLOCK",
        scale_down=_scale_down(stack, cluster),
    )


def kept(cluster: AwsCluster) -> float:
    """Seconds that the Cluster Autoscaler leaves an idle node of ``cluster``, with how long it takes to act."""
    return seconds(cluster.scale_down_unneeded_time) + TIMES["autoscaler", "reaction"].amount


def _scale_down(stack: Stack, cluster: str) -> Seconds | None:
    """As the Cluster Autoscaler's release in the cluster says it, with how long it takes to act."""
    for release in stack.of_type(HELM_RELEASE):
        arguments = mapping(at(release.properties, "values", "extraArgs"))
        if stack.cluster_of(release) == cluster and SCALE_DOWN_ARGUMENT in arguments:
            try:
                unneeded = seconds(text(arguments[SCALE_DOWN_ARGUMENT]))
            except ValueError:
                return None
            reaction = TIMES["autoscaler", "reaction"]
            return replace(reaction, amount=unneeded + reaction.amount)
    return None


def _could_have_efa(machine: str, machines: Properties) -> bool:
    """Whether the machine type has EFA and GPUs, and the launch template no interface of the kind."""
    known = instance_type(machine)
    kinds = {text(interface.get("interfaceType")) for interface in mappings(machines.get("networkInterfaces"))}
    return bool(known and known.gpus and known.network_cards and not kinds & {"efa", "efa-only"})


def _zones(stack: Stack, group: Resource) -> list[str]:
    """Those of the group's subnets, by their ids or names; none where one of them is not declared here."""
    subnets = [stack.resources.get(urn) for urn in sorted(group.property_dependencies.get("subnetIds", ()))]
    keys = ("availabilityZoneId", "availabilityZone")
    taints = [
        next((zone for key in keys if (zone := text(subnet.properties.get(key)))), "")
        for subnet in subnets
        if subnet is not None and subnet.type == SUBNET
    ]
    return sorted(set(taints)) if taints and all(taints) else []


def _allocatable(declared: Properties, machines: Properties, clients: int) -> Resources:
    try:
        return node_resources(declared, machines, clients)
    except ValueError:
        # Custom images and new types: it may well have GPUs.
        return Resources(cpu=UNLIMITED, memory=UNLIMITED, ephemeral_storage=UNLIMITED, gpus=UNLIMITED)


def _clients(stack: Stack, cluster: str, labels: Mapping[str, str]) -> int:
    """How many pods share each GPU of nodes with these labels: EKS leaves it to the device plugin's release."""
    for release in stack.of_type(HELM_RELEASE):
        selector = strings(at(release.properties, "values", "nodeSelector"))
        if stack.cluster_of(release) == cluster and selector.items() <= labels.items():
            for replicas in _replicas(at(release.properties, "values", "config")):
                return replicas
    return 1


def _replicas(config: object) -> Iterator[int]:
    """Those of GPUs in the configuration that the plugin uses by default (values.yaml of its pinned chart)."""
    given = strings(at(config, "map"))
    default = text(at(config, "default")) or next(iter(given), "")
    try:
        read: object = yaml.safe_load(given.get(default, ""))
    except yaml.YAMLError:
        return
    for shared in mappings(at(mapping(read), "sharing", "timeSlicing", "resources")):
        if shared.get("name") == GPU_RESOURCE and whole(shared.get("replicas")) > 1:
            yield whole(shared["replicas"])
