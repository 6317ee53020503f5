"""What a stack file may not say of a cluster that is already there."""

from collections.abc import Mapping
from typing import Any

from infra.clouds.existing.rules import clusters, ingress, interconnect, nodes, pools, store
from infra.schema.problems import Problem

CHECKS = (clusters.check, pools.check, interconnect.check, nodes.check, store.check, ingress.check)


def provider_problems(_: Mapping[str, Any]) -> list[Problem]:
    """None: clusters that are already there need no provider of a cloud."""
    return []
