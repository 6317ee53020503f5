"""What holds users' data, on whatever cloud."""

import re

from infra.review.facts import Holding
from infra.review.resource import Resource
from infra.review.stack import Stack

OF_OTHERS = re.compile(
    r":(?:Bucket|BucketV2|Cluster|Database|DatabaseInstance|Dataset|Disk|[A-Za-z]*FileSystem|PersistentVolumeClaim|"
    r"Repository|Table|Volume|(?:filestore|rds)/instance:Instance)$"
)
"""The last parts of the types that hold data in most clouds, for resources of which no review here knows."""


def holding(resource: Resource, stack: Stack) -> Holding | None:
    """What goes with a resource of ``stack`` that is deleted; None where it holds nothing, or is not managed."""
    if not resource.custom or resource.read or resource.package == "pulumi":
        return None
    if found := stack.holdings.get(resource.urn):
        return found
    return Holding("it and everything in it") if OF_OTHERS.search(resource.type) else None
