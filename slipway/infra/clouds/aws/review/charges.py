"""What each resource is billed for. Spot prices are those of the table's day: AWS changes them all the time."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from slipway.infra.accelerators import prices_of
from slipway.infra.clouds.aws import nodes
from slipway.infra.clouds.aws.catalogue import CLOUD, InstanceType, instance_type
from slipway.infra.clouds.aws.nodes import CLUSTER, DISK_TYPE, template
from slipway.infra.clouds.aws.settings import AwsCluster, AwsPool
from slipway.infra.platform import Rate
from slipway.infra.review.facts import Charge, Disk, Price, Quota
from slipway.infra.review.stack import (
    NodePool,
    Properties,
    Resource,
    Stack,
    at,
    items,
    mapping,
    mappings,
    text,
    whole,
)
from slipway.infra.review.tables import RESERVED, facts_from, price_table, priced_in, rate_of, scaled

FACTS = facts_from(Path(__file__).parents[1] / "data" / "review.toml")


TABLE = price_table(Path(__file__).parents[1] / "data" / "prices.toml", prices_of(CLOUD))

ON_DEMAND, SPOT = "on demand", "Spot"
CAPACITY_BLOCK = "in a Capacity Block, which is paid for beforehand"

COLUMNS: Mapping[str, str] = {ON_DEMAND: "on_demand", SPOT: "spot", RESERVED: "on_demand", CAPACITY_BLOCK: ""}
"""The column of the table that prices nodes by how they are bought; empty for none."""


@dataclass(frozen=True)
class PricedNode:
    """What decides the price of a node. ``way`` is how it is bought, a key of `COLUMNS`; ``disks`` are type and
    GiB of each, the root disk first, 0 where the size is not known.
    """

    machine: str
    region: str
    way: str
    disks: Sequence[tuple[str, int]]


def node_charges(node: PricedNode) -> Iterator[tuple[Charge, str]]:
    """What a node is billed for, of no resource yet, each with how it is bought: empty for what lives as long as
    the node does, however that is bought.
    """
    column = COLUMNS[node.way]
    price = _machine(node.machine, node.region, column) if column else None
    yield Charge("", f"{node.machine or 'a machine of unknown type'}, {node.way}", price), node.way
    for number, (kind, gib) in enumerate(node.disks):
        what = f"{'disk' if number else 'root disk'}, {gib or 'unknown'} GiB {kind or 'of unknown type'}"
        price = TABLE.price("disks", kind, node.region, "per_gib_month") if gib else None
        yield Charge("", what, price, quantity=gib), ""


def node_rate(cluster: AwsCluster, pool: AwsPool) -> Rate | None:
    """The price of a node of ``pool``; None where a part of it is not known."""
    disks = [(DISK_TYPE, pool.disk_size_gb)]
    node = PricedNode(pool.instance_type, cluster.region, _bought(pool), disks)
    return rate_of(charge for charge, _ in node_charges(node))


def _bought(pool: AwsPool) -> str:
    if pool.capacity_block:
        return CAPACITY_BLOCK
    if pool.spot:
        return SPOT
    return RESERVED if pool.capacity_reservation else ON_DEMAND


def _machine(name: str, region: str, column: str) -> Price | None:
    if (price := TABLE.price("machines", name, region, column)) is not None or column != "on_demand":
        return price
    known = instance_type(name)
    vcpu = TABLE.price("families", name.partition(".")[0], region, "vcpu")
    return scaled(vcpu, known.vcpus) if known else None


FREE: Sequence[str] = FACTS["free"]


def charges(stack: Stack) -> Sequence[Charge]:
    """The charges of all of the stack's resources on AWS.

    A node group's are per node. Not here: the traffic between zones, regions and to the Internet, but for what
    goes through a NAT gateway; and requests to a bucket.
    """
    return [
        priced_in(charge, _region(resource))
        for resource in (_in_region(stack, declared) for declared in stack.resources.values())
        if resource.custom and not resource.read and resource.package == "aws"
        for charge in _charges(stack, resource)
    ]


def _in_region(stack: Stack, resource: Resource) -> Resource:
    """``resource`` with the region of its provider, where a program sets none of its own."""
    if resource.package != "aws" or resource.properties.get("region") is not None:
        return resource
    provider = stack.resources.get(resource.provider)
    region = at(provider.properties, "region") if provider is not None else stack.configuration.get("aws:region")
    return replace(resource, properties={**resource.properties, "region": region})


def disk_price(disk: Disk, stack: Stack) -> Price | None:
    """The price of a GiB of an EBS volume that a cluster of EKS makes for a claim of a class that the stack
    declares.

    Source for what the driver makes for a class without a type:
    https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md, read 2026-11-22.
    """
    cluster = stack.cluster_called(disk.cluster, CLUSTER)
    if cluster is None or disk.provisioner != "ebs.csi.aws.com":
        return None
    return TABLE.price("disks", disk.kind or "gp3", _region(cluster), "per_gib_month")


def _charges(stack: Stack, resource: Resource) -> Iterator[Charge]:
    if (known := _BILLED.get(resource.type)) is not None:
        yield from known(stack, resource)
    elif not any(fnmatchcase(resource.type, pattern) for pattern in FREE):
        yield Charge(resource.urn, f"{resource.type.rpartition(':')[2]}, whose price is not recorded", None)


def _node_group(stack: Stack, resource: Resource) -> Iterator[Charge]:
    group, machines = resource.properties, template(stack, resource)
    least, most = nodes.fewest_nodes(group), nodes.most_nodes(group)
    declared = mappings(machines.get("blockDeviceMappings"))
    disks = [disk["ebs"] for disk in declared if "ebs" in disk] or [{"volumeSize": group.get("diskSize")}]
    sizes = [at(disk, "volumeSize") for disk in disks]
    node = PricedNode(
        machine=nodes.machine_of(group, machines),
        region=_region(resource),
        way=_way(group, machines),
        # A root disk without a size has that of its image.
        disks=[
            (text(at(disk, "volumeType")), nodes.DEFAULT_DISK if size is None and not number else whole(size))
            for number, (disk, size) in enumerate(zip(disks, sizes, strict=True))
        ],
    )
    for charge, paid in node_charges(node):
        idle = most if paid == RESERVED else least
        yield replace(charge, urn=resource.urn, idle=idle, most=most, pool=resource.urn)


def _cluster(_: Stack, resource: Resource) -> Iterator[Charge]:
    price = TABLE.price("fixed", "eks-control-plane", _region(resource), "per_hour")
    yield Charge(resource.urn, "EKS control plane, in standard support", price)


def _nat(_: Stack, resource: Resource) -> Iterator[Charge]:
    region = _region(resource)
    yield Charge(resource.urn, "NAT gateway", TABLE.price("fixed", "nat-gateway", region, "per_hour"))
    through = TABLE.price("fixed", "nat-gateway", region, "per_gib")
    yield Charge(resource.urn, "data through the NAT gateway", through, metered=True)


def _address(_: Stack, resource: Resource) -> Iterator[Charge]:
    price = TABLE.price("fixed", "public-ipv4", _region(resource), "per_hour")
    yield Charge(resource.urn, "public IPv4 address", price)


def _endpoint(_: Stack, resource: Resource) -> Iterator[Charge]:
    """Gateway endpoints are free. Source: https://docs.aws.amazon.com/vpc/latest/privatelink/gateway-endpoints.html,
    as documented in 2025."""
    kind = text(at(resource.properties, "vpcEndpointType")) or "Gateway"
    if kind != "Gateway":
        zones = len(items(at(resource.properties, "subnetIds"))) or 1
        price = TABLE.price("fixed", f"vpc-endpoint-{kind.lower()}", _region(resource), "per_hour")
        yield Charge(resource.urn, f"{kind} endpoint in {zones} zones", price, quantity=zones)


def _instance(_: Stack, resource: Resource) -> Iterator[Charge]:
    """A root disk without a size has that of its image, which only AWS knows."""
    machine = resource.properties
    spot = at(machine, "instanceMarketOptions", "marketType") == "spot"
    disks = [mapping(machine.get("rootBlockDevice")), *mappings(machine.get("ebsBlockDevices"))]
    node = PricedNode(
        machine=text(machine.get("instanceType")),
        region=_region(resource),
        way=SPOT if spot else ON_DEMAND,
        disks=[(text(disk.get("volumeType")), whole(disk.get("volumeSize"))) for disk in disks],
    )
    yield from (replace(charge, urn=resource.urn) for charge, _ in node_charges(node))


def _volume(_: Stack, resource: Resource) -> Iterator[Charge]:
    """One without a type is gp2. Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html,
    as documented in 2025."""
    kind, gib = text(resource.properties.get("type")) or "gp2", whole(resource.properties.get("size"))
    price = TABLE.price("disks", kind, _region(resource), "per_gib_month") if gib else None
    yield Charge(resource.urn, f"disk, {gib or 'unknown'} GiB {kind}", price, quantity=gib or 1)


def _balancer(_: Stack, resource: Resource) -> Iterator[Charge]:
    kind = text(resource.properties.get("loadBalancerType")) or "application"
    price = TABLE.price("fixed", f"{kind}-load-balancer", _region(resource), "per_hour")
    yield Charge(resource.urn, f"{kind} load balancer", price)
    if (used := TABLE.price("fixed", f"{kind}-load-balancer", _region(resource), "per_lcu_hour")) is not None:
        yield Charge(resource.urn, "capacity units that it uses", used, metered=True)


def _key(_: Stack, resource: Resource) -> Iterator[Charge]:
    yield Charge(resource.urn, "KMS key", TABLE.price("fixed", "kms-key", _region(resource), "per_month"))


def _metered(kind: str, name: str, columns: Mapping[str, str]) -> Callable[[Stack, Resource], Iterator[Charge]]:
    """What is paid by use, by the column of the table that prices it."""

    def charge(_: Stack, resource: Resource) -> Iterator[Charge]:
        for column, what in columns.items():
            price = TABLE.price(kind, name, _region(resource), column)
            yield Charge(resource.urn, what, price, metered=True)

    return charge


_BILLED: Mapping[str, Callable[[Stack, Resource], Iterator[Charge]]] = {
    nodes.NODE_GROUP: _node_group,
    "aws:eks/cluster:Cluster": _cluster,
    "aws:ec2/natGateway:NatGateway": _nat,
    "aws:ec2/eip:Eip": _address,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _endpoint,
    "aws:kms/key:Key": _key,
    "aws:ec2/instance:Instance": _instance,
    "aws:ebs/volume:Volume": _volume,
    "aws:lb/loadBalancer:LoadBalancer": _balancer,
    "aws:alb/loadBalancer:LoadBalancer": _balancer,
    "aws:s3/bucket:Bucket": _metered("storage", "s3-standard", {"per_gib_month": "S3 Standard storage"}),
    "aws:s3/filesFileSystem:FilesFileSystem": _metered(
        "storage", "s3-files", {"per_gib_month": "S3 Files storage", "per_gib_written": "data into S3 Files"}
    ),
    "aws:efs/fileSystem:FileSystem": _metered(
        "storage", "efs-standard", {"per_gib_month": "EFS Standard storage"}
    ),
    "aws:cloudwatch/logGroup:LogGroup": _metered(
        "fixed", "cloudwatch-logs", {"per_gib_ingested": "logs taken in", "per_gib_month": "logs kept"}
    ),
    "aws:ecr/repository:Repository": _metered("storage", "ecr", {"per_gib_month": "images kept"}),
}


def _way(group: Properties, machines: Properties) -> str:
    """How its nodes are bought."""
    if group.get("capacityType") == "CAPACITY_BLOCK":
        return CAPACITY_BLOCK
    if nodes.is_spot(group):
        return SPOT
    if at(machines, "capacityReservationSpecification", "capacityReservationTarget") is not None:
        return RESERVED
    return ON_DEMAND


def _region(resource: Resource) -> str:
    return text(at(resource.properties, "region"))


DATA = Path(__file__).parents[1] / "data" / "quotas.toml"
SUBNET = "aws:ec2/subnet:Subnet"

Need = tuple[str, str]
"""The quota's code, or what is counted where no source says by which quota; and where."""


def quotas(stack: Stack) -> Sequence[Quota]:
    """What the stack needs of each quota, by region or zone."""
    needed: Counter[Need] = Counter()
    regions: dict[Need, str] = {}
    for region, need, amount in (*_vcpus(stack), *_disks(stack), *_counts(stack)):
        needed[need] += amount
        regions[need] = region
    rules = _rules()
    named = [need for code in rules for need in sorted(needed) if need[0] == code]
    others = [need for need in sorted(needed) if need[0] not in rules]
    return [_quota(need, needed[need], regions[need]) for need in (*others, *named) if needed[need]]


def pools(stack: Stack) -> Sequence[NodePool]:
    """The node pools, each with what one node needs of the quotas of vCPUs."""
    groups = [(pool, stack.resources[pool.urn]) for pool in nodes.pools(stack)]
    return [
        replace(pool, quotas=[_quota(need, vcpus, need[1]) for need, vcpus in _of_node(stack, group)])
        for pool, group in groups
    ]


def _quota(need: Need, amount: float, region: str) -> Quota:
    code, where = need
    rule = _rules().get(code)
    if rule is None:
        see = (
            f"aws service-quotas list-service-quotas --service-code ec2 --region {region} "
            "--query 'Quotas[].[QuotaName,Value]' --output table"
        )
        return Quota(code, where, amount, "vCPUs", see, known=False)
    return Quota(
        metric=rule["name"],
        where=where,
        needed=round(amount / 1024, 2) if rule["unit"] == "TiB" else amount,
        unit=rule["unit"],
        see=(
            f"aws service-quotas get-service-quota --service-code {rule['service']} --quota-code {code} "
            f"--region {region} --query Quota.Value"
        ),
        ordinary=rule.get("ordinary"),
        key=(rule["service"], code, region),
    )


def _vcpus(stack: Stack) -> Iterator[tuple[str, Need, int]]:
    for group in stack.of_type(nodes.NODE_GROUP):
        for need, vcpus in _of_node(stack, group):
            yield need[1], need, vcpus * nodes.most_nodes(group.properties)


def _of_node(stack: Stack, group: Resource) -> Iterator[tuple[Need, int]]:
    """What one node of the group needs; nothing where it is of a Capacity Block."""
    machine = instance_type(nodes.machine_of(group.properties, template(stack, group)))
    if machine is not None and group.properties.get("capacityType") != "CAPACITY_BLOCK":
        metric = _vcpu_metric(machine, spot=nodes.is_spot(group.properties))
        yield (metric, _quota_region(stack, group)), machine.vcpus


def _vcpu_metric(machine: InstanceType, *, spot: bool) -> str:
    """The code of the quota that counts the vCPUs of ``machine``, or these words where no source has it."""
    if code := machine.spot_quota if spot else machine.quota:
        return code
    for code, rule in _data()["vcpus"].items():
        if rule.get("spot", False) == spot and _is_in(machine.name, rule.get("families", ())):
            return code
    return f"vCPUs of {machine.name.partition('.')[0]}{' as Spot' if spot else ''}"


def _is_in(machine: str, families: Sequence[str]) -> bool:
    family = machine.partition(".")[0]
    letters = re.match(r"[a-z]+", family)
    return family in families or (letters is not None and letters[0] in families)


def _disks(stack: Stack) -> Iterator[tuple[str, Need, int]]:
    """GiB of the nodes' disks."""
    for group in stack.of_type(nodes.NODE_GROUP):
        region, machines = _quota_region(stack, group), template(stack, group)
        disks = mappings(machines.get("blockDeviceMappings"))
        kind = at(disks[0], "ebs", "volumeType") if disks else None
        for code, rule in _data()["disks"].items():
            if kind == rule["type"]:
                size = nodes.disk_size(group.properties, machines)
                yield region, (code, region), size * nodes.most_nodes(group.properties)


def _counts(stack: Stack) -> Iterator[tuple[str, Need, int]]:
    for code, rule in _data()["counts"].items():
        for resource in stack.of_type(rule["type"]):
            region = _quota_region(stack, resource)
            where = {"zone": _zone, "cluster": _quota_cluster}.get(rule.get("scope", ""), _quota_region)
            yield region, (code, where(stack, resource) or region), 1


def _quota_cluster(stack: Stack, group: Resource) -> str:
    source = stack.source(group, "clusterName", CLUSTER)
    return stack.called(source) if source else text(group.properties.get("clusterName"))


def _zone(stack: Stack, resource: Resource) -> str:
    """The zone of the resource's subnet; empty where it is not known."""
    subnet = stack.source(resource, "subnetId", SUBNET)
    zones = [subnet.properties.get(key) for key in ("availabilityZone", "availabilityZoneId")] if subnet else []
    return next((zone for zone_name in zones if (zone := text(zone_name))), "")


def _quota_region(stack: Stack, resource: Resource) -> str:
    return text(resource.properties.get("region")) or text(stack.configuration.get("aws:region")) or "<region>"


@cache
def _rules() -> Mapping[str, Mapping[str, Any]]:
    """All quotas by their code, in the order of the data."""
    data = _data()
    vcpus = {code: {"service": "ec2", "unit": "vCPUs", **rule} for code, rule in data["vcpus"].items()}
    return {**vcpus, **data["disks"], **data["counts"]}


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))
