"""EKS node groups: their numbers of nodes, how they are bought, and their instance types against the catalogue."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as File

from slipway.infra.accelerators import PLACE
from slipway.infra.clouds.aws.catalogue import (
    InstanceType,
    instance_type,
    instance_types,
    is_arm,
    is_zone_id,
    records,
    region_of,
    regions,
    regions_of,
)
from slipway.infra.clouds.aws.settings import AwsCluster, AwsPool
from slipway.infra.schema.problems import Finding, Path, listed
from slipway.infra.schema.request import Request, node_count_findings
from slipway.infra.schema.rules import Section, rules_of

RULES = rules_of(File(__file__).parents[1] / "data" / "rules.toml")


@dataclass(frozen=True)
class Subject(Section):
    """A pool, its cluster, and what the catalogue knows of its instance type."""

    cluster: AwsCluster
    pool: AwsPool
    machine: InstanceType | None

    @property
    def zones(self) -> Sequence[str]:
        """The zones that its nodes can be in."""
        return self.cluster.zones if self.pool.zones is None else self.pool.zones

    @property
    def zone_places(self) -> tuple[Path, ...]:
        """Where these zones stand."""
        return ((*self.at, "zones"), (*self.at[:2], "zones"), (*self.at[:2], "region"))


def subjects(request: Request) -> Iterator[Subject]:
    """Every pool on AWS."""
    for name, cluster in request.clusters_of(AwsCluster).items():
        for key, pool in cluster.pools.items():
            at = ("clusters", name, "pools", key)
            yield Subject(RULES["pool"], at, pool, cluster, pool, instance_type(pool.instance_type))


def check_pools(request: Request) -> Iterator[Finding]:
    """Findings about each pool on AWS, by itself."""
    for subject in subjects(request):
        pool, machine = subject.pool, subject.machine
        yield from node_count_findings((*subject.at, "nodes"), pool.nodes)
        if is_arm(pool.instance_type):
            yield subject.found("arm")
        elif machine is None:
            yield subject.found("unknown-machine", known=instance_types())
        if pool.gpu_sharing is not None and machine is not None and not machine.gpus:
            yield subject.found("shared-without", machine=machine)
        if pool.instance_store and machine is not None and not machine.nvme:
            yield subject.found("no-nvme", machine=machine)


# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/resource-ids.html, as documented in 2025.
RESERVATION = re.compile(r"cr-([0-9a-f]{8}|[0-9a-f]{17})")
RESERVATIONS = ("capacity_block", "capacity_reservation")
WAYS = {
    "on_demand": ("on demand", "spot: false"),
    "spot": ("as Spot", "spot: true"),
    "reservation": ("from a reservation", "capacity_reservation: cr-…"),
    "capacity_block": ("by Capacity Block", "capacity_block: cr-…"),
}
"""How a node can be bought: in words, and as a setting."""


def check(request: Request) -> Iterator[Finding]:
    """Findings about how each pool on AWS is bought, and about its zones."""
    for subject in subjects(request):
        yield from _check_reservation(subject)
        yield from _efa(subject)
        if subject.machine is None:
            continue
        if (unsold := _unsold(subject, subject.machine)) is not None:
            yield unsold
        elif subject.cluster.region in regions():
            yield from _check_offer(subject, subject.machine)


def _check_reservation(subject: Subject) -> Iterator[Finding]:
    yield from subject.exclusions()
    for key in RESERVATIONS:
        value = getattr(subject.pool, key)
        if value is None:
            continue
        if not RESERVATION.fullmatch(value):
            yield subject.found("reservation-id", key)
        if len(subject.zones) > 1:
            read = ((*subject.at, key), *subject.zone_places)
            yield subject.found("reservation-zones", read=read, key=key)


def _efa(subject: Subject) -> Iterator[Finding]:
    pool, machine = subject.pool, subject.machine
    if not pool.efa or machine is None:
        return
    if not machine.network_cards:
        lacks = "has no EFA" if machine.gpus else "has no GPU to train with"
        others = _types_like(machine)
        or_take = f", or take {listed(others)}" if others else ""
        yield subject.found("no-efa", machine=machine, lacks=lacks, or_take=or_take)
    elif len(subject.zones) > 1:
        yield subject.found("efa-zones", read=subject.zone_places)


def _types_like(machine: InstanceType) -> list[str]:
    """The types with the same GPU that have EFA."""
    return [
        name
        for name, other in instance_types().items()
        if machine.accelerator and other.accelerator == machine.accelerator and other.network_cards
    ]


def _unsold(subject: Subject, machine: InstanceType) -> Finding | None:
    """What is wrong where AWS does not sell the instance type in the way that the pool asks for it."""
    pool, region = subject.pool, subject.cluster.region
    ways = {"capacity_block": pool.capacity_block, "reservation": pool.capacity_reservation, "spot": pool.spot}
    way = next((key for key, value in ways.items() if value), "on_demand")
    if way not in machine.sold:
        offered = [WAYS[key] for key in WAYS if key in machine.sold]
        only, settings = " or ".join(words for words, _ in offered), listed(setting for _, setting in offered)
        return subject.found("unsold", way=WAYS[way][0], only=only, settings=settings)
    limited = machine.open_regions and region in regions() and region not in machine.open_regions
    if way != "capacity_block" and limited:
        read, elsewhere = ((*subject.at[:2], "region"),), ", ".join(sorted(machine.open_regions))
        return subject.found("block-only", read=read, region=region, elsewhere=elsewhere)
    return None


def _check_offer(subject: Subject, machine: InstanceType) -> Iterator[Finding]:
    """Whether the instance type is offered, and offered as Spot, in the zones that the pool can have."""
    region = subject.cluster.region
    if not machine.zones or not records(region):
        return
    # Zones that are not of the region are reported as that.
    wanted = [zone for zone in subject.zones if region_of(zone) == region]
    yield from _absent(subject, machine, wanted)
    if region not in regions_of(machine.zones):
        return
    usable = [zone for zone in wanted if zone in machine.zones or not is_zone_id(zone)]
    if subject.pool.spot and usable and not any(_in(zone, machine.spot_zones, region) for zone in usable):
        yield subject.found(
            "no-spot-price",
            read=subject.zone_places,
            machine=machine,
            zones=listed(usable, "and"),
            elsewhere=_places(subject, machine.spot_zones),
            place=PLACE,
        )


def _absent(subject: Subject, machine: InstanceType, wanted: Sequence[str]) -> Iterator[Finding]:
    region, pool = subject.cluster.region, subject.pool
    missing = [zone for zone in wanted if not _in(zone, machine.zones, region)]
    if region not in regions_of(machine.zones):
        where: list[tuple[Path, str]] = [(("instance_type",), region)]
    elif pool.zones is not None:
        where = [(("zones", pool.zones.index(zone)), zone) for zone in missing]
    else:
        # The cluster's zones may be right for its other pools, so the pool is the one to change.
        where = [(("instance_type",), zone) for zone in missing]
    for below, zone in where:
        elsewhere = _places(subject, machine.zones)
        yield subject.found(
            "not-offered",
            *below,
            read=subject.zone_places,
            machine=machine,
            zone=zone,
            elsewhere=elsewhere,
            place=PLACE,
        )


def _in(zone: str, zones: frozenset[str], region: str) -> bool:
    """Whether a zone is one of ``zones``. A name says nothing of that, only that it is in the region."""
    return zone in zones if is_zone_id(zone) else region in regions_of(zones)


def _places(subject: Subject, zones: frozenset[str]) -> str:
    """Where it is, in words: zones of the cluster, else of the region, or other regions."""
    here = sorted(zone for zone in zones if region_of(zone) == subject.cluster.region)
    if here:
        nearest = [zone for zone in here if zone in subject.cluster.zones] or here
        return f"give the pool `zones` of its own: {listed(nearest)}"
    return f"use a cluster in another region: {', '.join(regions_of(zones))}"
