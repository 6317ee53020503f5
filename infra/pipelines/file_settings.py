"""The settings that stack files have for a pipeline of a ``pipeline.yaml``."""

import warnings
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model
from pydantic.fields import FieldInfo

from infra.pipelines import references
from infra.pipelines.contract import PipelineSettings, StepSettings
from infra.pipelines.matrix import MATRIX, Axes, Axis, MatrixStepSettings
from infra.pipelines.pipeline_file import Parameter, PipelineFile, PipelineStep
from infra.schema.base import Float, Int, Model, no_truth

KINDS: Mapping[str, Any] = {"integer": Int, "number": Float, "string": str, "boolean": bool}


def section_of(name: str, declared: PipelineFile) -> type[PipelineSettings]:
    """The pipeline's section, called ``name``: a key for each parameter, and one for each step below ``steps``."""
    steps = {
        step: (_step_settings(step, each, declared.parameters), Field(description=_about(each)))
        for step, each in declared.steps.items()
    }
    below = _model(f"{name}Steps", Model, "Where each step runs.", steps)
    fields = {
        **{key: (annotation(each), _field(each)) for key, each in declared.parameters.items()},
        "steps": (below, Field(description="Where each step runs.")),
    }
    return _model(name, PipelineSettings, declared.description, fields)


def annotation(parameter: Parameter) -> Any:
    """The type of a parameter's values, with its bounds and choices."""
    kind: Any = KINDS.get(parameter.type, Any)
    if parameter.choices is not None:
        chosen: Any = Literal[tuple(parameter.choices)]
        # Of the choices 0 and 1, a literal would take a truth value.
        return chosen if parameter.type == "string" else Annotated[chosen, BeforeValidator(no_truth)]
    if parameter.minimum is None and parameter.maximum is None:
        return kind
    return Annotated[kind, Field(ge=parameter.minimum, le=parameter.maximum)]


def used_in(step: PipelineStep) -> dict[str, None]:
    """What the command and the environment of ``step`` refer to, each once and in their order."""
    words = [*step.run, *step.environment.values()]
    return dict.fromkeys(each for word in words for each in references.names(word))


def _step_settings(name: str, step: PipelineStep, parameters: Mapping[str, Parameter]) -> type[StepSettings]:
    known = MatrixStepSettings.model_fields
    resources = step.resources.model_dump(exclude_none=True)
    asked = {**resources, "time_limit": step.time_limit, "image": step.image}
    fields: dict[str, Any] = {
        key: (_annotation(known[key]), Field(default=default, description=known[key].description))
        for key, default in asked.items()
        if default is not None
    }
    axes: dict[str, Any] = {}
    for key in dict.fromkeys([*step.matrix, *parameters]):
        if key in used_in(step) and key in parameters:
            about = f"Values of `{key}`, in place of those of the pipeline."
            default = step.matrix.get(key)
            axes[key] = (Axis[annotation(parameters[key])] | None, Field(default=default, description=about))
    if axes:
        matrix = _model(f"{name}Axes", Axes, Axes.__doc__, axes)
        fields[MATRIX] = (matrix, Field(default_factory=matrix, description=known[MATRIX].description))
    return _model(name, MatrixStepSettings, MatrixStepSettings.__doc__, fields)


def _annotation(field: FieldInfo) -> Any:
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def _field(parameter: Parameter) -> Any:
    if parameter.default is None:
        return Field(description=parameter.description)
    return Field(default=parameter.default, description=parameter.description)


def _about(step: PipelineStep) -> str:
    return step.description or f"Where `{' '.join(step.run[:2])}` runs."


def _model(name: str, base: type[Model], about: str | None, fields: Mapping[str, Any]) -> Any:
    """A settings model with ``fields`` beside those of ``base``."""
    with warnings.catch_warnings():
        # A parameter may be called `copy`, like a method that pydantic's models have; it is read as a field alone.
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute", UserWarning)
        return create_model(name, __base__=base, __doc__=about, **dict[str, Any](fields))
