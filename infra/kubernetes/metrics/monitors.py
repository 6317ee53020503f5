"""What a stack declares so that metrics of its pods are read: what reads them, where it has to look, who is let
in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.kubernetes.cluster.network_policy import allow_from, network_policy, select
from slipway.infra.kubernetes.cluster.workspace import OPERATOR_API, Measured, Workspace, scrapers
from slipway.infra.kubernetes.labels import MEASURED, PART_OF, app_labels
from slipway.infra.kubernetes.metrics import exporters
from slipway.infra.kubernetes.metrics.exporters import GpuExporterArgs
from slipway.infra.kubernetes.metrics.prometheus import (
    GRAFANA_PORT,
    PROMETHEUS_PORT,
    Prometheus,
    PrometheusArgs,
    config_maps,
    prometheus_release,
)
from slipway.infra.kubernetes.pods.pod import USAGE_PORT
from slipway.infra.objects import wait_for
from slipway.infra.placed import App, Service
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit


@dataclass(frozen=True)
class Target:
    """Pods with ``labels`` that answer Prometheus at ``path`` of their port called ``port``, which is ``number``.

    With ``honors`` the labels that they write win over those that say where they were read.
    """

    name: str
    labels: Mapping[str, str]
    port: str
    number: int
    path: str = "/metrics"
    honors: bool = False


@dataclass(frozen=True)
class MetricsArgs:
    """``workspace`` is where the pods run that are measured, ``apps`` and ``services`` are those there.

    ``prometheus`` says how Prometheus is installed; None: one is there already. ``gpus`` says how the exporter of
    GPUs is installed; None: one is there already. ``dashboards`` says whether dashboards are declared for Grafana.
    """

    workspace: Workspace
    measured: Measured
    apps: Sequence[App] = ()
    services: Sequence[Service] = ()
    prometheus: PrometheusArgs | None = None
    gpus: GpuExporterArgs | None = None
    dashboards: bool = True


class Metrics(pulumi.ComponentResource):
    """What reads the metrics of one cluster, and what it reads.

    ``forward`` are the commands that bring its pages to a person's machine, and ``password`` is Grafana's, where
    the stack installs them.
    """

    def __init__(self, name: str, args: MetricsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("slipway:kubernetes:Metrics", name, {}, opts)
        workspace, collector = args.workspace, args.measured.collector
        on_cluster = pulumi.ResourceOptions(parent=self, provider=workspace.platform.provider)
        installed = (
            prometheus_release(name, args.prometheus, workspace.platform, on_cluster) if args.prometheus else None
        )
        after = wait_for(on_cluster, *workspace.ready, *(installed.ready if installed else ()))
        if args.gpus:
            exported = exporters.gpu_exporter(name, args.gpus, on_cluster)
            target = Target(
                exporters.CHART,
                exporters.pod_labels(),
                exporters.PORT_NAME,
                exporters.PORT,
                honors=True,
            )
            after_exporter = wait_for(after, *exported)
            _monitor(f"{name}-gpus", target, args.gpus.namespace, args.measured, after_exporter)
        for service in args.services:
            exporters.declare_exporter(
                f"{name}-{service.pipeline}-{exporters.component(service)}", service, workspace, after
            )
        for target in targets(args):
            logical = f"{name}-{target.name}-metrics"
            _monitor(logical, target, workspace.namespace, args.measured, after)
            _let_in(logical, target, workspace.namespace, args.measured, after)
        if args.dashboards and collector and collector.api == OPERATOR_API:
            where = args.prometheus.namespace if args.prometheus else workspace.namespace
            config_maps(name, where, after)
        self.forward: dict[str, pulumi.Output[str]] = _forward(args, installed) if installed else {}
        self.password = installed.password if installed else None
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
    values += [
        Target(
            exporters.object_name(service),
            exporters.exporter_labels(service),
            exporters.SERVICE_EXPORTER_PORT_NAME,
            service.exporter.port,
        )
        for service in args.services
        if service.exporter
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
        honors = {"honorLabels": True} if target.honors else {}
        return collector.api, "PodMonitor", {"selector": selector, "podMetricsEndpoints": [{**endpoint, **honors}]}
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


def _forward(args: MetricsArgs, installed: Prometheus) -> dict[str, pulumi.Output[str]]:
    assert args.prometheus is not None
    where = f"--namespace {args.prometheus.namespace} port-forward"
    commands = {
        "grafana": f"{where} service/{installed.grafana} 3000:{GRAFANA_PORT}",
        "prometheus": f"{where} service/{installed.prometheus} {PROMETHEUS_PORT}:{PROMETHEUS_PORT}",
    }
    kubectl = args.workspace.platform.kubectl
    return {name: pulumi.Output.concat(kubectl, " ", command) for name, command in commands.items()}
