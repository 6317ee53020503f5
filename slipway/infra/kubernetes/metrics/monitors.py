"""What a stack declares so that metrics of its pods are read: where a collector looks, and that it is let in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.cluster.network_policy import allow_from, network_policy, select
from slipway.infra.kubernetes.cluster.workspace import OPERATOR_API, Measured, Workspace, scrapers
from slipway.infra.kubernetes.labels import MEASURED, PART_OF, app_labels
from slipway.infra.kubernetes.pods.pod import USAGE_PORT
from slipway.infra.objects import wait_for
from slipway.infra.placed import App
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit


@dataclass(frozen=True)
class Target:
    """Pods with ``labels`` that answer Prometheus at ``path`` of the port ``number``, which is called ``port``."""

    name: str
    labels: Mapping[str, str]
    port: str
    number: int
    path: str = "/metrics"


@dataclass(frozen=True)
class MetricsArgs:
    """``workspace`` is where the pods run that are measured, ``apps`` are those there."""

    workspace: Workspace
    measured: Measured
    apps: Sequence[App] = ()


class Metrics(pulumi.ComponentResource):
    """Has a collector read the pods of one cluster, and lets it in."""

    def __init__(self, name: str, args: MetricsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:Metrics", name, {}, opts)
        workspace = args.workspace
        on_cluster = pulumi.ResourceOptions(parent=self, provider=workspace.platform.provider)
        after = wait_for(on_cluster, *workspace.ready)
        for target in targets(args):
            logical = f"{name}-{target.name}-metrics"
            _monitor(logical, target, workspace.namespace, args.measured, after)
            _let_in(logical, target, workspace.namespace, args.measured, after)
        self.register_outputs({})


def targets(args: MetricsArgs) -> list[Target]:
    """What is read of the workspace's pods."""
    values = [
        Target(
            app.object_name,
            app_labels(app.pipeline, app.name),
            app.declared.metrics.port,
            app.all_ports[app.declared.metrics.port],
            app.declared.metrics.path,
        )
        for app in args.apps
        if app.declared.metrics
    ]
    usage = args.measured.usage
    if usage and usage.port:
        values.append(Target("steps", {**PART_OF, MEASURED: "true"}, USAGE_PORT, usage.port))
    return values


def monitor(target: Target, measured: Measured) -> tuple[str, str, dict[str, Any]]:
    """API version, kind and specification of the object that has a collector read ``target``."""
    collector = measured.collector
    assert collector is not None
    selector = {"matchLabels": dict(target.labels)}
    endpoint: dict[str, Any] = {"port": target.port, "path": target.path, "interval": f"{measured.interval}s"}
    if collector.api == OPERATOR_API:
        return collector.api, "PodMonitor", {"selector": selector, "podMetricsEndpoints": [endpoint]}
    return collector.api, "PodMonitoring", {"selector": selector, "endpoints": [endpoint]}


def _monitor(
    name: str, target: Target, namespace: str, measured: Measured, opts: pulumi.ResourceOptions
) -> k8s.apiextensions.CustomResource:
    api, kind, spec = monitor(target, measured)
    collector = measured.collector
    assert collector is not None
    return k8s.apiextensions.CustomResource(
        name,
        api_version=api,
        kind=kind,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=target.name, namespace=namespace, labels={**PART_OF, **collector.monitor_labels}
        ),
        spec=spec,
        opts=opts,
    )


def _let_in(
    name: str, target: Target, namespace: str, measured: Measured, opts: pulumi.ResourceOptions
) -> k8s.networking.v1.NetworkPolicy:
    """Lets the collector, and nobody else, connect to the port of ``target``."""
    called = fit(f"{target.name}-metrics", KUBERNETES_NAME_LIMIT)
    return network_policy(
        name,
        k8s.meta.v1.ObjectMetaArgs(name=called, namespace=namespace, labels=PART_OF),
        select(dict(target.labels)),
        ["Ingress"],
        opts,
        ingress=[allow_from(scrapers(measured), target.number)],
    )
