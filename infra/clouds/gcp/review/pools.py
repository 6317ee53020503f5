"""GKE node pools as their declarations say them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from infra.clouds.gcp import autopilot, nodes
from infra.clouds.gcp.autopilot import Way
from infra.clouds.gcp.catalogue import compact_placement, is_zone, machine_type
from infra.clouds.gcp.nodes import CLUSTER
from infra.clouds.gcp.settings import GcpPool
from infra.platform import Resources
from infra.review.data_files import durations
from infra.review.properties import Properties, at, is_true, mapping, mappings, text, texts, whole
from infra.review.stack import UNLIMITED, NodePool, Resource, Stack

TIMES = durations(Path(__file__).parents[1] / "data" / "times.toml")
"""How long resources take to be created, and nodes from being asked for until pods can use them."""

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
    ways = (_asked(each) for each in declared_ways(stack))
    return [*(_pool(each) for each in declared_pools(stack)), *(each for each in ways if each)]


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
    """Those that are resources, and those that clusters declare within themselves."""
    found = [
        DeclaredPool(cluster, stack.called(cluster), text(inputs.get("name")), inputs)
        for cluster in stack.of_type(CLUSTER)
        for inputs in _within(cluster.properties)
    ]
    for pool in stack.of_type(nodes.NODE_POOL):
        source = stack.source(pool, "cluster", CLUSTER)
        cluster = stack.called(source) if source else text(pool.properties.get("cluster"))
        inputs = _located(pool.properties, source.properties if source else {})
        found.append(DeclaredPool(pool, cluster, pool.name.removeprefix(f"{cluster}-"), inputs))
    return found


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
    return [_located(pool, cluster) for pool in inline]


def _located(pool: Properties, cluster: Properties) -> Properties:
    """A pool's inputs, with the cluster's location and zones where it names none."""
    location = text(pool.get("location")) or text(cluster.get("location"))
    zones = texts(pool.get("nodeLocations")) or texts(cluster.get("nodeLocations"))
    if zones and is_zone(location) and not pool.get("nodeLocations"):
        # A zonal cluster names the zones beside its own.
        zones = [location, *zones]
    return {**pool, "location": location, "nodeLocations": zones or None}


def _pool(pool: DeclaredPool) -> NodePool:
    machine, accelerator = nodes.machine(pool.inputs), nodes.accelerator(pool.inputs)
    return NodePool(
        urn=pool.resource.urn,
        cluster=pool.cluster,
        name=pool.name,
        labels=nodes.labels(pool.inputs),
        taints=nodes.taints(pool.inputs),
        allocatable=_allocatable(pool.inputs),
        min_nodes=nodes.fewest_nodes(pool.inputs),
        max_nodes=nodes.most_nodes(pool.inputs),
        accelerator=accelerator,
        gpus=nodes.gpus(pool.inputs),
        spot=nodes.is_spot(pool.inputs),
        run_limit=nodes.run_limit(pool.inputs),
        machine=machine,
        boot=TIMES["boot", "gpu" if accelerator else "cpu"],
        zones=_zones(pool.inputs),
        faster="placement: compact" if accelerator and _could_be_close(pool.inputs) else "",
    )


def _could_be_close(inputs: Properties) -> bool:
    """Whether a pool has no placement policy and could have one that Slipway declares."""
    machine, config = machine_type(nodes.machine(inputs)), mapping(inputs.get("nodeConfig"))
    bought = at(config, "reservationAffinity", "consumeReservationType") == "SPECIFIC_RESERVATION"
    return (
        machine is not None
        and machine.family in compact_placement().families
        and not mapping(inputs.get("placementPolicy"))
        and not is_true(config.get("flexStart"))
        and not bought
    )


def _zones(inputs: Properties) -> list[str]:
    """Those that a pool names; a pool of a whole region may be in any of it."""
    location = text(inputs.get("location"))
    return texts(inputs.get("nodeLocations")) or ([location] if is_zone(location) else [])


def _asked(way: DeclaredWay) -> NodePool | None:
    """Nodes as large as the largest pods; None where the catalogue has no machine for them."""
    there = autopilot.most(way.way)
    if there is None:
        return None
    return NodePool(
        urn=way.resource.urn,
        cluster=way.cluster,
        name=way.name,
        labels=autopilot.labels(way.way),
        taints=autopilot.taints(way.way),
        allocatable=there,
        min_nodes=0,
        max_nodes=way.most_pods,
        accelerator=way.way.accelerator,
        gpus=way.way.gpus,
        spot=way.way.spot,
        boot=TIMES["boot", "gpu" if way.way.accelerator else "cpu"],
        bills_pods=True,
    )


def _allocatable(declared: Properties) -> Resources:
    try:
        return nodes.node_resources(declared)
    except ValueError:
        gpus = nodes.gpus(declared)
        return Resources(cpu=UNLIMITED, memory=UNLIMITED, ephemeral_storage=UNLIMITED, gpus=gpus)
