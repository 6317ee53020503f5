"""The VPC of an EKS cluster: its zones and addresses."""

import ipaddress
from collections.abc import Iterator, Sequence

from infra.clouds.aws.catalogue import hosts_control_plane, is_zone_id, region_of, regions
from infra.clouds.aws.settings import AwsCluster
from infra.schema.base import misuse
from infra.schema.problems import Finding, Path, did_you_mean, listed
from infra.schema.request import Request

MOST_ZONES = 3
"""The VPC is cut into quarters: three for the zones' private subnets, one for all public ones."""
PRIVATE = [ipaddress.IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
LARGEST_VPC = 16
"""https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html, as documented in 2025: /16 to /28."""
SMALLEST_VPC = 24
"""A public subnet is a sixteenth of it, and AWS has none smaller than a /28."""
OWN_ADDRESSES = 5
"""Of each subnet, AWS's own: https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html, 2025."""
SERVICES = (12, 24)
"""https://docs.aws.amazon.com/eks/latest/APIReference/API_KubernetesNetworkConfigRequest.html, 2025."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about the zones and addresses of each cluster on AWS."""
    for name, cluster in request.clusters_of(AwsCluster).items():
        at: Path = ("clusters", name)
        if cluster.region in regions():
            yield from _zones(at, cluster)
        for key, pool in cluster.pools.items():
            if pool.zones is not None:
                yield from _pool_zones((*at, "pools", key, "zones"), pool.zones, at, cluster)
        yield from _addresses(at, cluster)


def _zones(at: Path, cluster: AwsCluster) -> Iterator[Finding]:
    place, zones = (*at, "zones"), cluster.zones
    known = regions()[cluster.region]
    if not 2 <= len(set(zones)) <= MOST_ZONES:
        yield Finding(
            place,
            list(zones),
            "EKS places a control plane in at least two zones"
            if len(set(zones)) < 2
            else f"the VPC is laid out for {MOST_ZONES} zones at most",
            "name two or three zones. A pool can be in one of them alone, by its own `zones`",
        )
    for index, zone in enumerate(zones):
        if region_of(zone) != cluster.region:
            yield Finding(
                (*place, index),
                zone,
                f"not a zone of `{cluster.region}`",
                did_you_mean(zone, known, f"write {listed(known)}, or a name such as `{cluster.region}a`"),
                read=((*at, "region"),),
            )
        elif zone in zones[:index]:
            yield Finding((*place, index), zone, "stands twice", "remove one of them")
        elif not hosts_control_plane(zone):
            yield Finding(
                (*place, index),
                zone,
                "a zone in which EKS places no control plane",
                f"take another one of `{cluster.region}`",
            )
    if len({is_zone_id(zone) for zone in zones if region_of(zone) == cluster.region}) > 1:
        yield Finding(
            place,
            list(zones),
            "ids and names of zones are mixed, so two of them could be the same zone",
            "write all of them as ids: `aws ec2 describe-availability-zones` shows both",
        )


def _pool_zones(place: Path, zones: Sequence[str], at: Path, cluster: AwsCluster) -> Iterator[Finding]:
    if not zones:
        yield Finding(place, list(zones), "empty", "name at least one zone, or remove the key")
    for index, zone in enumerate(zones):
        if zone not in cluster.zones:
            yield Finding(
                (*place, index),
                zone,
                "not a zone of the cluster, so it has no subnet there",
                did_you_mean(
                    zone, cluster.zones, f"write {listed(cluster.zones)}, or add it to the cluster's `zones`"
                ),
                read=((*at, "zones"),),
            )
        elif zone in zones[:index]:
            yield Finding((*place, index), zone, "stands twice", "remove one of them")


def _addresses(at: Path, cluster: AwsCluster) -> Iterator[Finding]:
    place = (*at, "network")
    vpc = ipaddress.IPv4Network(cluster.network.vpc_cidr)
    services = ipaddress.IPv4Network(cluster.network.services_cidr)
    sized = LARGEST_VPC <= vpc.prefixlen <= SMALLEST_VPC
    if not sized:
        yield Finding(
            (*place, "vpc_cidr"),
            str(vpc),
            "larger than a VPC can be"
            if vpc.prefixlen < LARGEST_VPC
            else "too small for the subnets of its zones",
            f"write a block between /{LARGEST_VPC} and /{SMALLEST_VPC}, such as `10.0.0.0/16`",
        )
    for key, block in (("vpc_cidr", vpc), ("services_cidr", services)):
        if reason := misuse(block, PRIVATE):
            yield Finding((*place, key), str(block), reason, f"take a block of {listed(PRIVATE)}")
    if not SERVICES[0] <= services.prefixlen <= SERVICES[1]:
        yield Finding(
            (*place, "services_cidr"),
            str(services),
            f"EKS takes a block between /{SERVICES[0]} and /{SERVICES[1]}",
            "write for example `172.20.0.0/16`",
        )
    if vpc.overlaps(services):
        yield Finding(
            (*place, "services_cidr"),
            str(services),
            f"overlaps `vpc_cidr`, which is {vpc}",
            "choose a block that is free",
            read=((*place, "vpc_cidr"),),
        )
    if sized:
        yield from _room(at, cluster, vpc)


def _room(at: Path, cluster: AwsCluster, vpc: ipaddress.IPv4Network) -> Iterator[Finding]:
    """Nodes and pods both take addresses of the private subnets: a node one for itself, and one for each pod."""
    nodes = taken = 0
    for pool in cluster.pools.values():
        machine = pool.machine
        nodes += pool.most_nodes
        taken += pool.most_nodes * (1 + (machine.pods if machine else 0))
    there = len(cluster.zones) * (vpc.num_addresses // 4 - OWN_ADDRESSES)
    if taken > there:
        yield Finding(
            (*at, "network", "vpc_cidr"),
            str(vpc),
            f"its private subnets have {there} addresses, and up to {nodes} nodes and their pods take {taken}",
            "choose a larger block, fewer nodes, or smaller instance types",
            read=((*at, "zones"),),
        )
