"""The nodes of a GKE node pool, read from the pool's declaration.

``inputs`` are those of ``gcp.container.NodePool`` throughout. What is left out has GKE's default.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slipway.infra.clouds.gcp import autopilot
from slipway.infra.clouds.gcp.autopilot import Way
from slipway.infra.clouds.gcp.catalogue import (
    REGION_ZONES,
    NodeShape,
    allocatable,
    compact_placement,
    is_arm,
    is_zone,
    machine_type,
    region_of,
)
from slipway.infra.clouds.gcp.settings import GcpPool
from slipway.infra.platform import Resources, Taint
from slipway.infra.review.facts import Seconds, Source, Streaming
from slipway.infra.review.stack import (
    UNLIMITED,
    NodePool,
    Properties,
    Resource,
    Stack,
    at,
    is_true,
    mapping,
    mappings,
    strings,
    text,
    texts,
    whole,
)
from slipway.infra.review.tables import durations
from slipway.infra.schema.taints import EFFECTS

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


def machine_of(inputs: Inputs) -> str:
    """The machine type."""
    return text(_config(inputs, "machineType"))


def accelerator_of(inputs: Inputs) -> str | None:
    """The accelerator, as declared or as the machine type has it built in."""
    known = machine_type(machine_of(inputs))
    return text(_guest(inputs).get("type")) or (known.accelerator if known else None)


def gpus_of(inputs: Inputs) -> int:
    """Physical GPUs of one node."""
    known = machine_type(machine_of(inputs))
    return whole(_guest(inputs).get("count")) or (known.gpus if known else 0)


def is_spot(inputs: Inputs) -> bool:
    """Whether Google may take nodes back at any time."""
    return is_true(_config(inputs, "spot")) or is_true(_config(inputs, "preemptible"))


def run_limit(inputs: Inputs) -> int | None:
    """The longest that a node may run, in seconds."""
    seconds = text(_config(inputs, "maxRunDuration")).removesuffix("s")
    limits = [int(seconds)] if seconds.isdigit() else []
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
            machine_type=machine_of(inputs),
            disk_size_gb=disk_size(inputs),
            max_pods=whole(inputs.get("maxPodsPerNode"), MAX_PODS),
            local_ssd_count=whole(at(inputs, "nodeConfig", "ephemeralStorageLocalSsdConfig", "localSsdCount")),
            local_ssd_block_count=whole(at(inputs, "nodeConfig", "localNvmeSsdBlockConfig", "localSsdCount")),
            accelerator=accelerator_of(inputs),
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
    known = machine_type(machine_of(inputs))
    keys = ("ephemeralStorageLocalSsdConfig", "localNvmeSsdBlockConfig")
    count = sum(whole(at(inputs, "nodeConfig", key, "localSsdCount")) for key in keys)
    return count or (known.bundled_local_ssds if known else 0)


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


def labels_of(inputs: Inputs) -> dict[str, str]:
    """The pool's own labels, and those that GKE and the kubelet put on every node.

    Source: https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels, 2026-11-20.
    """
    location = text(inputs.get("location"))
    labels = {
        **strings(_config(inputs, "labels")),
        POOL_LABEL: text(inputs.get("name")),
        "cloud.google.com/gke-boot-disk": disk_type(inputs),
        "cloud.google.com/machine-family": machine_of(inputs).partition("-")[0],
        "kubernetes.io/arch": "arm64" if is_arm(machine_of(inputs)) else "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine_of(inputs),
        "topology.kubernetes.io/region": region_of(location),
    }
    found_in = texts(inputs.get("nodeLocations")) or [location]
    if len(found_in) == 1 and is_zone(found_in[0]):
        labels["topology.kubernetes.io/zone"] = found_in[0]
    for key, label in (("spot", "spot"), ("preemptible", "preemptible"), ("flexStart", "flex-start")):
        if is_true(_config(inputs, key)):
            labels[f"cloud.google.com/gke-{label}"] = "true"
    return {**labels, **_gpu_labels(inputs)}


def _gpu_labels(inputs: Inputs) -> dict[str, str]:
    kind = accelerator_of(inputs)
    if kind is None:
        return {}
    guest = _guest(inputs)
    labels = {"cloud.google.com/gke-accelerator": kind}
    if partition := text(guest.get("gpuPartitionSize")):
        labels["cloud.google.com/gke-gpu-partition-size"] = partition
    if sharing := mapping(guest.get("gpuSharingConfig")):
        strategy = text(sharing.get("gpuSharingStrategy"))
        labels["cloud.google.com/gke-gpu-sharing-strategy"] = strategy.lower().replace("_", "-")
        labels["cloud.google.com/gke-max-shared-clients-per-gpu"] = str(
            whole(sharing.get("maxSharedClientsPerGpu"))
        )
    return labels


def _fixed_count(inputs: Inputs) -> int:
    set_ = inputs.get("nodeCount")
    return whole(inputs.get("initialNodeCount") if set_ is None else set_) * zones(inputs)


def _guest(inputs: Inputs) -> Inputs:
    accelerators = mappings(at(inputs, "nodeConfig", "guestAccelerators"))
    return accelerators[0] if accelerators else {}


def _config(inputs: Inputs, key: str) -> Any:
    value = at(inputs, "nodeConfig", key)
    return DEFAULTS.get(key) if value is None else value


TIMES = durations(Path(__file__).parent / "data" / "times.toml")
"""How long resources take to be created, and nodes from being asked for until pods can use them."""

CLASS_LABEL = "cloud.google.com/compute-class"
"""Names the ComputeClass of a node, and of a pod in its node selector. The taint of such nodes has the same
key."""

COMPUTE_CLASS = "kubernetes:cloud.google.com/v1:ComputeClass"

CONSOLIDATION = Source(
    "https://docs.cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass",
    date(2026, 11, 26),
    dated=False,
)

STREAMING = Streaming(TIMES["pull", "streamed"], ("docker.io", ".pkg.dev"))
"""Of image streaming. Source: https://docs.cloud.google.com/kubernetes-engine/docs/how-to/image-streaming, read on
2026-11-26: images in standard and remote repositories of Artifact Registry, and public ones of Docker Hub."""

DEFAULT_POOL = "default-pool"
"""The name of the pool that a cluster is made with, where it names none."""


@dataclass(frozen=True)
class DeclaredPool:
    """A node pool by the resource that brings it, and what that declares as inputs of a NodePool.

    ``cluster`` is as Kubernetes objects know it, ``name`` as in the stack file.
    """

    resource: Resource
    cluster: str
    name: str
    inputs: Properties


@dataclass(frozen=True)
class DeclaredWay:
    """A way to ask a cluster on Autopilot for nodes, which is a section of the stack file and no resource.

    ``resource`` is the cluster, ``cluster`` and ``name`` are as in `DeclaredPool`.
    """

    resource: Resource
    cluster: str
    name: str
    way: Way
    most_pods: int


def pools(stack: Stack) -> Sequence[NodePool]:
    """The node pools that the stack declares, and the ways to ask its clusters on Autopilot for nodes."""
    ways = (_pool_of_way(way) for way in declared_ways(stack))
    pools = [_pool(pool, _scale_down(stack, pool)) for pool in declared_pools(stack)]
    return [*pools, *(way for way in ways if way)]


def declared_ways(stack: Stack) -> Iterator[DeclaredWay]:
    """Those of the stack file, for the clusters on Autopilot among the resources."""
    clusters = mapping(stack.configuration.get("slipway:clusters"))
    for cluster in stack.of_type(CLUSTER):
        if not is_true(cluster.properties.get("enableAutopilot")):
            continue
        called = stack.called(cluster)
        for name, said in mapping(mapping(clusters.get(called)).get("pools")).items():
            try:
                pool = GcpPool.model_validate(said)
            except ValidationError:
                continue
            yield DeclaredWay(cluster, called, name, pool.way, pool.pods_at_once)


def declared_pools(stack: Stack) -> list[DeclaredPool]:
    """Node pools that are resources of their own, and those that a cluster declares within itself."""
    taints = [
        DeclaredPool(cluster, stack.called(cluster), text(inputs.get("name")), inputs)
        for cluster in stack.of_type(CLUSTER)
        for inputs in _within(cluster.properties)
    ]
    for pool in stack.of_type(NODE_POOL):
        source = stack.source(pool, "cluster", CLUSTER)
        cluster = stack.called(source) if source else text(pool.properties.get("cluster"))
        inputs = _with_location(pool.properties, source.properties if source else {})
        taints.append(DeclaredPool(pool, cluster, pool.name.removeprefix(f"{cluster}-"), inputs))
    return taints


def _within(cluster: Properties) -> list[Properties]:
    """The inputs of a cluster's own pools. Autopilot has none; a removed default pool takes no pod."""
    if is_true(cluster.get("enableAutopilot")) or is_true(cluster.get("removeDefaultNodePool")):
        return []
    inline = mappings(cluster.get("nodePools"))
    if not inline and whole(cluster.get("initialNodeCount")):
        default = {"name": DEFAULT_POOL, "nodeCount": cluster["initialNodeCount"]}
        inline = [
            {**default, "nodeConfig": cluster.get("nodeConfig"), "networkConfig": cluster.get("networkConfig")}
        ]
    return [_with_location(pool, cluster) for pool in inline]


def _with_location(pool: Properties, cluster: Properties) -> Properties:
    """A pool's inputs, with the cluster's location and zones where it names none."""
    location = text(pool.get("location")) or text(cluster.get("location"))
    zones = texts(pool.get("nodeLocations")) or texts(cluster.get("nodeLocations"))
    if zones and is_zone(location) and not pool.get("nodeLocations"):
        # A zonal cluster names the zones beside its own.
        zones = [location, *zones]
    return {**pool, "location": location, "nodeLocations": zones or None}


def _pool(pool: DeclaredPool, scale_down: Seconds | None) -> NodePool:
    machine, accelerator = machine_of(pool.inputs), accelerator_of(pool.inputs)
    return NodePool(
        urn=pool.resource.urn,
        cluster=pool.cluster,
        name=pool.name,
        labels=labels_of(pool.inputs),
        taints=taints(pool.inputs),
        allocatable=_allocatable(pool.inputs),
        min_nodes=fewest_nodes(pool.inputs),
        max_nodes=most_nodes(pool.inputs),
        accelerator=accelerator,
        gpus=gpus_of(pool.inputs),
        spot=is_spot(pool.inputs),
        run_limit=run_limit(pool.inputs),
        machine=machine,
        boot=TIMES["boot", "gpu" if accelerator else "cpu"],
        streaming=STREAMING if _streams(pool.inputs) else None,
        zones=_zones(pool.inputs),
        faster="placement: compact" if accelerator and _could_be_close(pool.inputs) else "",
        queued=is_true(_config(pool.inputs, "flexStart")),
        scale_down=scale_down,
    )


def _scale_down(stack: Stack, pool: DeclaredPool) -> Seconds | None:
    """As the ComputeClass says it that the pool's label names."""
    called = strings(_config(pool.inputs, "labels")).get(CLASS_LABEL)
    for declared in stack.of_type(COMPUTE_CLASS):
        minutes = whole(at(declared.properties, "spec", "autoscalingPolicy", "consolidationDelayMinutes"))
        named = text(at(declared.properties, "metadata", "name"))
        if minutes and (named, stack.cluster_of(declared)) == (called, pool.cluster):
            return Seconds(60.0 * minutes, CONSOLIDATION)
    return None


def _streams(inputs: Properties) -> bool:
    """Whether nodes of the pool read images as containers need them, which Ubuntu's do not."""
    enabled = is_true(at(_config(inputs, "gcfsConfig"), "enabled"))
    return enabled and not text(_config(inputs, "imageType")).upper().startswith("UBUNTU")


def _could_be_close(inputs: Properties) -> bool:
    """Whether a pool has no placement policy and could have one that Slipway declares."""
    machine, config = machine_type(machine_of(inputs)), mapping(inputs.get("nodeConfig"))
    bought = at(config, "reservationAffinity", "consumeReservationType") == "SPECIFIC_RESERVATION"
    return (
        machine is not None
        and machine.family in compact_placement().families
        and not mapping(inputs.get("placementPolicy"))
        and not is_true(config.get("flexStart"))
        and not bought
    )


def _zones(inputs: Properties) -> list[str]:
    """The zones that a pool names; a pool of a whole region may be in any zone of it."""
    location = text(inputs.get("location"))
    return texts(inputs.get("nodeLocations")) or ([location] if is_zone(location) else [])


def _pool_of_way(way: DeclaredWay) -> NodePool | None:
    """Nodes as large as the largest pods; None where the catalogue has no machine for them."""
    largest = autopilot.most(way.way)
    if largest is None:
        return None
    return NodePool(
        urn=way.resource.urn,
        cluster=way.cluster,
        name=way.name,
        labels=autopilot.labels(way.way),
        taints=autopilot.taints(way.way),
        allocatable=largest,
        min_nodes=0,
        max_nodes=way.most_pods,
        accelerator=way.way.accelerator,
        gpus=way.way.gpus,
        spot=way.way.spot,
        boot=TIMES["boot", "gpu" if way.way.accelerator else "cpu"],
        streaming=STREAMING,
        bills_pods=True,
    )


def _allocatable(declared: Properties) -> Resources:
    try:
        return node_resources(declared)
    except ValueError:
        gpus = gpus_of(declared)
        return Resources(cpu=UNLIMITED, memory=UNLIMITED, ephemeral_storage=UNLIMITED, gpus=gpus)
