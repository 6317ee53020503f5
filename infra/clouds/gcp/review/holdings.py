"""What of users' data goes with a resource."""

from pathlib import Path

from infra.review.facts import Holding
from infra.review.holdings import holdings_from
from infra.review.resource import Resource
from infra.review.stack import Stack

TABLE = holdings_from(Path(__file__).parents[1] / "data" / "holdings.toml")


def holding(resource: Resource, _: Stack) -> Holding | None:
    """What goes with this one; None for a type that holds nothing of users'."""
    row = TABLE.get(resource.type)
    return row.of(resource) if row else None
