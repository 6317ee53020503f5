"""Deletion protection in production stacks."""

from collections.abc import Iterator

from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import is_true
from infra.review.stack import PROTECT, Stack

FIX = f"set `{PROTECT}: true` in the stack file"


def _deletable(stack: Stack) -> Iterator[Violation]:
    # What the one switch of a stack file leaves open is said once, of the switch.
    if not stack.production or stack.switched_off:
        return
    for resource in stack.resources.values():
        if resource.package != "gcp" or resource.read:
            continue
        if resource.properties.get("deletionProtection") is False:
            yield Violation(
                resource.urn,
                "Google would delete it when asked: it has no deletion protection",
                f"{FIX} (deletionProtection: true)",
            )
        if is_true(resource.properties.get("forceDestroy")):
            yield Violation(
                resource.urn, "a destroy deletes it with everything in it", f"{FIX} (forceDestroy: false)"
            )


POLICIES = (
    Policy(
        "gcp-deletable-in-production",
        Severity.ERROR,
        "In a production stack Google refuses to delete clusters, and buckets that have objects in them.",
        _deletable,
        f"Set `{PROTECT}: true`.",
    ),
)
