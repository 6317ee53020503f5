"""The section that stack files have for a pipeline of a ``pipeline.yaml``: a model, made of what the file says."""

import re
import warnings
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, create_model

from slipway.infra.pipelines import valkey
from slipway.infra.pipelines.app_kinds.contract import APPS, REMOVED, AppKind
from slipway.infra.pipelines.apps import AppSettings
from slipway.infra.pipelines.contract import PipelineSettings, ServiceSettings, StepSettings
from slipway.infra.pipelines.file.shape import (
    STEP_KEYS,
    Parameter,
    PipelineFile,
    PipelineService,
    PipelineStep,
    used_in,
)
from slipway.infra.pipelines.inputs import INPUTS, inputs_field
from slipway.infra.pipelines.matrix import MATRIX, Axes, Axis, MatrixStepSettings
from slipway.infra.pipelines.pods import PodSettings
from slipway.infra.pipelines.scripts import is_script
from slipway.infra.pipelines.step_keys import field_as
from slipway.infra.schema.base import Float, Int, Model, no_truth
from slipway.infra.schema.problems import Path
from slipway.infra.schema.renamed import Removed

KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")

SERVICES = "services"
"""The section of a pipeline's section that says where its services run."""

SECTION_KEYS = ("uses", "steps", SERVICES, APPS, "schedule", "runs", "description")
"""Keys of a pipeline's section that are no parameters of its own."""

KINDS: Mapping[str, Any] = {"integer": Int, "number": Float, "string": str, "boolean": bool}

IGNORING = ConfigDict(extra="ignore", frozen=True)


class _PartialSection(PipelineSettings):
    model_config = IGNORING


class _PartialModel(Model):
    model_config = IGNORING


class _PartialAxes(Axes):
    model_config = IGNORING


class _Apps(Model):
    removed = REMOVED


class _NoApps(PipelineSettings):
    removed: ClassVar[Mapping[str, Removed]] = {
        APPS: Removed(f"remove it: the pipeline has no apps. In place of `mlflow`, {REMOVED['mlflow'].instead}")
    }


def section_of(name: str, declared: PipelineFile, lost: Collection[Path] = ()) -> type[PipelineSettings]:
    """The pipeline's section, called ``name``: a key for each parameter, and one for each step below ``steps``,
    for each service below ``services`` and for each app below ``apps``.

    ``lost`` are the places of the file that could not be read. The section may then have keys of which nobody can
    tell what they are.
    """
    parameters = {key: parameter for key, parameter in declared.parameters.items() if is_parameter(key)}
    steps = {
        key: (_step_settings(key, step, parameters, lost), Field(description=_about(step)))
        for key, step in declared.steps.items()
    }
    model = _PartialModel if _any_at(lost, "steps") else Model
    base = _PartialSection if _any_at(lost, "parameters") else PipelineSettings
    below = _model(f"{name}Steps", model, "Where each step runs.", steps)
    fields = {
        **{key: (annotation(parameter), _field(parameter)) for key, parameter in parameters.items()},
        "steps": (below, Field(description="Where each step runs.")),
    }
    if declared.inputs or _any_at(lost, INPUTS):
        fields[INPUTS] = inputs_field(f"{name}Inputs", declared.inputs, unsure=_any_at(lost, INPUTS))
    if declared.services or _any_at(lost, SERVICES):
        fields[SERVICES] = _services(name, declared, lost)
    if declared.apps or _any_at(lost, APPS):
        fields[APPS] = _apps(name, declared, lost)
    elif base is PipelineSettings:
        base = _NoApps
    return _model(name, base, declared.description or f"Where the steps of `{name}` run.", fields)


def _services(name: str, declared: PipelineFile, lost: Collection[Path]) -> Any:
    """The key ``services`` of the pipeline's section."""
    unsure = _any_at(lost, SERVICES)
    fields = {
        key: (
            _service_settings(key, service),
            Field(description=service.description or f"Where `{key}` runs."),
        )
        for key, service in declared.services.items()
    }
    about = "Where each service runs."
    model = _model(f"{name}Services", _PartialModel if unsure else Model, about, fields)
    return (
        (model, Field(default_factory=model, description=about)) if unsure else (model, Field(description=about))
    )


def _apps(name: str, declared: PipelineFile, lost: Collection[Path]) -> Any:
    """The key ``apps`` of the pipeline's section."""
    fields = {
        key: (
            _app_settings(key, app) | None,
            Field(
                default=None, description=f"{app.description or f'Where `{key}` runs.'} Default: it does not run."
            ),
        )
        for key, app in declared.apps.items()
    }
    about = "The apps that run, and where each does."
    base = Model if REMOVED.keys() & fields.keys() else _Apps
    model = _model(f"{name}Apps", _PartialModel if _any_at(lost, APPS) else base, about, fields)
    return (model, Field(default_factory=model, description=about))


def _app_settings(name: str, app: AppKind) -> type[AppSettings]:
    base = app.settings_model()
    return _model(name, base, base.__doc__, _fields(base, app.defaults()))


def _service_settings(name: str, service: PipelineService) -> type[ServiceSettings]:
    preset = valkey.RESOURCES if service.kind == valkey.KIND else {}
    defaults = {**preset, **service.resources.model_dump(exclude_none=True), "storage": service.storage}
    return _model(name, ServiceSettings, ServiceSettings.__doc__, _fields(ServiceSettings, defaults))


def _fields(model: type[PodSettings], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Those fields of ``model`` that have one of ``defaults`` in place of the model's own."""
    return {key: field_as(model, key, default) for key, default in defaults.items() if default is not None}


def _any_at(lost: Collection[Path], *section: str) -> bool:
    """Whether a part of ``section`` is lost as a whole."""
    return any(place[: len(section)] == section[: len(place)] and len(place) <= len(section) + 1 for place in lost)


def is_parameter(name: str) -> bool:
    """Whether a key of a pipeline's section can have that name."""
    return bool(KEY.fullmatch(name)) and name not in SECTION_KEYS and not name.startswith("model_")


def is_field(name: str) -> bool:
    """Whether a settings model can have a key of that name; pydantic has a meaning of its own for the others."""
    return not name.startswith("_") and name != "model_config"


def annotation(parameter: Parameter) -> Any:
    """The type of a parameter's values, with its bounds and choices."""
    kind: Any = KINDS.get(parameter.type, Any)
    if parameter.choices is not None:
        chosen: Any = Literal[tuple(parameter.choices)]
        # Of the choices 0 and 1, a literal would take a truth value.
        return chosen if parameter.type == "string" else Annotated[chosen, BeforeValidator(no_truth)]
    if kind not in {Int, Float} or (parameter.minimum is None and parameter.maximum is None):
        return kind
    return Annotated[kind, Field(ge=parameter.minimum, le=parameter.maximum)]


def axis(parameter: Parameter) -> Any:
    """The type of a matrix's values of a parameter."""
    return Axis[annotation(parameter)]


def _step_settings(
    name: str, step: PipelineStep, parameters: Mapping[str, Parameter], lost: Collection[Path]
) -> type[StepSettings]:
    unsure = _any_at(lost, "parameters") or _any_at(lost, "steps", name)
    known = MatrixStepSettings.model_fields
    defaults = {**step.resources.model_dump(), "time_limit": step.time_limit, "image": step.image}
    fields = _fields(MatrixStepSettings, defaults)
    kept = {parameter for key in STEP_KEYS for parameter in key.kept(step)}
    axes: dict[str, Any] = {}
    for key in dict.fromkeys([*step.matrix, *parameters]):
        if key in used_in(step) and key in parameters and key not in kept:
            about = f"Values of `{key}`, in place of those of the pipeline."
            default = step.matrix.get(key)
            axes[key] = (axis(parameters[key]) | None, Field(default=default, description=about))
    if axes or unsure:
        matrix = _model(f"{name}Axes", _PartialAxes if unsure else Axes, Axes.__doc__, axes)
        fields[MATRIX] = (matrix, Field(default_factory=matrix, description=known[MATRIX].description))
    for key in STEP_KEYS:
        if key.written(step) or unsure or any(place[:3] == ("steps", name, key.name) for place in lost):
            fields |= key.settings(step)
    return _model(name, MatrixStepSettings, MatrixStepSettings.__doc__, fields)


def _field(parameter: Parameter) -> Any:
    if parameter.default is None:
        return Field(description=parameter.description)
    return Field(default=parameter.default, description=parameter.description)


def _about(step: PipelineStep) -> str:
    command = "Where its script" if is_script(step.run) else f"Where `{' '.join(step.run[:2])}`"
    return step.description or f"{command} runs."


def _model(name: str, base: type[Model], about: str | None, fields: Mapping[str, Any]) -> Any:
    """A settings model with ``fields`` beside those of ``base``."""
    with warnings.catch_warnings():
        # A parameter may be called `copy`, like a method that pydantic's models have; it is read as a field alone.
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute", UserWarning)
        return create_model(name, __base__=base, __doc__=about, **dict[str, Any](fields))
