"""From the apps that pipelines declare to apps on pools: each with its image, and with those that it asks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pulumi

from infra.kubernetes.gates import Gates, cheapest_pool
from infra.kubernetes.image_builds.build import Images
from infra.pipelines.apps import NEWEST, AppDeclaration, KeptAppSettings
from infra.pipelines.discovery import DeclaredPipeline, supplements
from infra.pipelines.images import has_tensorflow, tensorflow_image
from infra.pipelines.residents import Resident
from infra.placed import App, Choice, Step
from infra.placement.packages import publishing
from infra.placement.shipping import command_of
from infra.placement.steps import built_image, choice_among, has_spare, kept_by, pool_of, staying_on_pools
from infra.platform import Platform, Resources
from infra.schema.quantities import mebibytes


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
            self.made[name] = self._placed(self.declared[name])
        return self.made[name]

    def _placed(self, declared: AppDeclaration) -> App:
        settings = declared.placed_by
        platform, pool = pool_of(settings.pool, self.platforms)
        beside = [*self.pipeline.steps, *self.pipeline.services, *self.declared.values()]
        groups = {name: self._read(name, of) for name, of in declared.inputs.items()}
        found = {name: choice_among(of, self._meant(of)) for name, of in declared.inputs.items()}
        choices = {name: choice for name, choice in found.items() if choice}
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
            declared=replace(declared, arguments=list(_words(declared, groups, choices))),
            image=image,
            platform=platform,
            pool=pool,
            resources=resources,
            spare=spare,
            inputs={
                **{each: step for found in groups.values() for each, step in found.items()},
                **self._supplies(image, resources, platform),
            },
            after=[
                *(step for name in declared.after for step in self._meant(name)),
                *([self.steps[NEWEST]] if settings.follow else []),
            ],
            clients=[each.name for each in self.declared.values() if declared.name in each.connects],
            connects={connect: self._app(connect) for connect in declared.connects},
            command=command_of(declared, beside, self.root) if declared.command else None,
            folders={name: self.root / each.path for name, each in declared.folders.items()},
            storage=mebibytes(settings.storage) if isinstance(settings, KeptAppSettings) else 0,
            choices=choices,
        )
        return self.gates.before(
            app,
            tensorflow=has_tensorflow(image),
            fits=lambda wanted: has_spare(pool, wanted, self.staying),
        )

    def _supplies(self, image: str, resources: Resources, platform: Platform) -> dict[str, Step]:
        """What the image lacks for GPUs, by the input's name. Where the pipeline's steps need it, it is theirs."""
        found: dict[str, Step] = {}
        for folder, each in supplements().items():
            if resources.gpus and each.is_lacking(image):
                inputs = [step.inputs.get(each.name) for step in self.steps.values()]
                there = next((step for step in inputs if step and step.supplements), None)
                beside, kept = (platform, cheapest_pool(platform)), kept_by(self.staying, self.platforms)
                found[each.name] = there or publishing(folder, each, beside, kept, self.gates)
        return found

    def _meant(self, name: str) -> list[Step]:
        """The step of that name, or all variants that are made of it."""
        if name in self.steps:
            return [self.steps[name]]
        return [step for step in self.steps.values() if step.variant and step.variant.of == name]

    def _read(self, name: str, of: str) -> dict[str, Step]:
        """The steps that the input ``name`` is, by the names that they have as inputs."""
        found = self._meant(of)
        return {name: found[0]} if of in self.steps else {each.name: each for each in found}


def _words(
    declared: AppDeclaration, groups: Mapping[str, Mapping[str, Step]], choices: Mapping[str, Choice]
) -> Iterator[str]:
    """The arguments, with one for each variant where one is a step with variants and no best."""
    several = {
        f"{{{name}}}": [f"{{{step}}}" for step in steps]
        for name, steps in groups.items()
        if [*steps] != [name] and name not in choices
    }
    for word in declared.arguments:
        yield from several.get(word, [word])
