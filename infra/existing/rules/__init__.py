"""What a stack file may not say of a cluster that is already there."""

from infra.existing.rules import pools, store

CHECKS = (pools.check, store.check)
