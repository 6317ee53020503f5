"""The apps of a ``pipeline.yaml`` that the settings of a stack name, with its references resolved."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from infra.pipelines import notebook, page, references, tensorboard, tensorflow_serving
from infra.pipelines.apps import AppDeclaration, AppSettings, Metrics
from infra.pipelines.contract import StepDeclaration, literal
from infra.pipelines.file_app_kinds import (
    NotebookApp,
    PageApp,
    PipelineApp,
    ProgramApp,
    ServingApp,
    TensorBoardApp,
    keeps_data,
    refers,
    words_of,
)
from infra.pipelines.file_builds import build_of
from infra.pipelines.file_services import Place, substitute
from infra.pipelines.file_settings import APPS
from infra.pipelines.matrix import written
from infra.pipelines.pipeline_file import PipelineFile
from infra.pipelines.pods import Command, Probe
from infra.pipelines.results import heading
from infra.schema.paths import below_problem
from infra.schema.quantities import seconds

PYTHON = ("python", "python3")
"""The programs whose files an app needs from the pipeline's folder, whether it says so or not."""


def apps(
    declared: PipelineFile, settings: Any, steps: Sequence[StepDeclaration], place: Place
) -> Sequence[AppDeclaration]:
    """The apps that ``settings`` place, those of `infra.pipelines.file_settings`; ``steps`` are the pipeline's."""
    section = getattr(settings, APPS, None)
    placed = {name: getattr(section, name, None) for name in declared.apps} if section else {}
    return [
        _App(name, declared, settings, steps, place).declared(declared.apps[name], placed_by)
        for name, placed_by in placed.items()
        if placed_by is not None
    ]


class _App:
    """What one app is declared from."""

    def __init__(
        self, name: str, declared: PipelineFile, settings: Any, steps: Sequence[StepDeclaration], place: Place
    ) -> None:
        self.name = name
        self.file = declared
        self.settings = settings
        self.steps = steps
        self.place = place

    def declared(self, app: PipelineApp, placed_by: Any) -> AppDeclaration:
        """The app as `infra.pipelines.contract` knows it."""
        found = self._of_kind(app, placed_by)
        return replace(found, image=app.image or found.image)

    def _of_kind(self, app: PipelineApp, placed_by: Any) -> AppDeclaration:
        inputs = self._inputs(word for _, word in words_of(app))
        match app:
            case ProgramApp():
                return self._program(app, placed_by, inputs)
            case PageApp():
                samples = app.samples and self._filled(app.samples)
                shown = app.model_copy(update={"samples": samples})
                return page.declaration(self.name, placed_by, shown, inputs)
            case NotebookApp():
                return notebook.declaration(
                    self.name,
                    placed_by,
                    self.steps,
                    serving=app.serving,
                    model=app.model,
                    examples=self._filled(app.examples),
                )
            case TensorBoardApp():
                return tensorboard.declaration(self.name, placed_by, *self._made_of(app.step))
            case ServingApp():
                return tensorflow_serving.declaration(self.name, placed_by, app)

    def _made_of(self, name: str | None) -> list[str]:
        """The step of that name, or all variants that are made of it."""
        if name is None:
            return []
        return [each.name for each in self.steps if each.variant and each.variant.of == name] or [name]

    def _program(self, app: ProgramApp, placed_by: AppSettings, inputs: dict[str, str]) -> AppDeclaration:
        code = app.code if app.code is not None else "." if app.run[:1] and app.run[0] in PYTHON else None
        if code is not None and below_problem(code.removeprefix("./")):
            # A folder that leads out is refused; its files, which may be many, are not looked at.
            code = "."
        instead = substitute(app.rehearsal, self._filled, self.place)
        return AppDeclaration(
            name=self.name,
            title=app.title or heading(self.name),
            placed_by=placed_by,
            port=app.port,
            ports=app.ports,
            arguments=[self._filled(word) for word in app.run],
            command=None if code is None else Command(self.place(code), app.files),
            inputs=inputs,
            after=app.after,
            connects=[each for each in app.connects if each in self.file.apps and each != self.name],
            environment={key: self._filled(word) for key, word in app.environment.items()},
            secrets=app.secrets,
            requirements=app.requirements and self.place(app.requirements),
            probe=Probe(app.probe and app.probe.path),
            metrics=app.metrics and Metrics(app.metrics.path, app.metrics.port),
            people=app.people,
            path=app.path,
            writes=app.writes,
            token=refers(app, "token"),
            keeps_data=keeps_data(app),
            grace=seconds(app.grace),
            build=None
            if placed_by.image
            else build_of(self.name, app.image, app.build, self.file.build, self.place),
            substitute=instead,
        )

    def _filled(self, word: str) -> str:
        """``word`` with the values of parameters in place of their references."""
        known = self.file.parameters

        def value(reference: str) -> str | None:
            return literal(written(getattr(self.settings, reference))) if reference in known else None

        return references.replaced(word, value)

    def _inputs(self, words: Iterable[str]) -> dict[str, str]:
        names = dict.fromkeys(name for word in words for name in references.names(word))
        return {name: name for name in names if name in self.file.steps}
