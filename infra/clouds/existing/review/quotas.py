"""Which quotas a stack needs."""

from collections.abc import Sequence

from infra.review.facts import Quota
from infra.review.stack import Stack


def quotas(_: Stack) -> Sequence[Quota]:
    """What the stack needs with every pool at its largest."""
    return ()
