"""How long resources take to be created."""

from infra.review import Declared, Seconds


def creation(_: Declared) -> Seconds | None:
    """How long this one takes; None where it is not known."""
    return None
