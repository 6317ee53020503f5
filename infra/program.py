"""The program: from a stack's settings to everything it declares."""

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pulumi
from pulumi.runtime.config import CONFIG

from infra.clouds.registry import CLOUDS, Cloud
from infra.kubernetes import job, ownership
from infra.kubernetes.gates import Gates
from infra.kubernetes.job import StepJob
from infra.kubernetes.results import SHOW
from infra.kubernetes.workspace import Workspace, WorkspaceArgs
from infra.pipelines import benchmark, mnist
from infra.pipelines.images import CPU_IMAGE
from infra.platform import Platform
from infra.schema.problems import Problem, SettingsError
from infra.settings.loading import clouds_of, load
from infra.settings.model import Settings
from infra.settings.pipelines import Benchmark, Mnist
from infra.step import Step

ROOT = Path(__file__).resolve().parents[1]
"""The repository, whose files the steps ship."""

PREFIX = "slipway:"


@dataclass(frozen=True)
class Declared:
    """What the program declared: platforms and workspaces by cluster, Jobs by name (``mnist-train``)."""

    settings: Settings
    platforms: Mapping[str, Platform]
    workspaces: Mapping[str, Workspace]
    jobs: Mapping[str, StepJob]


@dataclass(frozen=True)
class Planned:
    """A pipeline's steps, and what the stack shows of them once their Jobs are declared."""

    steps: Sequence[Step]
    outputs: Callable[[Mapping[str, StepJob], Mapping[str, Workspace]], Mapping[str, pulumi.Input[Any]]]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline by its key in the settings.

    ``problems`` is given its section, which may have any shape, and the repository. ``plan`` is given its
    settings, the platforms, the gates, the repository, and the steps of the pipelines before it.
    ``measures_devices`` says that its results are figures of accelerators, and worth nothing from a CPU.
    """

    problems: Callable[[Any, Path], Sequence[Problem]]
    plan: Callable[[Any, Mapping[str, Platform], Gates, Path, Sequence[Step]], Planned]
    measures_devices: bool = False


def _plan_mnist(
    settings: Mnist, platforms: Mapping[str, Platform], gates: Gates, root: Path, _: Sequence[Step]
) -> Planned:
    made = mnist.steps(settings, platforms, gates, root)
    return Planned([made.prepare, made.train, made.predict], partial(mnist.outputs, made))


def _plan_benchmark(
    settings: Benchmark, platforms: Mapping[str, Platform], gates: Gates, _: Path, others: Sequence[Step]
) -> Planned:
    made = benchmark.steps(settings, platforms, gates, others)
    return Planned([*made.runs, made.chart], partial(benchmark.outputs, made))


PIPELINES: Mapping[str, Pipeline] = {
    mnist.NAME: Pipeline(
        lambda section, root: mnist.problems(_at(section, "predict", "images"), root), _plan_mnist
    ),
    benchmark.NAME: Pipeline(lambda _, root: benchmark.problems(root), _plan_benchmark, measures_devices=True),
}
"""In the order in which they may use a pool."""


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
    workspaces = {
        name: Workspace(
            name,
            WorkspaceArgs(
                platform,
                settings.namespace,
                settings.service_account,
                settings.protect,
                settings.egress.allowed(),
            ),
        )
        for name, platform in platforms.items()
    }
    gates = Gates(CPU_IMAGE)
    planned: list[Planned] = []
    for name, pipeline in PIPELINES.items():
        if (section := getattr(settings.pipelines, name)) is not None:
            earlier = [step for each in planned for step in each.steps]
            planned.append(pipeline.plan(section, platforms, gates, root, earlier))
    jobs = job.declare([step for each in planned for step in each.steps], workspaces, root)
    described: dict[str, pulumi.Input[Any]] = {}
    for each in planned:
        for name, value in each.outputs(jobs, workspaces).items():
            if name == SHOW:
                described.update(cast("Mapping[str, pulumi.Input[Any]]", value))
            else:
                pulumi.export(name, value)
    if described:
        pulumi.export(SHOW, described)
    pulumi.export("connect", {name: platform.connect for name, platform in platforms.items()})
    pulumi.export(
        "kubeconfig",
        pulumi.Output.secret({name: platform.kubeconfig for name, platform in platforms.items()}),
    )
    return Declared(settings, platforms, workspaces, jobs)


def configured() -> dict[str, Any]:
    """All ``slipway:`` keys of the stack's configuration without their prefix, known or not, as plain values."""
    return {
        key.removeprefix(PREFIX): _plain(value)
        for key, value in _configuration().items()
        if key.startswith(PREFIX)
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
        settings = load(raw)
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
    """What the pipelines of the settings ``raw``, right or wrong, cannot ship from the repository at ``root``."""
    return [
        problem
        for name, pipeline in PIPELINES.items()
        if (section := _at(raw, "pipelines", name)) is not None
        for problem in pipeline.problems(section, root)
    ]


def _at(raw: Any, *keys: str) -> Any:
    """The value below ``keys``, or None; settings that were refused may have any shape."""
    for key in keys:
        raw = cast("Mapping[str, Any]", raw).get(key) if isinstance(raw, Mapping) else None
    return raw
