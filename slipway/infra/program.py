"""The program: from a stack's settings to everything it declares."""

import os
import signal
import threading
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pulumi

from slipway.infra.declared import Declared, declared
from slipway.infra.features import parts
from slipway.infra.kubernetes import job
from slipway.infra.kubernetes.apps import app
from slipway.infra.kubernetes.cluster import ownership
from slipway.infra.kubernetes.cluster.workspace import Workspace
from slipway.infra.kubernetes.job import StepJob
from slipway.infra.kubernetes.places import mover
from slipway.infra.kubernetes.results import Outputs
from slipway.infra.pipelines.images import CPU_IMAGE
from slipway.infra.places import PROJECT
from slipway.infra.platform import Platform
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.model import Settings
from slipway.infra.stack import running_work
from slipway.infra.stack.clusters import declare_images, declare_metrics, declare_workspaces
from slipway.infra.stack.configuration import checked, configured
from slipway.infra.stack.placed_stack import (
    declare_attempts_of,
    declare_cluster_runs,
    declare_platforms,
    declare_schedules,
    export_access,
    export_platform,
    export_results,
    place_pipelines,
)


@dataclass(frozen=True)
class DeclaredStack:
    """What the program declared: platforms and workspaces by cluster, Jobs by name (``<pipeline>-<step>``)."""

    settings: Settings
    platforms: Mapping[str, Platform]
    workspaces: Mapping[str, Workspace]
    jobs: Mapping[str, StepJob]


SHOWN = 32
"""The exit code of a program that has said itself what is wrong: the CLI then adds no word (
pythonProcessExitedAfterShowingUserActionableMessage in sdk/python/cmd/pulumi-language-python/main.go of
github.com/pulumi/pulumi, August 2026)."""

_ran: ContextVar[bool] = ContextVar("ran", default=False)


def was_run() -> bool:
    """Whether the program that is being evaluated has called `run`."""
    return _ran.get()


def run() -> Declared:
    """Declares all that the stack file asks for, and returns what the rest of the program may refer to.

    Raises `pulumi.RunError`, which the Pulumi CLI prints without a traceback: for wrong settings, with every
    problem found and before anything is declared, and where it is called a second time.
    """
    if _ran.get():
        raise pulumi.RunError("slipway.run() is called a second time: one call declares the whole stack")
    _ran.set(True)
    in_main_thread = threading.current_thread() is threading.main_thread()
    # Nobody handles it yet in a program that the CLI starts.
    if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    try:
        stack = declare(PROJECT)
    except SettingsError as error:
        raise pulumi.RunError(str(error)) from error
    except running_work.RefusedUpdateError as error:
        if not in_main_thread:
            raise
        # After a failure, too, the SDK registers all that was declared before (`run_pulumi_func` of
        # pulumi/runtime/stack.py, 3.260): it would carry out what it can of an update that is refused.
        pulumi.log.error(str(error))
        os._exit(SHOWN)
    return declared(stack.workspaces, stack.jobs)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """Ends the program without a word.

    When a resource fails, the CLI interrupts the program, which still waits to declare what depends on it.
    Python's two tracebacks of that (seen with Pulumi 3.260) would bury the failed Job's own words.
    """
    os._exit(1)


def declare(root: Path = PROJECT) -> DeclaredStack:
    """Declares everything that the stack's settings ask for, and exports the stack's outputs.

    ``root`` is the project whose files the steps ship. Raises SettingsError, with every problem found, before
    anything is declared.
    """
    settings, clouds = checked(configured(), root)
    preview = pulumi.runtime.is_dry_run()
    guard = ownership.enforce(settings.namespace, preview=preview)
    work = running_work.guard(settings, preview=preview)

    platforms = declare_platforms(settings, clouds)
    guard.complete = True
    stack = place_pipelines(settings, platforms, root)

    images = declare_images(stack, root)
    admissions = {name: held for of in parts("declared", "admissions") for name, held in of(stack).items()}
    workspaces = declare_workspaces(stack, admissions, images)

    attempts = declare_attempts_of(stack, workspaces)
    due = {step.job: attempts[step.platform.name] for step in stack.held_steps}
    moved = mover.declare(root, CPU_IMAGE)
    jobs = job.declare(
        stack.steps_with_jobs, workspaces, root, settings.secrets, due, moved=moved, settings=settings
    )
    declare_cluster_runs(stack, jobs, attempts, workspaces, root)
    apps = app.declare(stack.all_apps, workspaces, jobs, root, settings.secrets, image=CPU_IMAGE)
    declare_schedules(stack, jobs, workspaces, root)
    declare_metrics(stack, workspaces)

    export_results(stack, Outputs(jobs, workspaces), apps)
    export_access(platforms)
    if settings.teams:
        export_platform(stack, admissions)
    if work is not None:
        # The SDK tells the engine of resources only once the program gives the event loop back.
        work.check()
        for check in parts("declared", "check_update"):
            check(settings, jobs, work.state, preview=preview)
        work.end_left()
    return DeclaredStack(settings, platforms, workspaces, jobs)
