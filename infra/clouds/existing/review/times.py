"""How long resources take to be created, and nodes to come up."""

from infra.review.facts import Seconds
from infra.review.resource import Resource


def creation(_: Resource) -> Seconds | None:
    """How long this one takes; None where it is not known."""
    return None


def boot(_machine: str, _accelerator: str | None) -> Seconds | None:
    """How long a node takes from being asked for until pods can use it, its GPUs included; None if not known."""
    return None
