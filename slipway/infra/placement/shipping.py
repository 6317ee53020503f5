"""What pipelines ship: files of the repository, and packages that images lack."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from slipway.infra.kubernetes.apps.pod import app_bundle
from slipway.infra.kubernetes.cluster.gates import Gates
from slipway.infra.kubernetes.image_builds.context import context_of
from slipway.infra.kubernetes.run import command_bundle
from slipway.infra.kubernetes.shipping.code_folder import code_files
from slipway.infra.kubernetes.shipping.sizes import ShippingError
from slipway.infra.pipelines.apps import NEWEST, AppDeclaration, runs_file
from slipway.infra.pipelines.checkpoints import CHECKPOINT, CHECKPOINTS, FOLDER_VARIABLE
from slipway.infra.pipelines.contract import ServiceDeclaration, StepDeclaration, Supplement
from slipway.infra.pipelines.discovery import DeclaredPipeline, location
from slipway.infra.pipelines.images import CPU_IMAGE, GPU_IMAGE, compiling, lock_problem
from slipway.infra.pipelines.pods import SUBSTITUTE, Substitute
from slipway.infra.pipelines.pods import Command as DeclaredCommand
from slipway.infra.placed import CODE, PACKAGES, Command, Step
from slipway.infra.places import located
from slipway.infra.platform import Platform, Pool, Resources, add
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, spell
from slipway.infra.schema.problems import Problem

USES_TENSORFLOW = re.compile(rb"(?i)tensorflow|keras|(?<![a-z0-9])(?:tf|jax)(?![a-z0-9])")
"""What a program names that loads CUDA's libraries from where TensorFlow's image has them, or should have them."""


def problems(pipelines: Sequence[DeclaredPipeline], root: Path) -> list[Problem]:
    """What keeps files of the repository at ``root`` from being shipped: a problem for each bundle and folder.

    Of a pipeline that has no steps with settings as wrong as its own, there are none.
    """
    problems: list[Problem] = []
    for pipeline in pipelines:
        steps, services, apps = pipeline.unchecked, pipeline.services, pipeline.apps
        commands = {shipping_key(step): step for step in reversed(steps) if step.command}
        for step in reversed(commands.values()):
            problems += _command_problems(pipeline, step, [*steps, *services, *apps], root)
        for step in steps:
            problems += _unused_checkpoints(pipeline, step, [*steps, *services, *apps], root)
        for app in apps:
            problems += _app_problems(pipeline, app, [*steps, *services, *apps], root)
        for declared in (*steps, *services, *apps):
            problems += _build_problems(pipeline, declared, root)
        for service in services:
            problems += _lock_problems(
                pipeline, service, [(_substitute_lock(service), (SUBSTITUTE, "requirements"))], root
            )
    # Two sections may run one pipeline, and several steps name one lock file.
    return list({(problem.key, problem.reason): problem for problem in problems}.values())


def _build_problems(
    pipeline: DeclaredPipeline, declared: StepDeclaration | ServiceDeclaration | AppDeclaration, root: Path
) -> Iterator[Problem]:
    """What keeps the context of an image from being shipped."""
    named = None if isinstance(declared, ServiceDeclaration) else declared.placed_by.image
    if (build := declared.build) is None or named is not None:
        return
    try:
        folder = (root / build.context).resolve()
        places = (root, location(pipeline.folder).path)
        if not any(folder.is_relative_to(place.resolve()) for place in places):
            reason = "a link leads out of the repository"
            raise ShippingError(root / build.context, reason, "put the folder itself there")
        context_of(folder, build.dockerfile, build.arguments)
    except ShippingError as error:
        place = pipeline.declared_at(declared, "build") if build.name else pipeline.declared_for_all("build")
        yield Problem(place, error.value, error.reason, error.fix)


def _lock_problems(
    pipeline: DeclaredPipeline,
    declared: StepDeclaration | ServiceDeclaration | AppDeclaration,
    locks: Sequence[tuple[str | None, tuple[str, ...]]],
    root: Path,
) -> Iterator[Problem]:
    """What is wrong with lock files, each with its key."""
    for lock, key in locks:
        if lock and (why := _lock_problem(located(lock, root), root)):
            yield Problem(pipeline.declared_at(declared, *key), lock, *why)


def _app_problems(
    pipeline: DeclaredPipeline,
    app: AppDeclaration,
    beside: Sequence[StepDeclaration | ServiceDeclaration | AppDeclaration],
    root: Path,
) -> Iterator[Problem]:
    """What is wrong with the lock files of an app, and with the files that it ships."""
    locks = [(app.requirements, ("requirements",)), (_substitute_lock(app), (SUBSTITUTE, "requirements"))]
    wrong = list(_lock_problems(pipeline, app, locks, root))
    yield from wrong
    if wrong:
        return
    try:
        app_bundle(app, command_of(app, beside, root) if app.command else None, root)
    except ShippingError as error:
        key = _key_of(app.command, error, root)
        yield Problem(pipeline.declared_at(app, key), error.value, error.reason, error.fix)


def _command_problems(
    pipeline: DeclaredPipeline,
    step: StepDeclaration,
    beside: Sequence[StepDeclaration | ServiceDeclaration | AppDeclaration],
    root: Path,
) -> Iterator[Problem]:
    """What is wrong with the lock files of a command, and with the files that it needs."""
    assert step.command is not None
    locks = [(step.requirements, ("requirements",)), (_substitute_lock(step), (SUBSTITUTE, "requirements"))]
    yield from _lock_problems(pipeline, step, locks, root)
    try:
        command_bundle(command_of(step, beside, root), step.arguments, root)
    except ShippingError as error:
        key = _key_of(step.command, error, root)
        yield Problem(pipeline.declared_at(step, key), error.value, error.reason, error.fix)
    except OSError as error:
        reason = f"its files cannot be read: {error.strerror}"
        yield Problem(
            pipeline.declared_at(step, "code"), step.command.code, reason, "correct the path, or its files"
        )


def _unused_checkpoints(
    pipeline: DeclaredPipeline,
    step: StepDeclaration,
    beside: Sequence[StepDeclaration | ServiceDeclaration | AppDeclaration],
    root: Path,
) -> Iterator[Problem]:
    """Checkpoints of a command that cannot know their folder. What a program of its image reads is not known."""
    texts = [*step.arguments, *step.environment.values()]
    named = any(f"{{{CHECKPOINT}}}" in text or FOLDER_VARIABLE in text for text in texts)
    if step.command is None or step.checkpoints is None or named:
        return
    try:
        files = code_files(command_of(step, beside, root), step.arguments).contents.values()
    except (ShippingError, OSError):
        return
    if files and not any(FOLDER_VARIABLE.encode() in content for content in files):
        reason = (
            f"neither its command line nor its environment has `{{{CHECKPOINT}}}`, and none of its files "
            f"`{FOLDER_VARIABLE}`: nothing would be copied, and each attempt would begin anew"
        )
        fix = f"write `{{{CHECKPOINT}}}` where the program takes the folder of its checkpoints, or remove the key"
        yield Problem(pipeline.declared_at(step, CHECKPOINTS), None, reason, fix)


def _key_of(command: DeclaredCommand | None, error: ShippingError, root: Path) -> str:
    """The key of a step or app with ``command`` that ``error`` is about."""
    if command is None:
        return "run"
    keys = {str(root / command.code): "code", **dict.fromkeys(command.files, "files")}
    return keys.get(str(error.value), "run")


def _substitute_lock(declared: StepDeclaration | ServiceDeclaration | AppDeclaration) -> str | None:
    """The lock file of what stands in for its program in a rehearsal."""
    substitute = substitute_of(declared)
    return substitute.requirements if substitute else None


def substitute_of(declared: StepDeclaration | ServiceDeclaration | AppDeclaration) -> Substitute | None:
    """What stands in for its program in a rehearsal."""
    if isinstance(declared, StepDeclaration):
        return declared.command.substitute if declared.command else None
    return declared.substitute


def command_of(
    declared: StepDeclaration | AppDeclaration,
    beside: Iterable[StepDeclaration | ServiceDeclaration | AppDeclaration],
    root: Path,
) -> Command:
    """The command of ``declared``; ``beside`` are the steps, services and apps of its pipeline, below ``root``."""
    assert declared.command is not None
    locks: set[Path] = set()
    for other in beside:
        paths = (None if isinstance(other, ServiceDeclaration) else other.requirements, _substitute_lock(other))
        locks |= {located(path, root).resolve() for path in paths if path}
    return Command(
        (root / declared.command.code).resolve(),
        tuple(declared.command.files),
        frozenset(locks),
        declared.command.directory,
        declared.command.mounts,
    )


def may_use_tensorflow(declared: StepDeclaration, command: Command, root: Path) -> bool:
    """Whether anything that the command ships, starts or installs names TensorFlow, or what loads its libraries.

    A lock file names all that is installed. True where the files cannot be read: others say why. Equal where
    `shipping_key` is equal.
    """
    try:
        contents = command_bundle(command, declared.arguments, root).contents
        shipped = [content for name, content in contents.items() if name.startswith(f"{CODE}/")]
        lock = [located(declared.requirements, root).read_bytes()] if declared.requirements else []
    except (ShippingError, OSError):
        return True
    words = " ".join(declared.arguments[:4]).encode()
    return any(USES_TENSORFLOW.search(content) for content in (*shipped, *lock, words))


def _lock_problem(lock: Path, root: Path) -> tuple[str, str] | None:
    """The reason why a command cannot have this lock file, and the fix; None where it can."""
    if not lock.is_file():
        return f"there is no such file as {lock}", f"add it: `{compiling(lock, root)}`, or correct `requirements`"
    try:
        why = lock_problem(lock)
    except OSError as error:
        return f"it cannot be read: {error.strerror}", "correct its permissions"
    if why is None:
        return None
    return f"not a lock file: {why}", f"make one of a list of packages: `{compiling(lock, root)}`"


def shipping_key(step: StepDeclaration) -> object:
    """What of a command decides which files it ships."""
    assert step.command is not None
    return (
        step.command.code,
        tuple(step.command.files),
        step.requirements,
        step.command.substitute and step.command.substitute.requirements,
        tuple(step.arguments[:4]),
    )


NEWEST_MODULE = "slipway.runtime.apps.newest"

NEWEST_RESOURCES = Resources(cpu=50, memory=128, ephemeral_storage=64)

NEWEST_TIME_LIMIT = 1800
"""Seconds, the start of a CPU node included."""


def noting(steps: Sequence[Step]) -> Step:
    """The step that notes the run of ``steps``, all those of a pipeline, once each of them has succeeded."""
    results = {step.name: step for step in steps if step.publishes}
    platform, pipeline = steps[0].platform, steps[0].pipeline
    return Step(
        pipeline=pipeline,
        name=NEWEST,
        module=NEWEST_MODULE,
        arguments=[
            *("--output", "{output}", "--runs", f"{{store}}/{runs_file(pipeline)}"),
            *(word for name in results for word in ("--step", f"{name}={{{name}}}")),
        ],
        image=CPU_IMAGE,
        platform=platform,
        pool=platform.cheapest_pool,
        resources=NEWEST_RESOURCES,
        time_limit=NEWEST_TIME_LIMIT,
        inputs=results,
        after=[step for step in steps if not step.publishes],
    )


Kept = Mapping[str, Sequence[Resources]]
"""What the pods of services and apps ask for, by the name of the pool on which they stay."""

NOTHING: Kept = MappingProxyType({})


def left(platform: Platform, pool: Pool, kept: Kept = NOTHING) -> Resources:
    """What one node of ``pool`` leaves to a pod's own containers, if the pod mounts the store. No GPUs.

    Of a pool with a single node, what is ``kept`` on it is subtracted.
    """
    pods = kept.get(pool.name, ()) if pool.max_nodes == 1 else ()
    taken, node = add(platform.store.sidecar, *pods), pool.allocatable
    return Resources(
        cpu=max(0, node.cpu - taken.cpu),
        memory=max(0, node.memory - taken.memory),
        ephemeral_storage=max(0, node.ephemeral_storage - taken.ephemeral_storage),
    )


def at_most(wanted: Resources, free: Resources) -> Resources:
    """The less of each resource. No GPUs."""
    return Resources(
        cpu=min(wanted.cpu, free.cpu),
        memory=min(wanted.memory, free.memory),
        ephemeral_storage=min(wanted.ephemeral_storage, free.ephemeral_storage),
    )


def with_room(platform: Platform, pool: Pool, wanted: Resources, kept: Kept = NOTHING) -> Pool:
    """``pool``; where that is too small for ``wanted``, the first other pool without GPUs that is not, if any."""
    pools = [pool, *(other for other in platform.pools.values() if not other.accelerator)]
    return next((other for other in pools if at_most(wanted, left(platform, other, kept)) == wanted), pool)


PACKAGES_MODULE = "slipway.runtime.steps.environment"

SHIPPED = "requirements.txt"
"""The lock file's path in the step's bundle, wherever it is on this machine."""

PACKAGES_RESOURCES = Resources(cpu=2000, memory=4096, ephemeral_storage=32768)
"""The most that a step asks for. The packages are on its disk twice for a moment, unpacked and as an archive, and
those of a framework with CUDA take several GiB."""

PACKAGES_TIME_LIMIT = 3600
"""Seconds, for the download and the start of a node."""

NAME_LIMIT = KUBERNETES_NAME_LIMIT - len(f"{PACKAGES}--0123456789")
"""Characters of a step's name: it stands in that of its Job, with a digest."""


@dataclass
class Packages:
    """The steps of a stack that publish packages, each once, however many pipelines read what it publishes."""

    gates: Gates
    _made: dict[tuple[str, str], Step] = field(default_factory=dict[tuple[str, str], Step])

    def publishing(self, lock: Path, image: str, platform: Platform, pool: Pool, kept: Kept = NOTHING) -> Step:
        """The step that installs what ``image`` lacks of the packages of ``lock``, as far as ``pool`` has room."""
        content = hashlib.sha256(lock.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
        if (content, image) not in self._made:
            self._made[content, image] = self.gates.guard(
                Step(
                    pipeline=PACKAGES,
                    name=self._name(lock, content, image),
                    module=PACKAGES_MODULE,
                    interpreter="python3",
                    arguments=["--requirements", SHIPPED, "--output", "{output}"],
                    image=image,
                    platform=platform,
                    pool=pool,
                    resources=at_most(PACKAGES_RESOURCES, left(platform, pool, kept)),
                    time_limit=PACKAGES_TIME_LIMIT,
                    attached={SHIPPED: lock},
                )
            )
        return self._made[content, image]

    def _name(self, lock: Path, content: str, image: str) -> str:
        """The folder's name, with that of the lock file and of the image where they are not the usual ones.

        It does not depend on the other steps of the stack, as long as no two have the same name.
        """
        file = re.sub(r"^requirements[-_.]?", "", lock.stem)
        repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        kind = {CPU_IMAGE: "", GPU_IMAGE: "gpu"}.get(image, repository)
        folder = lock.parent.parent if lock.parent.name == "pod" else lock.parent
        name = spell(NAME_LIMIT, *filter(None, (folder.name, file, kind)))
        taken = {step.name for step in self._made.values()}
        if name not in taken:
            return name
        mark = hashlib.sha256(f"{content} {image}".encode()).hexdigest()[:6]
        return f"{spell(NAME_LIMIT - len(mark) - 1, name)}-{mark}"


def publishing(
    folder: str,
    supplement: Supplement,
    beside: tuple[Platform, Pool],
    kept: Kept,
    gates: Gates,
) -> Step:
    """The step that publishes ``supplement``, which ``folder`` declares, on the pool ``beside``.

    Where that pool has no room, it is another one.
    """
    platform, pool = beside
    pool = with_room(platform, pool, supplement.resources, kept)
    return gates.guard(
        Step(
            pipeline=folder,
            name=supplement.name,
            module=supplement.module,
            arguments=supplement.arguments,
            image=supplement.image,
            platform=platform,
            pool=pool,
            resources=at_most(supplement.resources, left(platform, pool, kept)),
            time_limit=supplement.time_limit,
            files=supplement.files,
            supplements=True,
        )
    )
