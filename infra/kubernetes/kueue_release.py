"""The Helm release of Kueue, configured for Jobs alone."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.charts import charts
from infra.kubernetes.labels import PART_OF
from infra.objects import image, wait_for
from infra.platform import Platform, Pool, Resources

CHART = "kueue"

LONGEST_BACKOFF = 1800
"""Seconds, at most, before Kueue tries again to start a Job whose nodes did not come."""


@dataclass(frozen=True)
class KueueReleaseArgs:
    """``namespace`` is Kueue's own, ``namespaces`` are those whose Jobs it looks after.

    ``chart`` and ``version`` are a copy in place of the pinned chart. Of a Job whose pods are not all ready within
    ``ready_within`` seconds the nodes are given to others, and it waits again, for about ``wait`` seconds in all.
    ``fair`` has namespaces that use less than others come first. Each of its ``replicas`` asks for ``requests``.
    """

    namespace: str
    namespaces: Sequence[str]
    ready_within: int
    wait: int
    requests: Resources
    replicas: int
    chart: str | None = None
    version: str | None = None
    fair: bool = False


def kueue_release(
    name: str, args: KueueReleaseArgs, platform: Platform, opts: pulumi.ResourceOptions
) -> "k8s.helm.v3.Release":  # As text: the SDK's Helm takes long to import, and few stacks need it.
    """Declares the release in a namespace of its own.

    It is ready when Kueue's webhooks answer, without which the API server refuses Jobs and Kueue's own objects.
    """
    chart = charts()[CHART]
    pool = host_pool(platform)
    nodes = list(pool.resources) if pool else []
    namespace = k8s.core.v1.Namespace(
        f"{name}-namespace",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=args.namespace, labels={**PART_OF, "pod-security.kubernetes.io/enforce": "restricted"}
        ),
        opts=wait_for(opts, *nodes),
    )
    return k8s.helm.v3.Release(
        f"{name}-release",
        name=CHART,
        namespace=args.namespace,
        chart=chart.place(args.chart),
        version=args.version or chart.version,
        values=values(args, pool),
        # A first node may have to come.
        timeout=900,
        opts=wait_for(opts, namespace),
    )


def host_pool(platform: Platform) -> Pool | None:
    """The pool that Kueue's pods run on, which has a node at all times then; None where all pools have GPUs."""
    return next((pool for pool in platform.pools.values() if not pool.allocatable.gpus), None)


def values(args: KueueReleaseArgs, pool: Pool | None) -> dict[str, Any]:
    """The chart's values (charts/kueue/values.yaml)."""
    chart = charts()[CHART]
    manager: dict[str, Any] = {
        "resources": {
            "requests": {"cpu": f"{args.requests.cpu}m", "memory": f"{args.requests.memory}Mi"},
            "limits": {"memory": f"{args.requests.memory}Mi"},
        }
    }
    if args.version in (None, chart.version):
        manager["image"] = {**image(chart.image), "pullPolicy": "IfNotPresent"}
    controller: dict[str, Any] = {
        "replicas": args.replicas,
        "manager": manager,
        "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
    }
    if pool:
        controller["nodeSelector"] = dict(pool.selector)
        controller["tolerations"] = [
            {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
            for taint in pool.taints
        ]
    return {
        "fullnameOverride": CHART,
        "controllerManager": controller,
        # YAML, and so may be JSON.
        "managerConfig": {"controllerManagerConfigYaml": json.dumps(configuration(args))},
    }


def configuration(args: KueueReleaseArgs) -> dict[str, Any]:
    """Kueue's configuration (apis/config/v1beta2/configuration_types.go)."""
    values: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "integrations": {"frameworks": ["batch/job"]},
        # Whoever names no queue is not held up.
        "manageJobsWithoutQueueName": False,
        # Its webhooks see no Job of another namespace, so that nobody else waits for it while it is away.
        "managedJobsNamespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(args.namespaces)}
            ]
        },
        "waitForPodsReady": {
            "timeout": f"{args.ready_within}s",
            # A pod that is lost while the others run: what runs in them waits for it, or ends, by itself.
            "recoveryTimeout": f"{args.ready_within}s",
            "blockAdmission": False,
            "requeuingStrategy": {
                "timestamp": "Eviction",
                # Then the Job stays suspended: nobody waits for it any more, and its nodes would still be billed.
                "backoffLimitCount": max(1, math.ceil(args.wait / (args.ready_within + LONGEST_BACKOFF))),
                "backoffBaseSeconds": 60,
                "backoffMaxSeconds": LONGEST_BACKOFF,
            },
        },
    }
    if args.fair:
        values["fairSharing"] = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
    return values
