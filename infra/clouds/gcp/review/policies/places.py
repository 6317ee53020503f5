"""Where things are: clusters beside their bucket, and nodes in every zone of a region."""

from collections.abc import Iterator

from infra.clouds.gcp import nodes
from infra.clouds.gcp.catalogue import is_zone, region_of, regions
from infra.clouds.gcp.nodes import CLUSTER
from infra.clouds.gcp.review.charges import TABLE, charges
from infra.clouds.gcp.review.pools import declared_pools
from infra.review.policy import Policy, Severity, Violation
from infra.review.prices import node_price
from infra.review.properties import mapping, text, texts, whole
from infra.review.stack import Stack

BUCKET = "gcp:storage/bucket:Bucket"


def _elsewhere(stack: Stack) -> Iterator[Violation]:
    for bucket in stack.of_type(BUCKET):
        there = text(bucket.properties.get("location")).lower()
        # A name such as `US` is of several regions.
        if there not in regions():
            continue
        for cluster in stack.of_type(CLUSTER):
            here = region_of(text(cluster.properties.get("location")))
            if not here or here == there:
                continue
            price = TABLE.price("fixed", "inter-region-egress", "", "per_gib")
            cost = f"${price.amount:.2f} per GB on the same continent, more to another one" if price else "billed"
            yield Violation(
                cluster.urn,
                f"it is in {here} and the bucket {bucket.name} in {there}: what its pods read crosses regions, "
                f"which is slow and {cost}",
                "put the bucket where most is read, or the cluster where the bucket is",
            )


def _in_every_zone(stack: Stack) -> Iterator[Violation]:
    billed = charges(stack)
    for pool in declared_pools(stack):
        inputs = pool.inputs
        location = text(inputs.get("location"))
        chosen = is_zone(location) or texts(inputs.get("nodeLocations")) or mapping(inputs.get("autoscaling"))
        count = whole(inputs.get("nodeCount"))
        if chosen or not location or not count:
            continue
        each = node_price(billed, pool.resource.urn)
        costs = f", ${each:.2f} an hour each" if each else ""
        yield Violation(
            pool.resource.urn,
            f"{count} {'node' if count == 1 else 'nodes'} per zone and no zones named: GKE spreads them over "
            f"{nodes.zones(inputs)} zones of {location}, so there are {nodes.most_nodes(inputs)} nodes{costs}",
            "name the pool's `zones`, such as one of them, or let it scale with `total_min` and `total_max`",
        )


POLICIES = (
    Policy(
        "gcp-bucket-in-another-region",
        Severity.WARNING,
        "Clusters are in the region of the bucket that their pods read.",
        _elsewhere,
        "Put the bucket where most is read, or the cluster where the bucket is.",
    ),
    Policy(
        "gcp-nodes-in-every-zone",
        Severity.WARNING,
        "A node pool with a fixed number of nodes in a regional cluster names its zones: the number is per zone.",
        _in_every_zone,
        "Name the zones, or let the pool scale with limits over all zones.",
    ),
)
