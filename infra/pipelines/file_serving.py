"""The steps that publish the models which apps of a ``pipeline.yaml`` serve, where a stack names these apps."""

from collections.abc import Sequence
from typing import Any

from infra.pipelines import references, tensorflow_serving
from infra.pipelines.contract import StepDeclaration, literal
from infra.pipelines.file_app_kinds import ServingApp
from infra.pipelines.file_settings import APPS
from infra.pipelines.matrix import written
from infra.pipelines.pipeline_file import PipelineFile


def publishing(declared: PipelineFile, settings: Any) -> Sequence[StepDeclaration]:
    """One step for each app that serves a model and that ``settings`` place."""
    section = getattr(settings, APPS, None)
    placed = {
        name: (app, getattr(section, name, None))
        for name, app in declared.apps.items()
        if isinstance(app, ServingApp)
    }
    return [
        _publishing(name, app, placed_by, declared, settings)
        for name, (app, placed_by) in placed.items()
        if placed_by is not None
    ]


def _publishing(
    name: str, app: ServingApp, placed_by: Any, declared: PipelineFile, settings: Any
) -> StepDeclaration:
    def value(reference: str) -> str | None:
        known = reference in declared.parameters
        return literal(written(getattr(settings, reference))) if known else None

    requests = references.replaced(app.requests, value)
    reads = {each: each for each in references.names(requests) if each in declared.steps}
    served = app.model_copy(update={"requests": requests})
    return tensorflow_serving.publishing(name, placed_by, served, reads)
