"""What a production stack may not let go of."""

from collections.abc import Iterator

from infra.properties import is_true
from infra.review import Policy, Severity, Stack, Violation

FIX = "set `slipway:protect: true` in the stack file"


def _deletable(stack: Stack) -> Iterator[Violation]:
    if not stack.production:
        return
    for resource in stack.resources.values():
        if resource.package != "gcp" or resource.read:
            continue
        if resource.properties.get("deletionProtection") is False:
            yield Violation(
                resource.urn, "Google would delete it with all that is in it when asked: no deletion protection",
                f"{FIX} (deletionProtection: true)",
            )  # fmt: skip
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
        "Set `slipway:protect: true`.",
    ),
)
