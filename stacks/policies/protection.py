"""What must not go by mistake."""

import re
from collections.abc import Iterator

from infra.review.policy import Policy, Severity, Violation
from infra.review.stack import PROTECT, Stack

HOLDS_DATA = re.compile(
    r":(?:Bucket|BucketV2|Cluster|Database|DatabaseInstance|Dataset|Disk|[A-Za-z]*FileSystem|PersistentVolumeClaim|"
    r"Repository|Table|Volume|(?:filestore|rds)/instance:Instance)$"
)
"""The last parts of the types of resources with which data or what runs on it is gone, on whatever cloud."""


def _unprotected(stack: Stack) -> Iterator[Violation]:
    if not stack.production:
        return
    if stack.switched_off:
        yield Violation(
            PROTECT,
            f"the stack {stack.name} is for production, and `pulumi destroy` would delete it, data included",
            f"set `{PROTECT}: true`",
        )
        return
    for resource in stack.resources.values():
        holds = resource.custom and not resource.read and HOLDS_DATA.search(resource.type)
        if holds and not resource.protect and resource.package != "pulumi":
            yield Violation(
                resource.urn,
                "it holds data of a stack for production, and nothing keeps Pulumi from deleting or replacing it",
                "set the resource option protect",
            )


POLICIES = (
    Policy(
        "production-unprotected",
        Severity.ERROR,
        "A stack whose name has `prod` in it protects what holds data.",
        _unprotected,
        f"Set `{PROTECT}: true`, and the resource option protect on resources of your own.",
    ),
)
