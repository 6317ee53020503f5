"""GKE clusters: who reaches them, their addresses, and the pools they need."""

import ipaddress
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path as FilePath

from slipway.infra.accelerators import PLACE
from slipway.infra.accelerators import accelerator as accelerator_of
from slipway.infra.clouds.gcp import autopilot
from slipway.infra.clouds.gcp.autopilot import PERFORMANCE
from slipway.infra.clouds.gcp.catalogue import REGION_ZONES, compact_placement, is_zone, machine_type, region_of
from slipway.infra.clouds.gcp.settings import GcpCluster, GcpPool, Network
from slipway.infra.schema.base import misuse
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.request import Request

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


def check_clusters(request: Request) -> Iterator[Finding]:
    """Findings about each cluster on Google Cloud, and about their networks together."""
    clusters = request.clusters_of(GcpCluster)
    for name, cluster in clusters.items():
        at: Path = ("clusters", name)
        yield from _reachable(at, cluster)
        yield from _ranges(at, cluster)
        if not cluster.autopilot:
            yield from _cpu_pool(at, cluster, request.pool_names[name])
            yield from _reservations(at, cluster)
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


def _reservations(at: Path, cluster: GcpCluster) -> Iterator[Finding]:
    for name, pool in cluster.pools.items():
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


REFUSED: Mapping[str, Sequence[str]] = tomllib.loads(
    (FilePath(__file__).parents[1] / "data" / "autopilot_keys.toml").read_text(encoding="utf-8")
)
"""The keys of a node pool that a way to ask for nodes has no use for: why, and what to do."""

ONLY = ("compute_class", "machine_family", "most_pods")
"""The keys that a node pool has no use for."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about clusters on Autopilot, and about keys that only these have."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        at: Path = ("clusters", name)
        if cluster.autopilot:
            yield from _cluster(at, cluster)
        for key, pool in cluster.pools.items():
            place = (*at, "pools", key)
            if cluster.autopilot:
                yield from _way(place, pool, (*at, "mode"))
            else:
                yield from _standard(place, pool, (*at, "mode"))


def _cluster(at: Path, cluster: GcpCluster) -> Iterator[Finding]:
    mode = ((*at, "mode"),)
    if is_zone(cluster.location):
        yield Finding(
            (*at, "location"),
            cluster.location,
            "a zone, and clusters on Autopilot are regional",
            f"write `{region_of(cluster.location)}`",
            read=mode,
        )
    if cluster.pools and all(pool.accelerator for pool in cluster.pools.values()):
        yield Finding(
            (*at, "pools"),
            sorted(cluster.pools),
            "none is without GPUs: some pods need none, such as gates, and Autopilot refuses these beside GPUs",
            "add one: `cpu: {}`",
            read=(*mode, *((*at, "pools", name, "accelerator") for name in cluster.pools)),
        )


def _standard(at: Path, pool: GcpPool, mode: Path) -> Iterator[Finding]:
    for key in ONLY:
        if _says(pool, key):
            yield Finding(
                (*at, key),
                getattr(pool, key),
                "only clusters on Autopilot have it, and this one has node pools",
                "remove it, or write `mode: autopilot` for the cluster",
                read=(mode,),
            )


def _way(at: Path, pool: GcpPool, mode: Path) -> Iterator[Finding]:
    for key, (reason, fix) in REFUSED.items():
        if _says(pool, key):
            value = pool.model_dump(exclude_unset=True)[key]
            yield Finding((*at, key), value, reason, fix, read=(mode,))
    yield from _class(at, pool)
    yield from _accelerator(at, pool)


def _says(pool: GcpPool, key: str) -> bool:
    """Whether the file gives the key another value than it has by itself."""
    default: object = GcpPool.model_fields[key].get_default(call_default_factory=True)
    return getattr(pool, key) != default


def _class(at: Path, pool: GcpPool) -> Iterator[Finding]:
    family, read = pool.machine_family, ((*at, "compute_class"), (*at, "accelerator"))
    if pool.compute_class and pool.accelerator:
        yield Finding(
            (*at, "compute_class"),
            pool.compute_class,
            "pods with GPUs have a class of their own, and take no other",
            "remove it, or the `accelerator`",
            read=read,
        )
    elif pool.compute_class == PERFORMANCE and family is None:
        yield Finding(
            (*at, "machine_family"),
            None,
            "which machines such pods have to themselves decides how large they can be, and what they cost",
            f"write {listed(autopilot.families())}",
            read=read,
        )
    if family is None:
        return
    if pool.compute_class != PERFORMANCE:
        yield Finding(
            (*at, "machine_family"),
            family,
            "only pods of the class Performance choose their machines",
            "write `compute_class: Performance`, or remove it",
            read=read,
        )
    elif family not in autopilot.families():
        yield Finding(
            (*at, "machine_family"),
            family,
            "not a machine family of the class Performance, as of the catalogue",
            did_you_mean(family, autopilot.families(), f"write {listed(autopilot.families())}"),
        )


def _accelerator(at: Path, pool: GcpPool) -> Iterator[Finding]:
    name, read = pool.accelerator, ((*at, "accelerator"),)
    if name is None:
        if pool.gpus is not None:
            fix = "name one, such as `accelerator: nvidia-tesla-t4`, or remove `gpus`"
            yield Finding((*at, "gpus"), pool.gpus, "there is no accelerator", fix, read=read)
        return
    known = autopilot.accelerators()
    if name not in known:
        reason, fix = "Autopilot does not have it", f"write {listed(known)}, or `mode: standard` for the cluster"
        if not accelerator_of(name):
            reason = "not in the catalogue of accelerators"
            fix = did_you_mean(
                name, known, f"known: {listed(known, 'and')}; a new one is added in Slipway's {PLACE}"
            )
        yield Finding((*at, "accelerator"), name, reason, fix)
    elif pool.gpus is not None and pool.gpus not in autopilot.counts(name):
        choice = listed(autopilot.counts(name))
        yield Finding((*at, "gpus"), pool.gpus, f"no machine has so many `{name}`", f"write {choice}", read=read)


# Sources, read in November 2026: https://docs.cloud.google.com/kubernetes-engine/docs/how-to/compact-placement,
# "Limitations"; what is bought as flex-start or from a reservation: the documents of
# GoogleCloudPlatform/cluster-toolkit on GKE ("Compact Placement", "Specific Reservations"), and its module
# gke-node-pool.
IMPOSSIBLE = {
    "flex_start": "Google places flex-start nodes by workload policies, which Slipway does not declare",
    "reservation": "the machines of a reservation stay in the place that it was made with",
}
"""Ways to buy nodes that a pool with a placement policy cannot be bought in."""


def check_node_networks(request: Request) -> Iterator[Finding]:
    """Findings about `gvnic` and `placement`."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        for key, pool in cluster.pools.items():
            # What Autopilot has no use for is reported as that.
            if cluster.autopilot:
                continue
            if pool.placement is not None:
                yield from _placement(("clusters", name), cluster, key, pool)


def _placement(cluster_at: Path, cluster: GcpCluster, key: str, pool: GcpPool) -> Iterator[Finding]:
    at, allowed, machine = (*cluster_at, "pools", key), compact_placement(), machine_type(pool.machine_type)
    if machine is not None and machine.family not in allowed.families:
        yield Finding(
            (*at, "placement"),
            pool.placement,
            f"Google cannot place `{machine.name}` nodes close together",
            f"remove it, or take a machine type of {listed(name.upper() for name in allowed.families)}",
            read=((*at, "machine_type"),),
        )
    for way, reason in IMPOSSIBLE.items():
        if getattr(pool, way):
            yield Finding((*at, "placement"), pool.placement, reason, f"remove it, or `{way}`", read=((*at, way),))
    zones = _zones(cluster, pool)
    if len(zones) != 1:
        yield Finding(
            (*at, "zones"),
            None if pool.zones is None else list(pool.zones),
            "nodes stand close together within one zone only",
            f"name one zone{', such as ' + listed(zones) if zones else ''}, or remove `placement`",
            read=((*at, "placement"), (*cluster_at, "zones"), (*cluster_at, "location")),
        )
    most = max(pool.nodes.count or 0, pool.nodes.max or 0, pool.nodes.total_max or 0)
    if most > allowed.most_nodes:
        yield Finding(
            (*at, "nodes"),
            pool.nodes.model_dump(exclude_none=True),
            f"Google places at most {allowed.most_nodes:,} nodes of a pool close together",
            "write less, or remove `placement`",
            read=((*at, "placement"),),
        )


def _zones(cluster: GcpCluster, pool: GcpPool) -> Sequence[str]:
    """The zones that are named for the pool; none where the choice is left to others."""
    zones = [cluster.location] if is_zone(cluster.location) else []
    return pool.zones or sorted({*(cluster.zones or ()), *zones})
