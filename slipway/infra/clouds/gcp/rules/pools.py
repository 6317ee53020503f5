"""GKE node pools against the catalogue: machine types, GPUs, disks, zones, and how Google sells them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File

from slipway.infra.accelerators import Accelerator, accelerator
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
from slipway.infra.clouds.gcp.settings import GcpCluster, GcpPool
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.request import Request, node_count_findings
from slipway.infra.schema.rules import Section, rules_of

RULES = rules_of(File(__file__).parents[1] / "data" / "rules.toml")

DAY = 86_400
FLEX_START_LIMIT = 7 * DAY
"""https://cloud.google.com/kubernetes-engine/docs/concepts/dws, as documented in 2025."""
RUN_DURATION_LIMIT = 120 * DAY
"""https://cloud.google.com/compute/docs/instances/limit-vm-runtime, as documented in 2025."""


@dataclass(frozen=True)
class Subject(Section):
    """A pool, and what the catalogue knows of its machine type and accelerator."""

    pool: GcpPool
    machine: MachineType | None
    gpu: Accelerator | None


def check_pools(request: Request) -> Iterator[Finding]:
    """Findings about each node pool on Google Cloud, by itself."""
    for cluster, content in request.clusters_of(GcpCluster).items():
        if content.autopilot:
            continue
        for name, pool in content.pools.items():
            machine = machine_type(pool.machine_type)
            gpu = accelerator(pool.accelerator) if pool.accelerator else None
            subject = Subject(RULES["pool"], ("clusters", cluster, "pools", name), pool, pool, machine, gpu)
            yield from _machine(subject)
            yield from _accelerator(subject)
            yield from subject.exclusions()
            yield from _partition(subject)
            yield from _sold(subject)
            yield from _times(subject)
            yield from _disks(subject)


def _machine(subject: Subject) -> Iterator[Finding]:
    name = subject.pool.machine_type
    if not name:
        yield subject.found("no-machine-type", shown=None, read=((*subject.at[:2], "mode"),))
    elif is_arm(name):
        yield subject.found("arm")
    elif subject.machine is None:
        yield subject.found("unknown-machine", known=machine_types())


def _accelerator(subject: Subject) -> Iterator[Finding]:
    pool, machine, gpu = subject.pool, subject.machine, subject.gpu
    if pool.accelerator is None:
        if machine and machine.accelerator:
            yield subject.found("built-in", machine=machine)
        elif pool.gpus is not None:
            yield subject.found("gpus-without")
    elif gpu is None or gpu.name not in offers():
        rule = "unknown-accelerator" if gpu is None else "unsold-accelerator"
        yield subject.found(rule, known=offers(), offers=listed(offers(), "and"))
    elif machine is None:
        return
    elif machine.accelerator and machine.accelerator != gpu.name:
        yield subject.found("another-built-in", machine=machine, carriers=_carriers(gpu))
    elif machine.accelerator:
        yield from _built_in_count(subject, machine)
    elif not (attach := offers()[gpu.name].attach) or machine.family != "n1":
        yield subject.found("not-attached", machine=machine, carriers=_carriers(gpu))
    else:
        yield from _attached_count(subject, machine, attach)


def _built_in_count(subject: Subject, machine: MachineType) -> Iterator[Finding]:
    if subject.pool.gpus not in {None, machine.gpus}:
        series = [
            other
            for other in machine_types().values()
            if other.accelerator == machine.accelerator and other.gpus == subject.pool.gpus
        ]
        instead = f", or `machine_type: {series[0].name}`" if series else ""
        yield subject.found("built-in-count", machine=machine, instead=instead)


def _attached_count(
    subject: Subject, machine: MachineType, attach: Mapping[int, AttachLimit]
) -> Iterator[Finding]:
    count = subject.pool.gpus
    fitting = [n for n, most in attach.items() if machine.vcpus <= most.vcpus]
    choice = f"write {listed(fitting)}" if fitting else "take a machine type with fewer vCPUs"
    if count is None:
        choice = choice.replace("write", "write `gpus:` with")
        yield subject.found("count-missing", machine=machine, choice=choice)
    elif (limit := attach.get(count)) is None:
        yield subject.found("count-odd", pool=subject.pool, attach=listed(attach), choice=choice)
    elif machine.vcpus > limit.vcpus or machine.memory > limit.gib * 1024:
        gib = machine.memory / 1024
        yield subject.found("count-large", pool=subject.pool, limit=limit, machine=machine, gib=gib, choice=choice)


def _carriers(gpu: Accelerator) -> str:
    """The machine types that can have it, in words."""
    if offers().get(gpu.name, Offer()).attach:
        return "the N1 types, such as `n1-standard-4`"
    return listed(name for name, machine in machine_types().items() if machine.accelerator == gpu.name)


def _partition(subject: Subject) -> Iterator[Finding]:
    pool, gpu = subject.pool, subject.gpu
    if pool.gpu_partition is None or gpu is None:
        return
    if not gpu.partitions:
        yield subject.found("no-partitions", gpu=gpu)
    elif pool.gpu_partition not in gpu.partitions:
        yield subject.found("unknown-partition", gpu=gpu, partitions=listed(gpu.partitions))
    if pool.gpu_sharing and pool.gpu_sharing.strategy == "MPS":
        yield subject.found("mps")


WAYS = {
    "on_demand": ("on demand", "spot: false"),
    "spot": ("as Spot", "spot: true"),
    "flex_start": ("as flex-start", "flex_start: true"),
    "reservation": ("from a reservation", "reservation: <name>"),
}
"""How a node can be bought: in words, and as a setting."""


def _sold(subject: Subject) -> Iterator[Finding]:
    pool, machine = subject.pool, subject.machine
    ways = [key for key in ("spot", "flex_start", "reservation") if getattr(pool, key)] or ["on_demand"]
    if machine is not None and not any(way in machine.sold for way in ways):
        offered = [WAYS[key] for key in WAYS if key in machine.sold]
        only, settings = " or ".join(words for words, _ in offered), listed(setting for _, setting in offered)
        yield subject.found("unsold", way=WAYS[ways[0]][0], only=only, settings=settings)


def _times(subject: Subject) -> Iterator[Finding]:
    """How long its nodes run and stay, and how many flex-start nodes there are."""
    pool, nodes = subject.pool, subject.pool.nodes
    scales = nodes.max is not None or nodes.total_max is not None
    if pool.flex_start and (not scales or nodes.min or nodes.total_min):
        yield subject.found("flex-start-nodes")
    if pool.max_run_duration is not None:
        limit = FLEX_START_LIMIT if pool.flex_start else RUN_DURATION_LIMIT
        if seconds(pool.max_run_duration) > limit:
            runs = "flex-start nodes run" if pool.flex_start else "a node with a limit runs"
            yield subject.found("run-duration", runs=runs, days=limit // DAY)
    if pool.consolidation_delay is not None:
        length = seconds(pool.consolidation_delay)
        if length % 60 or length > DAY:
            yield subject.found("delay-minutes", minutes=min(max(-(-length // 60), 1), 1440))
        if not scales:
            yield subject.found("delay-fixed")


def _disks(subject: Subject) -> Iterator[Finding]:
    pool, machine = subject.pool, subject.machine
    if machine is None:
        return
    if pool.disk_type not in machine.disks:
        default = "" if "disk_type" in pool.model_fields_set else "the default, and "
        yield subject.found("disk-type", default=default, machine=machine, disks=listed(machine.disks))
    if pool.local_ssd_count and pool.local_ssd_count not in machine.local_ssds:
        has, fix = "it has none", "remove `local_ssd_count`"
        if machine.local_ssds:
            has, fix = f"it has {listed(machine.local_ssds)}", f"write {listed(machine.local_ssds)}"
        yield subject.found("local-ssds", machine=machine, has=has, fix=fix)


def check(request: Request) -> Iterator[Finding]:
    """Findings about locations, zones and node counts."""
    for name, cluster in request.clusters_of(GcpCluster).items():
        at: Path = ("clusters", name)
        here = Section(RULES["place"], at, cluster)
        located = cluster.location in regions() or cluster.location in zones_of(cluster.location)
        if located:
            yield from _zones(here, cluster.zones, cluster.location)
        else:
            yield _unknown(here, cluster.location, "location")
        for key, pool in cluster.pools.items():
            pool_at = (*at, "pools", key)
            if not cluster.autopilot:
                yield from node_count_findings((*pool_at, "nodes"), pool.nodes)
                for least, most in (("min", "max"), ("total_min", "total_max")):
                    if getattr(pool.nodes, most) == 0 and not getattr(pool.nodes, least):
                        nodes = Section(RULES["nodes"], (*pool_at, "nodes"), pool.nodes)
                        yield nodes.found("none", most, most=most)
            if located:
                if not cluster.autopilot:
                    below = Section(RULES["place"], pool_at, pool)
                    yield from _zones(below, pool.zones, cluster.location, read=((*at, "location"),))
                yield from _check_offer(here, cluster, key, pool)


def _unknown(here: Section, location: str, *below: str | int) -> Finding:
    """A location that is no region and no zone, or none of the catalogue."""
    if zones := zones_of(location):
        return here.found("unknown-zone", *below, known=zones, region=region_of(location), zones=listed(zones))
    known = (*regions(), *(zone for region in regions().values() for zone in region))
    return here.found("unknown-place", *below, known=known)


def _zones(
    here: Section, zones: Sequence[str] | None, location: str, read: Sequence[Path] = ()
) -> Iterator[Finding]:
    if zones is None:
        return
    if not zones:
        yield here.found("no-zones")
    region, read = region_of(location), read or ((*here.at, "location"),)
    for index, zone in enumerate(zones):
        if region_of(zone) == region and is_zone(zone) and zone not in zones_of(zone):
            yield _unknown(here, zone, "zones", index)
        elif region_of(zone) != region or not is_zone(zone):
            yield here.found("other-zone", index, read=read, region=region, zone=zones_of(region)[0])
        elif zone in zones[:index]:
            yield here.found("zone-twice", index)


def _check_offer(here: Section, cluster: GcpCluster, key: str, pool: GcpPool) -> Iterator[Finding]:
    """The zones that the pool would have, against where the accelerator is offered."""
    offer = offers().get(pool.accelerator or "")
    if offer is None or not offer.zones:
        return
    region = region_of(cluster.location)
    offered = offer.zones_in(region)
    # Zones that are not of the region are reported as that.
    wanted = [zone for zone in pool.zones or cluster.zones or () if zone in zones_of(region)]
    missing = [zone for zone in wanted if zone not in offer.zones]
    if not wanted and is_zone(cluster.location) and cluster.location not in offer.zones:
        missing = [cluster.location]
    elif not wanted and not pool.zones and not offered:
        missing = [region]
    regions = sorted({region_of(zone) for zone in offer.zones})
    instead = f"take {listed(offered)}" if offered else f"use a cluster in another region: {', '.join(regions)}"
    for zone in missing:
        # The cluster's zones may be right for its other pools, so the pool is the one to change.
        below = ("zones", pool.zones.index(zone)) if pool.zones else ("accelerator",)
        yield here.found(
            "not-offered",
            *("pools", key, *below),
            shown=zone if pool.zones else pool.accelerator,
            read=((*here.at, "pools", key, "accelerator"), (*here.at, "pools", key, "zones")),
            pool=pool,
            zone=zone,
            instead=instead,
        )
