"""Which quotas of Google Cloud a stack needs with every pool at its largest."""

import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from infra.clouds.gcp import nodes
from infra.clouds.gcp.autopilot import GENERAL_PURPOSE
from infra.clouds.gcp.catalogue import machine_type, region_of
from infra.clouds.gcp.review.charges import LOCAL_SSD_GB
from infra.clouds.gcp.review.pods import declared_pods, machine_of
from infra.clouds.gcp.review.pools import declared_pools, declared_ways
from infra.review.facts import Quota
from infra.review.properties import Properties, at, is_true, text
from infra.review.stack import Resource, Stack

DATA = Path(__file__).parents[1] / "data" / "quotas.toml"

ALL_REGIONS = "all regions"

SPOT_CPUS = "PREEMPTIBLE_CPUS"

PER_GPU_FAMILY = "GPUS-PER-GPU-FAMILY-per-project-region"
PER_VM_FAMILY = "CPUS-PER-VM-FAMILY-per-project-region"
"""Ids of quotas that have a dimension, which is written after them."""

NAT = "gcp:compute/routerNat:RouterNat"
ADDRESS = "gcp:compute/address:Address"
NETWORK = "gcp:compute/network:Network"

GENERAL_PURPOSE_FAMILY = "e2"
"""The family of Autopilot's general-purpose nodes
(https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-compute-classes, as documented in 2025)."""

Need = tuple[str, str, str]
"""Where, metric and unit."""

UNKNOWN = "GPUs "
"""What the metric begins with of a GPU whose quota is in no source."""


def quotas(stack: Stack) -> Sequence[Quota]:
    """What the stack needs of each quota, by region, and then in the whole project."""
    needed: Counter[Need] = Counter()
    for pool in declared_pools(stack):
        count = nodes.most_nodes(pool.inputs)
        for need, amount in _of_node(pool.inputs):
            needed[need] += amount * count
    for need, amount in _of_autopilot(stack):
        needed[need] += amount
    for need, amount in _of_network(stack):
        needed[need] += amount
    project = text(stack.configuration.get("gcp:project")) or "<project>"
    ordered = sorted(needed, key=lambda need: (need[0] == ALL_REGIONS, need))
    return [_quota(need, needed[need], project) for need in ordered if needed[need]]


def _quota(need: Need, amount: int, project: str) -> Quota:
    where, metric, unit = need
    name, _, family = metric.partition(", ")
    how = "dimension" if family else "project" if where == ALL_REGIONS else "region"
    see: str = _data()["see"][how]
    return Quota(
        metric=metric,
        where=where,
        needed=amount,
        unit=unit,
        see=see.format(region=where, project=project, metric=name),
        ordinary=_data()["ordinary"].get(family or name),
        known=not metric.startswith(UNKNOWN),
    )


def _of_node(pool: Properties) -> Iterator[tuple[Need, int]]:
    """What one node needs."""
    region = region_of(text(pool.get("location"))) or "<region>"
    spot = nodes.is_spot(pool) or is_true(at(pool, "nodeConfig", "flexStart"))
    machine = machine_type(nodes.machine(pool))
    if machine is not None:
        yield (ALL_REGIONS, "CPUS_ALL_REGIONS", "vCPUs"), machine.vcpus
        if metric := _vcpus(machine.family, spot=spot):
            yield (region, metric, "vCPUs"), machine.vcpus
    gpus = nodes.gpus(pool)
    if gpus:
        yield (ALL_REGIONS, "GPUS_ALL_REGIONS", "GPUs"), gpus
        yield (region, _gpus(nodes.accelerator(pool), spot=spot), "GPUs"), gpus
    if metric := _data()["disks"].get(nodes.disk_type(pool)):
        yield (region, metric, "GB"), nodes.disk_size(pool)
    if ssds := nodes.local_ssds(pool):
        yield (region, "PREEMPTIBLE_LOCAL_SSD_GB" if spot else "LOCAL_SSD_TOTAL_GB", "GB"), ssds * LOCAL_SSD_GB
    if at(pool, "networkConfig", "enablePrivateNodes") is False:
        yield (region, "IN_USE_ADDRESSES", "addresses"), 1


def _of_autopilot(stack: Stack) -> Iterator[tuple[Need, int]]:
    """For each way to ask Autopilot for nodes: as many of its largest pod as there may be at once."""
    pods = [*declared_pods(stack)]
    for way in declared_ways(stack):
        asked = [pod for pod in pods if pod.way == way]
        if not asked:
            continue
        region = region_of(text(way.resource.properties.get("location"))) or "<region>"
        largest = max(asked, key=lambda pod: (pod.requests.gpus, pod.requests.cpu))
        machine, gpus = machine_of(largest), largest.requests.gpus
        vcpus = machine.vcpus if machine else math.ceil(largest.requests.cpu / 1000)
        yield (ALL_REGIONS, "CPUS_ALL_REGIONS", "vCPUs"), vcpus * way.most_pods
        family = machine.family if machine else GENERAL_PURPOSE_FAMILY
        shared = way.way.compute_class == GENERAL_PURPOSE
        if (machine or shared) and (metric := _vcpus(family, spot=way.way.spot)):
            yield (region, metric, "vCPUs"), vcpus * way.most_pods
        if gpus:
            yield (ALL_REGIONS, "GPUS_ALL_REGIONS", "GPUs"), gpus * way.most_pods
            yield (region, _gpus(way.way.accelerator, spot=way.way.spot), "GPUs"), gpus * way.most_pods


def _vcpus(family: str, *, spot: bool) -> str | None:
    rules = _data()["vcpus"]
    if family in rules["dimension"]:
        return f"{PER_VM_FAMILY}, {family.upper()}"
    metric: str | None = rules["families"].get(family)
    return SPOT_CPUS if metric and spot else metric


def _gpus(accelerator: str | None, *, spot: bool) -> str:
    rule: Mapping[str, Any] = _data()["gpus"].get(accelerator, {})
    if not spot and "family" in rule:
        return f"{PER_GPU_FAMILY}, {rule['family']}"
    unknown = f"{UNKNOWN}{accelerator or 'of any kind'}{' as Spot' if spot else ''}"
    return rule.get("spot" if spot else "on_demand", unknown)


def _of_network(stack: Stack) -> Iterator[tuple[Need, int]]:
    for gateway in stack.of_type(NAT):
        # One at least; more from about a thousand nodes on.
        if gateway.properties.get("natIpAllocateOption") == "AUTO_ONLY":
            yield (_region(gateway), "IN_USE_ADDRESSES", "addresses"), 1
            yield (_region(gateway), "STATIC_ADDRESSES", "addresses"), 1
    for address in stack.of_type(ADDRESS):
        if address.properties.get("addressType", "EXTERNAL") == "EXTERNAL":
            yield (_region(address), "STATIC_ADDRESSES", "addresses"), 1
    yield (ALL_REGIONS, "NETWORKS", "networks"), len(stack.of_type(NETWORK))


def _region(resource: Resource) -> str:
    return text(resource.properties.get("region")) or "<region>"


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))
