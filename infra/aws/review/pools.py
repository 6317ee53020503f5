"""Node pools as their declarations say them."""

from collections.abc import Sequence

from infra.review import NodePool, Stack


def pools(_: Stack) -> Sequence[NodePool]:
    """The pools that the stack declares."""
    return ()
