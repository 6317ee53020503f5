"""What a stack file may not say of Google Cloud."""

from infra.clouds.gcp.rules import (
    autopilot,
    clusters,
    filestore,
    ingress,
    keys,
    maintenance,
    names,
    node_networks,
    nodes,
    pools,
    store,
)
from infra.clouds.gcp.rules.names import provider_problems

__all__ = ["CHECKS", "provider_problems"]

CHECKS = (
    names.check,
    clusters.check,
    maintenance.check,
    autopilot.check,
    nodes.check,
    pools.check,
    node_networks.check,
    store.check,
    filestore.check,
    keys.check,
    ingress.check,
)
