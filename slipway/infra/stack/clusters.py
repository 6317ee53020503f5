"""What each cluster has beside Jobs and apps: built images, queues, workspaces, and what reads metrics."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pulumi

from slipway.infra.features import parts
from slipway.infra.kubernetes.cluster.api_access import RUNNER
from slipway.infra.kubernetes.cluster.workspace import (
    OPERATOR_API,
    PULL_SECRET,
    Admission,
    Measured,
    Workspace,
    WorkspaceArgs,
)
from slipway.infra.kubernetes.image_builds.build import (
    BuildSpace,
    BuildSpaceArgs,
    ImageJob,
    ImageJobArgs,
    bundle,
    named_registry,
)
from slipway.infra.kubernetes.ingress.login_proxy import SIZE as PROXY
from slipway.infra.kubernetes.ingress.login_proxy import pods_of_proxy
from slipway.infra.kubernetes.metrics.monitors import Metrics, MetricsArgs
from slipway.infra.kubernetes.places.mover import mover_pool
from slipway.infra.kubernetes.run import USAGE_PORT, PodImage, Usage
from slipway.infra.kubernetes.schedules.schedule import MOST_RUNS
from slipway.infra.pipelines.images import BUILDKIT_IMAGE, CPU_IMAGE
from slipway.infra.pipelines.residents import Resident, residents_on
from slipway.infra.placed import IMAGE_BUILD, with_those_before
from slipway.infra.platform import Collector, Platform, Pool
from slipway.infra.schema.quantities import seconds
from slipway.infra.schema.request import builds_namespace
from slipway.infra.settings.model import Settings
from slipway.infra.stack.placed_stack import PlacedStack


def declare_images(stack: PlacedStack, root: Path) -> dict[str, PodImage]:
    """Declares the Jobs that build the images of the stack, and returns what pods name them by."""
    settings, platforms, images = stack.settings, stack.platforms, stack.images
    section = settings.registry
    if section is None or not images.built:
        return {}
    platform = next(platform for platform in platforms.values() if section.pool in platform.pools)
    login = registry_login(settings, "login")
    registry = named_registry(section.repository, login) if section.repository else platform.registry
    if registry is None:
        raise ValueError(f"cluster {platform.name} has no registry")
    space = BuildSpace(
        f"{platform.name}-images",
        BuildSpaceArgs(
            platform, registry, builds_namespace(settings.namespace), settings.egress.allowed(), login=login
        ),
    )
    program = bundle(root, registry)
    image_jobs = {
        identity: ImageJob(
            f"{IMAGE_BUILD}-{image.name}",
            ImageJobArgs(
                image,
                space,
                platform.pools[section.pool],
                section.asked,
                seconds(section.time_limit),
                CPU_IMAGE,
                BUILDKIT_IMAGE,
                program,
            ),
        )
        for identity, image in images.built.items()
    }
    secret = PULL_SECRET if registry_login(settings, "pull_login") else ""
    return {
        identity: PodImage(image_job.reference, image_job.job, secret)
        for identity, image_job in image_jobs.items()
    }


def registry_login(settings: Settings, key: Literal["login", "pull_login"]) -> pulumi.Output[str] | None:
    """The Docker configuration with a login of the registry that is named; None where it wants none."""
    section = settings.registry
    name = section and (section.pull_login or section.login if key == "pull_login" else section.login)
    return pulumi.Output.secret(settings.secrets[name].get_secret_value()) if name else None


def host_pool(platform: Platform) -> Pool | None:
    """The pool of what a stack installs, which has a node at all times then; None where all pools have GPUs."""
    return next((pool for pool in platform.pools.values() if not pool.allocatable.gpus), None)


def held_on(stack: PlacedStack, platform: Platform) -> list[Resident]:
    """What is on the pools of a cluster and in no queue."""
    settings, cheapest = stack.settings, platform.cheapest_pool.name
    held = [resident for pool in platform.pools.values() for resident in residents_on(stack.residents, pool)]
    for app in stack.all_apps:
        if app.platform == platform and app.declared.placed_by.ingress:
            held.append(Resident("proxy", cheapest, [PROXY] * pods_of_proxy(app), (), app.pipeline, app.name))
    for name, pipeline in settings.pipelines.items():
        if pipeline.schedule and stack.steps[name][0].platform == platform:
            held.append(Resident("runner", cheapest, [RUNNER], (), name))
    for step in (step for steps in stack.steps.values() for step in steps):
        if step.places and any(place.platform == platform for place in step.places.steps):
            pool = mover_pool(platform, step.places).name
            held.append(Resident("runner", pool, [RUNNER], (), step.pipeline, step.name))
    if host := host_pool(platform):
        held += [resident for of in parts("feature", "residents") for resident in of(settings, host.name)]
    return held


def declare_workspaces(
    stack: PlacedStack, admissions: Mapping[str, Admission], images: Mapping[str, PodImage]
) -> dict[str, Workspace]:
    """The namespace of the stack on each of its clusters."""
    settings, apps = stack.settings, stack.all_apps
    pull = registry_login(settings, "pull_login") if images else None
    services = Counter(service.platform.name for service in stack.services)
    with_proxy = [app for app in apps if app.declared.placed_by.ingress]
    app_pods = Counter(app.platform.name for app in [*apps, *with_proxy])
    all_steps = with_those_before(stack.all_steps)
    groups = Counter(platform.name for step in all_steps if step.is_group for platform in step.platforms)
    places = Counter(place.platform.name for step in stack.all_steps if step.places for place in step.places.steps)
    jobs = Counter(
        platform.name for step in with_those_before(stack.steps_with_jobs) for platform in step.platforms
    )
    for name, pipeline in settings.pipelines.items():
        if pipeline.schedule:
            jobs[stack.steps[name][0].platform.name] += MOST_RUNS * (len(stack.steps[name]) + 1)
    return {
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
                admissions.get(name),
                groups=groups[name],
                places=places[name],
                apps=app_pods[name],
                jobs=jobs[name],
                measured=_measure(settings, platform),
                images=images,
                pull=pull,
            ),
        )
        for name, platform in stack.platforms.items()
    }


def _measure(settings: Settings, platform: Platform) -> Measured | None:
    """What is measured on a cluster, and who reads it; None where nothing is."""
    metrics = settings.metrics
    if metrics is None:
        return None
    collector, prometheus = platform.collector if metrics.collect else None, metrics.prometheus
    if metrics.collect and prometheus and not collector:
        collector = Collector(OPERATOR_API, prometheus.namespace, prometheus.pod_labels, prometheus.labels)
    usage = Usage(USAGE_PORT if collector else 0) if metrics.usage else None
    return Measured(collector, seconds(metrics.interval), usage)


def declare_metrics(stack: PlacedStack, workspaces: Mapping[str, Workspace]) -> None:
    """Has the metrics of each cluster read whose metrics are read."""
    for name, workspace in workspaces.items():
        measured, platform = workspace.measured, workspace.platform
        if measured and measured.collector:
            apps = [app for app in stack.all_apps if app.platform == platform]
            Metrics(f"{name}-metrics", MetricsArgs(workspace, measured, apps))
