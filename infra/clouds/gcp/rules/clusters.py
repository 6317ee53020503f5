"""GKE clusters: who reaches them, their addresses, and the pools they need."""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from infra.clouds.gcp.catalogue import REGION_ZONES, is_zone
from infra.clouds.gcp.cluster_settings import Network
from infra.clouds.gcp.settings import GcpCluster
from infra.schema.base import misuse
from infra.schema.problems import Finding, Path, listed
from infra.schema.request import Request

RANGES = tuple(Network.model_fields)
PRIVATE = [ipaddress.IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
USABLE = [
    *PRIVATE,
    *(
        ipaddress.IPv4Network(block)
        for block in (
            "100.64.0.0/10",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "240.0.0.0/4",
        )
    ),
]
"""The private and reserved addresses that a subnet can have.

Source: https://docs.cloud.google.com/vpc/docs/subnets#valid-ranges, 2026-11-22. GKE takes others for pods only
where its default source NAT is off, which it is not here:
https://docs.cloud.google.com/kubernetes-engine/docs/concepts/alias-ips, likewise.
"""
EVERYWHERE = ipaddress.IPv4Network("0.0.0.0/0")


def check(request: Request) -> Iterator[Finding]:
    """Findings about each cluster on Google Cloud, and about their networks together."""
    clusters = request.clusters_of(GcpCluster)
    for name, cluster in clusters.items():
        at: Path = ("clusters", name)
        yield from _reachable(at, cluster)
        yield from _ranges(at, cluster)
        if not cluster.autopilot:
            yield from _cpu_pool(at, cluster, request.pool_names[name])
            yield from _upgrades(at, cluster)
            yield from _node_accounts(at, cluster)
    yield from _overlapping_clusters(clusters)


def _reachable(at: Path, cluster: GcpCluster) -> Iterator[Finding]:
    control = cluster.control_plane
    place = (*at, "control_plane")
    if not control.dns_endpoint and not control.authorized_networks:
        yield Finding(
            (*place, "dns_endpoint"),
            False,
            "no network is authorized either, so nobody could reach the cluster's API",
            "write `dns_endpoint: true`, or name a network under `authorized_networks`",
            all_of=((*place, "authorized_networks"),),
        )
    networks = control.authorized_networks
    blocks = [ipaddress.IPv4Network(block) for block in networks.values()]
    if EVERYWHERE in ipaddress.collapse_addresses(blocks):
        alone = next((name for name, block in networks.items() if block == str(EVERYWHERE)), None)
        yield Finding(
            (*place, "authorized_networks", alone) if alone else (*place, "authorized_networks"),
            networks[alone] if alone else dict(networks),
            "the whole Internet could reach the cluster's API",
            "name the networks you come from, or use the DNS endpoint, which IAM guards",
        )


def _ranges(at: Path, cluster: GcpCluster) -> Iterator[Finding]:
    place = (*at, "network")
    blocks = {key: ipaddress.IPv4Network(getattr(cluster.network, key)) for key in RANGES}
    for key, block in blocks.items():
        if reason := misuse(block, USABLE):
            yield Finding((*place, key), str(block), reason, f"take a block of {listed(PRIVATE)}")
    for first, second in combinations(RANGES, 2):
        if blocks[first].overlaps(blocks[second]):
            yield Finding(
                (*place, second),
                str(blocks[second]),
                f"overlaps `{first}`, which is {blocks[first]}",
                "choose a block that is free",
                read=((*place, first),),
            )
    if blocks["control_plane_cidr"].prefixlen != 28:
        yield Finding(
            (*place, "control_plane_cidr"),
            str(blocks["control_plane_cidr"]),
            "GKE's control plane takes a block of 16 addresses",
            "write a /28",
        )
    nodes = 0
    room: list[int] = []
    for pool in cluster.pools.values():
        if cluster.autopilot:
            # A node at most for each pod. How many addresses it has for pods is GKE's choice.
            nodes += pool.pods_at_once
            continue
        zones = len(pool.zones or cluster.zones or ()) or (1 if is_zone(cluster.location) else REGION_ZONES)
        counts = pool.nodes
        if counts.total_max is not None:
            most = counts.total_max
        else:
            most = zones * next((n for n in (counts.max, counts.count) if n is not None), 1)
        nodes += most
        # https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips, as documented in 2025: a node gets at
        # least twice as many addresses as it may have pods, as one block.
        room.append(most * 2 ** (2 * pool.max_pods_per_node - 1).bit_length())
    if sum(room) > blocks["pods_cidr"].num_addresses:
        yield Finding(
            (*place, "pods_cidr"),
            str(blocks["pods_cidr"]),
            f"{blocks['pods_cidr'].num_addresses} addresses, and up to {nodes} nodes take {sum(room)}",
            "choose a larger block, fewer nodes, or a smaller `max_pods_per_node`",
        )
    # Four addresses of a subnet are Google's own.
    if nodes > blocks["nodes_cidr"].num_addresses - 4:
        yield Finding(
            (*place, "nodes_cidr"),
            str(blocks["nodes_cidr"]),
            f"room for {max(0, blocks['nodes_cidr'].num_addresses - 4)} nodes, and the pools may have {nodes}",
            f"choose a larger block or fewer {'pods (`most_pods`)' if cluster.autopilot else 'nodes'}",
        )


def _overlapping_clusters(clusters: Mapping[str, GcpCluster]) -> Iterator[Finding]:
    for (first, one), (second, other) in combinations(sorted(clusters.items()), 2):
        shared = {
            key: block
            for key, block in other.network
            if any(ipaddress.ip_network(block).overlaps(ipaddress.ip_network(taken)) for _, taken in one.network)
        }
        if shared:
            yield Finding(
                ("clusters", second, "network"),
                shared,
                f"overlaps the addresses of cluster `{first}`, so their networks could never be joined",
                f"give `{second}` other blocks; stacks/Pulumi.gcp-prod.yaml shows two clusters side by side",
                read=tuple(("clusters", name, "network", key) for name in (first, second) for key in RANGES),
            )


def _cpu_pool(at: Path, cluster: GcpCluster, names: Sequence[str]) -> Iterator[Finding]:
    read = tuple(
        (*at, "pools", name, key)
        for name in names
        for key in ("accelerator", "machine_type")
        if key == "accelerator" or name not in cluster.pools or cluster.pools[name].accelerator is None
    )
    ordinary = [name for name, pool in cluster.pools.items() if pool.accelerator is None]
    if not ordinary:
        yield Finding(
            (*at, "pools"),
            sorted(cluster.pools),
            "none is without GPUs: GKE's own pods need ordinary nodes, and GKE taints GPU nodes only where the "
            "cluster has others",
            "add a small one: `cpu: {machine_type: e2-standard-4, nodes: {total_min: 1, total_max: 2}}`",
            read=((*at, "pools"), *read),
        )
        return
    tainted = [
        name
        for name in ordinary
        if any(taint.effect in {"NoSchedule", "NoExecute"} for taint in cluster.pools[name].taints)
    ]
    if tainted == ordinary:
        place = (*at, "pools", ordinary[0], "taints")
        yield Finding(
            place,
            [taint.model_dump() for taint in cluster.pools[ordinary[0]].taints],
            "GKE's own pods do not tolerate it, and no other pool without GPUs is free of taints",
            "remove it, or add a pool without GPUs and taints",
            read=(*read, *((*at, "pools", name, "taints") for name in names)),
        )


def _upgrades(at: Path, cluster: GcpCluster) -> Iterator[Finding]:
    """GKE's "Auto_upgrade cannot be false when release_channel REGULAR is set".

    Source: terraform-google-modules/terraform-google-kubernetes-engine#682 and later reports, read on 2026-11-20.
    """
    if cluster.release_channel == "UNSPECIFIED":
        return
    for name, pool in cluster.pools.items():
        if not pool.auto_upgrade:
            yield Finding(
                (*at, "pools", name, "auto_upgrade"),
                False,
                f"the cluster is in the release channel {cluster.release_channel}, which upgrades all its nodes",
                "remove it, or write `release_channel: UNSPECIFIED` for the cluster and upgrade it yourself",
                read=((*at, "release_channel"),),
            )


def _node_accounts(at: Path, cluster: GcpCluster) -> Iterator[Finding]:
    for name, pool in cluster.pools.items():
        account = pool.service_account
        if account is not None and not re.fullmatch(r"[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com", account):
            yield Finding(
                (*at, "pools", name, "service_account"),
                account,
                "not the e-mail address of a Google service account",
                "write `<name>@<project>.iam.gserviceaccount.com`, or remove it to use the stack's own",
            )
        reservation = pool.reservation
        if reservation is not None and not re.fullmatch(
            r"(projects/[a-z0-9:.-]+/reservations/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?", reservation
        ):
            yield Finding(
                (*at, "pools", name, "reservation"),
                reservation,
                "not the name of a reservation",
                "write its name, or `projects/<project>/reservations/<name>` for one that is shared with you",
            )
