"""What each resource is billed for. Spot prices are those of the table's day: AWS changes them all the time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from infra.clouds.aws import nodes
from infra.clouds.aws.catalogue import instance_type
from infra.clouds.aws.review.pools import CLUSTER, template
from infra.review.facts import Balancer, Charge, Disk, Price
from infra.review.prices import RESERVED, price_table, priced_in, scaled
from infra.review.properties import Properties, at, items, mappings, text, whole
from infra.review.stack import Resource, Stack

TABLE = price_table(Path(__file__).parents[1] / "data" / "prices.toml")

FREE = (
    "aws:iam/*",
    "aws:autoscaling/*",
    "aws:vpc/*",
    "aws:ec2/vpc:*",
    "aws:ec2/subnet:*",
    "aws:ec2/route:*",
    "aws:ec2/routeTable*",
    "aws:ec2/internetGateway:*",
    "aws:ec2/flowLog:*",
    "aws:ec2/egressOnlyInternetGateway:*",
    "aws:ec2/*ecurityGroup*",
    "aws:ec2/launchTemplate:*",
    "aws:ec2/placementGroup:*",
    "aws:ecr/*Policy:*",
    "aws:efs/accessPoint:*",
    "aws:efs/mountTarget:*",
    "aws:efs/*Policy:*",
    "aws:eks/access*",
    "aws:eks/addon:*",
    "aws:eks/podIdentityAssociation:*",
    "aws:kms/alias:*",
    "aws:s3/bucket?*:*",
    "aws:s3/files?*:*",
)
"""Types that cost nothing by themselves; some only tell how another one is kept, which is billed."""


def charges(stack: Stack) -> Sequence[Charge]:
    """The charges of all of the stack's resources on AWS.

    A node group's are per node. Not here: the traffic between zones, regions and to the Internet, but for what
    goes through a NAT gateway; and requests to a bucket.
    """
    return [
        priced_in(charge, _region(resource))
        for resource in stack.resources.values()
        if resource.custom and not resource.read and resource.package == "aws"
        for charge in _charges(stack, resource)
    ]


def disk_price(disk: Disk, stack: Stack) -> Price | None:
    """Of a GiB of an EBS volume that a cluster of EKS makes for a claim of a class that the stack declares.

    Source for what the driver makes for a class without a type:
    https://github.com/kubernetes-sigs/aws-ebs-csi-driver/blob/master/docs/parameters.md, read 2026-11-22.
    """
    cluster = next((each for each in stack.of_type(CLUSTER) if stack.called(each) == disk.cluster), None)
    if cluster is None or disk.provisioner != "ebs.csi.aws.com":
        return None
    return TABLE.price("disks", disk.kind or "gp3", _region(cluster), "per_gib_month")


def balancer_price(balancer: Balancer, stack: Stack) -> Price | None:
    """Of an Application Load Balancer by the hour, or of an hour of a capacity unit (LCU) that it uses.

    Not here: the public addresses that it has, one in each zone at least.
    """
    cluster = next((each for each in stack.of_type(CLUSTER) if stack.called(each) == balancer.cluster), None)
    if cluster is None or (balancer.kind, balancer.named) != ("Ingress", "alb"):
        return None
    column = "per_lcu_hour" if balancer.used else "per_hour"
    return TABLE.price("fixed", "application-load-balancer", _region(cluster), column)


def _charges(stack: Stack, resource: Resource) -> Iterator[Charge]:
    if (known := _BILLED.get(resource.type)) is not None:
        yield from known(stack, resource)
    elif not any(fnmatchcase(resource.type, pattern) for pattern in FREE):
        yield Charge(resource.urn, f"{resource.type.rpartition(':')[2]}, whose price is not recorded", None)


def _node_group(stack: Stack, resource: Resource) -> Iterator[Charge]:
    group, machines = resource.properties, template(stack, resource)
    region = _region(resource)
    name = nodes.machine(group, machines)
    way, column = _way(group, machines)
    least, most = nodes.fewest_nodes(group), nodes.most_nodes(group)
    yield Charge(
        resource.urn,
        f"{name or 'a machine of unknown type'}, {way}",
        _machine(name, region, column) if column else None,
        idle=most if way == RESERVED else least,
        most=most,
        pool=resource.urn,
    )
    declared = mappings(machines.get("blockDeviceMappings"))
    disks = [disk["ebs"] for disk in declared if "ebs" in disk] or [{"volumeSize": group.get("diskSize")}]
    for number, disk in enumerate(disks):
        kind, size = text(at(disk, "volumeType")) or "of unknown type", at(disk, "volumeSize")
        # A root disk without a size has that of its image.
        gib = nodes.DEFAULT_DISK if size is None and not number else whole(size)
        yield Charge(
            resource.urn,
            f"{'disk' if number else 'root disk'}, {gib or 'unknown'} GiB {kind}",
            TABLE.price("disks", kind, region, "per_gib_month") if gib else None,
            idle=least,
            most=most,
            quantity=gib,
            pool=resource.urn,
        )


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


def _key(_: Stack, resource: Resource) -> Iterator[Charge]:
    yield Charge(resource.urn, "KMS key", TABLE.price("fixed", "kms-key", _region(resource), "per_month"))


def _metered(kind: str, name: str, columns: Mapping[str, str]) -> Callable[[Stack, Resource], Iterator[Charge]]:
    """What is paid by use, by the column of the table that prices it."""

    def found(_: Stack, resource: Resource) -> Iterator[Charge]:
        for column, what in columns.items():
            price = TABLE.price(kind, name, _region(resource), column)
            yield Charge(resource.urn, what, price, metered=True)

    return found


_BILLED: Mapping[str, Callable[[Stack, Resource], Iterator[Charge]]] = {
    nodes.NODE_GROUP: _node_group,
    "aws:eks/cluster:Cluster": _cluster,
    "aws:ec2/natGateway:NatGateway": _nat,
    "aws:ec2/eip:Eip": _address,
    "aws:ec2/vpcEndpoint:VpcEndpoint": _endpoint,
    "aws:kms/key:Key": _key,
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


def _way(group: Properties, machines: Properties) -> tuple[str, str]:
    """How its nodes are bought, and the column of the table that prices it; empty for none."""
    if group.get("capacityType") == "CAPACITY_BLOCK":
        return "in a Capacity Block, which is paid for beforehand", ""
    if nodes.is_spot(group):
        return "Spot", "spot"
    if at(machines, "capacityReservationSpecification", "capacityReservationTarget") is not None:
        return RESERVED, "on_demand"
    return "on demand", "on_demand"


def _machine(name: str, region: str, column: str) -> Price | None:
    if (price := TABLE.price("machines", name, region, column)) is not None or column != "on_demand":
        return price
    known = instance_type(name)
    vcpu = TABLE.price("families", name.partition(".")[0], region, "vcpu")
    return scaled(vcpu, known.vcpus) if known else None


def _region(resource: Resource) -> str:
    return text(at(resource.properties, "region"))
