"""From what pipelines declare to the steps that Jobs run: each on its pool, with its image, behind its gates."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pulumi

from infra.kubernetes.bundle import left_out
from infra.kubernetes.gates import Gates, cheapest_pool, reading
from infra.kubernetes.image_builds.build import Images
from infra.pipelines.apps import AppDeclaration
from infra.pipelines.contract import (
    ServiceDeclaration,
    StepDeclaration,
)
from infra.pipelines.discovery import DeclaredPipeline, supplements
from infra.pipelines.images import has_tensorflow, tensorflow_image
from infra.pipelines.residents import Resident, admitted, residents
from infra.placed import PACKAGES, Choice, Service, Step
from infra.placement.packages import Packages, noting, publishing
from infra.placement.shipping import command_of, may_use_tensorflow, requirements_of, started
from infra.platform import Platform, Pool, Resources
from infra.schema.problems import printable
from infra.schema.quantities import mebibytes, seconds

PIPELINE = re.compile(r"(?<!\{)((?:\{\{)*)\{pipeline\}")
"""The pipeline's directory in a step's arguments, where the braces are not escaped."""


def place(
    pipelines: Sequence[DeclaredPipeline],
    platforms: Mapping[str, Platform],
    gates: Gates,
    root: Path,
    images: Images | None = None,
) -> dict[str, list[Step]]:
    """The steps of each pipeline by its name, each on the platform that has its pool and behind its gates.

    Steps that `runs_last` marks wait for those of the pipelines before theirs, whatever order the file has.
    ``root`` is the repository whose folders they ship, and ``images`` grows by those that are built for them.
    """
    built = images or Images()
    placed: dict[str, list[Step]] = {}
    earlier: list[Step] = []
    packages = Packages(gates)
    services = [
        replace(service, image=declared.image or built_image(each, declared, root, built))
        for each in pipelines
        for declared, service in _services(each, platforms)
    ]
    staying = staying_on_pools(pipelines)
    ordered = sorted(pipelines, key=lambda each: (any(step.runs_last for step in each.steps), each.name))
    for pipeline in ordered:
        placement = _Placement(pipeline, platforms, gates, root, earlier, packages, services, staying, built)
        placed[pipeline.name] = placement.steps()
        earlier += placed[pipeline.name]
    return placed


def _services(
    pipeline: DeclaredPipeline, platforms: Mapping[str, Platform]
) -> Iterator[tuple[ServiceDeclaration, Service]]:
    """The services of ``pipeline``, each once for all its steps; one that is built has no image yet."""
    for declared in pipeline.services:
        platform, pool = pool_of(declared.placed_by.pool, platforms)
        yield (
            declared,
            Service(
                pipeline=pipeline.name,
                name=declared.name,
                image=declared.image,
                platform=platform,
                pool=pool,
                resources=declared.placed_by.asked,
                arguments=declared.arguments,
                port=declared.port,
                storage=mebibytes(declared.placed_by.storage),
                clients=[step.name for step in pipeline.steps if declared.name in step.connects],
                probe=declared.probe,
                exporter=declared.exporter,
            ),
        )


def built_image(
    pipeline: DeclaredPipeline,
    declared: StepDeclaration | ServiceDeclaration | AppDeclaration,
    root: Path,
    images: Images,
) -> str:
    """What stands for the image that is built for ``declared``; empty where none is. ``images`` grows by it."""
    return images.for_pipeline(pipeline.name, root, declared.build) if declared.build else ""


def pool_of(name: str, platforms: Mapping[str, Platform]) -> tuple[Platform, Pool]:
    """The pool of that name, and the platform that has it."""
    platform = next(each for each in platforms.values() if name in each.pools)
    return platform, platform.pools[name]


@dataclass
class _Placement:
    """The steps of one pipeline, made in an order in which those come first that others need."""

    pipeline: DeclaredPipeline
    platforms: Mapping[str, Platform]
    gates: Gates
    root: Path
    earlier: Sequence[Step]
    packages: Packages
    services: Sequence[Service]
    staying: Sequence[Resident]
    images: Images
    made: dict[str, Step] = field(default_factory=dict[str, Step])
    published: dict[str, Step] = field(default_factory=dict[str, Step])
    using: dict[object, bool] = field(default_factory=dict[object, bool])

    def steps(self) -> list[Step]:
        """In the order of the declaration, and last what notes their run where an app follows it."""
        steps = [self._step(step) for step in self.pipeline.steps]
        follows = any(app.placed_by.follow for app in self.pipeline.apps)
        return [*steps, self.gates.guard(noting(steps))] if follows else steps

    def _step(self, declared: StepDeclaration) -> Step:
        if declared.name not in self.made:
            self.made[declared.name] = self._guarded(declared)
        return self.made[declared.name]

    def _guarded(self, declared: StepDeclaration) -> Step:
        step = self._on_its_pool(declared)
        self._say_room(declared, step)
        others = [each for each in self.earlier if each.pool.name == step.pool.name] if declared.runs_last else []
        step = replace(
            step,
            inputs={each.name if each.variant else name: self._step(each) for name, each in self._read(declared)},
            after=[*others, *(self._step(each) for name in declared.after for each in self._meant(name))],
            choices=self._choices(declared),
        )
        step = replace(step, after=[*step.after, *self._in_turn(declared, step)])
        if step.command and declared.requirements:
            beside = self._beside(step)
            packages = self.packages.publishing(self.root / declared.requirements, step.image, *beside, self._kept)
            step = replace(step, inputs={**step.inputs, PACKAGES: packages})
        tensorflow = self._with_tensorflow(declared, step)
        for folder, supplement in supplements().items():
            if tensorflow and step.resources.gpus and supplement.is_lacking(step.image):
                if folder not in self.published:
                    place = self._beside(step)
                    self.published[folder] = publishing(folder, supplement, place, self._kept, self.gates)
                step = replace(
                    step,
                    # A command is told by its runner.
                    arguments=[*step.arguments, *([] if step.command else reading([supplement.name]))],
                    inputs={**step.inputs, supplement.name: self.published[folder]},
                )
        return self.gates.guard(step, tensorflow=tensorflow and (not step.command or has_tensorflow(step.image)))

    def _with_tensorflow(self, declared: StepDeclaration, step: Step) -> bool:
        """Whether its GPUs may be used by TensorFlow. Nodes sum by it, or by a library that its image lacks."""
        if step.command is None or step.nodes is not None or not step.resources.gpus:
            return True
        key = started(declared)
        if key not in self.using:
            self.using[key] = may_use_tensorflow(declared, step.command, self.root)
        return self.using[key]

    def _say_room(self, declared: StepDeclaration, step: Step) -> None:
        """Warns where pods of ``step`` have to wait for others of it, or for ever for services."""
        there, key = room(step, self.staying), self.pipeline.key(declared)
        if not there:
            beside = list(
                dict.fromkeys(resident.object_name for resident in self.staying if resident.pool == step.pool.name)
            )
            stays = "which stays there" if len(beside) == 1 else "which stay there"
            fix = "ask for less, let the pool grow, or take another pool for one of them"
            rest = f"beside {', '.join(beside)}, {stays}, so it would wait for ever: {fix}"
            pulumi.log.warn(f"{key}.pool: pool {step.pool.name} has no room for the step {rest}")
        elif step.nodes and there < step.pods:
            rest = (
                f"these would wait for the others, and the step fail after {step.nodes.wait} s: let the pool grow"
            )
            has = f"room for {there} of {step.pods} pods, one a node"
            pulumi.log.warn(f"{key}.nodes: pool {step.pool.name} has {has}; {rest}, or ask for less")
        elif step.workers > there:
            rest = "the others wait until one of them is through"
            pulumi.log.warn(f"{key}.workers: pool {step.pool.name} has room for {there} of {step.workers}; {rest}")

    def _in_turn(self, declared: StepDeclaration, step: Step) -> list[Step]:
        """The variant that has to be through before this one starts, where the pool has no room for both.

        A Job's time limit begins with the Job: one that waited for room would use it up.
        """
        if declared.variant is None:
            return []
        beside = [
            each
            for each in self._meant(declared.variant.of)
            if each.variant and each.placed_by.pool == declared.placed_by.pool
        ]
        # Pods of two variants may share a node.
        there = room(replace(step, nodes=None), self.staying)
        before = beside.index(declared) - max(1, there // step.pods)
        return [self._step(beside[before])] if before >= 0 else []

    def _meant(self, name: str) -> list[StepDeclaration]:
        """The step of that name, or all variants that are made of it."""
        steps = self.pipeline.steps
        return [step for step in steps if step.name == name] or [
            step for step in steps if step.variant and step.variant.of == name
        ]

    def _read(self, declared: StepDeclaration) -> list[tuple[str, StepDeclaration]]:
        """The steps whose results it reads, with the names of its inputs."""
        return [(name, each) for name, of in declared.inputs.items() for each in self._meant(of)]

    def _choices(self, declared: StepDeclaration) -> dict[str, Choice]:
        """The inputs that are the best of several variants."""
        groups = {name: choice_among(of, self._meant(of)) for name, of in declared.inputs.items()}
        return {name: choice for name, choice in groups.items() if choice}

    def _words(self, declared: StepDeclaration) -> Iterator[str]:
        """Its arguments, with one for each variant where one is a step with variants and no best."""
        directory = rf"\1{{store}}/{self.pipeline.name}"
        several = {
            f"{{{name}}}": [f"{{{variant.name}}}" for variant in variants]
            for name, of in declared.inputs.items()
            if (variants := self._meant(of))[0].name != of and not variants[0].best
        }
        for word in declared.arguments:
            yield from several.get(word, [PIPELINE.sub(directory, word)])

    def _on_its_pool(self, declared: StepDeclaration) -> Step:
        settings = declared.placed_by
        platform, pool = pool_of(settings.pool, self.platforms)
        directory = rf"\1{{store}}/{self.pipeline.name}"
        beside = [*self.pipeline.steps, *self.pipeline.services]
        command = declared.command and command_of(declared, beside, self.root)
        return Step(
            pipeline=self.pipeline.name,
            name=declared.name,
            module=declared.module,
            arguments=list(self._words(declared)),
            image=settings.image
            or built_image(self.pipeline, declared, self.root, self.images)
            or tensorflow_image(pool),
            platform=platform,
            pool=pool,
            resources=settings.asked,
            time_limit=seconds(settings.time_limit),
            priority=settings.priority or "normal",
            requirements=None if command else requirements_of(declared),
            environment={name: PIPELINE.sub(directory, each) for name, each in declared.environment.items()},
            command=command,
            secrets=declared.secrets,
            variant=declared.variant,
            best=declared.best,
            folders={name: self._folder(each.path, each.setting) for name, each in declared.folders.items()},
            results=declared.results,
            connects={
                service.name: service
                for service in self.services
                if service.pipeline == self.pipeline.name and service.name in declared.connects
            },
            items=declared.items and replace(declared.items, files=PIPELINE.sub(directory, declared.items.files)),
            workers=declared.workers,
            # One node is the plain path, whatever role its pod would have.
            nodes=declared.nodes if declared.nodes and declared.nodes.count > 1 else None,
        )

    def _folder(self, path: str, setting: str) -> Path:
        folder = self.root / path
        if others := left_out(folder):
            key = self.pipeline.setting(*setting.split("."))
            pulumi.log.warn(f"{key}: left out of {path}: {', '.join(map(printable, others))}")
        return folder

    @property
    def _kept(self) -> dict[str, list[Resources]]:
        return kept_by(self.staying, self.platforms)

    def _beside(self, step: Step) -> tuple[Platform, Pool]:
        """Where what ``step`` lacks is installed: on the pool of the pipeline's first step without GPUs."""
        beside = next((each for each in self.pipeline.steps if not each.placed_by.gpus), None)
        return (
            pool_of(beside.placed_by.pool, self.platforms)
            if beside
            else (step.platform, cheapest_pool(step.platform))
        )


def choice_among(of: str, variants: Sequence[StepDeclaration | Step]) -> Choice | None:
    """How the best of ``variants`` is chosen, which are made of the step ``of``; None where that has no best, or
    where ``of`` is a single step.
    """
    first = variants[0]
    if first.name == of or first.best is None:
        return None
    number = next(result for result in first.results if result.name == first.best.by)
    return Choice([variant.name for variant in variants], number.path, number.select, first.best.of)


NEEDED = ("cpu", "memory", "ephemeral_storage", "gpus")


def staying_on_pools(pipelines: Iterable[DeclaredPipeline]) -> list[Resident]:
    """What stays on pools of services and apps; what a stack installs beside them is not known here."""
    return [
        resident
        for pipeline in pipelines
        for resident in residents(pipeline.name, pipeline.services, pipeline.apps, exporters=False)
    ]


def kept_by(staying: Sequence[Resident], platforms: Mapping[str, Platform]) -> dict[str, list[Resources]]:
    """What services and apps ask for, by pool."""
    return {
        pool.name: [pod for resident in admitted(staying, pool) for pod in resident.all_pods]
        for platform in platforms.values()
        for pool in platform.pools.values()
    }


def room(step: Step, staying: Iterable[Resident] = ()) -> int:
    """How many pods like that of ``step`` its pool has room for at once beside what is ``staying``.

    At least one, where nothing stays on the pool: what is too large for a node is refused elsewhere. Of a step on
    several nodes there is one pod a node.
    """
    sidecar = step.platform.store.sidecar if step.uses_store else Resources(cpu=0, memory=0)
    beside = [resident for resident in staying if resident.pool == step.pool.name]
    nodes = _free(step.pool, beside)
    wanted = tuple(map(sum, zip(_amounts(step.resources), _amounts(sidecar), strict=True)))
    most = 1 if step.nodes else None
    found = sum(min(_fitting(free, wanted), most or sys.maxsize) for free in nodes)
    return found if beside else max(1, found)


def has_spare(pool: Pool, wanted: Resources, staying: Iterable[Resident]) -> bool:
    """Whether ``pool`` has room for one more pod that asks for ``wanted``, beside all that stays there."""
    nodes = _free(pool, [resident for resident in staying if resident.pool == pool.name])
    return any(_fitting(free, _amounts(wanted)) for free in nodes)


def _free(pool: Pool, taken: Sequence[Resident]) -> list[tuple[int, ...]]:
    """What each node of ``pool`` leaves that there can be."""
    nodes = [_amounts(pool.allocatable) for _ in range(max(1, pool.max_nodes))]
    for each in sorted((_amounts(pod) for resident in taken for pod in resident.all_pods), reverse=True):
        index = next((index for index, free in enumerate(nodes) if _fitting(free, each)), None)
        if index is not None:
            nodes[index] = tuple(there - amount for there, amount in zip(nodes[index], each, strict=True))
    return nodes


def _amounts(resources: Resources) -> tuple[int, ...]:
    return tuple(getattr(resources, name) for name in NEEDED)


def _fitting(free: tuple[int, ...], wanted: tuple[int, ...]) -> int:
    """How many pods that want so much have room on a node with so much free."""
    return min((there // amount for there, amount in zip(free, wanted, strict=True) if amount), default=1)
