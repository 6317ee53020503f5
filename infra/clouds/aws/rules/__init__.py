"""What a stack file may not say of Amazon Web Services."""

from infra.clouds.aws.rules import capacity, clusters, names, network, nodes, pools, store

CHECKS = (
    names.check,
    clusters.check,
    network.check,
    nodes.check,
    pools.check,
    capacity.check,
    store.check,
)
