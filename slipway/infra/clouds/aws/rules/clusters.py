"""EKS clusters: their region and version, who reaches them, who administers them, and the pools they need."""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slipway.infra.clouds.aws.catalogue import (
    hosts_control_plane,
    is_zone_id,
    kubernetes_versions,
    region_of,
    regions,
)
from slipway.infra.clouds.aws.rules.pools import CATALOGUE
from slipway.infra.clouds.aws.settings import AwsCluster
from slipway.infra.schema.base import misuse
from slipway.infra.schema.problems import Finding, Path, Problem, did_you_mean, listed
from slipway.infra.schema.request import Request

EVERYWHERE = ipaddress.IPv4Network("0.0.0.0/0")
NETWORKS_LIMIT = 40
"""https://docs.aws.amazon.com/eks/latest/userguide/service-quotas.html, as documented in 2025."""
# https://docs.aws.amazon.com/eks/latest/userguide/config-cluster-endpoint.html, as documented in 2025: networks
# that may reach the public endpoint cannot be reserved ones.
RESERVED = [
    ipaddress.IPv4Network(block)
    for block in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
    )
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
        at: Path = ("clusters", name)
        yield from _region(at, cluster)
        yield from _version(at, cluster)
        yield from _reachable(at, cluster)
        yield from _admins(at, cluster)
        yield from _cpu_pool(at, cluster, request.pool_names[name])
        yield from key_findings(
            (*at, "control_plane", "secrets_key"),
            cluster.control_plane.secrets_key,
            cluster.region,
            (*at, "region"),
        )
    for name in list(clusters)[1:]:
        yield Finding(
            ("clusters", name),
            name,
            f"cluster `{next(iter(clusters))}` is on AWS too, and the store's mount targets are in the VPC of one "
            "cluster",
            "put its pools into the one cluster, or give it a stack of its own",
            read=request.cloud_places,
        )


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


def key_findings(place: Path, key: str | None, region: str, region_place: Path) -> Iterator[Finding]:
    """What is wrong with the ARN of a KMS key that something in ``region`` uses."""
    if key is None:
        return
    match = KEY.fullmatch(key)
    if match is None:
        yield Finding(
            place,
            key,
            "not the ARN of a KMS key",
            "write `arn:aws:kms:<region>:<account>:key/<id>`, not an alias; `aws kms describe-key` shows it",
        )
    elif match["region"] != region:
        yield Finding(
            place,
            key,
            f"a key of `{match['region']}`, and it encrypts something in `{region}`",
            f"name a key of `{region}`",
            read=(region_place,),
        )


def _region(at: Path, cluster: AwsCluster) -> Iterator[Finding]:
    if cluster.region not in regions():
        yield Finding(
            (*at, "region"),
            cluster.region,
            "not in the catalogue of AWS's regions",
            did_you_mean(
                cluster.region,
                regions(),
                f"write one such as `us-east-2`; a new one is added in Slipway's {CATALOGUE}",
            ),
        )


def _version(at: Path, cluster: AwsCluster) -> Iterator[Finding]:
    if cluster.kubernetes_version not in kubernetes_versions():
        yield Finding(
            (*at, "kubernetes_version"),
            cluster.kubernetes_version,
            "not a version that EKS has in standard support and that add-ons are pinned for",
            f"write {listed(kubernetes_versions())} in quotes; another is added in Slipway's {CATALOGUE}, with "
            "its add-ons",
        )
        return
    # Nodes may be three minor versions older, and the catalogue has no more, but never newer. Source:
    # https://kubernetes.io/releases/version-skew-policy, read in November 2026.
    allowed = kubernetes_versions()[kubernetes_versions().index(cluster.kubernetes_version) :]
    for name, pool in cluster.pools.items():
        if pool.kubernetes_version is not None and pool.kubernetes_version not in allowed:
            yield Finding(
                (*at, "pools", name, "kubernetes_version"),
                pool.kubernetes_version,
                f"nodes cannot have it while the cluster has {cluster.kubernetes_version}",
                f"write {listed(allowed)} in quotes, or leave it out",
                read=((*at, "kubernetes_version"),),
            )


def _reachable(at: Path, cluster: AwsCluster) -> Iterator[Finding]:
    control = cluster.control_plane
    place = (*at, "control_plane")
    networks = control.authorized_networks
    named = (*place, "authorized_networks")
    if control.public_endpoint and not networks:
        yield Finding(
            named,
            dict(networks),
            "no network is authorized, and EKS then opens the public endpoint to the whole Internet",
            "name the network you come from: `authorized_networks: {here: <address>/32}`, the address as "
            "https://checkip.amazonaws.com shows it; or write `public_endpoint: false`",
            read=((*place, "public_endpoint"),),
            all_of=(named,),
        )
    if networks and not control.public_endpoint:
        yield Finding(
            named,
            dict(networks),
            "there is no public endpoint that they could reach",
            "remove it, or write `public_endpoint: true`",
            read=((*place, "public_endpoint"),),
        )
    if len(networks) > NETWORKS_LIMIT:
        yield Finding(named, len(networks), f"EKS takes {NETWORKS_LIMIT} networks at most", "join some of them")
    blocks = {name: ipaddress.IPv4Network(block) for name, block in networks.items()}
    if EVERYWHERE in ipaddress.collapse_addresses(blocks.values()):
        alone = next((name for name, block in blocks.items() if block == EVERYWHERE), None)
        yield Finding(
            (*named, alone) if alone else named,
            networks[alone] if alone else dict(networks),
            "the whole Internet could reach the cluster's API",
            "name the networks you come from, or write `public_endpoint: false`",
        )
    for name, block in blocks.items():
        if any(block.subnet_of(reserved) for reserved in RESERVED):
            yield Finding(
                (*named, name),
                str(block),
                "private addresses, which nobody on the Internet comes from; EKS refuses them",
                "write the public address of that network; inside the VPC the private endpoint is open anyway",
            )


def _admins(at: Path, cluster: AwsCluster) -> Iterator[Finding]:
    for index, principal in enumerate(cluster.admins):
        place = (*at, "admins", index)
        if principal in cluster.admins[:index]:
            yield Finding(place, principal, "stands twice", "remove one of them")
        elif ":assumed-role/" in principal:
            yield Finding(
                place,
                principal,
                "a session of a role, which ends",
                "write the role itself: `arn:aws:iam::<account>:role/<name>`",
            )
        elif not PRINCIPAL.fullmatch(principal):
            yield Finding(
                place,
                principal,
                "not the ARN of an IAM role or user",
                "write `arn:aws:iam::<account>:role/<name>`, as `aws iam get-role` shows it",
            )


def _cpu_pool(at: Path, cluster: AwsCluster, names: Sequence[str]) -> Iterator[Finding]:
    """CoreDNS, the autoscaler and the storage driver's controller need a node to run on at all times."""
    read = tuple(
        (*at, "pools", name, *key) for name in names for key in (("instance_type",), ("taints",), ("nodes",))
    )
    ordinary = {name: pool for name, pool in cluster.pools.items() if not pool.has_gpus}
    if not ordinary:
        yield Finding(
            (*at, "pools"),
            sorted(cluster.pools),
            "none is without GPUs, whose taint CoreDNS and the cluster's other own pods do not tolerate",
            "add a small one: `cpu: {instance_type: m7i.xlarge, nodes: {min: 1, max: 2}}`",
            read=((*at, "pools"), *read),
        )
        return
    free = {
        name: pool
        for name, pool in ordinary.items()
        if all(taint.effect == "PreferNoSchedule" for taint in pool.taints)
    }
    first = next(iter(ordinary))
    if not free:
        yield Finding(
            (*at, "pools", first, "taints"),
            [taint.model_dump() for taint in ordinary[first].taints],
            "CoreDNS and the cluster's other own pods do not tolerate it, and no other pool without GPUs is free "
            "of taints",
            "remove it, or add a pool without GPUs and taints",
            read=read,
        )
    elif not any(pool.least_nodes for pool in free.values()):
        name = next(iter(free))
        yield Finding(
            (*at, "pools", name, "nodes"),
            free[name].nodes.model_dump(exclude_none=True),
            "no pool without GPUs has a node at all times, and the autoscaler that starts nodes needs one itself",
            "write `min: 1`",
            read=read,
            all_of=tuple((*at, "pools", pool, "nodes") for pool in names),
        )


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
    addresses = len(cluster.zones) * (vpc.num_addresses // 4 - OWN_ADDRESSES)
    if taken > addresses:
        yield Finding(
            (*at, "network", "vpc_cidr"),
            str(vpc),
            f"its private subnets have {addresses} addresses, and up to {nodes} nodes and their pods take {taken}",
            "choose a larger block, fewer nodes, or smaller instance types",
            read=((*at, "zones"),),
        )
