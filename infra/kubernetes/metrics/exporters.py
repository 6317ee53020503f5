"""What answers Prometheus for programs that do not: services, and GPUs on clusters without an exporter."""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.charts import charts
from slipway.infra.kubernetes.cluster.device_plugin import gpu_pools
from slipway.infra.kubernetes.cluster.network_policy import (
    allow_from,
    allow_to,
    name_servers,
    network_policy,
    peer,
    select,
)
from slipway.infra.kubernetes.cluster.workspace import Measured, Workspace, scrapers
from slipway.infra.kubernetes.labels import PART_OF, service_labels
from slipway.infra.kubernetes.pods.pod import (
    container_security,
    from_secret,
    limits,
    of_pool,
    password_secret_name,
    pod_security,
    requests,
)
from slipway.infra.objects import image, source, wait_for
from slipway.infra.placed import ADDRESS, PASSWORD, Service
from slipway.infra.platform import Platform
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

# NVIDIA's dcgm-exporter, which tells Prometheus what GPUs do and for which pod.


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
"""Those of the exporter's own list (etc/default-counters.csv) that need no privilege: the profiling
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
    nodes = [
        resource for pool in args.platform.pools.values() if not pool.accelerator for resource in pool.resources
    ]
    namespace = k8s.core.v1.Namespace(
        f"{name}-gpus-namespace",
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=args.namespace,
            # It asks the kubelet through a socket of the node which pod has which GPU, and only this standard
            # allows host paths.
            labels={**PART_OF, "pod-security.kubernetes.io/enforce": "privileged"},
        ),
        opts=wait_for(opts, *nodes),
    )
    inside = wait_for(opts, namespace)
    peers = scrapers(args.measured)
    policy = network_policy(
        f"{name}-gpus-ingress",
        k8s.meta.v1.ObjectMetaArgs(name="collector", namespace=args.namespace, labels=PART_OF),
        select(None),
        ["Ingress"],
        inside,
        ingress=[allow_from(peers, PORT)] if peers else [],
    )
    release = k8s.helm.v3.Release(
        f"{name}-gpus",
        name=CHART,
        namespace=args.namespace,
        **source(chart, args.chart, args.version),
        values=values(args.platform, args.version),
        # A DaemonSet is ready when its nodes are, and GPU nodes come with Jobs.
        skip_await=True,
        opts=wait_for(inside, policy),
    )
    return [namespace, release]


def pod_labels() -> dict[str, str]:
    """Labels of the exporter's pods (templates/_helpers.tpl of the chart)."""
    return {"app.kubernetes.io/name": CHART, "app.kubernetes.io/instance": CHART}


def values(platform: Platform, version: str | None) -> dict[str, Any]:
    """The chart's values (values.yaml)."""
    chart = charts()[CHART]
    pools = gpu_pools(platform)
    taints = list(dict.fromkeys((taint.key, taint.value, taint.effect) for pool in pools for taint in pool.taints))
    not_operated = {"key": OPERATED, "operator": "DoesNotExist"}
    values: dict[str, Any] = {
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
    # All have the same: the settings are checked.
    if runtime_class := pools[0].runtime_class:
        # It needs NVIDIA's runtime as the device plugin does (the same page of NVIDIA's).
        values["runtimeClassName"] = runtime_class
    if version in (None, chart.version):
        values["image"] = image(chart.image)
    return values


# What answers Prometheus for a service that does not itself: a pod beside it, so that switching metrics on or off
# does not start the service anew.


SERVICE_EXPORTER_PORT_NAME = "metrics"


def component(service: Service) -> str:
    """What the exporter of ``service`` is called in its pipeline."""
    return f"{service.name}-exporter"


def object_name(service: Service) -> str:
    """Name of its Kubernetes objects."""
    return fit(f"{service.object_name}-exporter", KUBERNETES_NAME_LIMIT)


def exporter_labels(service: Service) -> dict[str, str]:
    """Labels of its pods. They have the label of a service, so that the network policies for steps do not hold for
    them."""
    return service_labels(service.pipeline, component(service))


def declare_exporter(
    name: str, service: Service, workspace: Workspace, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """Declares the exporter of ``service``, and that it connects to it and nothing else."""
    exporter, claimed = service.exporter, service.exporter_requests
    assert exporter is not None
    assert claimed is not None
    labels = exporter_labels(service)
    metadata = k8s.meta.v1.ObjectMetaArgs(name=object_name(service), namespace=workspace.namespace, labels=labels)
    of_service = select(service_labels(service.pipeline, service.name))
    outward = network_policy(
        f"{name}-egress",
        metadata,
        select(labels),
        ["Ingress", "Egress"],
        opts,
        egress=[allow_to([peer(of_service)], service.port), *name_servers(service.platform)],
    )
    access = fit(f"{object_name(service)}-access", KUBERNETES_NAME_LIMIT)
    inward = network_policy(
        f"{name}-of-service",
        k8s.meta.v1.ObjectMetaArgs(name=access, namespace=workspace.namespace, labels=labels),
        of_service,
        ["Ingress"],
        opts,
        ingress=[allow_from([peer(select(labels))], service.port)],
    )
    deployment = k8s.apps.v1.Deployment(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=object_name(service),
            namespace=workspace.namespace,
            labels=labels,
        ),
        spec=k8s.apps.v1.DeploymentSpecArgs(
            replicas=1,
            selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
            strategy=k8s.apps.v1.DeploymentStrategyArgs(type="Recreate"),
            template=k8s.core.v1.PodTemplateSpecArgs(
                metadata=k8s.meta.v1.ObjectMetaArgs(labels=labels),
                spec=k8s.core.v1.PodSpecArgs(
                    automount_service_account_token=False,
                    enable_service_links=False,
                    security_context=pod_security(service.platform),
                    **of_pool(service.pool),
                    containers=[
                        k8s.core.v1.ContainerArgs(
                            name="exporter",
                            image=exporter.image,
                            image_pull_policy="IfNotPresent",
                            args=[
                                argument.format_map({ADDRESS: service.address}) for argument in exporter.arguments
                            ],
                            env=[from_secret(password_secret_name(service), PASSWORD, exporter.password_variable)],
                            ports=[
                                k8s.core.v1.ContainerPortArgs(
                                    name=SERVICE_EXPORTER_PORT_NAME, container_port=exporter.port
                                )
                            ],
                            readiness_probe=k8s.core.v1.ProbeArgs(
                                http_get=k8s.core.v1.HTTPGetActionArgs(path="/health", port=exporter.port)
                            ),
                            resources=k8s.core.v1.ResourceRequirementsArgs(
                                requests=requests(claimed), limits=limits(claimed)
                            ),
                            security_context=container_security(),
                        )
                    ],
                ),
            ),
        ),
        opts=wait_for(
            opts,
            outward,
            inward,
            *service.pool.resources,
            # Nothing of a run needs it: an image that does not come is no reason to hold up steps.
            custom_timeouts=pulumi.CustomTimeouts(create="20m", update="20m"),
        ),
    )
    return [deployment]
