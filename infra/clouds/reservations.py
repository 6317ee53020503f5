"""How what a node keeps for itself grows with its size."""

from collections.abc import Iterable


def tiered(amount: float, tiers: Iterable[tuple[float, float]]) -> float:
    """The sum of each tier's share of the part of ``amount`` that lies in it. Tiers are (upper end, share)."""
    total = lower = 0.0
    for upper, share in tiers:
        total += max(0.0, min(amount, upper) - lower) * share
        lower = upper
    return total
