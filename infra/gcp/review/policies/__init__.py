"""Policies about resources that only Google Cloud has, whoever declared them."""

from collections.abc import Sequence

from infra.gcp.review.policies import buckets, clusters, grants, networks
from infra.review import Policy

POLICIES: Sequence[Policy] = (
    *buckets.POLICIES,
    *networks.POLICIES,
    *clusters.POLICIES,
    *grants.POLICIES,
)
