"""The section of a new stack file that runs a pipeline on the stack's pools."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

import yaml
from pydantic import BaseModel

from infra.pipelines.apps import AppDeclaration, AppSettings
from infra.pipelines.contract import (
    AnyPipeline,
    PipelineSettings,
    PodSettings,
    ServiceSettings,
    StepSettings,
    placements,
)
from infra.platform import Resources
from infra.schema.starter import CPU_POOL, GPU_POOL
from infra.schema.validation import possible

POOL, GPUS, USES, NODES = "pool", "gpus", "uses", "nodes"

SCHEDULE = "schedule"
NIGHTLY = '{cron: "0 3 * * *", time_zone: Etc/UTC}'


@dataclass(frozen=True)
class Section:
    """A pipeline's section of a stack file, as plain values.

    ``guessed`` are the required settings of which nobody but the user knows the value: what stands there has only
    the right type. ``given`` are the steps that were put on GPUs without asking for any themselves. ``apps`` are
    the keys that would run the pipeline's apps, which the section leaves out.
    """

    name: str
    pipeline: AnyPipeline
    values: Mapping[str, Any]
    guessed: Sequence[str] = ()
    given: Sequence[str] = ()
    apps: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def settings(self) -> PipelineSettings:
        """The settings that the values are; raises pydantic's ValidationError where they are none."""
        return self.pipeline.settings.model_validate(self.values)

    @property
    def with_apps(self) -> PipelineSettings:
        """The settings with all apps; raises pydantic's ValidationError where the values are none."""
        return self.pipeline.settings.model_validate({**self.values, **self.apps})


def section(name: str, uses: str | None, pipeline: AnyPipeline) -> Section:
    """The section that the pipeline starts with: its own ``starter``, or what its settings require."""
    guessed: list[str] = []
    values = dict(pipeline.starter) or _required(pipeline.settings, guessed)
    apps = {key: each for key, each in _apps(pipeline.settings).items() if key not in values}
    return Section(name, pipeline, {**({USES: uses} if uses else {}), **values}, tuple(guessed), apps=apps)


def _required(model: type[BaseModel], guessed: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, known in model.model_fields.items():
        kind = known.annotation
        if isinstance(kind, type) and issubclass(kind, PodSettings):
            values[key] = _place(kind)
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and (below := _required(kind, guessed)):
            values[key] = below
        elif known.is_required():
            values[key] = possible(known)
            guessed.append(key)
    return values


def _place(kind: type[PodSettings]) -> dict[str, Any]:
    gpus = issubclass(kind, StepSettings | AppSettings) and kind.model_fields[GPUS].default
    return {POOL: GPU_POOL, GPUS: gpus} if gpus else {POOL: CPU_POOL}


def _apps(model: type[BaseModel]) -> dict[str, Any]:
    """The keys of ``model`` that run apps, each on the pool that it asks for."""
    values: dict[str, Any] = {}
    for key, known in model.model_fields.items():
        for kind in (known.annotation, *get_args(known.annotation)):
            if isinstance(kind, type) and issubclass(kind, AppSettings):
                values[key] = _place(kind)
            elif isinstance(kind, type) and issubclass(kind, BaseModel) and (below := _apps(kind)):
                values[key] = below
    return values


def needs(settings: PipelineSettings, *, gpus: bool) -> Resources | None:
    """The most that any step or app with GPUs, or without, asks for; None where there is none.

    Without GPUs this includes all services: they stay where they are while steps run.
    """
    placed = [each for _, each in placements(settings) if bool(each.asked_gpus) is gpus]
    if not placed:
        return None
    staying = [each.asked for each in placed if isinstance(each, ServiceSettings)]
    passing = [each.asked for each in placed if not isinstance(each, ServiceSettings)]

    def both(amount: Callable[[Resources], int]) -> int:
        return max(map(amount, passing), default=0) + sum(map(amount, staying))

    return replace(_each(both), gpus=max(each.asked_gpus for each in placed))


def largest(asked: Sequence[Resources]) -> Resources:
    """The most of each resource, GPUs aside."""
    return _each(lambda amount: max(map(amount, asked)))


def apps_together(settings: PipelineSettings) -> Resources:
    """What all apps without GPUs ask for together."""
    asked = [
        each.asked for _, each in placements(settings) if isinstance(each, AppSettings) and not each.asked_gpus
    ]
    return _each(lambda amount: sum(map(amount, asked)))


def _each(of: Callable[[Callable[[Resources], int]], int]) -> Resources:
    """What ``of`` makes of each resource, GPUs aside."""
    return Resources(
        of(lambda each: each.cpu), of(lambda each: each.memory), of(lambda each: each.ephemeral_storage)
    )


def most_nodes(settings: PipelineSettings, *, gpus: bool) -> int:
    """The most nodes that any step with GPUs, or without, runs on at once."""
    return max(
        (int(getattr(each, NODES, 1)) for _, each in placements(settings) if bool(each.asked_gpus) is gpus),
        default=1,
    )


def apps_of(found: Section) -> Sequence[AppDeclaration]:
    """The pipeline's apps, as they would be placed."""
    return found.pipeline.apps(found.with_apps)


def builds(found: Section) -> bool:
    """Whether the cluster builds an image for a step or service; those of apps that it leaves out aside."""
    declared = (*found.pipeline.steps(found.settings), *found.pipeline.services(found.settings))
    return any(each.build for each in declared)


def secrets_of(found: Section) -> Sequence[str]:
    """The names of the stack's secrets that its steps are given."""
    return sorted({name for step in found.pipeline.steps(found.settings) for name in step.secrets.values()})


def on_gpus(found: Section) -> Section:
    """The section with one GPU for each step that reads another one's results, or else for every step."""
    places = [(at, each) for at, each in placements(found.settings) if isinstance(each, StepSettings)]
    reading = {
        str(place[-1])
        for step in found.pipeline.steps(found.settings)
        for place, settings in places
        if step.inputs
        and (settings is step.placed_by or place[-1] == (step.variant.of if step.variant else step.name))
    }
    chosen = reading or {str(place[-1]) for place, _ in places}

    def change(name: str, step: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**step, POOL: GPU_POOL, GPUS: 1} if name in chosen else step

    return replace(found, values=_with_steps(found.values, change), given=sorted(chosen))


def on_cpus(found: Section) -> Section:
    """The section with every step, service and app on the pool without GPUs."""

    def change(_: str, step: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**step, POOL: CPU_POOL, **({GPUS: 0} if step.get(GPUS) else {})}

    values, apps = (_with_steps(each, change) for each in (found.values, found.apps))
    return replace(found, values=values, apps=apps)


def _with_steps(
    values: Mapping[str, Any], change: Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
) -> dict[str, Any]:
    """``values`` in which each section that names its pool is what ``change`` makes of it by its key."""
    changed = dict(values)
    for key, each in values.items():
        if isinstance(each, Mapping):
            below = cast("Mapping[str, Any]", each)
            changed[key] = change(key, below) if POOL in below else _with_steps(below, change)
    return changed


def written(found: Section, indent: str) -> str:
    """The section as it stands in a stack file, with the settings that have a default as comments."""
    return "\n".join(f"{indent}{line}".rstrip() for line in _lines(found))


def _lines(found: Section) -> Iterator[str]:
    fields = found.pipeline.settings.model_fields
    yield f"{found.name}:"
    for key in found.guessed:
        if key in found.values:
            yield f"  # Put your own value here. {fields[key].description or ''}".rstrip()
            yield f"  {key}: {_flow(found.values[key])}"
    written_last = [key for key in found.values if _is_nested(found.values[key])]
    for key, each in found.values.items():
        if key not in (*found.guessed, *written_last):
            yield f"  {key}: {_flow(each)}"
    yield from _optional(found)
    for key in written_last:
        yield from _entry(key, found.values[key], "  ")
    yield from (f"  # {line}" for line in _left_out(found))


def _optional(found: Section) -> Iterator[str]:
    """What else the pipeline can be told, with its default."""
    for key, known in found.pipeline.settings.model_fields.items():
        if key not in found.values and isinstance(known.default, str | int | float):
            yield f"  # {known.description or key}"
            yield f"  # {key}: {_flow(known.default)}"


def _left_out(found: Section) -> Iterator[str]:
    """What the section can have beside its steps, as it would stand there."""
    if SCHEDULE not in found.values:
        yield "Runs it by the clock as well, here each night, which is billed: docs/runs.md."
        yield f"{SCHEDULE}: {NIGHTLY}"
    if found.apps:
        yield "Its apps stay after the steps, and are billed around the clock: docs/apps.md. With `follow: newest`"
        yield "beside `pool` an app goes on to what a schedule makes."
    for key, each in found.apps.items():
        yield from _entry(key, each, "")


def _is_nested(value: Any) -> bool:
    """Whether it is a section of sections, which does not go on one line."""
    return isinstance(value, Mapping) and any(isinstance(each, Mapping) for each in _section(value).values())


def _section(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value)


def _entry(key: str, value: Any, indent: str) -> Iterator[str]:
    """A line for a single value and for a section of such, else a line for each key."""
    if not _is_nested(value):
        yield f"{indent}{key}: {_flow(value)}"
        return
    yield f"{indent}{key}:"
    for below, each in _section(value).items():
        yield from _entry(below, each, f"{indent}  ")


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_flow(each)}' for key, each in _section(value).items())}}}"
    plain = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    text = plain.removesuffix("\n").removesuffix("\n...")
    # As people write a number that has to be text: "2".
    return f'"{text[1:-1]}"' if re.fullmatch(r"'[^'\"\\]*'", text) else text
