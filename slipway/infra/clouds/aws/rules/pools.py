"""EKS node groups: how many nodes they have, and their instance types, GPUs and image against the catalogue."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from slipway.infra.clouds.aws.settings import AwsCluster, AwsPool, Nodes
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.request import Request, limit_findings

CATALOGUE = "infra/clouds/aws/data"


@dataclass(frozen=True)
class Subject:
    """A pool, its cluster, where they stand, and what the catalogue knows of its instance type."""

    at: Path
    cluster_at: Path
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
        return ((*self.at, "zones"), (*self.cluster_at, "zones"), (*self.cluster_at, "region"))

    def on(self, *keys: str) -> tuple[Path, ...]:
        """The places of these keys of the pool."""
        return tuple((*self.at, key) for key in keys)


def subjects(request: Request) -> Iterator[Subject]:
    """Every pool on AWS."""
    for name, cluster in request.clusters_of(AwsCluster).items():
        for key, pool in cluster.pools.items():
            yield Subject(
                at=("clusters", name, "pools", key),
                cluster_at=("clusters", name),
                cluster=cluster,
                pool=pool,
                machine=instance_type(pool.instance_type),
            )


def check_pools(request: Request) -> Iterator[Finding]:
    """Findings about each pool on AWS, by itself."""
    for subject in subjects(request):
        yield from _counts((*subject.at, "nodes"), subject.pool.nodes)
        yield from _machine(subject)
        yield from _sharing(subject)
        yield from _instance_store(subject)


def _instance_store(subject: Subject) -> Iterator[Finding]:
    machine = subject.machine
    if subject.pool.instance_store and machine is not None and not machine.nvme:
        reason = f"`{machine.name}` comes without NVMe disks; the types with GPUs of the catalogue have them"
        fix = "remove it, and write as large a `disk_size_gb` as the pods need"
        yield Finding((*subject.at, "instance_store"), True, reason, fix, read=subject.on("instance_type"))


def _machine(subject: Subject) -> Iterator[Finding]:
    name = subject.pool.instance_type
    if is_arm(name):
        yield Finding(
            (*subject.at, "instance_type"),
            name,
            "an Arm machine, and the images that the steps run are built for x86-64",
            "take an x86-64 type, such as `m7i.xlarge`",
        )
    elif subject.machine is None:
        yield Finding(
            (*subject.at, "instance_type"),
            name,
            "not in the catalogue of instance types",
            did_you_mean(
                name,
                instance_types(),
                f"see https://aws.amazon.com/ec2/instance-types/; a new type is added in Slipway's {CATALOGUE}, "
                f"one with GPUs in {PLACE}",
            ),
        )


def _sharing(subject: Subject) -> Iterator[Finding]:
    sharing, machine = subject.pool.gpu_sharing, subject.machine
    if sharing is not None and machine is not None and not machine.gpus:
        yield Finding(
            (*subject.at, "gpu_sharing"),
            sharing.model_dump(),
            f"`{machine.name}` has no GPU",
            "remove it, or take an instance type with GPUs",
            read=subject.on("instance_type"),
        )


def _counts(place: Path, nodes: Nodes) -> Iterator[Finding]:
    here = {key: (*place, key) for key in Nodes.model_fields}
    limits = [key for key in ("min", "max") if getattr(nodes, key) is not None]
    if nodes.count is not None and limits:
        yield Finding(
            here["count"],
            nodes.count,
            f"a fixed number, and {listed(limits, 'and')} let the autoscaler choose",
            "keep `count`, or the limits",
            read=tuple(here[key] for key in limits),
        )
    yield from limit_findings(place, ("min", "max"), nodes.min, nodes.max)


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
    pool, at = subject.pool, subject.at
    if pool.capacity_block is not None and pool.capacity_reservation is not None:
        yield Finding(
            (*at, "capacity_reservation"),
            pool.capacity_reservation,
            "`capacity_block` is set too, and a node is in one or the other",
            "keep one of them",
            read=subject.on("capacity_block"),
        )
    for key in RESERVATIONS:
        value = getattr(pool, key)
        if value is None:
            continue
        if not RESERVATION.fullmatch(value):
            yield Finding(
                (*at, key),
                value,
                "not the id of a capacity reservation",
                "write `cr-` and 17 hexadecimal digits, as `aws ec2 describe-capacity-reservations` shows it",
            )
        if pool.spot:
            yield Finding(
                (*at, key),
                value,
                "`spot` nodes cannot use it",
                f"remove `{key}` or `spot`",
                read=subject.on("spot"),
            )
        if len(subject.zones) > 1:
            yield Finding(
                (*at, "zones"),
                None if pool.zones is None else list(pool.zones),
                f"`{key}` is in one zone, and nodes that start in another would not be in it",
                "name that one zone; `aws ec2 describe-capacity-reservations` shows it",
                read=(*subject.on(key), *subject.zone_places),
            )


def _efa(subject: Subject) -> Iterator[Finding]:
    pool, machine = subject.pool, subject.machine
    if not pool.efa or machine is None:
        return
    if not machine.network_cards:
        others = _types_like(machine)
        yield Finding(
            (*subject.at, "efa"),
            True,
            f"`{machine.name}` has no EFA" if machine.gpus else f"`{machine.name}` has no GPU to train with",
            f"remove it, or take {listed(others)}" if others else "remove it",
            read=subject.on("instance_type"),
        )
    elif len(subject.zones) > 1:
        yield Finding(
            (*subject.at, "zones"),
            None if pool.zones is None else list(pool.zones),
            "nodes talk over EFA within one zone only",
            "name one zone, or remove `efa`",
            read=(*subject.on("efa"), *subject.zone_places),
        )


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
    read = subject.on("spot", *RESERVATIONS)
    if way not in machine.sold:
        offered = [WAYS[key] for key in WAYS if key in machine.sold]
        return Finding(
            (*subject.at, "instance_type"),
            machine.name,
            f"AWS does not sell it {WAYS[way][0]}, only {' or '.join(words for words, _ in offered)}",
            f"write {listed(setting for _, setting in offered)}",
            read=read,
        )
    limited = machine.open_regions and region in regions() and region not in machine.open_regions
    if way != "capacity_block" and limited:
        return Finding(
            (*subject.at, "instance_type"),
            machine.name,
            f"in `{region}` AWS sells it by Capacity Block only, as of the catalogue",
            "buy one and write `capacity_block: cr-…`, or use a cluster in another region: "
            + ", ".join(sorted(machine.open_regions)),
            read=(*read, (*subject.cluster_at, "region")),
        )
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
        elsewhere = _places(subject, machine.spot_zones)
        yield Finding(
            (*subject.at, "spot"),
            True,
            f"AWS quotes no Spot price for `{machine.name}` in {listed(usable, 'and')}, as of the catalogue",
            f"{elsewhere}, or remove `spot`. {_add(machine, '`aws ec2 describe-spot-price-history` shows one')}",
            read=(*subject.on("instance_type"), *subject.zone_places),
        )


def _absent(subject: Subject, machine: InstanceType, wanted: Sequence[str]) -> Iterator[Finding]:
    region, pool = subject.cluster.region, subject.pool
    missing = [zone for zone in wanted if not _in(zone, machine.zones, region)]
    shown = "`aws ec2 describe-instance-type-offerings` shows it there"
    fix = f"{_places(subject, machine.zones)}. {_add(machine, shown)}"
    if region not in regions_of(machine.zones):
        where = [((*subject.at, "instance_type"), region)]
    elif pool.zones is not None:
        where = [((*subject.at, "zones", pool.zones.index(zone)), zone) for zone in missing]
    else:
        # The cluster's zones may be right for its other pools, so the pool is the one to change.
        where = [((*subject.at, "instance_type"), zone) for zone in missing]
    for place, here in where:
        yield Finding(
            place,
            here if place[-1] != "instance_type" else machine.name,
            f"AWS does not offer `{machine.name}` in `{here}`, as of the catalogue",
            fix,
            read=(*subject.on("instance_type"), *subject.zone_places),
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


def _add(machine: InstanceType, shown: str) -> str:
    return f"Where {shown} by now, add the zone to Slipway's {PLACE}/{machine.accelerator}.toml"
