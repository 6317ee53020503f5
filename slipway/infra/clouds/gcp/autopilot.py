"""GKE Autopilot: the ways in which pods ask for nodes there, and how much each lets a pod ask for.

Autopilot has no node pools. A pod asks for nodes by its node selector, and gets the tolerations of their taints
from Autopilot (https://docs.cloud.google.com/kubernetes-engine/docs/how-to/autopilot-spot-pods, undated, read on
2026-11-22). Declared all the same, they are nothing that Autopilot changes behind Pulumi's back. More facts and
their sources: ``data/autopilot.toml``, and of GPUs ``infra/data/accelerators``.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from slipway.infra.clouds.gcp.catalogue import (
    DATA,
    MachineType,
    NodeShape,
    Offer,
    allocatable,
    is_arm,
    machine_types,
    offers,
)
from slipway.infra.platform import RequestRules, Resources, Taint
from slipway.infra.schema.taints import GPU_TAINT

GENERAL_PURPOSE = "general-purpose"
"""The class of pods that ask for no other."""

PERFORMANCE = "Performance"
"""The class whose pods have a node, of the machine family that they choose, to themselves."""

SPOT_LABEL = "cloud.google.com/gke-spot"
CLASS_LABEL = "cloud.google.com/compute-class"
FAMILY_LABEL = "cloud.google.com/machine-family"
ACCELERATOR_LABEL = "cloud.google.com/gke-accelerator"
DRIVER_LABEL = "cloud.google.com/gke-gpu-driver-version"

MOST_PODS = 10
"""Pods that there may be at once where the file says nothing, of a way without GPUs; of one with GPUs, 1."""

NODE = NodeShape(machine_type="", disk_size_gb=100, max_pods=32)
"""A node for one pod, as far as it is the same for all machine types."""


@dataclass(frozen=True)
class Way:
    """A way to ask for nodes. ``gpus`` is the most that one pod asks for; 0 without an accelerator."""

    compute_class: str = GENERAL_PURPOSE
    spot: bool = False
    machine_family: str | None = None
    accelerator: str | None = None
    gpus: int = 0
    driver: str = ""

    @property
    def has_own_node(self) -> bool:
        """Whether each pod has a node to itself, which is then what is billed."""
        return self.accelerator is not None or self.compute_class == PERFORMANCE


def selector(way: Way) -> dict[str, str]:
    """The labels that a pod selects. General-purpose nodes have none that others lack: those are tainted."""
    labels: dict[str, str] = {}
    if way.accelerator:
        labels[ACCELERATOR_LABEL] = way.accelerator
        if way.driver:
            labels[DRIVER_LABEL] = way.driver
    elif way.compute_class != GENERAL_PURPOSE:
        labels[CLASS_LABEL] = way.compute_class
    if way.machine_family:
        labels[FAMILY_LABEL] = way.machine_family
    if way.spot:
        labels[SPOT_LABEL] = "true"
    return labels


def labels(way: Way) -> dict[str, str]:
    """The labels of the nodes that Autopilot brings for such pods, as far as they do not depend on the machine."""
    return {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", **selector(way)}


def taints(way: Way) -> list[Taint]:
    """The taints of the nodes that Autopilot brings for such pods."""
    taints = [GPU_TAINT] if way.accelerator else []
    return [*taints, *(Taint(key, value, "NoSchedule") for key, value in selector(way).items() if key in _TAINTED)]


_TAINTED = frozenset({SPOT_LABEL, CLASS_LABEL})


def most(way: Way) -> Resources | None:
    """The most that one pod may ask for; None where the catalogue has no machine for it."""
    if not way.has_own_node:
        amounts = _data()["classes"][way.compute_class]["most"]
        return _amounts(amounts["vcpus"], amounts["gib"], amounts["scratch"])
    scratch: int = _data()["nodes"]["scratch"]
    refused = offers().get(way.accelerator or "", Offer()).autopilot_most.get(str(way.gpus))
    if refused:
        return replace(_amounts(refused["vcpus"], refused["gib"], scratch), gpus=way.gpus)
    sizes = [_leaves(machine, way) for machine in machines(way)]
    return max(sizes, key=lambda size: (size.cpu, size.memory), default=None)


def rules(way: Way) -> RequestRules:
    """How Autopilot changes the requests of such pods. Pods that are not Spot ask not to be moved."""
    if way.has_own_node:
        scratch = _data()["nodes"]["least_scratch"] if way.accelerator else 0
        return RequestRules(Resources(cpu=0, memory=0, ephemeral_storage=scratch))
    facts, extended = _data()["classes"][way.compute_class], _data()["extended"]
    cpu, memory = facts["least"]["millicores"], facts["least"]["mib"]
    if not way.spot:
        cpu, memory = max(cpu, extended["millicores"]), max(memory, extended["mib"])
    low, high = facts["ratio"]
    return RequestRules(Resources(cpu=cpu, memory=memory), (low, high), facts.get("step", 1))


def machines(way: Way) -> list[MachineType]:
    """The machine types that a node for one such pod can have, smallest first; none where pods share nodes."""
    return sorted(_machines(way), key=lambda machine: (machine.gpus, machine.vcpus, machine.memory))


def machine_for(way: Way, wanted: Resources) -> MachineType | None:
    """The smallest machine type with room for a pod that asks for ``asked``; None where none is known."""
    needed = replace(way, gpus=max(wanted.gpus, 1)) if way.accelerator else way
    for machine in machines(needed):
        room = _leaves(machine, needed)
        if room.cpu >= wanted.cpu and room.memory >= wanted.memory and room.gpus >= wanted.gpus:
            return machine
    return None


def accelerators() -> Sequence[str]:
    """The accelerators that Autopilot has."""
    return tuple(name for name, offer in offers().items() if offer.autopilot)


def families() -> Sequence[str]:
    """The machine families of the class `PERFORMANCE`."""
    return tuple(_data()["nodes"]["families"])


def counts(accelerator: str) -> Sequence[int]:
    """How many of an accelerator one pod may ask for."""
    built_in = {machine.gpus for machine in machine_types().values() if machine.accelerator == accelerator}
    offer = offers().get(accelerator)
    return sorted({*built_in, *(offer.attach if offer else ())})


def _machines(way: Way) -> Iterator[MachineType]:
    if way.accelerator:
        offer = offers().get(way.accelerator)
        limit = offer.attach.get(way.gpus) if offer else None
        for machine in machine_types().values():
            attached = (
                limit
                and machine.family == "n1"
                and machine.vcpus <= limit.vcpus
                and machine.memory <= limit.gib * 1024
            )
            if attached or (machine.accelerator == way.accelerator and machine.gpus == way.gpus):
                yield machine
    elif way.compute_class == PERFORMANCE:
        for machine in machine_types().values():
            if machine.family == way.machine_family and not (
                machine.accelerator or machine.shared_core or is_arm(machine.name)
            ):
                yield machine


def _leaves(machine: MachineType, way: Way) -> Resources:
    shape = replace(NODE, machine_type=machine.name, accelerator=way.accelerator, gpus=machine.gpus or way.gpus)
    left = allocatable(shape)
    return replace(left, ephemeral_storage=_data()["nodes"]["scratch"] * 1024, gpus=way.gpus)


def _amounts(vcpus: int, gib: int, scratch: int) -> Resources:
    return Resources(cpu=vcpus * 1000, memory=gib * 1024, ephemeral_storage=scratch * 1024)


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads((DATA / "autopilot.toml").read_text(encoding="utf-8"))
