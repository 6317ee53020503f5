"""The outputs of a stack: results by pipeline, and how people reach its clusters, pages and store."""

from collections.abc import Mapping

import pulumi

from infra.kubernetes import device_plugin
from infra.kubernetes.app import PipelineApp
from infra.kubernetes.kueue import Kueue
from infra.kubernetes.metrics.monitors import Metrics
from infra.kubernetes.results import Outputs, app_outputs
from infra.pipelines.results import CONNECT, KUBECONFIG, METRICS, METRICS_PASSWORDS, PLATFORM, SHOW, STORE
from infra.platform import Platform
from infra.platform_output import published
from infra.stack.placed_stack import PlacedStack


def export_results(stack: PlacedStack, outputs: Outputs, apps: Mapping[str, PipelineApp]) -> None:
    """The results of each pipeline's steps, and where its apps are; ``apps`` are by ``<pipeline>-<app>``."""
    for name, steps in stack.steps.items():
        of_pipeline = [apps[f"{app.pipeline}-{app.name}"] for app in stack.apps[name]]
        pulumi.export(name, outputs.of(steps) | app_outputs(of_pipeline))
    if outputs.described:
        pulumi.export(SHOW, outputs.described)


def export_access(platforms: Mapping[str, Platform]) -> None:
    """The store's URL, and how a person connects to each cluster."""
    pulumi.export(STORE, next(iter(platforms.values())).store.url)
    pulumi.export(CONNECT, {name: platform.connect for name, platform in platforms.items()})
    pulumi.export(
        KUBECONFIG,
        pulumi.Output.secret({name: platform.kubeconfig for name, platform in platforms.items()}),
    )


def export_metrics(metrics: Mapping[str, Metrics]) -> None:
    """How a person reaches the dashboards of each cluster that has some, and with which password."""
    if pages := {name: read.forward for name, read in metrics.items() if read.forward}:
        pulumi.export(METRICS, pages)
        passwords = {name: read.password for name, read in metrics.items() if read.password is not None}
        pulumi.export(METRICS_PASSWORDS, pulumi.Output.secret(passwords))


def export_platform(stack: PlacedStack, queues: Mapping[str, Kueue]) -> None:
    """What the stacks of other teams need to run their Jobs here."""
    clusters = stack.settings.clusters.items()
    clouds = {name: (cluster.cloud, stack.platforms[name]) for name, cluster in clusters}
    devices = {name: device_plugin.fingerprint(platform) for name, platform in stack.platforms.items()}
    access = {name: queue.access for name, queue in queues.items()}
    pulumi.export(PLATFORM, published(stack.settings.teams, clouds, devices, access))
