"""What pipelines ship from a repository, and what keeps it from being shipped."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from infra.kubernetes.app_pod import app_bundle
from infra.kubernetes.bundle import ShippingError, image_folder
from infra.kubernetes.image_builds.context import context_of
from infra.kubernetes.run import bundle_of, command_bundle
from infra.pipelines.apps import AppDeclaration
from infra.pipelines.contract import ServiceDeclaration, StepDeclaration
from infra.pipelines.discovery import DeclaredPipeline, location
from infra.pipelines.images import compiling, unpinned
from infra.pipelines.pods import SUBSTITUTE
from infra.placed import CODE, Command, Requirements
from infra.schema.problems import Problem, SettingsError

USES_TENSORFLOW = re.compile(rb"(?i)tensorflow|keras|(?<![a-z0-9])(?:tf|jax)(?![a-z0-9])")
"""What a program names that loads CUDA's libraries from where TensorFlow's image has them, or should have them."""


def problems(pipelines: Sequence[DeclaredPipeline], root: Path) -> list[Problem]:
    """What keeps files of the repository at ``root`` from being shipped: a problem for each bundle and folder.

    Of a pipeline that has no steps with settings as wrong as its own, there are none.
    """
    found: list[Problem] = []
    for pipeline in pipelines:
        try:
            steps, services, apps = pipeline.unchecked, pipeline.services, pipeline.apps
        except SettingsError:
            continue
        bundles = {(step.module, step.requirements): step for step in reversed(steps) if step.module}
        for step in reversed(bundles.values()):
            try:
                bundle_of(step.module or "", requirements_of(step), root)
            except ShippingError as error:
                found.append(Problem(pipeline.key(step), error.value, error.reason, error.fix))
        commands = {started(step): step for step in reversed(steps) if step.command}
        for step in reversed(commands.values()):
            found += _command_problems(pipeline, step, [*steps, *services, *apps], root)
        for app in apps:
            found += _app_problems(pipeline, app, [*steps, *services, *apps], root)
        for declared in (*steps, *services, *apps):
            found += _build_problems(pipeline, declared, root)
        for service in services:
            found += _lock_problems(
                pipeline, service, [(_substituted(service), (SUBSTITUTE, "requirements"))], root
            )
        for folder in dict.fromkeys(folder for each in (*steps, *apps) for folder in each.folders.values()):
            try:
                image_folder(root / folder.path, root)
            except ShippingError as error:
                key = pipeline.setting(*folder.setting.split("."))
                found.append(Problem(key, folder.path, f"{error.value}: {error.reason}", error.fix))
    # Two sections may run one pipeline, and several steps name one lock file.
    return list({(each.key, each.reason): each for each in found}.values())


def _build_problems(
    pipeline: DeclaredPipeline, declared: StepDeclaration | ServiceDeclaration | AppDeclaration, root: Path
) -> Iterator[Problem]:
    """What keeps the context of an image from being shipped."""
    named = None if isinstance(declared, ServiceDeclaration) else declared.placed_by.image
    if (build := declared.build) is None or named is not None:
        return
    try:
        folder = (root / build.context).resolve()
        if not any(folder.is_relative_to(each.resolve()) for each in (root, location(pipeline.folder).path)):
            reason = "a link leads out of the repository"
            raise ShippingError(root / build.context, reason, "put the folder itself there")
        context_of(folder, build.dockerfile, build.arguments)
    except ShippingError as error:
        there = pipeline.declared_at if build.name else pipeline.declared_for_all
        yield Problem(there(declared, "build"), error.value, error.reason, error.fix)


def _lock_problems(
    pipeline: DeclaredPipeline,
    declared: StepDeclaration | ServiceDeclaration | AppDeclaration,
    locks: Sequence[tuple[str | None, tuple[str, ...]]],
    root: Path,
) -> Iterator[Problem]:
    """What is wrong with lock files, each with its key."""
    for lock, key in locks:
        if lock and (why := _lock_problem(root / lock, root)):
            yield Problem(pipeline.declared_at(declared, *key), lock, *why)


def _app_problems(
    pipeline: DeclaredPipeline,
    app: AppDeclaration,
    beside: Sequence[StepDeclaration | ServiceDeclaration | AppDeclaration],
    root: Path,
) -> Iterator[Problem]:
    """What is wrong with the lock files of an app, and with the files that it ships."""
    locks = [(app.requirements, ("requirements",)), (_substituted(app), (SUBSTITUTE, "requirements"))]
    wrong = list(_lock_problems(pipeline, app, locks, root))
    yield from wrong
    if wrong:
        return
    try:
        app_bundle(app, command_of(app, beside, root) if app.command else None, root)
    except ShippingError as error:
        named = (
            {str(root / app.command.code): "code", **dict.fromkeys(app.command.files, "files")}
            if app.command
            else {}
        )
        key = named.get(str(error.value), "run")
        yield Problem(pipeline.declared_at(app, key), error.value, error.reason, error.fix)


def _command_problems(
    pipeline: DeclaredPipeline,
    step: StepDeclaration,
    beside: Sequence[StepDeclaration | ServiceDeclaration | AppDeclaration],
    root: Path,
) -> Iterator[Problem]:
    """What is wrong with the lock files of a command, and with the files that it needs."""
    assert step.command is not None
    locks = [(step.requirements, ("requirements",)), (_substituted(step), (SUBSTITUTE, "requirements"))]
    yield from _lock_problems(pipeline, step, locks, root)
    try:
        command_bundle(command_of(step, beside, root), step.arguments, root)
    except ShippingError as error:
        named = {str(root / step.command.code): "code", **dict.fromkeys(step.command.files, "files")}
        key = named.get(str(error.value), "run")
        yield Problem(pipeline.declared_at(step, key), error.value, error.reason, error.fix)
    except OSError as error:
        reason = f"its files cannot be read: {error.strerror}"
        yield Problem(
            pipeline.declared_at(step, "code"), step.command.code, reason, "correct the path, or its files"
        )


def _substituted(declared: StepDeclaration | ServiceDeclaration | AppDeclaration) -> str | None:
    """The lock file of what stands in for its program in a rehearsal."""
    if isinstance(declared, StepDeclaration):
        substitute = declared.command.substitute if declared.command else None
    else:
        substitute = declared.substitute
    return substitute.requirements if substitute else None


def command_of(
    declared: StepDeclaration | AppDeclaration,
    beside: Iterable[StepDeclaration | ServiceDeclaration | AppDeclaration],
    root: Path,
) -> Command:
    """The command of ``declared``; ``beside`` are the steps, services and apps of its pipeline, below ``root``."""
    assert declared.command is not None
    locks: set[Path] = set()
    for each in beside:
        named = (None if isinstance(each, ServiceDeclaration) else each.requirements, _substituted(each))
        locks |= {(root / lock).resolve() for lock in named if lock}
    return Command((root / declared.command.code).resolve(), tuple(declared.command.files), frozenset(locks))


def may_use_tensorflow(declared: StepDeclaration, command: Command, root: Path) -> bool:
    """Whether anything that the command ships, starts or installs names TensorFlow, or what loads its libraries.

    A lock file names all that is installed. True where the files cannot be read: others say why. Equal where
    `started` is equal.
    """
    try:
        contents = command_bundle(command, declared.arguments, root).contents
        shipped = [content for name, content in contents.items() if name.startswith(f"{CODE}/")]
        lock = [(root / declared.requirements).read_bytes()] if declared.requirements else []
    except (ShippingError, OSError):
        return True
    words = " ".join(declared.arguments[:4]).encode()
    return any(USES_TENSORFLOW.search(content) for content in (*shipped, *lock, words))


def _lock_problem(lock: Path, root: Path) -> tuple[str, str] | None:
    """The reason why a command cannot have this lock file, and the fix; None where it can."""
    if not lock.is_file():
        return f"there is no such file as {lock}", f"add it: `{compiling(lock, root)}`, or correct `requirements`"
    try:
        why = unpinned(lock)
    except OSError as error:
        return f"it cannot be read: {error.strerror}", "correct its permissions"
    if why is None:
        return None
    return f"not a lock file: {why}", f"make one of a list of packages: `{compiling(lock, root)}`"


def started(step: StepDeclaration) -> object:
    """What of a command decides which files it ships."""
    assert step.command is not None
    return (
        step.command.code,
        tuple(step.command.files),
        step.requirements,
        step.command.substitute and step.command.substitute.requirements,
        tuple(step.arguments[:4]),
    )


def requirements_of(step: StepDeclaration) -> Requirements | None:
    """What of the lock file of ``step``, a module, its pod has to know."""
    return Requirements(step.requirements) if step.requirements else None
