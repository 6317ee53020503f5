"""Puts the steps, services and apps that pipelines declare on pools, each with its image and behind its gates."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pulumi

from slipway.infra.commands import page
from slipway.infra.kubernetes.cluster.gates import Gates, reading
from slipway.infra.kubernetes.image_builds.build import Images
from slipway.infra.pipelines.apps import NEWEST, AppDeclaration, KeptAppSettings
from slipway.infra.pipelines.contract import ServiceDeclaration, StepDeclaration, StepProgram
from slipway.infra.pipelines.cuda import SUPPLEMENTS
from slipway.infra.pipelines.discovery import DeclaredPipeline
from slipway.infra.pipelines.images import has_tensorflow, tensorflow_image
from slipway.infra.pipelines.inputs import INPUTS, data_of
from slipway.infra.pipelines.residents import Resident, left_by, residents, residents_on, room_for
from slipway.infra.placed import PACKAGES, App, Choice, Places, Service, Step
from slipway.infra.placement.shipping import (
    Packages,
    command_of,
    may_use_tensorflow,
    noting,
    publishing,
    shipping_key,
)
from slipway.infra.placement.unshipped import remark, unshipped
from slipway.infra.places import located
from slipway.infra.platform import Platform, Pool, Resources, add
from slipway.infra.schema.problems import printable
from slipway.infra.schema.quantities import mebibytes, seconds

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

    Those of pipelines that measure accelerators come last. ``root`` is the repository whose folders they ship, and
    ``images`` grows by those that are built for them.
    """
    built = images or Images()
    placed: dict[str, list[Step]] = {}
    earlier: list[Step] = []
    packages = Packages(gates)
    services = [
        replace(service, image=declared.image or built_image(pipeline, declared, root, built))
        for pipeline in pipelines
        for declared, service in _services(pipeline, platforms)
    ]
    staying = staying_on_pools(pipelines)
    for pipeline in sorted(pipelines, key=lambda pipeline: (pipeline.measures_devices, pipeline.name)):
        placement = _Placement(pipeline, platforms, gates, root, earlier, packages, services, staying, built)
        placed[pipeline.name] = placement.steps()
        _warn_of_inputs(pipeline)
        for code, paths in unshipped(pipeline, root):
            pulumi.log.warn(remark(pipeline.setting(), code, [printable(path) for path in paths]))
        earlier += placed[pipeline.name]
    return placed


def _warn_of_inputs(pipeline: DeclaredPipeline) -> None:
    """Warns of inputs of which nothing says what they are."""
    for name, data in data_of(pipeline.settings).items():
        if not data.digest:
            key, rest = pipeline.setting(INPUTS, name), "no step runs again when its data change"
            pulumi.log.warn(f"{key}: {data.url} has no digest, so {rest}: {page('own-data.md')} has one")


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
    platform = next(platform for platform in platforms.values() if name in platform.pools)
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
            self.made[declared.name] = self._guard(declared)
        return self.made[declared.name]

    def _guard(self, declared: StepDeclaration) -> Step:
        step = self._on_its_pool(declared)
        self._warn_of_room(declared, step)
        step = replace(
            step,
            inputs={
                variant.name if variant.variant else name: self._step(variant)
                for name, of in declared.inputs.items()
                for variant in self._variants_of(of)
            },
            after=[
                *self._before(step),
                *(self._step(variant) for name in declared.after for variant in self._variants_of(name)),
            ],
            choices=choices(declared.inputs, self._variants_of),
        )
        step = replace(step, after=[*step.after, *self._in_turn(declared, step)])
        if step.command and declared.requirements:
            beside = self._beside(step)
            packages = self.packages.publishing(
                located(declared.requirements, self.root), step.image, *beside, self._kept
            )
            step = replace(step, inputs={**step.inputs, PACKAGES: packages})
        for name, lock in [lock for part in step.parts for lock in part.packages.items()]:
            needed = self.packages.publishing(
                located(lock, self.root), step.image, *self._beside(step), self._kept
            )
            step = replace(step, inputs={**step.inputs, name: needed})
        tensorflow = self._with_tensorflow(declared, step)
        for folder, supplement in SUPPLEMENTS.items():
            if tensorflow and step.resources.gpus and supplement.is_lacking(step.image):
                if folder not in self.published:
                    place = self._beside(step)
                    self.published[folder] = publishing(folder, supplement, place, self._kept, self.gates)
                step = replace(
                    step,
                    # The runner of a command passes it on.
                    arguments=[*step.arguments, *([] if step.command else reading([supplement.name]))],
                    inputs={**step.inputs, supplement.name: self.published[folder]},
                )
        tested = tensorflow and (not step.command or has_tensorflow(step.image))
        if declared.placed_by.places:
            return self.gates.guard_places(step, self._places(declared, step), tensorflow=tested)
        return self.gates.guard(step, tensorflow=tested)

    def _before(self, step: Step) -> list[Step]:
        """The steps of other pipelines on the pool of ``step``, which measures its GPUs: a node is asked for once,
        for what they need it for, and none of them disturbs the figures."""
        measures = self.pipeline.measures_devices and step.resources.gpus
        return [other for other in self.earlier if measures and other.pool.name == step.pool.name]

    def _places(self, declared: StepDeclaration, step: Step) -> Places:
        """Where ``step`` may run, as its settings say it."""
        settings = declared.placed_by
        steps: list[Step] = []
        for _, at_place in settings.on_pools:
            platform, pool = pool_of(at_place.pool, self.platforms)
            steps.append(replace(step, platform=platform, pool=pool, resources=at_place.asked))
        return Places(
            steps,
            next_after=seconds(settings.next_after),
            returns=settings.returns == "at-checkpoint",
            deadline=seconds(settings.deadline) if settings.deadline else None,
            work=seconds(settings.work) if settings.work else None,
            max_price=settings.max_price,
        )

    def _with_tensorflow(self, declared: StepDeclaration, step: Step) -> bool:
        """Whether TensorFlow may use its GPUs. Several nodes sum by it, or by a library that its image lacks."""
        if step.command is None or step.is_group or not step.resources.gpus:
            return True
        key = shipping_key(declared)
        if key not in self.using:
            self.using[key] = may_use_tensorflow(declared, step.command, self.root)
        return self.using[key]

    def _warn_of_room(self, declared: StepDeclaration, step: Step) -> None:
        """Warns where pods of ``step`` have to wait for others of it, or for ever for services."""
        pods, key = room(step, self.staying), self.pipeline.key(declared)
        if not pods:
            beside = list(
                dict.fromkeys(resident.object_name for resident in self.staying if resident.pool == step.pool.name)
            )
            stays = "which stays there" if len(beside) == 1 else "which stay there"
            fix = "ask for less, let the pool grow, or take another pool for one of them"
            rest = f"beside {', '.join(beside)}, {stays}, so it would wait for ever: {fix}"
            pulumi.log.warn(f"{key}.pool: pool {step.pool.name} has no room for the step {rest}")
        elif step.pods > pods:
            has = f"pool {step.pool.name} has room for {pods} of {step.pods}"
            rest = "the others wait until one of them is through"
            if step.is_group:
                wait = max(part.wait for part in step.parts)
                has = f"{has} pods, one a node"
                rest = f"these would wait for the others, and the step fail after {wait} s: let the pool grow, or "
                rest += "ask for less"
            pulumi.log.warn(f"{key}.{step.pods_key}: {has}; {rest}")

    def _in_turn(self, declared: StepDeclaration, step: Step) -> list[Step]:
        """The variant that has to end before this one starts, where the pool has no room for both.

        A Job's time limit begins with the Job: one that waits for room would use it up.
        """
        if declared.variant is None:
            return []
        beside = [
            variant
            for variant in self._variants_of(declared.variant.of)
            if variant.variant and variant.placed_by.pool == declared.placed_by.pool
        ]
        # Pods of two variants may share a node.
        pods = room(step, self.staying, shares_nodes=True)
        before = beside.index(declared) - max(1, pods // step.pods)
        return [self._step(beside[before])] if before >= 0 else []

    def _variants_of(self, name: str) -> Sequence[StepDeclaration]:
        return variants_of(name, self.pipeline.steps)

    def _on_its_pool(self, declared: StepDeclaration) -> Step:
        settings = declared.placed_by
        platform, pool = pool_of(settings.pool, self.platforms)
        directory = rf"\1{{store}}/{self.pipeline.name}"
        beside = [*self.pipeline.steps, *self.pipeline.services]
        command = declared.command and command_of(declared, beside, self.root)

        def fill(text: str) -> str:
            return PIPELINE.sub(directory, text)

        program = {of.name: getattr(declared, of.name) for of in fields(StepProgram)}
        program |= {
            "arguments": [fill(word) for word in arguments(declared, self._variants_of)],
            "environment": {name: fill(word) for name, word in declared.environment.items()},
            "parts": [part.fill(fill) for part in declared.parts],
        }
        return Step(
            **program,
            pipeline=self.pipeline.name,
            image=settings.image
            or built_image(self.pipeline, declared, self.root, self.images)
            or tensorflow_image(pool),
            platform=platform,
            pool=pool,
            resources=settings.asked,
            time_limit=seconds(settings.time_limit),
            priority=settings.priority or "normal",
            idle=settings.idle,
            command=command,
            connects={
                service.name: service
                for service in self.services
                if service.pipeline == self.pipeline.name and service.name in declared.connects
            },
            cache=mebibytes(settings.cache) if settings.cache else 0,
            shm=mebibytes(settings.shm) if settings.shm else None,
        )

    @property
    def _kept(self) -> dict[str, list[Resources]]:
        return kept_by(self.staying, self.platforms)

    def _beside(self, step: Step) -> tuple[Platform, Pool]:
        """Where what ``step`` lacks is installed: on the pool of the pipeline's first step without GPUs."""
        beside = next((step for step in self.pipeline.steps if not step.placed_by.gpus), None)
        return (
            pool_of(beside.placed_by.pool, self.platforms)
            if beside
            else (step.platform, step.platform.cheapest_pool)
        )


S = TypeVar("S", StepDeclaration, Step)


def variants_of(name: str, steps: Iterable[S]) -> list[S]:
    """The step of that name, or all variants that are made of it."""
    known = list(steps)
    return [step for step in known if step.name == name] or [
        step for step in known if step.variant and step.variant.of == name
    ]


def choices(
    inputs: Mapping[str, str], variants: Callable[[str], Sequence[StepDeclaration | Step]]
) -> dict[str, Choice]:
    """How the best variant is chosen of the ``inputs`` that are a step with a `best`, by the input's name."""
    chosen: dict[str, Choice] = {}
    for name, of in inputs.items():
        first, *others = variants(of)
        if first.name != of and first.best is not None:
            number = next(result for result in first.results if result.name == first.best.by)
            among = [step.name for step in (first, *others)]
            chosen[name] = Choice(among, number.path, number.select, first.best.of)
    return chosen


def arguments(
    declared: StepDeclaration | AppDeclaration, variants: Callable[[str], Sequence[StepDeclaration | Step]]
) -> Iterator[str]:
    """The arguments of ``declared``, with one for each variant where one is a step with variants and no best."""
    several = {
        f"{{{name}}}": [f"{{{step.name}}}" for step in steps]
        for name, of in declared.inputs.items()
        if (steps := variants(of))[0].name != of and not steps[0].best
    }
    for word in declared.arguments:
        yield from several.get(word, [word])


def staying_on_pools(pipelines: Iterable[DeclaredPipeline]) -> list[Resident]:
    """What stays on pools of services and apps; what a stack installs beside them is not known here."""
    return [
        resident
        for pipeline in pipelines
        for resident in residents(pipeline.name, pipeline.services, pipeline.apps)
    ]


def kept_by(staying: Sequence[Resident], platforms: Mapping[str, Platform]) -> dict[str, list[Resources]]:
    """What services and apps ask for, by pool."""
    return {
        pool.name: [pod for resident in residents_on(staying, pool) for pod in resident.all_pods]
        for platform in platforms.values()
        for pool in platform.pools.values()
    }


def room(step: Step, staying: Iterable[Resident] = (), *, shares_nodes: bool = False) -> int:
    """How many pods like that of ``step`` its pool has room for at once beside what is ``staying``.

    At least one, where nothing stays on the pool: what is too large for a node is refused elsewhere. Of a step on
    several nodes there is one pod a node, unless it ``shares_nodes``.
    """
    sidecar = step.store.sidecar if step.uses_store else Resources(cpu=0, memory=0)
    beside = [resident for resident in staying if resident.pool == step.pool.name]
    wanted = add(step.resources, sidecar)
    most = 1 if step.is_group and not shares_nodes else sys.maxsize
    pods = sum(min(room_for(free, wanted), most) for free in _free(step.pool, beside))
    return pods if beside else max(1, pods)


def has_spare(pool: Pool, wanted: Resources, staying: Iterable[Resident]) -> bool:
    """Whether ``pool`` has room for one more pod that asks for ``wanted``, beside all that stays there."""
    nodes = _free(pool, [resident for resident in staying if resident.pool == pool.name])
    return any(room_for(free, wanted) for free in nodes)


def _free(pool: Pool, residents: Sequence[Resident]) -> list[Resources]:
    """What ``residents`` leave of each node that ``pool`` may have."""
    pods = [pod for resident in residents for pod in resident.all_pods]
    return left_by(pods, [pool.allocatable] * max(1, pool.max_nodes))


def place_apps(
    pipelines: Sequence[DeclaredPipeline],
    platforms: Mapping[str, Platform],
    steps: Mapping[str, Sequence[Step]],
    gates: Gates,
    root: Path,
    *,
    images: Images | None = None,
) -> dict[str, list[App]]:
    """The apps of each pipeline by its name; ``steps`` are those of the pipelines, as they were placed.

    ``root`` is the repository whose files they ship, and ``images`` grows by those that are built for them.
    """
    built = images or Images()
    staying = staying_on_pools(pipelines)
    return {
        pipeline.name: _Apps(
            pipeline, platforms, {step.name: step for step in steps[pipeline.name]}, gates, root, built, staying
        ).apps()
        for pipeline in pipelines
    }


@dataclass
class _Apps:
    pipeline: DeclaredPipeline
    platforms: Mapping[str, Platform]
    steps: Mapping[str, Step]
    gates: Gates
    root: Path
    images: Images
    staying: Sequence[Resident]
    made: dict[str, App] = field(default_factory=dict[str, App])

    @cached_property
    def declared(self) -> dict[str, AppDeclaration]:
        return {app.name: app for app in self.pipeline.apps}

    def apps(self) -> list[App]:
        """In the order of the declaration."""
        return [self._app(name) for name in self.declared]

    def _app(self, name: str) -> App:
        if name not in self.made:
            self.made[name] = self._on_its_pool(self.declared[name])
        return self.made[name]

    def _on_its_pool(self, declared: AppDeclaration) -> App:
        settings = declared.placed_by
        platform, pool = pool_of(settings.pool, self.platforms)
        beside = [*self.pipeline.steps, *self.pipeline.services, *self.declared.values()]
        resources = settings.asked
        image = (
            settings.image
            or declared.image
            or built_image(self.pipeline, declared, self.root, self.images)
            or tensorflow_image(pool)
        )
        spare = has_spare(pool, resources, self.staying)
        if not spare and not declared.keeps_data:
            key = self.pipeline.key(declared)
            rest = "an update stops one first, and with one pod nobody answers until the new one is ready"
            pulumi.log.warn(f"{key}.pool: pool {pool.name} has no room for a pod more of {declared.name}: {rest}")
        app = App(
            pipeline=self.pipeline.name,
            declared=replace(declared, arguments=list(arguments(declared, self._variants_of))),
            image=image,
            platform=platform,
            pool=pool,
            resources=resources,
            spare=spare,
            inputs={
                **{
                    name if step.name == of else step.name: step
                    for name, of in declared.inputs.items()
                    for step in self._variants_of(of)
                },
                **self._supplements(image, resources, platform),
            },
            after=[
                *(step for name in declared.after for step in self._variants_of(name)),
                *([self.steps[NEWEST]] if settings.follow else []),
            ],
            clients=[app.name for app in self.declared.values() if declared.name in app.connects],
            connects={connect: self._app(connect) for connect in declared.connects},
            command=command_of(declared, beside, self.root) if declared.command else None,
            storage=mebibytes(settings.storage) if isinstance(settings, KeptAppSettings) else 0,
            choices=choices(declared.inputs, self._variants_of),
        )
        return self.gates.before(app, tensorflow=has_tensorflow(image))

    def _supplements(self, image: str, resources: Resources, platform: Platform) -> dict[str, Step]:
        """What the image lacks for GPUs, by the input's name. Where the pipeline's steps need it, it is theirs."""
        steps: dict[str, Step] = {}
        for folder, supplement in SUPPLEMENTS.items():
            if resources.gpus and supplement.is_lacking(image):
                inputs = [step.inputs.get(supplement.name) for step in self.steps.values()]
                published = next((step for step in inputs if step and step.supplements), None)
                beside, kept = (platform, platform.cheapest_pool), kept_by(self.staying, self.platforms)
                steps[supplement.name] = published or publishing(folder, supplement, beside, kept, self.gates)
        return steps

    def _variants_of(self, name: str) -> Sequence[Step]:
        return variants_of(name, self.steps.values())
