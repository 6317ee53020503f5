"""A pipeline as a stack runs it: under a name, with settings of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from infra.pipelines.apps import AppDeclaration
from infra.pipelines.contract import PipelineSettings, ServiceDeclaration, StepDeclaration, placements
from infra.pipelines.discovery import apps_of, declared_steps, file_of, services_of, steps_of
from infra.pipelines.pipeline_file import NAMES
from infra.schema.problems import key_of


@dataclass(frozen=True)
class DeclaredPipeline:
    """A pipeline of a stack: its name there, the folder that declares it, and its settings."""

    name: str
    folder: str
    settings: PipelineSettings

    @cached_property
    def steps(self) -> Sequence[StepDeclaration]:
        """What it declares; raises SettingsError."""
        return declared_steps(self.folder, self.settings)

    @property
    def unchecked(self) -> Sequence[StepDeclaration]:
        """The same steps where the declaration has mistakes; raises SettingsError where they cannot be said."""
        return steps_of(self.folder, self.settings)

    @property
    def services(self) -> Sequence[ServiceDeclaration]:
        """The services that it declares; raises SettingsError where they cannot be said."""
        return services_of(self.folder, self.settings)

    @property
    def apps(self) -> Sequence[AppDeclaration]:
        """The apps that it declares; raises SettingsError where they cannot be said."""
        return apps_of(self.folder, self.settings)

    def key(self, declared: StepDeclaration | ServiceDeclaration | AppDeclaration) -> str:
        """The key of the stack file that places a step, a service or an app."""
        sections = placements(self.settings)
        places = (at for at, each in sections if any(own is declared.placed_by for _, own in each.on_pools))
        return self.setting(*next(places, ()))

    def declared_at(self, declared: StepDeclaration | ServiceDeclaration | AppDeclaration, *key: str) -> str:
        """The place of a key of a step, a service or an app in the ``pipeline.yaml``.

        Of a pipeline in Python, as `key` says it.
        """
        file = file_of(self.folder)
        if not file.endswith(NAMES):
            return self.key(declared)
        section, name = "apps" if isinstance(declared, AppDeclaration) else "services", declared.name
        if isinstance(declared, StepDeclaration):
            section, name = "steps", declared.variant.of if declared.variant else name
        return f"{file}: {key_of((section, name, *key), '')}"

    def declared_for_all(self, declared: StepDeclaration | ServiceDeclaration | AppDeclaration, *key: str) -> str:
        """The place of a key at the top of the ``pipeline.yaml``; of one in Python, that of ``declared``."""
        file = file_of(self.folder)
        return f"{file}: {key_of(key, '')}" if file.endswith(NAMES) else self.key(declared)

    def setting(self, *parts: str | int) -> str:
        """A key of its section."""
        return key_of(("pipelines", self.name, *parts))
