"""What a stack file may not say of a cluster that is already there."""

from infra.clouds.existing.rules import clusters, nodes, pools, store

CHECKS = (clusters.check, pools.check, nodes.check, store.check)
