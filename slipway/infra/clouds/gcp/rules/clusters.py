"""GKE clusters: who reaches them, their addresses, and the pools they need."""

import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path as File

from slipway.infra.accelerators import accelerator
from slipway.infra.clouds.gcp import autopilot
from slipway.infra.clouds.gcp.autopilot import PERFORMANCE
from slipway.infra.clouds.gcp.catalogue import REGION_ZONES, compact_placement, is_zone, machine_type, region_of
from slipway.infra.clouds.gcp.rules.pools import RULES
from slipway.infra.clouds.gcp.settings import GcpCluster, GcpPool, Network
from slipway.infra.schema.base import everywhere, misuse
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.request import Request
from slipway.infra.schema.rules import Section

RANGES = tuple(Network.model_fields)
PRIVATE = [ipaddress.IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
# fmt: off
USABLE = [*PRIVATE, *map(ipaddress.IPv4Network, (
    "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
))]
# fmt: on
"""The private and reserved addresses that a subnet can have.

Source: https://docs.cloud.google.com/vpc/docs/subnets#valid-ranges, 2026-11-22. GKE takes others for pods only
where its default source NAT is off, which it is not here:
https://docs.cloud.google.com/kubernetes-engine/docs/concepts/alias-ips, likewise.
"""


def check_clusters(request: Request) -> Iterator[Finding]:
    """Findings about each cluster on Google Cloud, and about their networks together."""
    clusters = request.clusters_of(GcpCluster)
    for name, cluster in clusters.items():
        here = Section(RULES["cluster"], ("clusters", name), cluster)
        yield from _reachable(here, cluster)
        yield from _ranges(here, cluster)
        if not cluster.autopilot:
            yield from _cpu_pool(here, cluster, request.pool_names[name])
            yield from _reservations(here, cluster)
    yield from _overlapping_clusters(clusters)


def _reachable(here: Section, cluster: GcpCluster) -> Iterator[Finding]:
    control = cluster.control_plane
    if not control.dns_endpoint and not control.authorized_networks:
        yield here.found("unreachable")
    if (alone := everywhere(control.authorized_networks)) is not None:
        yield here.found("whole-internet", *alone)


def _ranges(here: Section, cluster: GcpCluster) -> Iterator[Finding]:
    blocks = {key: ipaddress.IPv4Network(getattr(cluster.network, key)) for key in RANGES}
    for key, block in blocks.items():
        if reason := misuse(block, USABLE):
            yield here.found("misused-range", key, reason=reason, private=listed(PRIVATE))
    for first, second in combinations(RANGES, 2):
        if blocks[first].overlaps(blocks[second]):
            read = ((*here.at, "network", first),)
            yield here.found("overlap", second, read=read, first=first, block=blocks[first])
    if blocks["control_plane_cidr"].prefixlen != 28:
        yield here.found("control-plane-range")
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
    if sum(room) > (addresses := blocks["pods_cidr"].num_addresses):
        yield here.found("few-pod-addresses", addresses=addresses, nodes=nodes, room=sum(room))
    # Four addresses of a subnet are Google's own.
    if nodes > (most := blocks["nodes_cidr"].num_addresses - 4):
        fewer = "pods (`most_pods`)" if cluster.autopilot else "nodes"
        yield here.found("few-node-addresses", most=max(0, most), nodes=nodes, fewer=fewer)


def _overlapping_clusters(clusters: Mapping[str, GcpCluster]) -> Iterator[Finding]:
    for (first, one), (second, other) in combinations(sorted(clusters.items()), 2):
        shared = {
            key: block
            for key, block in other.network
            if any(ipaddress.ip_network(block).overlaps(ipaddress.ip_network(taken)) for _, taken in one.network)
        }
        if shared:
            here = Section(RULES["cluster"], ("clusters", second), other)
            read = tuple(("clusters", name, "network", key) for name in (first, second) for key in RANGES)
            yield here.found("overlapping-clusters", shown=shared, read=read, first=first, second=second)


def _cpu_pool(here: Section, cluster: GcpCluster, names: Sequence[str]) -> Iterator[Finding]:
    pools = (*here.at, "pools")
    read = tuple(
        (*pools, name, key)
        for name in names
        for key in ("accelerator", "machine_type")
        if key == "accelerator" or name not in cluster.pools or cluster.pools[name].accelerator is None
    )
    ordinary = [name for name, pool in cluster.pools.items() if pool.accelerator is None]
    tainted = [
        name
        for name in ordinary
        if any(taint.effect in {"NoSchedule", "NoExecute"} for taint in cluster.pools[name].taints)
    ]
    if not ordinary:
        yield here.found("no-cpu-pool", shown=sorted(cluster.pools), read=(pools, *read))
    elif tainted == ordinary:
        taints = [taint.model_dump() for taint in cluster.pools[ordinary[0]].taints]
        read = (*read, *((*pools, name, "taints") for name in names))
        yield here.found("all-tainted", ordinary[0], "taints", shown=taints, read=read)


def _reservations(here: Section, cluster: GcpCluster) -> Iterator[Finding]:
    form = re.compile(r"(projects/[a-z0-9:.-]+/reservations/)?[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
    for name, pool in cluster.pools.items():
        if pool.reservation is not None and not form.fullmatch(pool.reservation):
            yield here.found("reservation-name", name, "reservation")


REFUSED: Mapping[str, Sequence[str]] = tomllib.loads(
    (File(__file__).parents[1] / "data" / "autopilot_keys.toml").read_text(encoding="utf-8")
)
"""The keys of a node pool that a way to ask for nodes has no use for: why, and what to do."""

ONLY = ("compute_class", "machine_family", "most_pods")
"""The keys that a node pool has no use for."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about clusters on Autopilot, and about keys that only these have."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        here = Section(RULES["cluster"], ("clusters", name), cluster)
        mode = (*here.at, "mode")
        if cluster.autopilot and is_zone(cluster.location):
            yield here.found("autopilot-zone", region=region_of(cluster.location))
        if cluster.autopilot and cluster.pools and all(pool.accelerator for pool in cluster.pools.values()):
            read = ((*here.at, "pools", key, "accelerator") for key in cluster.pools)
            yield here.found("autopilot-no-cpu-pool", shown=sorted(cluster.pools), read=read)
        for key, pool in cluster.pools.items():
            way = Section(RULES["way"], (*here.at, "pools", key), pool)
            if not cluster.autopilot:
                yield from (way.found("only-autopilot", only, read=(mode,)) for only in ONLY if way.says(only))
                continue
            for refused, (reason, fix) in REFUSED.items():
                if way.says(refused):
                    value = pool.model_dump(exclude_unset=True)[refused]
                    yield Finding((*way.at, refused), value, reason, fix, read=(mode,))
            yield from _class(way, pool)
            yield from _accelerator(way, pool)


def _class(way: Section, pool: GcpPool) -> Iterator[Finding]:
    families = autopilot.families()
    if pool.compute_class and pool.accelerator:
        yield way.found("class-of-gpus")
    elif pool.compute_class == PERFORMANCE and pool.machine_family is None:
        yield way.found("no-family", families=listed(families))
    if pool.machine_family is not None and pool.compute_class != PERFORMANCE:
        yield way.found("family-without-performance")
    elif pool.machine_family is not None and pool.machine_family not in families:
        yield way.found("unknown-family", known=families, families=listed(families))


def _accelerator(way: Section, pool: GcpPool) -> Iterator[Finding]:
    name, known = pool.accelerator, autopilot.accelerators()
    if name is None:
        if pool.gpus is not None:
            yield way.found("gpus-without")
    elif name not in known and accelerator(name):
        yield way.found("not-on-autopilot", known_there=listed(known))
    elif name not in known:
        yield way.found("unknown-accelerator", known=known, accelerators=listed(known, "and"))
    elif pool.gpus is not None and pool.gpus not in (counts := autopilot.counts(name)):
        yield way.found("gpu-count", name=name, counts=listed(counts))


def check_node_networks(request: Request) -> Iterator[Finding]:
    """Findings about `placement`; what Autopilot has no use for is reported as that.

    Sources, read in November 2026: https://docs.cloud.google.com/kubernetes-engine/docs/how-to/compact-placement,
    "Limitations"; what is bought as flex-start or from a reservation: the documents of
    GoogleCloudPlatform/cluster-toolkit on GKE ("Compact Placement", "Specific Reservations"), and its module
    gke-node-pool.
    """
    for name, cluster in request.clusters_of(GcpCluster).items():
        for key, pool in cluster.pools.items():
            if pool.placement is not None and not cluster.autopilot:
                yield from _placement(("clusters", name), cluster, key, pool)


def _placement(cluster_at: Path, cluster: GcpCluster, key: str, pool: GcpPool) -> Iterator[Finding]:
    here = Section(RULES["placement"], (*cluster_at, "pools", key), pool)
    allowed, machine = compact_placement(), machine_type(pool.machine_type)
    if machine is not None and machine.family not in allowed.families:
        families = listed(name.upper() for name in allowed.families)
        yield here.found("machine", machine=machine, families=families)
    yield from here.exclusions()
    zones = pool.zones or sorted({*(cluster.zones or ()), *([cluster.location] * is_zone(cluster.location))})
    if len(zones) != 1:
        such_as = f", such as {listed(zones)}" if zones else ""
        yield here.found("zones", read=((*cluster_at, "zones"), (*cluster_at, "location")), such_as=such_as)
    if max(pool.nodes.count or 0, pool.nodes.max or 0, pool.nodes.total_max or 0) > allowed.most_nodes:
        yield here.found("nodes", allowed=allowed)
