"""Every policy there is: those that hold everywhere, and those of each place to run."""

from collections.abc import Sequence
from functools import cache

from infra.clouds.registry import CLOUDS
from infra.review.policy import Policy
from offline.policies import configuration, images, jobs, limits, pods, pools, protection, providers, security

EVERYWHERE: Sequence[Policy] = (
    *pods.POLICIES,
    *pools.POLICIES,
    *jobs.POLICIES,
    *security.POLICIES,
    *configuration.POLICIES,
    *images.POLICIES,
    *providers.POLICIES,
    *protection.POLICIES,
    *limits.POLICIES,
)


def of_clouds() -> list[tuple[str, Policy]]:
    """The policies that only one place to run has, each with that place's name for people."""
    return [(cloud.title, policy) for cloud in CLOUDS.values() for policy in cloud.review().policies]


@cache
def policies() -> Sequence[Policy]:
    """All policies. Importing those of the clouds imports no SDK of theirs."""
    return (*EVERYWHERE, *(policy for _, policy in of_clouds()))
