"""Claims, and the volumes that a stack declares for them."""

from infra.review.properties import at
from infra.review.resource import Resource
from infra.review.stack import Stack

CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"


def volume_of(claim: Resource, stack: Stack) -> Resource | None:
    """The volume that the stack declares for the claim; None where the cluster makes one or has it already."""
    name = at(claim.properties, "spec", "volumeName")
    for each in stack.of_type(VOLUME):
        named = isinstance(name, str) and at(each.properties, "metadata", "name") == name
        if each.provider == claim.provider and (named or each.urn in claim.property_dependencies.get("spec", ())):
            return each
    return None
