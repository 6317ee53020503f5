"""How long resources take to be created, and nodes to come up."""

from pathlib import Path

from infra.clouds.aws import nodes
from infra.review.durations import durations
from infra.review.facts import Seconds
from infra.review.properties import text
from infra.review.resource import Resource

TABLE = durations(Path(__file__).parents[1] / "data" / "times.toml")


def creation(resource: Resource) -> Seconds | None:
    """How long this one takes; None where it is not known.

    A node group waits for the nodes that it starts with, and how long one without any takes is not recorded.
    """
    known = TABLE.get(("creation", resource.type))
    if resource.type == nodes.NODE_GROUP and not nodes.fewest_nodes(resource.properties):
        return None
    if resource.type == "aws:eks/addon:Addon":
        return TABLE.get(("addons", text(resource.properties.get("addonName"))), known)
    return known


def boot(_machine: str, accelerator: str | None) -> Seconds | None:
    """How long a node takes from being asked for until pods can use it, its GPUs included; None if not known."""
    return TABLE["boot", "gpu" if accelerator else "cpu"]
