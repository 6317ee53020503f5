"""What a preview says of resources on Google Cloud. None of it imports the SDK."""

import ipaddress
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from infra.clouds.gcp import nodes
from infra.clouds.gcp.review import access, charges, identities, pools, quotas
from infra.clouds.gcp.review.policies import autopilot, buckets, grants, networks, places, protection
from infra.review.contract import Review
from infra.review.data_files import computed_from, in_place_from, replacing_from
from infra.review.facts import Holding, Seconds
from infra.review.holdings import holdings_from
from infra.review.stack import Resource, Stack

DATA = Path(__file__).parents[1] / "data"

HOLDINGS = holdings_from(DATA / "holdings.toml")


def _does_not_only_grow(before: object, after: object) -> bool:
    if not isinstance(before, str) or not isinstance(after, str):
        return True
    try:
        return not ipaddress.ip_network(before).subnet_of(ipaddress.ip_network(after))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return True


SOMETIMES: Mapping[str, Mapping[str, Callable[[object, object], bool]]] = {
    "gcp:compute/subnetwork:Subnetwork": {"ipCidrRange": _does_not_only_grow}
}
"""What the provider's own code decides, so that the schema does not have it. Source: `IsShrinkageIpCidr`,
https://github.com/hashicorp/terraform-provider-google/blob/main/google/services/compute/resource_compute_subnetwork.go,
2026-08-28; previews of November 2026 agree."""


def holding(resource: Resource, _: Stack) -> Holding | None:
    """What goes with this one; None for a type that holds nothing of users'."""
    row = HOLDINGS.get(resource.type)
    return row.of(resource) if row else None


def creation(resource: Resource) -> Seconds | None:
    """How long this one takes; None where it is not known.

    A node pool waits for the nodes that it starts with, and how long one without any takes is not recorded.
    """
    known = pools.TIMES.get(("creation", resource.type))
    if resource.type != nodes.NODE_POOL:
        return known
    if not nodes.fewest_nodes(resource.properties):
        return None
    return pools.TIMES["boot", "gpu"] if nodes.accelerator(resource.properties) else known


REVIEW = Review(
    pools=pools.pools,
    charges=charges.charges,
    disk_price=charges.disk_price,
    balancer_price=charges.balancer_price,
    quotas=quotas.quotas,
    policies=(
        *buckets.POLICIES,
        *networks.POLICIES,
        *grants.POLICIES,
        *protection.POLICIES,
        *places.POLICIES,
        *autopilot.POLICIES,
    ),
    replacing=partial(replacing_from, DATA / "replacing.json"),
    computed=partial(computed_from, DATA / "replacing.json"),
    holding=holding,
    creation=creation,
    in_place=partial(in_place_from, DATA / "in_place.toml"),
    sometimes=SOMETIMES,
    identities=identities.identities,
    grants=access.grants,
    endpoints=identities.endpoints,
)
