"""Managed node groups of EKS as their declarations say them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from infra.clouds.aws import nodes
from infra.clouds.aws.catalogue import instance_type
from infra.platform import GPU_RESOURCE, Resources
from infra.review.data_files import durations
from infra.review.properties import Properties, at, mapping, mappings, strings, text, whole
from infra.review.stack import UNLIMITED, NodePool, Resource, Stack

TIMES = durations(Path(__file__).parents[1] / "data" / "times.toml")
"""How long resources take to be created, and nodes from being asked for until pods can use them."""

CLUSTER = "aws:eks/cluster:Cluster"
SUBNET = "aws:ec2/subnet:Subnet"
HELM_RELEASE = "kubernetes:helm.sh/v3:Release"


def pools(stack: Stack) -> Sequence[NodePool]:
    """The node groups that the stack declares."""
    return [_pool(stack, each) for each in stack.of_type(nodes.NODE_GROUP)]


def template(stack: Stack, group: Resource) -> Properties:
    """The properties of a group's launch template; empty where the stack does not declare it."""
    found = stack.source(group, "launchTemplate", nodes.LAUNCH_TEMPLATE)
    return found.properties if found else {}


def _pool(stack: Stack, group: Resource) -> NodePool:
    declared, machines = group.properties, template(stack, group)
    source = stack.source(group, "clusterName", CLUSTER)
    cluster = stack.called(source) if source else text(declared.get("clusterName"))
    labels = nodes.labels(declared, machines)
    machine, accelerator = nodes.machine(declared, machines), nodes.accelerator(declared, machines)
    return NodePool(
        urn=group.urn,
        cluster=cluster,
        name=group.name.removeprefix(f"{cluster}-"),
        labels=labels,
        taints=nodes.taints(declared),
        allocatable=_allocatable(declared, machines, _clients(stack, cluster, labels)),
        min_nodes=nodes.fewest_nodes(declared),
        max_nodes=nodes.most_nodes(declared),
        accelerator=accelerator,
        gpus=nodes.gpus(declared, machines),
        spot=nodes.is_spot(declared),
        machine=machine,
        boot=TIMES["boot", "gpu" if accelerator else "cpu"],
        zones=_zones(stack, group),
        faster="efa: true" if _could_have_efa(machine, machines) else "",
    )


def _could_have_efa(machine: str, machines: Properties) -> bool:
    """Whether the machine type has EFA and GPUs, and the launch template no interface of the kind."""
    found = instance_type(machine)
    kinds = {text(each.get("interfaceType")) for each in mappings(machines.get("networkInterfaces"))}
    return bool(found and found.gpus and found.network_cards and not kinds & {"efa", "efa-only"})


def _zones(stack: Stack, group: Resource) -> list[str]:
    """Those of the group's subnets, by their ids or names; none where one of them is not declared here."""
    subnets = [stack.resources.get(urn) for urn in sorted(group.property_dependencies.get("subnetIds", ()))]
    keys = ("availabilityZoneId", "availabilityZone")
    found = [
        next((zone for key in keys if (zone := text(each.properties.get(key)))), "")
        for each in subnets
        if each is not None and each.type == SUBNET
    ]
    return sorted(set(found)) if found and all(found) else []


def _allocatable(declared: Properties, machines: Properties, clients: int) -> Resources:
    try:
        return nodes.node_resources(declared, machines, clients)
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
    """Those of GPUs in the configuration that the plugin uses by default (values.yaml of its chart, v0.20.0)."""
    given = strings(at(config, "map"))
    default = text(at(config, "default")) or next(iter(given), "")
    try:
        read: object = yaml.safe_load(given.get(default, ""))
    except yaml.YAMLError:
        return
    for shared in mappings(at(mapping(read), "sharing", "timeSlicing", "resources")):
        if shared.get("name") == GPU_RESOURCE and whole(shared.get("replicas")) > 1:
            yield whole(shared["replicas"])
