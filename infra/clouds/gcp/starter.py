"""What a new stack file has of Google Cloud: one cluster with Spot GPUs that are there only while a step runs."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from infra.accelerators import accelerators
from infra.clouds.gcp.catalogue import MachineType, Offer, is_zone, machine_types, offers, region_of, regions
from infra.clouds.gcp.settings import GCS_FUSE_SIDECAR, GcpPool
from infra.platform import Resources
from infra.schema.problems import Problem, did_you_mean, listed
from infra.schema.request import Starter, Wish, has_room

TEMPLATE = Path(__file__).parent / "data" / "starter.yaml.j2"
REGION = "us-central1"
ACCELERATOR = "nvidia-tesla-t4"
CPU_FAMILY, GPU_FAMILY = "e2", "n1"
"""Machine types of the pool without GPUs, and those that GPUs are attached to."""
LEAST_VCPUS = 4
"""What GKE's own pods leave of fewer is too little for most steps."""
MOST_ZONES = 3


def starter(wish: Wish) -> Starter | Sequence[Problem]:
    """One cluster in one region, with the smallest machine types on which the steps have room."""
    name = wish.accelerator or (ACCELERATOR if wish.gpu_steps else None)
    offer = offers().get(name or "", Offer())
    region = wish.region or _region(offer)
    if problems := [*_problems(name, offer, region, wish)]:
        return problems
    cpu = _smallest(_cpu_pools(), wish.cpu_steps)
    gpu = _smallest(_gpu_pools(name, offer), wish.gpu_steps or wish.cpu_steps) if name else None
    zones, gpu_zones = _zones(region, offer)
    values = {
        "region": region,
        "zones": zones,
        "cpu": cpu,
        "gpu": gpu,
        "gpu_zones": gpu_zones,
        "machine": machine_types()[gpu.machine_type] if gpu else None,
    }
    return Starter(TEMPLATE, values, ("pulumi config set gcp:project <your project> -s {stack}",), gpu is not None)


def _region(offer: Offer) -> str:
    """The first choice where it has the GPU, else the first region that has it."""
    return REGION if not offer.zones or offer.zones_in(REGION) else region_of(min(offer.zones))


def _problems(name: str | None, offer: Offer, region: str, wish: Wish) -> Iterator[Problem]:
    if name and name not in offers():
        reason = "Google Cloud does not offer it" if name in accelerators() else "no GPU of the catalogue"
        fix = did_you_mean(name, offers(), f"write {listed(offers())}")
        yield Problem("GPU", name, reason, fix)
    if region not in regions():
        zone = is_zone(region) and region_of(region) in regions()
        reason = (
            "a zone, and the stack has a region" if zone else "no region of Google Cloud's, as of the catalogue"
        )
        fix = f"write `{region_of(region)}`" if zone else did_you_mean(region, regions(), f"write `{REGION}`")
        yield Problem("REGION", region, reason, fix)
    elif name and offer.zones and not offer.zones_in(region):
        there = [other for other, each in offers().items() if each.zones_in(region)]
        having = ", ".join(sorted({region_of(zone) for zone in offer.zones}))
        yield Problem(
            "GPU",
            wish.accelerator,
            f"`{name}` is not offered in `{region}`, as of the catalogue",
            f"take a region that has it: {having}{f'; or a GPU that is there: {listed(there)}' if there else ''}",
        )


def _zones(region: str, offer: Offer) -> tuple[Sequence[str], Sequence[str]]:
    """The zones of the cluster, and those of its pool with GPUs where these are not all; those with GPUs first."""
    offered = offer.zones_in(region)
    others = [zone for zone in regions()[region] if zone not in offered and len(zone.rpartition("-")[2]) == 1]
    zones = [*offered, *others][:MOST_ZONES]
    having = [zone for zone in zones if zone in offered]
    return zones, having if len(having) < len(zones) else ()


def _cpu_pools() -> Iterator[GcpPool]:
    for machine in _ordered(CPU_FAMILY):
        yield GcpPool(machine_type=machine.name)


def _gpu_pools(name: str, offer: Offer) -> Iterator[GcpPool]:
    if not offer.attach:
        for machine in sorted(machine_types().values(), key=lambda each: (each.gpus, each.vcpus)):
            if machine.accelerator == name and "spot" in machine.sold:
                yield GcpPool(machine_type=machine.name, accelerator=name, gpus=machine.gpus, spot=True)
    for count, limit in sorted(offer.attach.items()):
        for machine in _ordered(GPU_FAMILY):
            if machine.vcpus <= limit.vcpus and machine.memory <= limit.gib * 1024:
                yield GcpPool(machine_type=machine.name, accelerator=name, gpus=count, spot=True)


def _ordered(family: str) -> Sequence[MachineType]:
    """The machine types of a family that have the memory most steps want for their CPUs, smallest first."""
    found = [each for each in machine_types().values() if each.family == family and "-highcpu-" not in each.name]
    return sorted(
        (each for each in found if each.vcpus >= LEAST_VCPUS), key=lambda each: (each.vcpus, each.memory)
    )


def _smallest(pools: Iterable[GcpPool], step: Resources) -> GcpPool:
    """The first pool that has room for the step, or else the largest, which the settings then refuse."""
    found = list(pools)
    return next((pool for pool in found if has_room(pool.node(), step, GCS_FUSE_SIDECAR)), found[-1])
