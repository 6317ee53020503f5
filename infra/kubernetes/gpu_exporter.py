"""NVIDIA's dcgm-exporter, which tells Prometheus what GPUs do and for which pod, on clusters that have no exporter
of their own."""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.charts import charts
from infra.kubernetes.device_plugin import gpu_pools
from infra.kubernetes.labels import PART_OF
from infra.kubernetes.metrics import Measured, scrapers
from infra.objects.helm import image, source
from infra.platform import Platform

CHART = "dcgm-exporter"

OPERATED = "nvidia.com/gpu.deploy.dcgm-exporter"
"""The label that NVIDIA's GPU Operator gives nodes on which it runs this exporter itself
(github.com/NVIDIA/gpu-operator v26.7.0, controllers/state_manager.go)."""

PORT_NAME, PORT = "metrics", 9400

COUNTERS = """\
DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
DCGM_FI_DEV_MEM_COPY_UTIL, gauge, Memory utilization (in %).
DCGM_FI_DEV_FB_FREE, gauge, Framebuffer memory free (in MiB).
DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Total energy consumption since boot (in mJ).
DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).
DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).
DCGM_FI_DEV_XID_ERRORS, gauge, Value of the last XID error encountered.
"""
"""Those of the exporter's own list (etc/default-counters.csv at 4.5.3-4.8.2) that need no privilege: the profiling
ones (`DCGM_FI_PROF_*`) would need the capability SYS_ADMIN, and disturb a profiler that runs in a pod."""


@dataclass(frozen=True)
class GpuExporterArgs:
    """``namespace`` is for the exporter alone. ``chart`` and ``version`` are a copy in place of the pinned
    chart."""

    platform: Platform
    namespace: str
    measured: Measured
    chart: str | None = None
    version: str | None = None


def gpu_exporter(name: str, args: GpuExporterArgs, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Declares the exporter on all nodes of GPU pools: one release, since the chart's ConfigMap has a fixed
    name."""
    chart = charts()[CHART]
    nodes = [each for pool in args.platform.pools.values() if not pool.accelerator for each in pool.resources]
    namespace = k8s.core.v1.Namespace(
        f"{name}-gpus-namespace",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=args.namespace,
            # It asks the kubelet through a socket of the node which pod has which GPU, and only this standard
            # allows host paths.
            labels={**PART_OF, "pod-security.kubernetes.io/enforce": "privileged"},
        ),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=nodes)),
    )
    inside = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[namespace]))
    peers = scrapers(args.measured)
    policy = k8s.networking.v1.NetworkPolicy(
        f"{name}-gpus-ingress",
        metadata=k8s.meta.v1.ObjectMetaArgs(name="collector", namespace=args.namespace, labels=PART_OF),
        spec=k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(),
            policy_types=["Ingress"],
            ingress=[
                k8s.networking.v1.NetworkPolicyIngressRuleArgs(
                    from_=peers, ports=[k8s.networking.v1.NetworkPolicyPortArgs(protocol="TCP", port=PORT)]
                )
            ]
            if peers
            else [],
        ),
        opts=inside,
    )
    release = k8s.helm.v3.Release(
        f"{name}-gpus",
        name=CHART,
        namespace=args.namespace,
        **source(chart, args.chart, args.version),
        values=values(args.platform, args.version),
        # A DaemonSet is ready when its nodes are, and GPU nodes come with Jobs.
        skip_await=True,
        opts=pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=[policy])),
    )
    return [namespace, release]


def pod_labels() -> dict[str, str]:
    """Labels of the exporter's pods (templates/_helpers.tpl of the chart)."""
    return {"app.kubernetes.io/name": CHART, "app.kubernetes.io/instance": CHART}


def values(platform: Platform, version: str | None) -> dict[str, Any]:
    """The chart's values (values.yaml of 4.8.2)."""
    chart = charts()[CHART]
    pools = gpu_pools(platform)
    taints = list(dict.fromkeys((each.key, each.value, each.effect) for pool in pools for each in pool.taints))
    not_operated = {"key": OPERATED, "operator": "DoesNotExist"}
    found: dict[str, Any] = {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    # Any of them: a node of one pool has the labels of no other.
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                *(
                                    {"key": key, "operator": "In", "values": [value]}
                                    for key, value in pool.selector.items()
                                ),
                                not_operated,
                            ]
                        }
                        for pool in pools
                    ]
                }
            }
        },
        "tolerations": [
            {"key": key, "operator": "Equal", "value": value, "effect": effect} for key, value, effect in taints
        ],
        "customMetrics": COUNTERS,
        "securityContext": {
            # The kubelet's socket is the user root's alone.
            "runAsNonRoot": False,
            "runAsUser": 0,
            "capabilities": {"drop": ["ALL"], "add": []},
            "allowPrivilegeEscalation": False,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # The stack declares a PodMonitor, which is there only once its kind is.
        "serviceMonitor": {"enabled": False},
        "service": {"enable": False},
        # The chart's `system-node-critical` would take a Job its node, and be spared where memory runs out.
        # Without requests it has a place on nodes that a Job fills.
        "priorityClassName": "",
        "resources": {
            "requests": {"cpu": "0", "memory": "0"},
            "limits": {"cpu": "200m", "memory": "512Mi"},
        },
    }
    if version in (None, chart.version):
        found["image"] = image(chart.image)
    return found
