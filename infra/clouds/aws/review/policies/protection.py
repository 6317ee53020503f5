"""Deletion protection in production stacks."""

from collections.abc import Iterator

from infra.clouds.aws.review.pools import CLUSTER
from infra.review.policy import Policy, Severity, Violation
from infra.review.properties import UNKNOWN, is_true
from infra.review.stack import PROTECT, Stack

FIX = f"set `{PROTECT}: true` in the stack file"

EMPTIES = ("forceDestroy", "forceDelete")
"""Of buckets and of image repositories."""


def _deletable(stack: Stack) -> Iterator[Violation]:
    # What the one switch of a stack file leaves open is said once, of the switch.
    if not stack.production or stack.switched_off:
        return
    for cluster in stack.of_type(CLUSTER):
        protected = cluster.properties.get("deletionProtection")
        if protected != UNKNOWN and not is_true(protected):
            yield Violation(
                cluster.urn,
                "EKS would delete it when asked: it has no deletion protection",
                f"{FIX} (deletionProtection: true)",
            )
    for resource in stack.resources.values():
        if resource.package == "aws" and not resource.read:
            for key in EMPTIES:
                if is_true(resource.properties.get(key)):
                    yield Violation(
                        resource.urn, "a destroy deletes it with everything in it", f"{FIX} ({key}: false)"
                    )


POLICIES = (
    Policy(
        "aws-deletable-in-production",
        Severity.ERROR,
        "In a production stack AWS refuses to delete clusters, and buckets and repositories that are in use.",
        _deletable,
        f"Set `{PROTECT}: true`.",
    ),
)
