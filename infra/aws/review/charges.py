"""What each resource is billed for."""

from collections.abc import Sequence

from infra.review import Charge, Stack


def charges(_: Stack) -> Sequence[Charge]:
    """The charges of all of the stack's resources."""
    return ()
