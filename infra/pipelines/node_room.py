"""What nodes of a pool have room for beside the store's mount."""

from infra.platform import Platform, Pool, Resources


def left(platform: Platform, pool: Pool) -> Resources:
    """What one node of ``pool`` leaves to a pod's own containers, if the pod mounts the store. No GPUs."""
    there, beside = pool.allocatable, platform.store.sidecar
    return Resources(
        cpu=there.cpu - beside.cpu,
        memory=there.memory - beside.memory,
        ephemeral_storage=there.ephemeral_storage - beside.ephemeral_storage,
    )


def at_most(asked: Resources, there: Resources) -> Resources:
    """The less of each resource. No GPUs."""
    return Resources(
        cpu=min(asked.cpu, there.cpu),
        memory=min(asked.memory, there.memory),
        ephemeral_storage=min(asked.ephemeral_storage, there.ephemeral_storage),
    )


def with_room(platform: Platform, pool: Pool, asked: Resources) -> Pool:
    """``pool``; where that is too small for ``asked``, the first other pool without GPUs that is not, if any."""
    pools = [pool, *(each for each in platform.pools.values() if not each.accelerator)]
    return next((each for each in pools if at_most(asked, left(platform, each)) == asked), pool)
