"""Policies about resources that only AWS has, whoever declared them."""

from collections.abc import Sequence

from infra.clouds.aws.review.policies import buckets, grants, networks, nodes, protection
from infra.review.policy import Policy

POLICIES: Sequence[Policy] = (
    *buckets.POLICIES,
    *networks.POLICIES,
    *grants.POLICIES,
    *nodes.POLICIES,
    *protection.POLICIES,
)
