"""What nodes of a pool have room for beside the store's mount and the services that stay there."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from infra.platform import Platform, Pool, Resources

Kept = Mapping[str, Sequence[Resources]]
"""What services ask for, by the name of the pool on which they stay."""

NOTHING: Kept = MappingProxyType({})


def left(platform: Platform, pool: Pool, kept: Kept = NOTHING) -> Resources:
    """What one node of ``pool`` leaves to a pod's own containers, if the pod mounts the store. No GPUs.

    Of a pool with a single node, what is ``kept`` for services on it is taken.
    """
    taken = [platform.store.sidecar]
    if pool.max_nodes == 1:
        taken += kept.get(pool.name, ())
    there = pool.allocatable
    return Resources(
        cpu=max(0, there.cpu - sum(each.cpu for each in taken)),
        memory=max(0, there.memory - sum(each.memory for each in taken)),
        ephemeral_storage=max(0, there.ephemeral_storage - sum(each.ephemeral_storage for each in taken)),
    )


def at_most(asked: Resources, there: Resources) -> Resources:
    """The less of each resource. No GPUs."""
    return Resources(
        cpu=min(asked.cpu, there.cpu),
        memory=min(asked.memory, there.memory),
        ephemeral_storage=min(asked.ephemeral_storage, there.ephemeral_storage),
    )


def with_room(platform: Platform, pool: Pool, asked: Resources, kept: Kept = NOTHING) -> Pool:
    """``pool``; where that is too small for ``asked``, the first other pool without GPUs that is not, if any."""
    pools = [pool, *(each for each in platform.pools.values() if not each.accelerator)]
    return next((each for each in pools if at_most(asked, left(platform, each, kept)) == asked), pool)
