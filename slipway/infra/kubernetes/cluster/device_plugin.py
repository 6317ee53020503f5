"""NVIDIA's device plugin, which makes a node's GPUs allocatable, on clusters that have none of their own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.charts import charts
from slipway.infra.kubernetes.labels import PART_OF
from slipway.infra.objects import image, source, wait_for
from slipway.infra.platform import GPU_RESOURCE, DevicePlugin, Platform, Pool
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

CHART = "nvidia-device-plugin"

RELEASE_NAME_LIMIT = 53
"""Longest name of a Helm release (helm.sh/helm/v3, pkg/chartutil/validate_name.go, 3.20)."""

OPERATED = "nvidia.com/gpu.deploy.device-plugin"
"""The label that NVIDIA's GPU Operator gives nodes on which it runs a device plugin itself
(github.com/NVIDIA/gpu-operator v26.7.0, controllers/state_manager.go)."""

SELINUX_TYPE = "container_device_plugin_t"
"""The SELinux type for device plugins: it may use device nodes and the kubelet's socket, which container_t may not
(github.com/containers/container-selinux, container.te, since 2.186 of 2022; read 2026-11-20)."""

PRIVILEGED_SCC = "system:openshift:scc:privileged"
"""OpenShift's cluster role for the use of the SCC ``privileged``. Of the built-in SCCs that allow host paths, the
others prescribe the SELinux type (docs.openshift.com, "Managing security context constraints"). The GPU Operator's
device plugin uses this one too (v26.7.0, assets/state-device-plugin/0200_role.yaml)."""


@dataclass(frozen=True)
class NvidiaDevicePluginArgs:
    """``namespace`` is for the plugin alone; ``after`` are resources that it needs to be there."""

    plugin: DevicePlugin
    platform: Platform
    namespace: str
    after: tuple[pulumi.Resource, ...] = ()


class NvidiaDevicePlugin(pulumi.ComponentResource):
    """One Helm release of the device plugin per GPU pool of a cluster.

    A release per pool, because a pool has its own labels, taints and way to share its GPUs. One release for all
    would take them from the label ``nvidia.com/device-plugin.config``, and a cluster's nodes need not be ours to
    label. ``releases`` are by pool.
    """

    def __init__(
        self, name: str, args: NvidiaDevicePluginArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("slipway:kubernetes:NvidiaDevicePlugin", name, {}, opts)
        on_cluster = pulumi.ResourceOptions(parent=self, provider=args.platform.provider)
        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=args.namespace,
                labels={
                    **PART_OF,
                    # The plugin mounts the kubelet's folder for sockets, and only this standard allows host paths.
                    "pod-security.kubernetes.io/enforce": "privileged",
                    **(
                        {"security.openshift.io/scc.podSecurityLabelSync": "false"}
                        if args.plugin.openshift
                        else {}
                    ),
                },
            ),
            opts=wait_for(on_cluster, *args.after),
        )
        self.releases: Mapping[str, k8s.helm.v3.Release] = {
            pool.name: self._release(name, pool, args, namespace, on_cluster) for pool in gpu_pools(args.platform)
        }
        self.register_outputs({"namespace": args.namespace})

    def _release(
        self,
        name: str,
        pool: Pool,
        args: NvidiaDevicePluginArgs,
        namespace: k8s.core.v1.Namespace,
        opts: pulumi.ResourceOptions,
    ) -> "k8s.helm.v3.Release":  # As text: the SDK's Helm takes long to import, and few stacks need it.
        release = release_name(pool)
        after: list[pulumi.Resource] = [namespace]
        if args.plugin.openshift:
            after.append(_allow_privileged(f"{name}-{pool.name}-scc", release, args.namespace, namespace, opts))
        return k8s.helm.v3.Release(
            f"{name}-{pool.name}",
            name=release,
            namespace=args.namespace,
            **source(charts()[CHART]),
            values=values(pool, args.plugin),
            # Helm takes a DaemonSet for ready while one node still lacks it (3.20, pkg/kube/ready.go), and its
            # time-out names no node.
            skip_await=True,
            opts=wait_for(opts, *after),
        )


def gpu_pools(platform: Platform) -> list[Pool]:
    """The platform's pools whose nodes have GPUs."""
    return [pool for pool in platform.pools.values() if pool.accelerator]


def release_name(pool: Pool) -> str:
    """Name of the Helm release for a pool, which is also the DaemonSet's and what its other names begin with."""
    return fit(f"{CHART}-{pool.name}", RELEASE_NAME_LIMIT)


def values(pool: Pool, plugin: DevicePlugin) -> dict[str, Any]:
    """The chart's values for one pool (deployments/helm/nvidia-device-plugin/values.yaml)."""
    values: dict[str, Any] = {
        "image": image(charts()[CHART].image),
        "nodeSelector": dict(pool.selector),
        # In place of the chart's, which asks for labels of node feature discovery or of GKE's kind.
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": OPERATED, "operator": "DoesNotExist"}]}]
                }
            }
        },
        "tolerations": [
            {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
            for taint in pool.taints
        ],
        "migStrategy": pool.mig_strategy,
        # The default, spelt out: without it the chart adds the capability SYS_ADMIN where there is a config.
        "deviceListStrategy": "envvar",
    }
    if pool.runtime_class:
        # Where NVIDIA's runtime is not the nodes' default, the plugin itself needs it to see driver and devices
        # (github.com/NVIDIA/k8s-device-plugin v0.20.0, docs/cdi.md, "Configuration"; read in November 2026).
        values["runtimeClassName"] = pool.runtime_class
    if pool.gpu_clients > 1:
        values["config"] = {"map": {"default": json.dumps(_sharing(pool))}}
    if plugin.openshift:
        values["podSecurityContext"] = {"seLinuxOptions": {"type": SELINUX_TYPE}}
    return values


def _sharing(pool: Pool) -> dict[str, Any]:
    """The plugin's configuration for time-slicing, which is YAML and so may be JSON."""
    return {
        "version": "v1",
        "sharing": {
            "timeSlicing": {
                # Two shares may be of one GPU, and twice the shares are not twice the time.
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": GPU_RESOURCE, "replicas": pool.gpu_clients}],
            }
        },
    }


def _allow_privileged(
    name: str,
    release: str,
    namespace_name: str,
    namespace: k8s.core.v1.Namespace,
    opts: pulumi.ResourceOptions,
) -> k8s.rbac.v1.RoleBinding:
    """Lets the service account of one release, in its namespace alone, use the SCC that its pods need."""
    return k8s.rbac.v1.RoleBinding(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=fit(f"{release}-scc", KUBERNETES_NAME_LIMIT), namespace=namespace_name, labels=PART_OF
        ),
        role_ref=k8s.rbac.v1.RoleRefArgs(
            api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=PRIVILEGED_SCC
        ),
        subjects=[
            k8s.rbac.v1.SubjectArgs(
                # The chart's name for it (templates/service-account.yml).
                kind="ServiceAccount",
                name=f"{release}-service-account",
                namespace=namespace_name,
            )
        ],
        opts=wait_for(opts, namespace),
    )
