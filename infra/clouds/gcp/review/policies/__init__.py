"""Policies about resources that only Google Cloud has, whoever declared them."""

from collections.abc import Sequence

from infra.clouds.gcp.review.policies import buckets, grants, networks, places, protection
from infra.review.policy import Policy

POLICIES: Sequence[Policy] = (
    *buckets.POLICIES,
    *networks.POLICIES,
    *grants.POLICIES,
    *protection.POLICIES,
    *places.POLICIES,
)
