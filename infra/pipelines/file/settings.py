"""The settings that stack files have for a pipeline of a ``pipeline.yaml``."""

import re
import warnings
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from infra.pipelines import pods, valkey
from infra.pipelines.apps import AppSettings
from infra.pipelines.contract import PipelineSettings, PodSettings, ServiceSettings, StepSettings
from infra.pipelines.file.app_shapes import RESOURCES, PipelineApp, ProgramApp, settings_of
from infra.pipelines.file.shape import MOST_WORKERS, Parameter, PipelineFile, PipelineService, PipelineStep
from infra.pipelines.matrix import MATRIX, Axes, Axis, MatrixNodesSettings, MatrixStepSettings
from infra.schema.base import Float, Int, Model, no_truth, refuse
from infra.schema.problems import Path

PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")

SERVICES = "services"
"""The section of a pipeline's section that says where its services run."""

APPS = "apps"
"""The section of a pipeline's section that says which of its apps run, and where."""

SECTION_KEYS = ("uses", "steps", SERVICES, APPS, "schedule", "description")
"""Keys of a pipeline's section that are no parameters of its own."""

WORKERS, MODE, ASSIGNMENT = "workers", "mode", "assignment"
"""Keys of a step with items in a pipeline's section."""

NODES, WAIT = "nodes", "wait"
"""Keys of a step on several nodes in a pipeline's section."""

QUEUE, STATIC = "queue", "static"
"""How items come to workers: a service hands them out, or each has its own share."""

KINDS: Mapping[str, Any] = {"integer": Int, "number": Float, "string": str, "boolean": bool}


IGNORING = ConfigDict(extra="ignore", frozen=True)


class _PartialSection(PipelineSettings):
    model_config = IGNORING


class _PartialModel(Model):
    model_config = IGNORING


class _PartialAxes(Axes):
    model_config = IGNORING


def section_of(name: str, declared: PipelineFile, lost: Collection[Path] = ()) -> type[PipelineSettings]:
    """The pipeline's section, called ``name``: a key for each parameter, and one for each step below ``steps``,
    for each service below ``services`` and for each app below ``apps``.

    ``lost`` are the places of the file that could not be read. The section may then have keys of which nobody can
    tell what they are.
    """
    parameters = {key: each for key, each in declared.parameters.items() if is_parameter(key)}
    steps = {
        step: (_step_settings(step, each, parameters, lost), Field(description=_about(each)))
        for step, each in declared.steps.items()
    }
    model = _PartialModel if _any_at(lost, "steps") else Model
    base = _PartialSection if _any_at(lost, "parameters") else PipelineSettings
    below = _model(f"{name}Steps", model, "Where each step runs.", steps)
    fields = {
        **{key: (annotation(each), _field(each)) for key, each in parameters.items()},
        "steps": (below, Field(description="Where each step runs.")),
    }
    if declared.services or _any_at(lost, SERVICES):
        fields[SERVICES] = _services(name, declared, lost)
    if declared.apps or _any_at(lost, APPS):
        fields[APPS] = _apps(name, declared, lost)
    return _model(name, base, declared.description, fields)


def _services(name: str, declared: PipelineFile, lost: Collection[Path]) -> Any:
    """The key ``services`` of the pipeline's section."""
    unsure = _any_at(lost, SERVICES)
    fields = {
        service: (
            _service_settings(service, each),
            Field(description=each.description or f"Where `{service}` runs."),
        )
        for service, each in declared.services.items()
    }
    about = "Where each service runs."
    model = _model(f"{name}Services", _PartialModel if unsure else Model, about, fields)
    return (
        (model, Field(default_factory=model, description=about)) if unsure else (model, Field(description=about))
    )


def _apps(name: str, declared: PipelineFile, lost: Collection[Path]) -> Any:
    """The key ``apps`` of the pipeline's section."""
    fields = {
        app: (
            _app_settings(app, each) | None,
            Field(
                default=None, description=f"{each.description or f'Where `{app}` runs.'} Default: it does not run."
            ),
        )
        for app, each in declared.apps.items()
    }
    about = "The apps that run, and where each does."
    model = _model(f"{name}Apps", _PartialModel if _any_at(lost, APPS) else Model, about, fields)
    return (model, Field(default_factory=model, description=about))


def _app_settings(name: str, app: PipelineApp) -> type[AppSettings]:
    base = settings_of(app)
    asked = {**RESOURCES.get(app.kind, {}), **app.resources.model_dump(exclude_none=True)}
    if isinstance(app, ProgramApp):
        asked["storage"] = app.storage
    fields = {key: default for key, default in asked.items() if key in base.model_fields}
    return _model(name, base, base.__doc__, _defaults(base, fields))


def _service_settings(name: str, service: PipelineService) -> type[ServiceSettings]:
    preset = valkey.RESOURCES if service.kind == valkey.KIND else {}
    asked = {**preset, **service.resources.model_dump(exclude_none=True), "storage": service.storage}
    return _model(name, ServiceSettings, ServiceSettings.__doc__, _defaults(ServiceSettings, asked))


def _defaults(model: type[PodSettings], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Those fields of ``model`` for which ``asked`` has a default in place of the model's own."""
    known = model.model_fields
    return {
        key: (_annotation(known[key]), Field(default=default, description=known[key].description))
        for key, default in asked.items()
        if default is not None
    }


def _any_at(lost: Collection[Path], *section: str) -> bool:
    """Whether a part of ``section`` is lost as a whole."""
    return any(place[: len(section)] == section[: len(place)] and len(place) <= len(section) + 1 for place in lost)


def is_parameter(name: str) -> bool:
    """Whether a key of a pipeline's section can have that name."""
    return bool(PARAMETER.fullmatch(name)) and name not in SECTION_KEYS and not name.startswith("model_")


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


def used_in(step: PipelineStep) -> dict[str, None]:
    """What the command, the environment and the items of ``step`` refer to, each once and in their order."""
    words = [*step.run, *step.environment.values(), *([step.items.files] if step.items else [])]
    return dict.fromkeys(name for word in words for name in pods.names(word))


def _step_settings(
    name: str, step: PipelineStep, parameters: Mapping[str, Parameter], lost: Collection[Path]
) -> type[StepSettings]:
    unsure = _any_at(lost, "parameters") or _any_at(lost, "steps", name)
    base = MatrixNodesSettings if step.nodes or unsure else MatrixStepSettings
    known = base.model_fields
    resources = step.resources.model_dump(exclude_none=True)
    asked = {**resources, "time_limit": step.time_limit, "image": step.image}
    if step.nodes:
        asked |= {NODES: step.nodes.count, WAIT: step.nodes.wait}
    fields = _defaults(base, asked)
    axes: dict[str, Any] = {}
    for key in dict.fromkeys([*step.matrix, *parameters]):
        if key in used_in(step) and key in parameters:
            about = f"Values of `{key}`, in place of those of the pipeline."
            default = step.matrix.get(key)
            axes[key] = (axis(parameters[key]) | None, Field(default=default, description=about))
    if axes or unsure:
        matrix = _model(f"{name}Axes", _PartialAxes if unsure else Axes, Axes.__doc__, axes)
        fields[MATRIX] = (matrix, Field(default_factory=matrix, description=known[MATRIX].description))
    if step.items or unsure:
        fields |= _of_items(step)
    return _model(name, base, base.__doc__, fields)


def _of_items(step: PipelineStep) -> dict[str, Any]:
    """The keys that a step with items has beside those of any step."""
    mode = step.items.mode if step.items else "parallel"
    queue = step.items and step.items.queue
    workers = Annotated[Int, Field(ge=1, le=MOST_WORKERS)]
    about = {
        WORKERS: "Pods that work on its items at once.",
        MODE: "Whether its items wait for one another.",
        ASSIGNMENT: "Whether a service hands its items out, or each worker has its own share.",
    }

    def assigned(value: str) -> str:
        if value == QUEUE and step.items and not queue:
            fix = f"write `{STATIC}`, or add `queue: <service>` to the `items` of the step in `pipeline.yaml`"
            raise refuse("the pipeline names no service that hands out the items of this step", fix)
        return value

    assignment = Annotated[Literal["queue", "static"], AfterValidator(assigned)]
    return {
        WORKERS: (workers, Field(default=step.workers or 1, description=about[WORKERS])),
        MODE: (Literal["parallel", "ordered"], Field(default=mode, description=about[MODE])),
        ASSIGNMENT: (assignment, Field(default=QUEUE if queue else STATIC, description=about[ASSIGNMENT])),
    }


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
