"""What must not go by mistake."""

from collections.abc import Iterator

from infra.review.policy import Policy, Severity, Violation
from infra.review.stack import PROTECT, Stack
from offline.policies.holdings import holding


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
        held = holding(resource, stack)
        if held and not held.kept and not resource.protect:
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
