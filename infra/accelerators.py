"""The catalogue: accelerators, the machine types they come with, and what a node of one leaves to pods.

The facts are data, in ``infra/data``, each with its source and date.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from infra.platform import Resources

if TYPE_CHECKING:
    from infra.settings.gcp import GcpPool

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Accelerator:
    """A GPU model by its GKE type name.

    ``product`` is the name that CUDA reports. ``memory_gib`` is per GPU. ``partitions`` maps each MIG partition
    size to how many of it one GPU holds; empty where the GPU cannot be partitioned.
    """

    name: str
    product: str
    memory_gib: float
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class MachineType:
    """A machine type: its vCPUs, memory in MiB, and the GPUs and local SSDs that come with it.

    ``accelerator`` and ``gpus`` are what the type brings (none for types GPUs are attached to, or CPU types).
    ``on_demand`` is False for types sold only as Spot or flex-start.
    """

    name: str
    cloud: str
    family: str
    vcpus: int
    memory: int
    accelerator: str | None = None
    gpus: int = 0
    local_ssds: int = 0
    on_demand: bool = True


def _toml(name: str) -> dict[str, Any]:
    with (DATA / name).open("rb") as file:
        return tomllib.load(file)


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Every accelerator by its GKE type name."""
    return MappingProxyType(
        {name: Accelerator(name, **facts) for name, facts in _toml("accelerators.toml").items()}
    )


@cache
def machine_types(cloud: str) -> Mapping[str, MachineType]:
    """Every machine type of a cloud by name."""
    if cloud != "gcp":
        return MappingProxyType({})
    data = _toml("gcp_machine_types.toml")
    found: dict[str, MachineType] = {}
    for family, facts in data["families"].items():
        for shape, rule in facts["shapes"].items():
            for vcpus in rule["vcpus"]:
                name = f"{family}-{shape}-{vcpus}"
                found[name] = MachineType(name, cloud, family, vcpus, round(vcpus * rule["gib_per_vcpu"] * 1024))
        for name, (vcpus, gib) in facts.get("types", {}).items():
            found[name] = MachineType(name, cloud, family, vcpus, gib * 1024)
    for name, facts in data["gpu_types"].items():
        found[name] = MachineType(
            name,
            cloud,
            name.split("-")[0],
            facts["vcpus"],
            facts["gib"] * 1024,
            facts["accelerator"],
            facts["gpus"],
            facts.get("local_ssds", 0),
            facts.get("on_demand", True),
        )
    return MappingProxyType(found)


def accelerator(name: str) -> Accelerator | None:
    """The accelerator of that GKE type name, or None where the catalogue has none."""
    return accelerators().get(name)


def machine_type(cloud: str, name: str) -> MachineType | None:
    """The machine type of that name on ``cloud`` (``gcp``), or None where the catalogue has none."""
    return machine_types(cloud).get(name)


def gke_allocatable(pool: "GcpPool") -> Resources:
    """What one node of the pool leaves to pods.

    GPUs count as pods see them: shares where the pool slices them, partitions where it partitions them.
    Raises ValueError where the machine type is not in the catalogue.
    """
    machine = machine_type("gcp", pool.machine_type)
    if machine is None:
        raise ValueError(f"{pool.machine_type} is not in the catalogue of machine types")
    gpus = pool.gpus or machine.gpus
    if pool.gpu_partition and pool.accelerator:
        gpus *= accelerators()[pool.accelerator].partitions[pool.gpu_partition]
    if pool.gpu_sharing:
        gpus *= pool.gpu_sharing.clients
    return Resources(
        cpu=_allocatable_cpu(machine),
        memory=_allocatable_memory(machine),
        ephemeral_storage=_allocatable_boot_disk(pool.disk_size_gb),
        gpus=gpus,
    )


def _allocatable_cpu(machine: MachineType) -> int:
    reserved = 60 + max(0, min(machine.vcpus, 2) - 1) * 10 + max(0, min(machine.vcpus, 4) - 2) * 5
    reserved += max(0, machine.vcpus - 4) * 2.5
    return int(machine.vcpus * 1000 - reserved)


def _allocatable_memory(machine: MachineType) -> int:
    gib = machine.memory / 1024
    reserved = min(gib, 4) * 0.25 + max(0, min(gib, 8) - 4) * 0.2 + max(0, min(gib, 16) - 8) * 0.1
    reserved += max(0, min(gib, 128) - 16) * 0.06 + max(0, gib - 128) * 0.02
    return int(machine.memory - reserved * 1024 - 100)


def _allocatable_boot_disk(disk_size_gb: int) -> int:
    reserved = min(disk_size_gb * 0.5, 6 + disk_size_gb * 0.35, 100)
    return int((disk_size_gb * 0.9 - reserved) * 1024)
