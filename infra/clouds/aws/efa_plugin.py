"""AWS's device plugin for EFA, which lets pods ask for the EFA interfaces of their node."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.charts import charts
from infra.clouds.aws.addons import SYSTEM
from infra.clouds.aws.cluster import EksCluster
from infra.clouds.aws.names import node_group_name
from infra.clouds.aws.nodes import POOL_LABEL
from infra.clouds.aws.pools import taints
from infra.clouds.aws.settings import AwsCluster, AwsPool
from infra.objects.helm import source
from infra.schema.names import fit

CHART = "aws-efa-k8s-device-plugin"

RELEASE_NAME_LIMIT = 53
"""Longest name of a Helm release (helm.sh/helm/v3, pkg/chartutil/validate_name.go, 3.20)."""


def efa_plugins(name: str, settings: AwsCluster, cluster: EksCluster) -> list[pulumi.Resource]:
    """One release of the plugin for each pool with EFA: a pool has its own label and taints."""
    return [
        _release(f"{name}-{key}-efa", key, pool, settings, cluster)
        for key, pool in settings.pools.items()
        if pool.efa
    ]


def _release(
    logical_name: str, key: str, pool: AwsPool, settings: AwsCluster, cluster: EksCluster
) -> k8s.helm.v3.Release:
    chart, own, name = charts()[CHART], settings.charts.efa_device_plugin, release_name(key)
    return k8s.helm.v3.Release(
        logical_name,
        name=name,
        **source(chart, own.chart, own.version),
        namespace=SYSTEM,
        values=values(key, pool),
        # A pool may have no node yet, and Helm's time-out would name none. Pods that ask for interfaces wait.
        skip_await=True,
        opts=pulumi.ResourceOptions(parent=cluster, provider=cluster.provider, depends_on=_after(cluster, key)),
    )


def release_name(pool: str) -> str:
    """Name of the Helm release for a pool, which is also its DaemonSet's."""
    return fit(f"efa-{pool}", RELEASE_NAME_LIMIT)


def values(key: str, pool: AwsPool) -> dict[str, Any]:
    """The chart's values for one pool (stable/aws-efa-k8s-device-plugin/values.yaml of aws/eks-charts, v0.5.30).

    The chart adds that nodes are of an instance type with EFA.
    """
    return {
        "fullnameOverride": release_name(key),
        "nodeSelector": {POOL_LABEL: node_group_name(key)},
        "tolerations": [
            {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
            for taint in taints(pool)
        ],
    }


def _after(cluster: EksCluster, key: str) -> Sequence[pulumi.Resource]:
    return [*cluster.ready, cluster.pools[key]]
