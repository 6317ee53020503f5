"""How many nodes a GKE pool has, and in which zones."""

from collections.abc import Iterator, Sequence

from infra.clouds.gcp.catalogue import is_zone, offers, region_of, regions, zones_of
from infra.clouds.gcp.rules.pools import CATALOGUE
from infra.clouds.gcp.settings import GcpCluster, GcpPool, Nodes
from infra.schema.problems import Finding, Path, did_you_mean, listed
from infra.schema.request import Request


def check(request: Request) -> Iterator[Finding]:
    """Findings about locations, zones and node counts."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        at: Path = ("clusters", name)
        located = cluster.location in regions() or cluster.location in zones_of(cluster.location)
        if located:
            yield from _zones((*at, "zones"), cluster.zones, (*at, "location"), cluster.location)
        else:
            yield _unknown((*at, "location"), cluster.location)
        for key, pool in cluster.pools.items():
            place = (*at, "pools", key)
            if not cluster.autopilot:
                yield from _counts((*place, "nodes"), pool.nodes)
            if located:
                if not cluster.autopilot:
                    yield from _zones((*place, "zones"), pool.zones, (*at, "location"), cluster.location)
                yield from _offered(at, cluster, key, pool)


def _unknown(place: Path, location: str) -> Finding:
    """A location that is no region and no zone, or none of the catalogue."""
    zones = zones_of(location)
    known = zones or (*regions(), *(zone for each in regions().values() for zone in each))
    return Finding(
        place,
        location,
        f"not a zone of `{region_of(location)}`" if zones else "neither a region nor a zone of the catalogue",
        did_you_mean(
            location,
            known,
            f"write {listed(zones)}"
            if zones
            else "write a region such as `us-central1` or a zone such as `us-central1-a`; a new one is added in "
            f"{CATALOGUE}",
        ),
    )


def _zones(place: Path, zones: Sequence[str] | None, location_place: Path, location: str) -> Iterator[Finding]:
    if zones is None:
        return
    if not zones:
        yield Finding(place, zones, "empty", "name at least one zone, or remove the key")
    region = region_of(location)
    for index, zone in enumerate(zones):
        if region_of(zone) == region and is_zone(zone) and zone not in zones_of(zone):
            yield _unknown((*place, index), zone)
        elif region_of(zone) != region or not is_zone(zone):
            yield Finding(
                (*place, index),
                zone,
                f"not a zone of `{region}`, and a cluster cannot have nodes outside its region",
                f"write a zone of `{region}`, such as `{zones_of(region)[0]}`, or put the pool in a cluster of "
                "its own there",
                read=(location_place,),
            )
        elif zone in zones[:index]:
            yield Finding((*place, index), zone, "stands twice", "remove one of them")


def _counts(place: Path, nodes: Nodes) -> Iterator[Finding]:
    here = {key: (*place, key) for key in Nodes.model_fields}
    per_zone = [key for key in ("min", "max") if getattr(nodes, key) is not None]
    total = [key for key in ("total_min", "total_max") if getattr(nodes, key) is not None]
    if nodes.count is not None and (per_zone or total):
        yield Finding(
            here["count"],
            nodes.count,
            f"a fixed number, and {listed((*per_zone, *total), 'and')} let the autoscaler choose",
            "keep `count`, or the limits",
            read=tuple(here[key] for key in (*per_zone, *total)),
        )
    if per_zone and total:
        yield Finding(
            here[total[0]],
            getattr(nodes, total[0]),
            f"counts nodes over all zones, and {listed(per_zone, 'and')} count them per zone; GKE takes one kind",
            "keep `min` and `max`, or `total_min` and `total_max`",
            read=tuple(here[key] for key in per_zone),
        )
    for least, most in (("min", "max"), ("total_min", "total_max")):
        low, high = getattr(nodes, least), getattr(nodes, most)
        if low is not None and high is not None and low > high:
            yield Finding(
                here[least],
                low,
                f"more than `{most}`, which is {high}",
                f"write `{least}: {high}` or less",
                read=(here[most],),
            )
        elif low is not None and high is None:
            yield Finding(
                here[least],
                low,
                f"the autoscaler needs `{most}` as well",
                f"add `{most}`, or write `count: {low}`",
                read=(here[most],),
            )
        elif high == 0:
            yield Finding(
                here[most],
                high,
                "the pool could never have a node",
                f"write `{most}: 1` or more, or remove the pool",
            )
    if nodes.location_policy is not None and not per_zone and not total:
        yield Finding(
            here["location_policy"],
            nodes.location_policy,
            "says how the autoscaler spreads nodes, and the pool has none",
            "remove it, or write `total_min` and `total_max`",
            read=tuple(here[key] for key in ("min", "max", "total_min", "total_max")),
        )


def _offered(at: Path, cluster: GcpCluster, key: str, pool: GcpPool) -> Iterator[Finding]:
    """The zones that the pool would have, against where the accelerator is offered."""
    offer = offers().get(pool.accelerator or "")
    if offer is None or not offer.zones:
        return
    place = (*at, "pools", key)
    region = region_of(cluster.location)
    offered = offer.zones_in(region)
    # Zones that are not of the region are reported as that.
    wanted = [zone for zone in pool.zones or cluster.zones or () if zone in zones_of(region)]
    where: dict[Path, str] = {}
    if pool.zones:
        where = {(*place, "zones", pool.zones.index(zone)): zone for zone in wanted if zone not in offer.zones}
    elif wanted:
        # The cluster's zones may be right for its other pools, so the pool is the one to change.
        where = {(*place, "accelerator"): zone for zone in wanted if zone not in offer.zones}
    elif is_zone(cluster.location) and cluster.location not in offer.zones:
        where = {(*place, "accelerator"): cluster.location}
    elif not offered:
        where = {(*place, "accelerator"): region}
    regions = sorted({region_of(zone) for zone in offer.zones})
    instead = f"take {listed(offered)}" if offered else f"use a cluster in another region: {', '.join(regions)}"
    for spot, zone in where.items():
        yield Finding(
            spot,
            pool.accelerator if spot[-1] == "accelerator" else zone,
            f"`{pool.accelerator}` is not offered in `{zone}`, as of the catalogue",
            f"{instead}. Where `gcloud compute accelerator-types list` shows it there by now, add the zone to "
            "infra/clouds/gcp/data/gpus.toml",
            read=((*place, "accelerator"), (*place, "zones"), (*at, "zones"), (*at, "location")),
        )
