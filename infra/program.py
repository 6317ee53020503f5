"""The program: from a stack's settings to everything it declares."""

import json
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pulumi
from pulumi.runtime.config import CONFIG, is_config_secret
from pydantic import SecretStr

from infra.clouds.other_stack.platforms import outputs_of
from infra.clouds.registry import CLOUDS, Cloud
from infra.kubernetes import app, device_plugin, job, ownership
from infra.kubernetes.gates import Gates, cheapest_pool
from infra.kubernetes.images.build import BuildSpace, BuildSpaceArgs, ImageJob, ImageJobArgs, Images, bundle
from infra.kubernetes.images.registry import named_registry
from infra.kubernetes.ingress.exposure import proxied
from infra.kubernetes.ingress.login_proxy import SIZE as PROXY
from infra.kubernetes.ingress.login_proxy import pods_of_proxy
from infra.kubernetes.job import StepJob
from infra.kubernetes.kueue import LOCAL_QUEUE, Held, Kueue, KueueArgs
from infra.kubernetes.kueue_release import KueueReleaseArgs, host_pool
from infra.kubernetes.metrics.exporters import GpuExporterArgs
from infra.kubernetes.metrics.monitors import Metrics, MetricsArgs
from infra.kubernetes.metrics.prometheus import PrometheusArgs
from infra.kubernetes.results import Outputs, app_outputs
from infra.kubernetes.run import PodImage, Usage
from infra.kubernetes.schedule import RUNNER, PipelineSchedule, PipelineScheduleArgs
from infra.kubernetes.service import services_of
from infra.kubernetes.workspace import (
    PULL_SECRET,
    Admission,
    Measured,
    NodeReaderArgs,
    TeamNodeReader,
    Workspace,
    WorkspaceArgs,
    collector_of,
    reads_nodes,
)
from infra.pipelines.contract import Notify, PipelineSettings
from infra.pipelines.discovery import DeclaredPipeline
from infra.pipelines.images import BUILDKIT_IMAGE, CPU_IMAGE
from infra.pipelines.results import CONNECT, KUBECONFIG, METRICS, METRICS_PASSWORDS, PLATFORM, SHOW, STORE
from infra.placed import IMAGE_BUILD, App, Service, Step, with_those_before
from infra.placement import shipping
from infra.placement import steps as placement
from infra.placement.apps import place_apps
from infra.platform import Platform
from infra.platform_output import published
from infra.schema.names import KUBERNETES_NAME_LIMIT, fit
from infra.schema.problems import PREFIX, Problem, SettingsError
from infra.schema.quantities import seconds
from infra.schema.request import builds_namespace
from infra.schema.secret_values import protected
from infra.settings.loading import clouds_of, load, pipelines_in
from infra.settings.model import OWN_PODS, PROMETHEUS_PODS, REPLICAS, REQUESTS, KueueSettings, Settings
from infra.settings.pipelines import folder

# From a stack's settings to the Jobs that build the images of its steps.


def declare_images(
    settings: Settings, platforms: Mapping[str, Platform], images: Images, root: Path
) -> dict[str, PodImage]:
    """Declares the Jobs that build ``images``, and returns what pods name them by."""
    said = settings.registry
    if said is None or not images.found:
        return {}
    platform = next(each for each in platforms.values() if said.pool in each.pools)
    login = registry_login(settings, "login")
    registry = named_registry(said.repository, login) if said.repository else platform.registry
    if registry is None:
        raise ValueError(f"cluster {platform.name} has no registry")
    space = BuildSpace(
        f"{platform.name}-images",
        BuildSpaceArgs(
            platform, registry, builds_namespace(settings.namespace), settings.egress.allowed(), login=login
        ),
    )
    program = bundle(root, registry)
    wanted = {
        identity: ImageJob(
            f"{IMAGE_BUILD}-{each.name}",
            ImageJobArgs(
                each,
                space,
                platform.pools[said.pool],
                said.asked,
                seconds(said.time_limit),
                CPU_IMAGE,
                BUILDKIT_IMAGE,
                program,
            ),
        )
        for identity, each in images.found.items()
    }
    secret = PULL_SECRET if registry_login(settings, "pull_login") else ""
    return {identity: PodImage(each.reference, each.job, secret) for identity, each in wanted.items()}


def registry_login(settings: Settings, key: Literal["login", "pull_login"]) -> pulumi.Output[str] | None:
    """The Docker configuration with a login of the registry that is named; None where it wants none."""
    said = settings.registry
    name = said and (said.pull_login or said.login if key == "pull_login" else said.login)
    return pulumi.Output.secret(settings.secrets[name].get_secret_value()) if name else None


ROOT = Path(__file__).resolve().parents[1]
"""The repository, whose files the steps ship."""


@dataclass(frozen=True)
class Declared:
    """What the program declared: platforms and workspaces by cluster, Jobs by name (``<pipeline>-<step>``)."""

    settings: Settings
    platforms: Mapping[str, Platform]
    workspaces: Mapping[str, Workspace]
    jobs: Mapping[str, StepJob]


def run() -> None:
    """Declares the stack for the Pulumi CLI, which prints a `pulumi.RunError` as it is, without a traceback."""
    signal.signal(signal.SIGINT, _leave)
    try:
        declare()
    except SettingsError as error:
        raise pulumi.RunError(str(error)) from error


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """Ends the program without a word.

    When a resource fails, the CLI interrupts the program, which still waits to declare what depends on it.
    Python's two tracebacks of that (seen with Pulumi 3.260) would bury the failed Job's own words.
    """
    os._exit(1)


def declare(root: Path = ROOT) -> Declared:
    """Declares everything that the stack's settings ask for, and exports the stack's outputs.

    ``root`` is the repository whose files the steps ship. Raises SettingsError, with every problem found, before
    anything is declared.
    """
    settings, clouds = _checked(configured(), _configuration(), root)
    ownership.enforce(settings.namespace, preview=pulumi.runtime.is_dry_run())
    found: dict[str, Platform] = {}
    for cloud in clouds:
        found.update(cloud.platforms(settings.request))
    platforms = {name: found[name] for name in settings.clusters}
    gates = Gates(CPU_IMAGE)
    built = Images()
    placed = placement.place(pipelines_of(settings.pipelines), platforms, gates, root, built)
    steps = [step for of_pipeline in placed.values() for step in of_pipeline]
    placed_apps = place_apps(pipelines_of(settings.pipelines), platforms, placed, gates, root, images=built)
    images = declare_images(settings, platforms, built, root)
    pull = registry_login(settings, "pull_login") if images else None
    apps = [each for of_pipeline in placed_apps.values() for each in of_pipeline]
    before_apps = [step for each in apps for step in (*each.inputs.values(), *each.after)]
    services = Counter(each.platform.name for each in services_of(steps))
    apps_there = Counter(each.platform.name for each in [*apps, *filter(proxied, apps)])
    groups = Counter(each.platform.name for each in with_those_before(steps) if each.nodes)
    queues = _queues(settings, platforms, steps, apps, placed)
    workspaces = {
        name: Workspace(
            name,
            WorkspaceArgs(
                platform,
                settings.namespace,
                settings.service_account,
                settings.protect,
                settings.egress.allowed(),
                services[name],
                any(pipeline.schedule for pipeline in settings.pipelines.values()),
                *_queue(settings, platform, queues.get(name)),
                groups=groups[name],
                apps=apps_there[name],
                measured=_measured(settings, platform),
                images=images,
                pull=pull,
            ),
        )
        for name, platform in platforms.items()
    }
    jobs = job.declare([*steps, *before_apps], workspaces, root, settings.secrets)
    running = app.declare(apps, workspaces, jobs, root, settings.secrets, image=CPU_IMAGE)
    for name, each in settings.pipelines.items():
        if each.schedule:
            own = [jobs[step.job] for step in placed[name]]
            workspace = workspaces[placed[name][0].platform.name]
            PipelineSchedule(
                f"{name}-schedule",
                PipelineScheduleArgs(
                    name,
                    each.schedule.cron,
                    each.schedule.time_zone,
                    own,
                    workspace,
                    CPU_IMAGE,
                    root,
                    _webhook(each.schedule.notify, settings.secrets),
                ),
            )
    read = _metrics(settings, workspaces, apps, services_of(steps))
    outputs = Outputs(jobs, workspaces)
    for name, of_pipeline in placed.items():
        own = [running[f"{each.pipeline}-{each.name}"] for each in placed_apps[name]]
        pulumi.export(name, outputs.of(of_pipeline) | app_outputs(own))
    if outputs.described:
        pulumi.export(SHOW, outputs.described)
    pulumi.export(STORE, next(iter(platforms.values())).store.url)
    pulumi.export(CONNECT, {name: platform.connect for name, platform in platforms.items()})
    pulumi.export(
        KUBECONFIG,
        pulumi.Output.secret({name: platform.kubeconfig for name, platform in platforms.items()}),
    )
    if pages := {name: each.forward for name, each in read.items() if each.forward}:
        pulumi.export(METRICS, pages)
        passwords = {name: each.password for name, each in read.items() if each.password is not None}
        pulumi.export(METRICS_PASSWORDS, pulumi.Output.secret(passwords))
    if settings.teams:
        for name, platform in platforms.items():
            for team, each in settings.teams.items() if reads_nodes(platform) else ():
                TeamNodeReader(f"{name}-nodes-{team}", NodeReaderArgs(platform, each.namespace))
        clouds_by_name = {name: (cluster.cloud, platforms[name]) for name, cluster in settings.clusters.items()}
        devices = {name: device_plugin.fingerprint(platform) for name, platform in platforms.items()}
        access = {name: each.access for name, each in queues.items()}
        pulumi.export(PLATFORM, published(settings.teams, clouds_by_name, devices, access))
    return Declared(settings, platforms, workspaces, jobs)


def _webhook(notify: Notify | None, secrets: Mapping[str, SecretStr]) -> str | None:
    """The address that is told how runs by the clock end; None where nobody is."""
    if notify is None:
        return None
    return secrets[notify.secret].get_secret_value() if notify.secret else notify.url


def _queues(
    settings: Settings,
    platforms: Mapping[str, Platform],
    steps: Sequence[Step],
    apps: Sequence[App],
    placed: Mapping[str, Sequence[Step]],
) -> dict[str, Kueue]:
    """What the stack declares of Kueue, by cluster."""
    kueue = settings.kueue
    if kueue is None or kueue.local_queue:
        return {}
    shares = kueue.shares_of(settings.namespace, settings.teams, runs_pipelines=bool(settings.pipelines))
    release = KueueReleaseArgs(
        namespace=kueue.namespace,
        namespaces=[*shares, *kueue.namespaces],
        ready_within=seconds(kueue.ready_within),
        wait=seconds(kueue.wait),
        requests=REQUESTS,
        replicas=REPLICAS,
        chart=kueue.chart,
        version=kueue.version,
        fair=bool(settings.teams),
    )
    found: dict[str, Kueue] = {}
    for name, platform in platforms.items():
        if not platform.owned:
            continue
        services = [each for each in services_of(steps) if each.platform == platform]
        held = [Held(service.pool.name, service.requests) for service in services]
        if settings.metrics and settings.metrics.collect:
            held += [
                Held(service.pool.name, asked) for service in services if (asked := service.exporter_requests)
            ]
        held += [
            Held(each.pool.name, each.requests)
            for each in apps
            if each.platform == platform
            for _ in range(each.most)
        ]
        held += [
            Held(cheapest_pool(platform).name, PROXY)
            for each in apps
            if each.platform == platform and proxied(each)
            for _ in range(pods_of_proxy(each))
        ]
        held += [
            Held(cheapest_pool(platform).name, RUNNER)
            for pipeline, each in settings.pipelines.items()
            if each.schedule and placed[pipeline][0].platform == platform
        ]
        held += [
            Held(cheapest_pool(platform).name, RUNNER)
            for each in apps
            if each.declared.idle and each.platform == platform
        ]
        if kueue.install and (pool := host_pool(platform)):
            held.append(Held(pool.name, OWN_PODS))
        if _installs_prometheus(settings, platform) and (pool := host_pool(platform)):
            held += [Held(pool.name, prometheus_pod) for prometheus_pod in PROMETHEUS_PODS]
        found[name] = Kueue(
            f"{name}-kueue",
            KueueArgs(
                platform,
                settings.namespace,
                shares,
                seconds(kueue.wait),
                kueue.preemption,
                held,
                release if kueue.install else None,
            ),
        )
    return found


def _measured(settings: Settings, platform: Platform) -> Measured | None:
    """What is measured on a cluster, and who reads it; None where nothing is."""
    said = settings.metrics
    if said is None:
        return None
    found = said.prometheus
    collector = collector_of(platform, found.namespace, found.pod_labels, found.labels) if said.collect else None
    usage = Usage(said.port if collector else 0, said.idle.below, said.idle.share) if said.usage else None
    return Measured(collector, seconds(said.interval), usage)


def _installs_prometheus(settings: Settings, platform: Platform) -> bool:
    said = settings.metrics
    return bool(said and said.installs_prometheus and platform.collector is None)


def _metrics(
    settings: Settings, workspaces: Mapping[str, Workspace], apps: Sequence[App], services: Sequence[Service]
) -> dict[str, Metrics]:
    """What reads the metrics of each cluster whose metrics are read."""
    said = settings.metrics
    found: dict[str, Metrics] = {}
    for name, workspace in workspaces.items():
        measured, platform = workspace.measured, workspace.platform
        if said is None or measured is None or measured.collector is None:
            continue
        own, exporter = said.prometheus, said.gpus
        exports = exporter.install and not measured.collector.reads_gpus and device_plugin.gpu_pools(platform)
        exporter_namespace = fit(f"{settings.namespace}-gpu-metrics", KUBERNETES_NAME_LIMIT)
        looked_at = [settings.namespace, exporter_namespace]
        found[name] = Metrics(
            f"{name}-metrics",
            MetricsArgs(
                workspace,
                measured,
                [each for each in apps if each.platform == platform],
                [service for service in services if service.platform == platform],
                PrometheusArgs(
                    namespace=own.namespace,
                    namespaces=looked_at,
                    interval=measured.interval,
                    retention=own.retention,
                    storage=own.storage,
                    chart=own.chart,
                    version=own.version,
                )
                if _installs_prometheus(settings, platform)
                else None,
                GpuExporterArgs(platform, exporter_namespace, measured, exporter.chart, exporter.version)
                if exports
                else None,
                said.dashboards,
            ),
        )
    return found


def _queue(settings: Settings, platform: Platform, kueue: Kueue | None) -> tuple[str | None, Admission | None]:
    """The LocalQueue of the stack's Jobs on a cluster, and how they get past it; None where they start at once."""
    said = settings.kueue or KueueSettings()
    if kueue:
        return LOCAL_QUEUE, Admission(seconds(said.wait), kueue.access[settings.namespace], kueue.ready)
    if platform.queue:
        return LOCAL_QUEUE, Admission(seconds(said.wait), platform.queue)
    return (said.local_queue, Admission(seconds(said.wait))) if said.local_queue else (None, None)


def configured() -> dict[str, Any]:
    """All ``slipway:`` keys of the stack's configuration without their prefix, known or not, as plain values.

    What Pulumi knows as a secret is protected where it is one of ``slipway:secrets``, or nobody knows what it is.
    """
    found = {
        key.removeprefix(PREFIX): _plain(value)
        for key, value in _configuration().items()
        if key.startswith(PREFIX)
    }
    return {
        key: protected(value)
        if is_config_secret(PREFIX + key) and (key == "secrets" or key not in Settings.model_fields)
        else value
        for key, value in found.items()
    }


def _configuration() -> dict[str, Any]:
    # `pulumi.Config` can only be asked for keys by name, and an unknown one has to be refused.
    return {**pulumi.runtime.config.get_config_env(), **CONFIG.get()}


def _plain(value: Any) -> Any:
    """The CLI hands mappings and lists over as JSON, and scalars as text, which the settings' types take up."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        return json.loads(value, parse_int=_whole)
    except (ValueError, RecursionError):
        return value


def _whole(digits: str) -> int | str:
    """Python refuses to read a number of more than 4,300 digits; as text, the settings refuse it by its key."""
    return int(digits) if len(digits) <= 4300 else digits


def _checked(raw: Mapping[str, Any], values: Mapping[str, Any], root: Path) -> tuple[Settings, list[Cloud]]:
    """The settings and the clouds they use; raises SettingsError with the problems of all checks together."""
    problems: list[Problem] = []
    settings = None
    try:
        settings = load(raw, outputs_of)
    except SettingsError as error:
        problems.extend(error.problems)
    clouds = [CLOUDS[name] for name in clouds_of(raw)]
    for cloud in clouds:
        problems.extend(cloud.preflight_problems(settings and settings.request))
    problems.extend(problems_beside(raw, values, root))
    if settings is None or problems:
        raise SettingsError(problems)
    return settings, clouds


def problems_beside(raw: Mapping[str, Any], values: Mapping[str, Any], root: Path) -> list[Problem]:
    """What is wrong beside the settings ``raw``, right or wrong.

    That is the keys of their clouds' providers among ``values``, the whole configuration, and what the pipelines
    cannot ship from the repository at ``root``.
    """
    configuration = [problem for name in clouds_of(raw) for problem in CLOUDS[name].provider_problems(values)]
    return [*configuration, *shipping_problems(raw, root)]


def shipping_problems(raw: Mapping[str, Any], root: Path) -> list[Problem]:
    """What the pipelines of the settings ``raw``, right or wrong, cannot ship from the repository at ``root``.

    Of a section that has no right shape, what can be read of it counts.
    """
    return shipping.problems(pipelines_of(pipelines_in(raw)), root)


def pipelines_of(sections: Mapping[str, PipelineSettings]) -> list[DeclaredPipeline]:
    """The pipelines that the section `pipelines` of a stack file runs."""
    return [DeclaredPipeline(name, folder(name, settings), settings) for name, settings in sections.items()]
