"""What each resource is billed for."""

from collections.abc import Sequence

from infra.review.facts import Charge
from infra.review.stack import KUBERNETES_PROVIDER, Stack


def charges(stack: Stack) -> Sequence[Charge]:
    """The nodes of clusters that are there already, whose price only their owner knows: unknown, not free."""
    providers = {each.name: each.urn for each in stack.resources.values() if each.type == KUBERNETES_PROVIDER}
    return [
        Charge(
            providers.get(pool.cluster, ""),
            f"your own nodes ({pool.name}), not priced",
            None,
            idle=pool.max_nodes,
            most=pool.max_nodes,
        )
        for pool in stack.pools
        if not pool.urn
    ]
