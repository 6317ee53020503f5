"""The catalogue of AWS: regions, instance types, EKS versions, and what a node leaves to pods.

The facts are data, each with its source and date: those of accelerators in ``infra/data/accelerators``, the others
in ``infra/clouds/aws/data``. What AWS adds is added there.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slipway.infra.accelerators import sold_by
from slipway.infra.platform import Resources
from slipway.infra.schema.quantities import tiered

CLOUD = "aws"
DATA = Path(__file__).parent / "data"
COMMON_WAYS = ("on_demand", "spot", "reservation")
ZONE_ID = re.compile(r"[a-z]+[0-9]+-az[0-9]+")
ZONE_NAME = re.compile(r"([a-z]+(?:-[a-z]+)+-[0-9]+)[a-z]")
# A letter g after the generation is AWS's Graviton: m7g, c7gn, g5g. a1 was the first of them.
ARM = re.compile(r"(a1|[a-z]+[0-9]+g[a-z]*)\..+")


@dataclass(frozen=True)
class InstanceType:
    """An EC2 instance type: vCPUs, memory in MiB, and what else decides what a pool may ask of it.

    ``pods`` is how many pods a node may have. ``accelerator`` and ``gpus`` are what it comes with.
    ``nvme`` are GB of NVMe disks that it comes with, its instance store.
    ``network_cards`` are those that an EFA interface can be on; 0 without EFA. ``sold`` is how AWS sells it:
    ``on_demand``, ``spot``, ``reservation``, ``capacity_block``. ``zones`` are the ids of the zones that offer it
    and ``spot_zones`` those with a Spot price; both empty where that is not recorded. ``open_regions`` are those
    that sell it in other ways than by Capacity Block; empty where all do. ``quota`` and ``spot_quota`` are the
    codes of the quotas that count the vCPUs of a type with GPUs; None where that is not recorded.
    """

    name: str
    vcpus: int
    memory: int
    pods: int
    accelerator: str | None = None
    gpus: int = 0
    nvme: int = 0
    network_cards: int = 0
    sold: frozenset[str] = frozenset(COMMON_WAYS)
    zones: frozenset[str] = frozenset()
    spot_zones: frozenset[str] = frozenset()
    open_regions: frozenset[str] = frozenset()
    quota: str | None = None
    spot_quota: str | None = None


@dataclass(frozen=True)
class NodeShape:
    """A node of a group, as far as it decides what the node leaves to pods.

    ``disk_size_gb`` is its root disk in GiB, and ``gpu_clients`` is how many pods share each of its GPUs. With
    ``instance_store`` the disks that the type comes with take the root disk's place for pods.
    """

    instance_type: str
    disk_size_gb: int
    gpu_clients: int = 1
    instance_store: bool = False


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / name).read_text(encoding="utf-8"))


@cache
def regions() -> Mapping[str, tuple[str, ...]]:
    """Every region with EKS, and the ids of its zones."""
    return MappingProxyType({region: tuple(zones) for region, zones in _toml("regions.toml").items()})


def is_zone_id(zone: str) -> bool:
    """Whether it is a zone's id (``use1-az1``) and not its name (``us-east-1a``)."""
    return ZONE_ID.fullmatch(zone) is not None


def region_of(zone: str) -> str | None:
    """The region of a zone, by its id or its name; None where it is neither, or in no region of the catalogue."""
    if is_zone_id(zone):
        return next((region for region, zones in regions().items() if zone in zones), None)
    match = ZONE_NAME.fullmatch(zone)
    return match[1] if match and match[1] in regions() else None


def regions_of(zones: Iterable[str]) -> list[str]:
    """The regions of these zones, each once and in order."""
    return sorted({region for zone in zones if (region := region_of(zone))})


@cache
def _instance_types() -> dict[str, Any]:
    return _toml("instance_types.toml")


@cache
def instance_types() -> Mapping[str, InstanceType]:
    """Every instance type by name."""
    data = _instance_types()
    types: dict[str, InstanceType] = {}
    for family, facts in data["families"].items():
        sizes = facts.get("types") or {
            size: (_vcpus(size), facts["gib_per_vcpu"] * _vcpus(size), data["pods"][facts["pods"]][size])
            for size in facts["sizes"]
        }
        for size, (vcpus, gib, pods) in sizes.items():
            types[f"{family}.{size}"] = InstanceType(f"{family}.{size}", vcpus, gib * 1024, pods)
    for accelerator, facts in sold_by(CLOUD).items():
        for family, sizes in facts["families"].items():
            for size, machine in sizes["types"].items():
                name = f"{family}.{size}"
                offered = facts.get("offered", {}).get(name, {})
                zones = frozenset[str](offered.get("zones", ()))
                types[name] = InstanceType(
                    name=name,
                    vcpus=machine["vcpus"],
                    memory=machine["gib"] * 1024,
                    pods=machine["pods"],
                    accelerator=accelerator,
                    gpus=machine["gpus"],
                    nvme=machine.get("nvme", 0),
                    network_cards=machine.get("cards", 0),
                    sold=frozenset(sizes.get("sold", COMMON_WAYS)),
                    zones=zones,
                    spot_zones=zones - frozenset(offered.get("no_spot", ())),
                    open_regions=frozenset(offered.get("open", ())),
                    quota=sizes.get("quota", {}).get("on_demand"),
                    spot_quota=sizes.get("quota", {}).get("spot"),
                )
    return MappingProxyType(types)


def records(region: str) -> bool:
    """Whether it is recorded which instance types the region's zones offer."""
    return region in _instance_types()["recorded"]


def instance_type(name: str) -> InstanceType | None:
    """The instance type of that name, or None where the catalogue has none."""
    return instance_types().get(name)


def is_arm(name: str) -> bool:
    """Whether an instance type of that name has Arm processors."""
    return ARM.fullmatch(name) is not None


def _vcpus(size: str) -> int:
    """``large`` has two, ``xlarge`` four, ``12xlarge`` 48."""
    return 2 if size == "large" else 4 * int(size.removesuffix("xlarge") or 1)


@cache
def _eks() -> dict[str, Any]:
    return _toml("eks.toml")


def kubernetes_versions() -> tuple[str, ...]:
    """The versions that EKS gives standard support to and add-ons are pinned for, newest first."""
    return tuple(_eks()["versions"])


def addon_version(kubernetes_version: str, addon: str) -> str:
    """The version that an EKS add-on is pinned to. Raises KeyError for one that is not in the catalogue."""
    return _eks()["versions"][kubernetes_version]["addons"][addon]


def hosts_control_plane(zone: str) -> bool:
    """Whether EKS takes subnets of the zone for a control plane; True also for a name, which does not say."""
    return zone not in _eks()["no_control_plane"]


def allocatable(node: NodeShape) -> Resources:
    """What a node leaves to pods, after nodeadm's reservations and the DaemonSets of every node.

    GPUs count as pods see them: shares where pods share them. Raises ValueError where the catalogue does not have
    the instance type.
    """
    machine = instance_type(node.instance_type)
    if machine is None:
        raise ValueError(f"instance type {node.instance_type} is not in the catalogue")
    rules = _eks()
    system = rules["system_pods"]
    gpu = machine.gpus > 0
    cpu = machine.vcpus * 1000 - round(tiered(machine.vcpus, rules["cpu"]["reserved"]) * 1000)
    return Resources(
        cpu=max(0, cpu - system["millicores"] - gpu * system["gpu_millicores"]),
        memory=max(0, _allocatable_memory(machine) - system["mib"] - gpu * system["gpu_mib"]),
        ephemeral_storage=max(0, _allocatable_disk(node, machine)),
        gpus=machine.gpus * node.gpu_clients,
    )


def _allocatable_memory(machine: InstanceType) -> int:
    rules = _eks()["memory"]
    capacity = machine.memory * (1 - rules["kernel"]["share"]) - rules["kernel"]["mib"]
    reserved = rules["reserved_mib"] + rules["reserved_mib_per_pod"] * machine.pods
    return int(capacity - reserved - rules["eviction_mib"])


def _allocatable_disk(node: NodeShape, machine: InstanceType) -> int:
    rules = _eks()["disk"]
    capacity = node.disk_size_gb * 1024 - rules["file_system_mib"]
    if node.instance_store and machine.nvme:
        capacity = machine.nvme * 10**9 / 2**20 * (1 - rules["instance_store_share"])
    return int(capacity * (1 - rules["eviction_share"]) - rules["reserved_mib"])
