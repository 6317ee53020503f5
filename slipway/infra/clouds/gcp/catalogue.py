"""The catalogue of Google Cloud: regions, machine types with their GPUs, and what a node of one leaves to pods.

The facts are data, each with its source and date: those of accelerators in ``infra/data/accelerators``, the others
in ``infra/clouds/gcp/data``. What Google adds is added there.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slipway.infra.accelerators import accelerator, sold_by
from slipway.infra.platform import Resources
from slipway.infra.schema.quantities import cpu_millicores, mebibytes, tiered

CLOUD = "gcp"
DATA = Path(__file__).parent / "data"
ZONE = re.compile(r"([a-z]+-[a-z]+[0-9]+)-[a-z0-9]+")

REGION_ZONES = 3
"""Zones that GKE spreads the nodes of a regional cluster over when none are named.

Source: https://cloud.google.com/kubernetes-engine/docs/concepts/regional-clusters, 2026-11-20.
"""

EVERY_WAY = frozenset({"on_demand", "spot", "flex_start", "reservation"})


@dataclass(frozen=True)
class AttachLimit:
    """The most vCPUs and memory (GiB) that an N1 node with so many of a GPU may have."""

    vcpus: int
    gib: int


@dataclass(frozen=True)
class Offer:
    """How Google offers an accelerator.

    ``attach`` maps the counts in which it is attached to N1 machine types to the limits they bring; empty where it
    is built into its own machine types. ``zones`` is where it is offered; empty where that is not recorded. The
    metrics of ``quota`` count it. ``autopilot`` says whether GKE Autopilot has it, and ``autopilot_most`` by
    number of GPUs the vCPUs and GiB above which it has refused a pod.
    """

    attach: Mapping[int, AttachLimit] = field(default_factory=dict[int, AttachLimit])
    zones: frozenset[str] = frozenset()
    quota: Mapping[str, str] = field(default_factory=dict[str, str])
    autopilot: bool = False
    autopilot_most: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])

    def zones_in(self, region: str) -> tuple[str, ...]:
        """The zones of a region that offer the accelerator, in order; empty also where none are recorded."""
        return tuple(sorted(zone for zone in self.zones if zone.rpartition("-")[0] == region))


@dataclass(frozen=True)
class MachineType:
    """A machine type: its vCPUs, memory in MiB, and what else decides what a node pool may ask of it.

    ``accelerator`` and ``gpus`` are what the type has built in (None and 0 for CPU types and those that GPUs are
    attached to). ``local_ssds`` are the numbers of local SSDs a node may ask for; ``bundled_local_ssds`` is how
    many it always has. ``sold`` is how Google sells it, a part of `EVERY_WAY`.
    """

    name: str
    family: str
    vcpus: int
    memory: int
    disks: tuple[str, ...]
    accelerator: str | None = None
    gpus: int = 0
    local_ssds: tuple[int, ...] = ()
    bundled_local_ssds: int = 0
    sold: frozenset[str] = EVERY_WAY
    shared_core: bool = False


@dataclass(frozen=True)
class NodeShape:
    """A node of a pool, as far as it decides what the node leaves to pods.

    ``max_pods`` is how many pods the node may have. ``local_ssd_count`` local SSDs hold its ephemeral storage,
    ``local_ssd_block_count`` are raw block devices. ``gpus`` is None where the machine type says how many there
    are. ``gpu_partition`` is the MIG partition that each GPU is divided into, and ``gpu_clients`` is how many
    pods share each GPU or partition.
    """

    machine_type: str
    disk_size_gb: int
    max_pods: int
    local_ssd_count: int = 0
    local_ssd_block_count: int = 0
    accelerator: str | None = None
    gpus: int | None = None
    gpu_partition: str | None = None
    gpu_clients: int = 1


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / name).read_text(encoding="utf-8"))


@cache
def regions() -> Mapping[str, tuple[str, ...]]:
    """Every region, and its zones."""
    return MappingProxyType(
        {region: tuple(f"{region}-{end}" for end in ends) for region, ends in _toml("regions.toml").items()}
    )


def region_of(location: str) -> str:
    """The region of a zone, or the region itself."""
    match = ZONE.fullmatch(location)
    return match[1] if match else location


def is_zone(location: str) -> bool:
    """Whether a location is a zone and not a region."""
    return ZONE.fullmatch(location) is not None


def zones_of(location: str) -> tuple[str, ...]:
    """The zones of a region, or of the region of a zone; none for a region that the catalogue does not have."""
    return regions().get(region_of(location), ())


@cache
def offers() -> Mapping[str, Offer]:
    """How Google offers each accelerator, by its name."""
    return MappingProxyType(
        {
            name: Offer(
                attach=MappingProxyType(
                    {int(count): AttachLimit(**limit) for count, limit in facts.get("attach", {}).items()}
                ),
                zones=frozenset(facts.get("zones", ())),
                quota=MappingProxyType(facts.get("quota", {})),
                autopilot=facts.get("autopilot", {}).get("offered", False),
                autopilot_most=facts.get("autopilot", {}).get("most", {}),
            )
            for name, facts in sold_by(CLOUD).items()
        }
    )


@cache
def machine_types() -> Mapping[str, MachineType]:
    """Every predefined machine type by name."""
    data = _machine_types()
    types: dict[str, MachineType] = {}
    for family, facts in data["families"].items():
        for shape, rule in facts["shapes"].items():
            for vcpus in rule["vcpus"]:
                name = f"{family}-{shape}-{vcpus}"
                types[name] = _of_family(name, family, vcpus, round(vcpus * rule["gib_per_vcpu"] * 1024))
        for name, (vcpus, gib) in facts.get("types", {}).items():
            types[name] = _of_family(name, family, vcpus, gib * 1024)
    for accelerator_name, offered in sold_by(CLOUD).items():
        for name, facts in offered.get("machines", {}).items():
            bundled = facts.get("bundled", 0)
            types[name] = MachineType(
                name=name,
                family=name.split("-")[0],
                vcpus=facts["vcpus"],
                memory=facts["gib"] * 1024,
                disks=tuple(offered["disks"]),
                accelerator=accelerator_name,
                gpus=facts["gpus"],
                local_ssds=(bundled,) if bundled else tuple(facts["local_ssds"]),
                bundled_local_ssds=bundled,
                sold=frozenset(facts["sold"]) if "sold" in facts else EVERY_WAY,
            )
    return MappingProxyType(types)


def machine_type(name: str) -> MachineType | None:
    """The machine type of that name, or None where the catalogue has none.

    Custom types (``n2-custom-8-32768``, memory in MiB) are read from their name.
    """
    if known := machine_types().get(name):
        return known
    match = re.fullmatch(r"(?:([a-z0-9]+)-)?custom-([1-9][0-9]*)-([1-9][0-9]*)(-ext)?", name)
    if match is None:
        return None
    family, vcpus, mib = match[1] or "n1", int(match[2]), int(match[3])
    facts = _machine_types()["families"].get(family)
    # https://cloud.google.com/compute/docs/instances/creating-instance-with-custom-machine-type, as documented in
    # 2025: an even number of vCPUs (or one, on N1), and memory in steps of 256 MiB.
    odd = vcpus % 2 and not (family == "n1" and vcpus == 1)
    if facts is None or not facts.get("custom") or odd or mib % 256:
        return None
    return _of_family(name, family, vcpus, mib)


def machines_by_size(family: str, least_vcpus: int) -> Sequence[MachineType]:
    """The machine types of a family that have the memory most steps want for their CPUs, smallest first."""
    machines = [
        machine
        for machine in machine_types().values()
        if machine.family == family and "-highcpu-" not in machine.name
    ]
    return sorted(
        (machine for machine in machines if machine.vcpus >= least_vcpus),
        key=lambda machine: (machine.vcpus, machine.memory),
    )


def is_arm(name: str) -> bool:
    """Whether a machine type of that name has Arm processors."""
    return name.split("-", maxsplit=1)[0] in _machine_types()["arm"]["families"]


@dataclass(frozen=True)
class CompactPlacement:
    """Which nodes can stand close together: machine families, and how many nodes of a pool."""

    families: tuple[str, ...]
    most_nodes: int


@cache
def compact_placement() -> CompactPlacement:
    """What a compact placement policy of a node pool allows."""
    facts = _toml("networks.toml")["compact"]
    return CompactPlacement(tuple(facts["families"]), facts["most_nodes"])


@cache
def _machine_types() -> dict[str, Any]:
    return _toml("machine_types.toml")


def _of_family(name: str, family: str, vcpus: int, mib: int) -> MachineType:
    facts = _machine_types()["families"][family]
    bundled = facts.get("bundled", {}).get(name, 0)
    counts = next((rule["counts"] for rule in facts.get("local_ssds", ()) if vcpus <= rule["vcpus"]), ())
    return MachineType(
        name=name,
        family=family,
        vcpus=vcpus,
        memory=mib,
        disks=tuple(facts["disks"]),
        local_ssds=(bundled,) if bundled else tuple(counts),
        bundled_local_ssds=bundled,
        shared_core=name in facts.get("shared_core", ()),
    )


def allocatable(node: NodeShape) -> Resources:
    """What a node leaves to pods, after GKE's reservations and its own DaemonSets.

    GPUs count as pods see them: shares where the pool slices them, partitions where it partitions them. Raises
    ValueError where the machine type or the GPU partition is not in the catalogue.
    """
    machine = machine_type(node.machine_type)
    if machine is None:
        raise ValueError(f"machine type {node.machine_type} is not in the catalogue")
    gpus = _visible_gpus(node, machine)
    rules = _gke()
    system = rules["system_pods"]
    return Resources(
        cpu=max(
            0,
            _allocatable_cpu(machine, node.max_pods)
            - system["millicores"]
            - (system["gpu_millicores"] if gpus else 0),
        ),
        memory=max(0, _allocatable_memory(machine) - system["mib"] - (system["gpu_mib"] if gpus else 0)),
        ephemeral_storage=max(0, _allocatable_disk(node.disk_size_gb, ephemeral_ssds(node))),
        gpus=gpus,
    )


def ephemeral_ssds(node: NodeShape) -> int:
    """Local SSDs that hold a node's ephemeral storage: those asked for, or those that come with the machine type.

    GKE uses bundled ones so without being asked, unless they are wanted as raw block devices.
    """
    machine = machine_type(node.machine_type)
    if node.local_ssd_count or node.local_ssd_block_count or machine is None:
        return node.local_ssd_count
    return machine.bundled_local_ssds


@cache
def _gke() -> dict[str, Any]:
    return _toml("gke.toml")


def _visible_gpus(node: NodeShape, machine: MachineType) -> int:
    gpus = node.gpus or machine.gpus
    if node.gpu_partition is not None:
        known = accelerator(node.accelerator or "")
        if known is None or node.gpu_partition not in known.partitions:
            raise ValueError(f"{node.accelerator} has no partition {node.gpu_partition} in the catalogue")
        gpus *= known.partitions[node.gpu_partition]
    return gpus * node.gpu_clients


def _allocatable_cpu(machine: MachineType, max_pods: int) -> int:
    rules = _gke()["cpu"]
    if machine.shared_core:
        reserved = rules["shared_core_millicores"]
    else:
        reserved = tiered(machine.vcpus, rules["reserved"]) * 1000
    if max_pods > rules["many_pods"]["above"]:
        reserved += rules["many_pods"]["millicores"]
    return int(machine.vcpus * 1000 - reserved)


def _allocatable_memory(machine: MachineType) -> int:
    rules = _gke()["memory"]
    capacity = machine.memory * (1 - rules["kernel_share"])
    return int(capacity - tiered(capacity / 1024, rules["reserved"]) * 1024 - rules["eviction_mib"])


def _allocatable_disk(boot_disk_gb: int, local_ssds: int) -> int:
    if local_ssds:
        rules = _gke()["local_ssd"]
        capacity = local_ssds * rules["gb_each"] * 10**9 / 2**30
        reserved = rules["reserved_gib"][min(local_ssds, 3) - 1]
    else:
        rules = _gke()["boot_disk"]
        # What Google calls a GB of a disk is 2³⁰ bytes.
        capacity = boot_disk_gb - rules["image_gib"]
        share, gib = rules["reserved_share_and_gib"]
        reserved = min(
            boot_disk_gb * rules["reserved_share"], boot_disk_gb * share + gib, rules["reserved_most_gib"]
        )
    return int((capacity * (1 - rules["eviction_share"]) - reserved) * 1024)


DRIVER = "gcsfuse.csi.storage.gke.io"
"""The CSI driver that mounts a bucket in a pod."""

PREFIX = "gke-gcsfuse"
MOUNTS_BUCKETS = f"{PREFIX}/volumes"
"""The annotation that adds the sidecar."""

DEFAULTS = {"cpu-request": "250m", "memory-request": "256Mi", "ephemeral-storage-request": "5Gi"}
"""Where annotations say nothing else
(cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar, seen November 2026)."""


def sidecar(annotations: Mapping[str, str]) -> Resources:
    """What it adds to the requests of a pod with these annotations; nothing where they do not ask for it."""
    if annotations.get(MOUNTS_BUCKETS) != "true":
        return Resources(cpu=0, memory=0)
    values = {key: annotations.get(f"{PREFIX}/{key}", default) for key, default in DEFAULTS.items()}
    return Resources(
        cpu=cpu_millicores(values["cpu-request"]),
        memory=mebibytes(values["memory-request"]),
        ephemeral_storage=mebibytes(values["ephemeral-storage-request"]),
    )
