"""ComputeClasses, by which GKE is told how long it keeps idle nodes of a pool.

GKE's autoscaler has two profiles and no further setting; a ComputeClass has one. A pool that is declared belongs
to the class that its label and its taint name, and both are updated in place. Pods of the class select it by its
label alone: GKE advises against further selectors. Sources, all read on 2026-11-26:
https://docs.cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes#manual-node-pools,
https://docs.cloud.google.com/kubernetes-engine/docs/reference/crds/computeclass,
https://docs.cloud.google.com/kubernetes-engine/docs/how-to/update-existing-nodepools.
"""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.clouds.gcp.cluster import GkeCluster
from slipway.infra.clouds.gcp.network import pool_name
from slipway.infra.clouds.gcp.nodes import CLASS_LABEL
from slipway.infra.clouds.gcp.pools import class_labels
from slipway.infra.clouds.gcp.settings import GcpCluster
from slipway.infra.schema.quantities import seconds


def class_spec(name: str, delay: str) -> dict[str, Any]:
    """What the class of the pool ``name`` says: its nodes are that pool's, idle ones go after ``delay``."""
    return {
        "priorities": [{"nodepools": [name]}],
        "nodePoolAutoCreation": {"enabled": False},
        "whenUnsatisfiable": "DoNotScaleUp",
        "autoscalingPolicy": {"consolidationDelayMinutes": seconds(delay) // 60},
    }


def compute_classes(name: str, settings: GcpCluster, cluster: GkeCluster) -> list[pulumi.Resource]:
    """Declares the class of each pool with ``consolidation_delay``. Pods of the pool wait for it."""
    return [
        k8s.apiextensions.CustomResource(
            f"{name}-{key}-compute-class",
            api_version="cloud.google.com/v1",
            kind="ComputeClass",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=class_labels(pool_name(key), pool)[CLASS_LABEL]),
            spec=class_spec(pool_name(key), pool.consolidation_delay),
            opts=pulumi.ResourceOptions(
                parent=cluster, provider=cluster.provider, depends_on=[cluster.pools[key]]
            ),
        )
        for key, pool in settings.pools.items()
        if pool.consolidation_delay
    ]
