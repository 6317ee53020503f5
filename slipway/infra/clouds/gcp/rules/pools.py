"""GKE node pools against the catalogue: machine types, GPUs, disks, and how Google sells them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slipway.infra.accelerators import PLACE, Accelerator, accelerator
from slipway.infra.clouds.gcp.catalogue import (
    AttachLimit,
    MachineType,
    Offer,
    is_arm,
    is_zone,
    machine_type,
    machine_types,
    offers,
    region_of,
    regions,
    zones_of,
)
from slipway.infra.clouds.gcp.settings import GcpCluster, GcpPool, Nodes
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.request import Request, limit_findings

CATALOGUE = "infra/clouds/gcp/data"
DAY = 86_400
FLEX_START_LIMIT = 7 * DAY
"""https://cloud.google.com/kubernetes-engine/docs/concepts/dws, as documented in 2025."""
RUN_DURATION_LIMIT = 120 * DAY
"""https://cloud.google.com/compute/docs/instances/limit-vm-runtime, as documented in 2025."""


@dataclass(frozen=True)
class Subject:
    """A pool, where it stands, and what the catalogue knows of its machine type and accelerator."""

    at: Path
    pool: GcpPool
    machine: MachineType | None
    gpu: Accelerator | None

    @property
    def offer(self) -> Offer:
        """How Google offers its accelerator."""
        return offers().get(self.pool.accelerator or "", Offer())

    def on(self, *keys: str) -> tuple[Path, ...]:
        """The places of these keys of the pool."""
        return tuple((*self.at, key) for key in keys)


def check_pools(request: Request) -> Iterator[Finding]:
    """Findings about each node pool on Google Cloud, by itself."""
    for cluster, content in request.clusters_of(GcpCluster).items():
        if content.autopilot:
            continue
        for name, pool in content.pools.items():
            subject = Subject(
                at=("clusters", cluster, "pools", name),
                pool=pool,
                machine=machine_type(pool.machine_type),
                gpu=accelerator(pool.accelerator) if pool.accelerator else None,
            )
            yield from _machine(subject)
            yield from _accelerator(subject)
            yield from _sharing(subject)
            yield from _capacity(subject)
            yield from _disks(subject)
            yield from _consolidation(subject)


def _machine(subject: Subject) -> Iterator[Finding]:
    name = subject.pool.machine_type
    if not name:
        yield Finding(
            (*subject.at, "machine_type"),
            None,
            "required, and not there",
            "add it: a Compute Engine machine type, for example `n1-standard-4`",
            read=((*subject.at[:2], "mode"),),
        )
    elif is_arm(name):
        yield Finding(
            (*subject.at, "machine_type"),
            name,
            "an Arm machine, and the images that the steps run are built for x86-64",
            "take an x86-64 type, such as `e2-standard-4`",
        )
    elif subject.machine is None:
        yield Finding(
            (*subject.at, "machine_type"),
            name,
            "not in the catalogue of machine types",
            did_you_mean(
                name,
                machine_types(),
                "see https://cloud.google.com/compute/docs/machine-resource; a new type is added in Slipway's "
                f"{CATALOGUE}, one with GPUs in {PLACE}",
            ),
        )


def _accelerator(subject: Subject) -> Iterator[Finding]:
    pool, machine, gpu = subject.pool, subject.machine, subject.gpu
    place = (*subject.at, "accelerator")
    if pool.accelerator is None:
        if machine and machine.accelerator:
            yield Finding(
                place,
                None,
                f"`{machine.name}` has {machine.gpus} GPU(s) built in, and a GPU pool names its accelerator",
                f"write `accelerator: {machine.accelerator}`",
                read=subject.on("machine_type"),
            )
        elif pool.gpus is not None:
            yield Finding(
                (*subject.at, "gpus"),
                pool.gpus,
                "the pool has no accelerator",
                "name one, such as `accelerator: nvidia-tesla-t4`, or remove `gpus`",
                read=subject.on("accelerator"),
            )
        return
    if gpu is None or gpu.name not in offers():
        yield Finding(
            place,
            pool.accelerator,
            "not in the catalogue of accelerators" if gpu is None else "Google Cloud does not offer it",
            did_you_mean(
                pool.accelerator,
                offers(),
                f"known: {listed(offers(), 'and')}; a new one is added in Slipway's {PLACE}",
            ),
        )
        return
    if machine is None:
        return
    if machine.accelerator and machine.accelerator != gpu.name:
        yield Finding(
            place,
            gpu.name,
            f"`{machine.name}` comes with `{machine.accelerator}` and no other",
            f"write `accelerator: {machine.accelerator}`, or another machine type: {_carriers(gpu)}",
            read=subject.on("machine_type"),
        )
    elif machine.accelerator:
        yield from _built_in_count(subject, machine)
    elif not subject.offer.attach or machine.family != "n1":
        yield Finding(
            place,
            gpu.name,
            f"`{machine.name}` cannot have it",
            f"take one of {_carriers(gpu)}",
            read=subject.on("machine_type"),
        )
    else:
        yield from _attached_count(subject, machine, subject.offer.attach)


def _built_in_count(subject: Subject, machine: MachineType) -> Iterator[Finding]:
    if subject.pool.gpus not in {None, machine.gpus}:
        series = [
            other
            for other in machine_types().values()
            if other.accelerator == machine.accelerator and other.gpus == subject.pool.gpus
        ]
        instead = f", or `machine_type: {series[0].name}`" if series else ""
        yield Finding(
            (*subject.at, "gpus"),
            subject.pool.gpus,
            f"`{machine.name}` comes with {machine.gpus}",
            f"write `gpus: {machine.gpus}`{instead}",
            read=subject.on("machine_type", "accelerator"),
        )


def _attached_count(
    subject: Subject, machine: MachineType, attach: Mapping[int, AttachLimit]
) -> Iterator[Finding]:
    count, gpu = subject.pool.gpus, subject.pool.accelerator
    fitting = [n for n, most in attach.items() if machine.vcpus <= most.vcpus]
    choice = f"write {listed(fitting)}" if fitting else "take a machine type with fewer vCPUs"
    read = subject.on("machine_type", "accelerator")
    if count is None:
        yield Finding(
            (*subject.at, "gpus"),
            None,
            f"`{machine.name}` has no GPU of its own, so their number has to be said",
            choice.replace("write", "write `gpus:` with"),
            read=read,
        )
        return
    limit = attach.get(count)
    if limit is None:
        yield Finding(
            (*subject.at, "gpus"),
            count,
            f"`{gpu}` is attached in numbers of {listed(attach)}",
            choice,
            read=read,
        )
    elif machine.vcpus > limit.vcpus or machine.memory > limit.gib * 1024:
        yield Finding(
            (*subject.at, "gpus"),
            count,
            f"a node with {count} `{gpu}` has at most {limit.vcpus} vCPUs and {limit.gib} GiB, and "
            f"`{machine.name}` has {machine.vcpus} and {machine.memory / 1024:g}",
            f"{choice}, or take a smaller machine type",
            read=read,
        )


def _carriers(gpu: Accelerator) -> str:
    """The machine types that can have it, in words."""
    if offers().get(gpu.name, Offer()).attach:
        return "the N1 types, such as `n1-standard-4`"
    return listed(name for name, machine in machine_types().items() if machine.accelerator == gpu.name)


def _sharing(subject: Subject) -> Iterator[Finding]:
    pool, gpu = subject.pool, subject.gpu
    for key, value in (("gpu_sharing", pool.gpu_sharing), ("gpu_partition", pool.gpu_partition)):
        if value is not None and pool.accelerator is None:
            shown = value if isinstance(value, str) else value.model_dump()
            yield Finding(
                (*subject.at, key),
                shown,
                "the pool has no accelerator",
                f"name one, or remove `{key}`",
                read=subject.on("accelerator"),
            )
    if pool.gpu_partition is None or gpu is None:
        return
    place = (*subject.at, "gpu_partition")
    if not gpu.partitions:
        yield Finding(
            place,
            pool.gpu_partition,
            f"`{gpu.name}` cannot be partitioned: it has no MIG",
            "remove it, or share the GPU with `gpu_sharing`",
            read=subject.on("accelerator"),
        )
    elif pool.gpu_partition not in gpu.partitions:
        yield Finding(
            place,
            pool.gpu_partition,
            f"not a partition of `{gpu.name}`",
            f"write {listed(gpu.partitions)}",
            read=subject.on("accelerator"),
        )
    if pool.gpu_sharing and pool.gpu_sharing.strategy == "MPS":
        yield Finding(
            (*subject.at, "gpu_sharing", "strategy"),
            "MPS",
            "NVIDIA MPS does not work on MIG partitions",
            "write `TIME_SHARING`, or remove `gpu_partition`",
            read=subject.on("gpu_partition"),
        )


def _capacity(subject: Subject) -> Iterator[Finding]:
    """How the pool's nodes are bought: on demand, Spot, flex-start, or from a reservation."""
    pool = subject.pool
    at = subject.at
    for key in ("spot", "flex_start"):
        if pool.reservation is not None and getattr(pool, key):
            yield Finding(
                (*at, "reservation"),
                pool.reservation,
                f"`{key}` nodes cannot use a reservation",
                f"remove `reservation` or `{key}`",
                read=subject.on(key),
            )
    if pool.flex_start and pool.spot:
        yield Finding(
            (*at, "flex_start"),
            True,
            "`spot` is set too, and they are different ways to buy a node",
            "remove `flex_start` or `spot`",
            read=subject.on("spot"),
        )
    yield from _sold(subject)
    yield from _flex_start(subject)
    if pool.max_run_duration is not None:
        limit = FLEX_START_LIMIT if pool.flex_start else RUN_DURATION_LIMIT
        if seconds(pool.max_run_duration) > limit:
            yield Finding(
                (*at, "max_run_duration"),
                pool.max_run_duration,
                f"{'flex-start nodes run' if pool.flex_start else 'a node with a limit runs'} for at most "
                f"{limit // DAY} days",
                f"write `{limit // DAY}d` or less",
                read=subject.on("flex_start"),
            )


WAYS = {
    "on_demand": ("on demand", "spot: false"),
    "spot": ("as Spot", "spot: true"),
    "flex_start": ("as flex-start", "flex_start: true"),
    "reservation": ("from a reservation", "reservation: <name>"),
}
"""How a node can be bought: in words, and as a setting."""


def _sold(subject: Subject) -> Iterator[Finding]:
    pool, machine = subject.pool, subject.machine
    ways = [key for key in ("spot", "flex_start") if getattr(pool, key)]
    if pool.reservation is not None:
        ways.append("reservation")
    if machine is None or any(way in machine.sold for way in ways):
        return
    way = ways[0] if ways else "on_demand"
    if way in machine.sold:
        return
    offered = [WAYS[key] for key in WAYS if key in machine.sold]
    yield Finding(
        (*subject.at, "machine_type"),
        machine.name,
        f"Google does not sell it {WAYS[way][0]}, only {' or '.join(words for words, _ in offered)}",
        f"write {listed(setting for _, setting in offered)}",
        read=subject.on("spot", "flex_start", "reservation"),
    )


def _flex_start(subject: Subject) -> Iterator[Finding]:
    pool = subject.pool
    if pool.queued_provisioning and not pool.flex_start:
        yield Finding(
            (*subject.at, "queued_provisioning"),
            True,
            "nodes that come together are flex-start nodes",
            "write `flex_start: true` beside it",
            read=subject.on("flex_start"),
        )
    if not pool.flex_start:
        return
    if pool.accelerator is None:
        yield Finding(
            (*subject.at, "flex_start"),
            True,
            "flex-start is for pools with accelerators",
            "remove it",
            read=subject.on("accelerator"),
        )
    nodes = pool.nodes
    if (nodes.max is None and nodes.total_max is None) or nodes.min or nodes.total_min:
        yield Finding(
            (*subject.at, "nodes"),
            nodes.model_dump(exclude_none=True),
            "flex-start nodes come when a pod asks for them, so the pool scales from zero",
            "write for example `nodes: {total_min: 0, total_max: 1}`",
            read=subject.on("flex_start"),
        )


def _consolidation(subject: Subject) -> Iterator[Finding]:
    pool = subject.pool
    if pool.consolidation_delay is None:
        return
    at, delay = (*subject.at, "consolidation_delay"), pool.consolidation_delay
    length = seconds(delay)
    if length % 60 or length > DAY:
        reason = "GKE takes whole minutes from `1m` to `24h`"
        yield Finding(at, delay, reason, f"write `{min(max(-(-length // 60), 1), 1440)}m`")
    if pool.nodes.max is None and pool.nodes.total_max is None:
        reason = "the pool has a fixed number of nodes, which never go"
        yield Finding(at, delay, reason, "remove it, or give `nodes` a `total_max`", read=subject.on("nodes"))
    if pool.flex_start:
        reason = "no source says what a ComputeClass does to a pool of flex-start nodes"
        yield Finding(at, delay, reason, "remove it", read=subject.on("flex_start"))


def _disks(subject: Subject) -> Iterator[Finding]:
    pool, machine, at = subject.pool, subject.machine, subject.at
    if machine is None:
        return
    if pool.disk_type not in machine.disks:
        unset = "disk_type" not in pool.model_fields_set
        yield Finding(
            (*at, "disk_type"),
            pool.disk_type,
            f"{'the default, and ' if unset else ''}`{machine.name}` cannot boot from it",
            f"write {listed(machine.disks)}",
            read=subject.on("machine_type"),
        )
    count = pool.local_ssd_count
    if count and count not in machine.local_ssds:
        has = f"it has {listed(machine.local_ssds)}" if machine.local_ssds else "it has none"
        yield Finding(
            (*at, "local_ssd_count"),
            count,
            f"not a number of local SSDs that `{machine.name}` can have: {has}",
            f"write {listed(machine.local_ssds)}" if machine.local_ssds else "remove `local_ssd_count`",
            read=subject.on("machine_type"),
        )


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
                yield from _check_offer(at, cluster, key, pool)


def _unknown(place: Path, location: str) -> Finding:
    """A location that is no region and no zone, or none of the catalogue."""
    zones = zones_of(location)
    known = zones or (*regions(), *(zone for region in regions().values() for zone in region))
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
            f"Slipway's {CATALOGUE}",
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
        yield from limit_findings(place, (least, most), low, high)
        if high == 0 and not low:
            yield Finding(
                here[most],
                high,
                "the pool could never have a node",
                f"write `{most}: 1` or more, or remove the pool",
            )


def _check_offer(at: Path, cluster: GcpCluster, key: str, pool: GcpPool) -> Iterator[Finding]:
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
            f"Slipway's {PLACE}/{pool.accelerator}.toml",
            read=((*place, "accelerator"), (*place, "zones"), (*at, "zones"), (*at, "location")),
        )
