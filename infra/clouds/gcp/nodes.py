"""The nodes of a GKE node pool, read from the pool's declaration.

``inputs`` are those of ``gcp.container.NodePool`` throughout. What is left out has GKE's default.
"""

from collections.abc import Mapping
from typing import Any

from infra.clouds.gcp.catalogue import (
    REGION_ZONES,
    NodeShape,
    allocatable,
    is_arm,
    is_zone,
    machine_type,
    region_of,
)
from infra.platform import Resources, Taint
from infra.review.properties import at, is_true, mapping, mappings, strings, text, texts, whole
from infra.schema.taints import EFFECTS

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"

POOL_LABEL = "cloud.google.com/gke-nodepool"
"""GKE puts it on every node, with the node pool's name."""

DEFAULTS: Mapping[str, Any] = {
    "machineType": "e2-medium",
    "diskSizeGb": 100,
    "diskType": "pd-balanced",
    "imageType": "COS_CONTAINERD",
}
"""Of ``nodeConfig``.

Source: https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeConfig, 2026-11-20.
"""

MAX_PODS = 110
"""Per node. Source: https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr, 2026-11-20."""

PREEMPTIBLE_LIMIT = 24 * 3600
"""Seconds. Source: https://cloud.google.com/kubernetes-engine/docs/how-to/preemptible-vms, 2026-11-20."""

FLEX_START_LIMIT = 7 * 24 * 3600
"""Seconds. Source: https://cloud.google.com/kubernetes-engine/docs/concepts/dws, 2026-11-20."""

QUEUED_TAINT = Taint("cloud.google.com/gke-queued", "true", "NoSchedule")
"""The taint that GKE itself gives the nodes of a pool with ``queuedProvisioning`` (the API's answer for one in a
public repository, and the Cluster Toolkit's documentation; both seen in November 2026)."""

Inputs = Mapping[str, Any]


def machine(inputs: Inputs) -> str:
    """The machine type."""
    return text(_config(inputs, "machineType"))


def accelerator(inputs: Inputs) -> str | None:
    """The accelerator, as declared or as the machine type has it built in."""
    known = machine_type(machine(inputs))
    return text(_guest(inputs).get("type")) or (known.accelerator if known else None)


def gpus(inputs: Inputs) -> int:
    """Physical GPUs of one node."""
    known = machine_type(machine(inputs))
    return whole(_guest(inputs).get("count")) or (known.gpus if known else 0)


def is_spot(inputs: Inputs) -> bool:
    """Whether Google may take nodes back at any time."""
    return is_true(_config(inputs, "spot")) or is_true(_config(inputs, "preemptible"))


def run_limit(inputs: Inputs) -> int | None:
    """The longest that a node may run, in seconds."""
    own = text(_config(inputs, "maxRunDuration")).removesuffix("s")
    limits = [int(own)] if own.isdigit() else []
    if is_true(_config(inputs, "preemptible")):
        limits.append(PREEMPTIBLE_LIMIT)
    if is_true(_config(inputs, "flexStart")) or is_true(at(inputs, "queuedProvisioning", "enabled")):
        limits.append(FLEX_START_LIMIT)
    return min(limits, default=None)


def taints(inputs: Inputs) -> list[Taint]:
    """The taints of the pool's nodes, in Kubernetes' spelling: those that it declares, and GKE's own."""
    queued = [QUEUED_TAINT] if is_true(at(inputs, "queuedProvisioning", "enabled")) else []
    return queued + [
        Taint(text(taint.get("key")), text(taint.get("value")), EFFECTS[taint["effect"]])
        for taint in mappings(_config(inputs, "taints"))
        if taint.get("effect") in EFFECTS
    ]


def node_resources(inputs: Inputs) -> Resources:
    """What one node leaves to pods. Raises ValueError where the catalogue does not have its machine type."""
    guest = _guest(inputs)
    return allocatable(
        NodeShape(
            machine_type=machine(inputs),
            disk_size_gb=disk_size(inputs),
            max_pods=whole(inputs.get("maxPodsPerNode"), MAX_PODS),
            local_ssd_count=whole(at(inputs, "nodeConfig", "ephemeralStorageLocalSsdConfig", "localSsdCount")),
            local_ssd_block_count=whole(at(inputs, "nodeConfig", "localNvmeSsdBlockConfig", "localSsdCount")),
            accelerator=accelerator(inputs),
            gpus=whole(guest.get("count")) or None,
            gpu_partition=text(guest.get("gpuPartitionSize")) or None,
            gpu_clients=whole(at(guest, "gpuSharingConfig", "maxSharedClientsPerGpu")) or 1,
        )
    )


def disk_type(inputs: Inputs) -> str:
    """Of a node's boot disk."""
    return text(_config(inputs, "diskType"))


def disk_size(inputs: Inputs) -> int:
    """Of a node's boot disk, in GB."""
    return whole(_config(inputs, "diskSizeGb"), DEFAULTS["diskSizeGb"])


def local_ssds(inputs: Inputs) -> int:
    """Local SSDs of a node: those asked for, or those that its machine type comes with."""
    known = machine_type(machine(inputs))
    keys = ("ephemeralStorageLocalSsdConfig", "localNvmeSsdBlockConfig")
    asked = sum(whole(at(inputs, "nodeConfig", key, "localSsdCount")) for key in keys)
    return asked or (known.bundled_local_ssds if known else 0)


def fewest_nodes(inputs: Inputs) -> int:
    """The nodes that are there at all times, over all zones."""
    scaled = mapping(inputs.get("autoscaling"))
    if not scaled:
        return _fixed_count(inputs)
    if "totalMaxNodeCount" in scaled or "totalMinNodeCount" in scaled:
        return whole(scaled.get("totalMinNodeCount"))
    return whole(scaled.get("minNodeCount")) * zones(inputs)


def most_nodes(inputs: Inputs) -> int:
    """The most nodes over all zones."""
    scaled = mapping(inputs.get("autoscaling"))
    if not scaled:
        return _fixed_count(inputs)
    if scaled.get("totalMaxNodeCount") is not None:
        return whole(scaled["totalMaxNodeCount"])
    return whole(scaled.get("maxNodeCount")) * zones(inputs)


def zones(inputs: Inputs) -> int:
    """How many zones the pool is in."""
    return len(texts(inputs.get("nodeLocations"))) or (
        1 if is_zone(text(inputs.get("location"))) else REGION_ZONES
    )


def labels(inputs: Inputs) -> dict[str, str]:
    """The pool's own labels, and those that GKE and the kubelet put on every node.

    Source: https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels, 2026-11-20.
    """
    location = text(inputs.get("location"))
    found = {
        **strings(_config(inputs, "labels")),
        POOL_LABEL: text(inputs.get("name")),
        "cloud.google.com/gke-boot-disk": disk_type(inputs),
        "cloud.google.com/machine-family": machine(inputs).partition("-")[0],
        "kubernetes.io/arch": "arm64" if is_arm(machine(inputs)) else "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine(inputs),
        "topology.kubernetes.io/region": region_of(location),
    }
    found_in = texts(inputs.get("nodeLocations")) or [location]
    if len(found_in) == 1 and is_zone(found_in[0]):
        found["topology.kubernetes.io/zone"] = found_in[0]
    for key, label in (("spot", "spot"), ("preemptible", "preemptible"), ("flexStart", "flex-start")):
        if is_true(_config(inputs, key)):
            found[f"cloud.google.com/gke-{label}"] = "true"
    return {**found, **_gpu_labels(inputs)}


def _gpu_labels(inputs: Inputs) -> dict[str, str]:
    kind = accelerator(inputs)
    if kind is None:
        return {}
    guest = _guest(inputs)
    found = {"cloud.google.com/gke-accelerator": kind}
    if partition := text(guest.get("gpuPartitionSize")):
        found["cloud.google.com/gke-gpu-partition-size"] = partition
    if sharing := mapping(guest.get("gpuSharingConfig")):
        strategy = text(sharing.get("gpuSharingStrategy"))
        found["cloud.google.com/gke-gpu-sharing-strategy"] = strategy.lower().replace("_", "-")
        found["cloud.google.com/gke-max-shared-clients-per-gpu"] = str(
            whole(sharing.get("maxSharedClientsPerGpu"))
        )
    return found


def _fixed_count(inputs: Inputs) -> int:
    set_ = inputs.get("nodeCount")
    return whole(inputs.get("initialNodeCount") if set_ is None else set_) * zones(inputs)


def _guest(inputs: Inputs) -> Inputs:
    found = mappings(at(inputs, "nodeConfig", "guestAccelerators"))
    return found[0] if found else {}


def _config(inputs: Inputs, key: str) -> Any:
    value = at(inputs, "nodeConfig", key)
    return DEFAULTS.get(key) if value is None else value
