"""What a new stack file has of AWS: one cluster with Spot GPUs that are there only while a step runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.accelerators import accelerators
from infra.clouds.aws.catalogue import (
    InstanceType,
    hosts_control_plane,
    instance_types,
    records,
    region_of,
    regions,
)
from infra.clouds.aws.settings import AwsPool, S3Store
from infra.platform import Resources
from infra.schema.problems import Problem, did_you_mean, listed
from infra.schema.request import Starter, Wish, has_room

TEMPLATE = Path(__file__).parent / "data" / "starter.yaml.j2"
REGION = "us-east-1"
ACCELERATOR = "nvidia-tesla-t4"
CPU_FAMILY = "m7i"
LEAST_VCPUS = 4
"""What the cluster's own pods leave of fewer is too little for most steps."""
LEAST_ZONES, MOST_ZONES = 2, 3
"""EKS places a control plane in at least two zones, and the VPC is laid out for three."""


@dataclass(frozen=True)
class Choice:
    """An instance type in a region, as Spot or on demand. ``zones`` is empty where those are not recorded."""

    machine: InstanceType
    spot: bool
    zones: Sequence[str]


def starter(wish: Wish) -> Starter | Sequence[Problem]:
    """One cluster in one region, with the smallest instance types on which the steps have room."""
    name = wish.accelerator or (ACCELERATOR if wish.gpu_steps else None)
    machines = _machines(name, wish.gpu_steps or wish.cpu_steps) if name else ()
    region = wish.region or _region(machines)
    choice = next(_choices(machines, region), None) if region in regions() else None
    if problems := [*_problems(name, region, choice, wish)]:
        return problems
    zones = _zones(region, choice)
    values = {
        "region": region,
        "zones": zones,
        "cpu": _cpu(wish.cpu_steps),
        "gpu": choice,
        "gpu_zones": [zone for zone in zones if zone in choice.zones] if choice and choice.zones else zones,
    }
    before = (
        f"pulumi config set aws:region {region} -s {{stack}}",
        "pulumi config set --path 'slipway:clusters.main.control_plane.authorized_networks.here' "
        "<your address>/32 -s {stack}",
    )
    return Starter(TEMPLATE, values, before, choice is not None)


def _machines(name: str, step: Resources) -> Sequence[InstanceType]:
    """The instance types with the GPU that have room for the step, smallest first; all where none has."""
    found = sorted(
        (each for each in instance_types().values() if each.accelerator == name),
        key=lambda each: (each.gpus, each.vcpus, each.memory),
    )
    return [each for each in found if _has_room(each, step)] or found


def _has_room(machine: InstanceType, step: Resources) -> bool:
    return has_room(AwsPool(instance_type=machine.name).node(), step, S3Store.sidecar)


def _choices(machines: Sequence[InstanceType], region: str) -> Iterator[Choice]:
    """How these can be bought in the region: as Spot, then on demand."""
    hosts = [zone for zone in regions()[region] if hosts_control_plane(zone)]
    for spot in (True, False):
        for machine in machines:
            known = bool(machine.zones) and records(region)
            offered = machine.spot_zones if spot else machine.zones
            zones = [zone for zone in hosts if zone in offered]
            sold = ("spot" if spot else "on_demand") in machine.sold
            if sold and (zones or not known) and (not machine.open_regions or region in machine.open_regions):
                yield Choice(machine, spot, zones)


def _region(machines: Sequence[InstanceType]) -> str:
    """The first choice where it sells the smallest type as Spot, else the first region that sells any so."""
    for machine in machines:
        for region in (REGION, *(each for each in regions() if records(each))):
            if any(choice.spot for choice in _choices([machine], region)):
                return region
    return REGION


def _problems(name: str | None, region: str, choice: Choice | None, wish: Wish) -> Iterator[Problem]:
    known = list(dict.fromkeys(each.accelerator for each in instance_types().values() if each.accelerator))
    if name and name not in known:
        reason = "no instance type of AWS has it" if name in accelerators() else "no GPU of the catalogue"
        yield Problem("GPU", name, reason, did_you_mean(name, known, f"write {listed(known)}"))
    if region not in regions():
        zone = region_of(region)
        reason = "a zone, and the stack has a region" if zone else "no region with EKS, as of the catalogue"
        fix = f"write `{zone}`" if zone else did_you_mean(region, regions(), f"write `{REGION}`")
        yield Problem("REGION", region, reason, fix)
    elif name in known and choice is None:
        step = wish.gpu_steps or wish.cpu_steps
        having = [
            each for each in regions() if records(each) and next(_choices(_machines(name, step), each), None)
        ]
        there = [other for other in known if next(_choices(_machines(other, step), region), None)]
        yield Problem(
            "GPU",
            wish.accelerator,
            f"AWS sells no `{name}` in `{region}` as Spot or on demand, as of the catalogue",
            f"take a region that has it: {', '.join(having)}"
            f"{f'; or a GPU that is there: {listed(there)}' if there else ''}",
        )


def _zones(region: str, choice: Choice | None) -> Sequence[str]:
    """Zones for the cluster: those that have the GPU, and others where these are too few."""
    hosts = [zone for zone in regions()[region] if hosts_control_plane(zone)]
    offered = choice.zones if choice else ()
    others = [zone for zone in hosts if zone not in offered]
    return sorted([*offered, *others][: max(LEAST_ZONES, min(len(offered), MOST_ZONES))])


def _cpu(step: Resources) -> InstanceType:
    """The smallest type that has room for the step, or else the largest, which the settings then refuse."""
    found = [each for name, each in instance_types().items() if name.partition(".")[0] == CPU_FAMILY]
    ordered = sorted((each for each in found if each.vcpus >= LEAST_VCPUS), key=lambda each: each.vcpus)
    return next((each for each in ordered if _has_room(each, step)), ordered[-1])
