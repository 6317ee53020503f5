"""The pipelines of a stack on the pools of its clusters, what runs them by the clock, and the stack's outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pulumi
from pydantic import SecretStr

from slipway.infra.clouds.contract import Cloud
from slipway.infra.kubernetes.apps.app import PipelineApp
from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.cluster.workspace import Admission, Workspace
from slipway.infra.kubernetes.image_builds.build import Images
from slipway.infra.kubernetes.job import StepJob
from slipway.infra.kubernetes.results import Outputs, app_outputs
from slipway.infra.kubernetes.schedules.cluster_run import Attempts, ClusterRun, ClusterRunArgs, declare_attempts
from slipway.infra.kubernetes.schedules.schedule import PipelineSchedule, PipelineScheduleArgs
from slipway.infra.kubernetes.service import services_of
from slipway.infra.pipelines.contract import Notify
from slipway.infra.pipelines.images import CPU_IMAGE
from slipway.infra.pipelines.residents import Resident, residents
from slipway.infra.pipelines.results import CONNECT, KUBECONFIG, PLATFORM, SHOW, STORE
from slipway.infra.placed import CLUSTER_RUN, App, Service, Step, with_those_before
from slipway.infra.placement.placing import place, place_apps
from slipway.infra.platform import Platform
from slipway.infra.platform_output import published
from slipway.infra.settings.model import Settings
from slipway.infra.stack.configuration import pipelines_of


@dataclass(frozen=True)
class PlacedStack:
    """A stack's steps and apps by pipeline, each on its pool, before an object of theirs is declared.

    ``platforms`` are by cluster. ``images`` are those that are to be built for them.
    """

    settings: Settings
    platforms: Mapping[str, Platform]
    steps: Mapping[str, Sequence[Step]]
    apps: Mapping[str, Sequence[App]]
    images: Images

    @cached_property
    def all_steps(self) -> list[Step]:
        """The steps of all pipelines."""
        return [step for steps in self.steps.values() for step in steps]

    @cached_property
    def all_apps(self) -> list[App]:
        """The apps of all pipelines."""
        return [app for apps in self.apps.values() for app in apps]

    @cached_property
    def steps_with_jobs(self) -> list[Step]:
        """The steps of all pipelines, then those that only apps need."""
        return [
            *self.all_steps,
            *(step for app in self.all_apps for step in (*app.inputs.values(), *app.after)),
        ]

    @cached_property
    def held_steps(self) -> list[Step]:
        """The steps that `up` does not wait for: those of pipelines that run in their cluster, with what these
        alone need there, gates and packages included. Apps wait themselves for those that they read.
        """
        in_cluster = [name for name, section in self.settings.pipelines.items() if section.runs == "cluster"]
        needed = {name: with_those_before(self.steps[name]) for name in in_cluster}
        awaited = [
            *(step for name, steps in self.steps.items() if name not in in_cluster for step in steps),
            *(
                step
                for app in self.all_apps
                for step in (*app.inputs.values(), *app.after)
                if app.pipeline not in in_cluster or step.pipeline != app.pipeline
            ),
            # What installs packages for several pipelines is on the cluster of one of them.
            *(step for name, steps in needed.items() for step in steps if step.platform != self._home_of(name)),
        ]
        kept = {id(step) for step in with_those_before(awaited)}
        held = {step.job: step for steps in needed.values() for step in steps if id(step) not in kept}
        return list(held.values())

    def _home_of(self, pipeline: str) -> Platform:
        """The platform of the pipeline's steps."""
        return self.steps[pipeline][0].platform

    @cached_property
    def residents(self) -> list[Resident]:
        """What services and apps take of pools."""
        return [
            resident
            for pipeline in pipelines_of(self.settings.pipelines)
            for resident in residents(pipeline.name, pipeline.services, pipeline.apps)
        ]

    @cached_property
    def services(self) -> list[Service]:
        """The services that steps connect to, each once."""
        return services_of(self.all_steps)


def declare_platforms(settings: Settings, clouds: Sequence[Cloud]) -> dict[str, Platform]:
    """What the clouds declare of clusters, store and identities: by cluster, in the order of the stack file."""
    platforms: dict[str, Platform] = {}
    for cloud in clouds:
        platforms.update(cloud.platforms(settings.request))
    return {name: platforms[name] for name in settings.clusters}


def place_pipelines(settings: Settings, platforms: Mapping[str, Platform], root: Path) -> PlacedStack:
    """Puts the pipelines of ``settings`` on pools; ``root`` is the repository whose files they ship."""
    pipelines, gates, images = pipelines_of(settings.pipelines), Gates(CPU_IMAGE), Images()
    steps = place(pipelines, platforms, gates, root, images)
    apps = place_apps(pipelines, platforms, steps, gates, root, images=images)
    return PlacedStack(settings, platforms, steps, apps, images)


def declare_schedules(
    stack: PlacedStack, jobs: Mapping[str, StepJob], workspaces: Mapping[str, Workspace], root: Path
) -> None:
    """What runs pipelines by the clock, for those that have a `schedule`."""
    for name, section in stack.settings.pipelines.items():
        if section.schedule:
            steps = stack.steps[name]
            PipelineSchedule(
                f"{name}-schedule",
                PipelineScheduleArgs(
                    name,
                    section.schedule.cron,
                    section.schedule.time_zone,
                    [jobs[step.job] for step in steps],
                    workspaces[steps[0].platform.name],
                    CPU_IMAGE,
                    root,
                    _webhook(section.schedule.notify, stack.settings.secrets),
                ),
            )


def declare_attempts_of(stack: PlacedStack, workspaces: Mapping[str, Workspace]) -> dict[str, Attempts]:
    """Which attempt of each Job is due, by the cluster; of clusters whose Jobs `up` does not wait for."""
    names = {step.platform.name for step in stack.held_steps}
    return {
        name: declare_attempts(f"{name}-{CLUSTER_RUN}-attempts", workspace)
        for name, workspace in workspaces.items()
        if name in names
    }


def declare_cluster_runs(
    stack: PlacedStack,
    jobs: Mapping[str, StepJob],
    attempts: Mapping[str, Attempts],
    workspaces: Mapping[str, Workspace],
    root: Path,
) -> None:
    """What lets the Jobs run that `up` does not wait for, on each cluster that has some."""
    held = {step.job for step in stack.held_steps}
    for name, due in attempts.items():
        in_cluster = [job for key, job in jobs.items() if key in held and job.run.step.platform.name == name]
        args = ClusterRunArgs(in_cluster, due, workspaces[name], CPU_IMAGE, root)
        ClusterRun(f"{name}-{CLUSTER_RUN}", args)


def _webhook(notify: Notify | None, secrets: Mapping[str, SecretStr]) -> str | None:
    """The address that is notified of how runs by the clock end; None: no address is."""
    if notify is None:
        return None
    return secrets[notify.secret].get_secret_value() if notify.secret else notify.url


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


def export_platform(stack: PlacedStack, admissions: Mapping[str, Admission]) -> None:
    """What the stacks of other teams need to run their Jobs here."""
    clusters = stack.settings.clusters.items()
    clouds = {name: (cluster.cloud, stack.platforms[name]) for name, cluster in clusters}
    access = {name: admission.teams for name, admission in admissions.items()}
    pulumi.export(PLATFORM, published(stack.settings.teams, clouds, access))
