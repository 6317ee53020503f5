"""GKE node pools as their declarations say them."""

from collections.abc import Sequence

from infra.gcp import nodes
from infra.gcp.review.times import boot
from infra.platform import Resources
from infra.properties import Properties, text
from infra.review import UNLIMITED, Declared, NodePool, Stack

CLUSTER = "gcp:container/cluster:Cluster"


def pools(stack: Stack) -> Sequence[NodePool]:
    """The node pools that the stack declares."""
    return [_pool(stack, each) for each in stack.of_type(nodes.NODE_POOL)]


def inputs(stack: Stack, pool: Declared) -> Properties:
    """The pool's properties, with the location of its cluster where it names none."""
    cluster = stack.source(pool, "cluster", CLUSTER)
    if text(pool.properties.get("location")) or cluster is None:
        return pool.properties
    return {**pool.properties, "location": cluster.properties.get("location")}


def _pool(stack: Stack, pool: Declared) -> NodePool:
    declared = inputs(stack, pool)
    source = stack.source(pool, "cluster", CLUSTER)
    cluster = stack.called(source) if source else text(declared.get("cluster"))
    machine, accelerator = nodes.machine(declared), nodes.accelerator(declared)
    return NodePool(
        urn=pool.urn,
        cluster=cluster,
        name=pool.name.removeprefix(f"{cluster}-"),
        labels=nodes.labels(declared),
        taints=nodes.taints(declared),
        allocatable=_allocatable(declared),
        min_nodes=nodes.fewest_nodes(declared),
        max_nodes=nodes.most_nodes(declared),
        accelerator=accelerator,
        gpus=nodes.gpus(declared),
        spot=nodes.is_spot(declared),
        run_limit=nodes.run_limit(declared),
        machine=machine,
        boot=boot(machine, accelerator),
    )


def _allocatable(declared: Properties) -> Resources:
    try:
        return nodes.node_resources(declared)
    except ValueError:
        gpus = nodes.gpus(declared)
        return Resources(cpu=UNLIMITED, memory=UNLIMITED, ephemeral_storage=UNLIMITED, gpus=gpus)
