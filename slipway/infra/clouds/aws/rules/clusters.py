"""EKS clusters: their region and version, who reaches them, who administers them, and the pools they need."""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slipway.infra.clouds.aws.catalogue import (
    hosts_control_plane,
    is_zone_id,
    kubernetes_versions,
    region_of,
    regions,
)
from slipway.infra.clouds.aws.rules.pools import RULES
from slipway.infra.clouds.aws.settings import AwsCluster
from slipway.infra.schema.base import everywhere, misuse
from slipway.infra.schema.problems import Finding, Path, Problem, did_you_mean, listed
from slipway.infra.schema.request import Request
from slipway.infra.schema.rules import Section

NETWORKS_LIMIT = 40
"""https://docs.aws.amazon.com/eks/latest/userguide/service-quotas.html, as documented in 2025."""
# https://docs.aws.amazon.com/eks/latest/userguide/config-cluster-endpoint.html, as documented in 2025: networks
# that may reach the public endpoint cannot be reserved ones.
RESERVED = [
    *map(ipaddress.IPv4Network, ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8")),
    *map(ipaddress.IPv4Network, ("169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")),
]
EXAMPLES = [ipaddress.IPv4Network(block) for block in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]
"""Networks that are reserved for documentation: RFC 5737, January 2010."""

REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""Environment variables that name the provider's region where the stack does not (pulumi_aws 7.51,
config/vars.py)."""

PRINCIPAL = re.compile(r"arn:aws:iam::[0-9]{12}:(role|user)/[\w+=,.@/-]+")
KEY = re.compile(r"arn:aws:kms:(?P<region>[a-z0-9-]+):[0-9]{12}:key/(mrk-)?[0-9a-f-]{32,36}")


def check_clusters(request: Request) -> Iterator[Finding]:
    """Findings about each cluster on AWS, and about several of them."""
    clusters = request.clusters_of(AwsCluster)
    for name, cluster in clusters.items():
        here = Section(RULES["cluster"], ("clusters", name), cluster)
        if cluster.region not in regions():
            yield here.found("unknown-region", known=regions())
        yield from _version(here, cluster)
        yield from _reachable(here, cluster)
        yield from _admins(here, cluster)
        yield from _cpu_pool(here, cluster, request.pool_names[name])
        control = Section(RULES["key"], (*here.at, "control_plane"), cluster.control_plane)
        yield from key_findings(control, "secrets_key", cluster.region, (*here.at, "region"))
    for name in list(clusters)[1:]:
        here = Section(RULES["cluster"], ("clusters", name), None)
        yield here.found("second", shown=name, read=request.cloud_places, first=next(iter(clusters)))


def provider_problems(values: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the provider's own keys among ``values``, by their full names."""
    region = values.get("aws:region")
    if not region or region in regions():
        return []
    fix = did_you_mean(region, regions(), "write the cluster's region, such as `us-east-2`")
    return [Problem("aws:region", region, "not in the catalogue of AWS's regions", fix)]


def no_region(stack: str, region: str = "<the cluster's region>") -> Problem:
    """What is wrong with a stack whose provider has no region."""
    return Problem(
        "aws:region",
        None,
        "the AWS provider does not start without a region",
        f"pulumi config set aws:region {region} -s {stack}",
    )


def only_examples(cluster: AwsCluster) -> list[str]:
    """The networks that may reach the cluster's API, where all of them are examples; else none."""
    networks = cluster.control_plane.authorized_networks.values()
    blocks = [ipaddress.IPv4Network(network) for network in networks]
    examples = bool(blocks) and all(any(block.subnet_of(example) for example in EXAMPLES) for block in blocks)
    return sorted(set(networks)) if examples else []


def key_findings(here: Section, key: str, region: str, region_place: Path) -> Iterator[Finding]:
    """What is wrong with the ARN of a KMS key, at ``key`` of ``here``, that something in ``region`` uses."""
    if (arn := getattr(here.values, key)) is None:
        return
    match = KEY.fullmatch(arn)
    if match is None:
        yield here.found("no-arn", key)
    elif match["region"] != region:
        yield here.found("other-region", key, read=(region_place,), other=match["region"], region=region)


def _version(here: Section, cluster: AwsCluster) -> Iterator[Finding]:
    versions = kubernetes_versions()
    if cluster.kubernetes_version not in versions:
        yield here.found("unknown-version", versions=listed(versions))
        return
    # Nodes may be three minor versions older, and the catalogue has no more, but never newer. Source:
    # https://kubernetes.io/releases/version-skew-policy, read in November 2026.
    allowed = versions[versions.index(cluster.kubernetes_version) :]
    for name, pool in cluster.pools.items():
        if pool.kubernetes_version is not None and pool.kubernetes_version not in allowed:
            yield here.found("node-version", name, "kubernetes_version", cluster=cluster, allowed=listed(allowed))


def _reachable(here: Section, cluster: AwsCluster) -> Iterator[Finding]:
    control = cluster.control_plane
    networks = control.authorized_networks
    if control.public_endpoint and not networks:
        yield here.found("open-endpoint")
    if networks and not control.public_endpoint:
        yield here.found("no-endpoint")
    if len(networks) > NETWORKS_LIMIT:
        yield here.found("many-networks", shown=len(networks), most=NETWORKS_LIMIT)
    if (alone := everywhere(networks)) is not None:
        yield here.found("whole-internet", *alone)
    for name, block in networks.items():
        if any(ipaddress.IPv4Network(block).subnet_of(reserved) for reserved in RESERVED):
            yield here.found("private-network", name)


def _admins(here: Section, cluster: AwsCluster) -> Iterator[Finding]:
    for index, principal in enumerate(cluster.admins):
        if principal in cluster.admins[:index]:
            yield here.found("admin-twice", index)
        elif ":assumed-role/" in principal:
            yield here.found("session", index)
        elif not PRINCIPAL.fullmatch(principal):
            yield here.found("no-principal", index)


def _cpu_pool(here: Section, cluster: AwsCluster, names: Sequence[str]) -> Iterator[Finding]:
    """CoreDNS, the autoscaler and the storage driver's controller need a node to run on at all times."""
    pools = (*here.at, "pools")
    read = [(*pools, name, key) for name in names for key in ("instance_type", "taints", "nodes")]
    ordinary = {name: pool for name, pool in cluster.pools.items() if not pool.has_gpus}
    if not ordinary:
        yield here.found("no-cpu-pool", shown=sorted(cluster.pools), read=[pools, *read])
        return
    free = {
        name: pool
        for name, pool in ordinary.items()
        if all(taint.effect == "PreferNoSchedule" for taint in pool.taints)
    }
    if not free:
        first = next(iter(ordinary))
        taints = [taint.model_dump() for taint in ordinary[first].taints]
        yield here.found("all-tainted", first, "taints", shown=taints, read=read)
    elif not any(pool.least_nodes for pool in free.values()):
        counts = tuple((*pools, name, "nodes") for name in names)
        yield replace(here.found("no-node", next(iter(free)), "nodes", read=read), all_of=counts)


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
        here = Section(RULES["cluster"], ("clusters", name), cluster)
        if cluster.region in regions():
            yield from _zones(here, cluster)
        for key, pool in cluster.pools.items():
            if pool.zones is not None:
                yield from _pool_zones(
                    Section(RULES["zones"], (*here.at, "pools", key), pool), pool.zones, cluster
                )
        yield from _addresses(here, cluster)


def _zones(here: Section, cluster: AwsCluster) -> Iterator[Finding]:
    zones, known = cluster.zones, regions()[cluster.region]
    if len(set(zones)) < 2:
        yield here.found("one-zone")
    elif len(set(zones)) > MOST_ZONES:
        yield here.found("many-zones", most=MOST_ZONES)
    for index, zone in enumerate(zones):
        if region_of(zone) != cluster.region:
            yield here.found("other-zone", index, known=known, cluster=cluster, zones=listed(known))
        elif zone in zones[:index]:
            yield here.found("zone-twice", index)
        elif not hosts_control_plane(zone):
            yield here.found("no-control-plane", index, cluster=cluster)
    if len({is_zone_id(zone) for zone in zones if region_of(zone) == cluster.region}) > 1:
        yield here.found("mixed-zones")


def _pool_zones(here: Section, zones: Sequence[str], cluster: AwsCluster) -> Iterator[Finding]:
    if not zones:
        yield here.found("none")
    for index, zone in enumerate(zones):
        if zone not in cluster.zones:
            read = ((*here.at[:2], "zones"),)
            yield here.found("not-in-cluster", index, known=cluster.zones, read=read, zones=listed(cluster.zones))
        elif zone in zones[:index]:
            yield here.found("twice", index)


def _addresses(here: Section, cluster: AwsCluster) -> Iterator[Finding]:
    vpc = ipaddress.IPv4Network(cluster.network.vpc_cidr)
    services = ipaddress.IPv4Network(cluster.network.services_cidr)
    sized = LARGEST_VPC <= vpc.prefixlen <= SMALLEST_VPC
    if not sized:
        large = "larger than a VPC can be"
        reason = large if vpc.prefixlen < LARGEST_VPC else "too small for the subnets of its zones"
        yield here.found("vpc-size", reason=reason, largest=LARGEST_VPC, smallest=SMALLEST_VPC)
    for key, block in (("vpc_cidr", vpc), ("services_cidr", services)):
        if reason := misuse(block, PRIVATE):
            yield here.found("misused-range", key, reason=reason, private=listed(PRIVATE))
    if not SERVICES[0] <= services.prefixlen <= SERVICES[1]:
        yield here.found("services-size", largest=SERVICES[0], smallest=SERVICES[1])
    if vpc.overlaps(services):
        yield here.found("overlap", vpc=vpc)
    if sized:
        yield from _room(here, cluster, vpc)


def _room(here: Section, cluster: AwsCluster, vpc: ipaddress.IPv4Network) -> Iterator[Finding]:
    """Nodes and pods both take addresses of the private subnets: a node one for itself, and one for each pod."""
    nodes = taken = 0
    for pool in cluster.pools.values():
        machine = pool.machine
        nodes += pool.most_nodes
        taken += pool.most_nodes * (1 + (machine.pods if machine else 0))
    addresses = len(cluster.zones) * (vpc.num_addresses // 4 - OWN_ADDRESSES)
    if taken > addresses:
        yield here.found("few-addresses", addresses=addresses, nodes=nodes, taken=taken)
