"""What a stack file may not say of Amazon Web Services."""

from infra.clouds.aws.rules import capacity, clusters, ingress, names, network, pools, store
from infra.clouds.aws.rules.clusters import provider_problems

__all__ = ["CHECKS", "provider_problems"]

CHECKS = (
    names.check,
    clusters.check,
    network.check,
    pools.check,
    capacity.check,
    store.check,
    ingress.check,
)
