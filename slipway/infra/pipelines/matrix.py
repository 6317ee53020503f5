"""A step with a matrix becomes a step for each combination of its values. These run side by side, as pools allow.

The settings of such a step are a subclass of `MatrixStepSettings`, whose ``matrix`` is a subclass of `Axes` with a
field for each parameter that may vary: ``rate: Axis[Float] | None``.
"""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Self, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from slipway.infra.pipelines.contract import StepDeclaration, StepSettings, Variant
from slipway.infra.schema.base import Model, refuse
from slipway.infra.schema.problems import Path

POOL = "pool"
"""The axis of a matrix that puts the step on several pools."""

MATRIX = "matrix"
"""The key of a step, in a ``pipeline.yaml`` and in a stack file."""

MOST_VARIANTS = 100
"""Steps that one step may become; each is a Job of its own, and a stack declares them one by one."""

MOST_STEPS = 300
"""Steps of a pipeline, variants counted. The evaluation of 1,000 takes half a minute of CPU time, and a chain of
them is deeper than Python's stack."""

NAME_LIMIT = 40
"""Characters of a variant's name, which is part of the names of its Jobs and of a folder of the store."""

Value = str | int | float | bool


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise refuse("not a single value", "write a number, a text, or `true` or `false`")
    if value is None:
        raise refuse("empty", "write a value, or remove it")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse("not a number", "write a number")
    return value


Scalar = Annotated[Any, WithJsonSchema({"type": ["boolean", "number", "string"]}), BeforeValidator(_scalar)]
"""A value of a parameter, of whatever type."""

Bound = Annotated[Any, WithJsonSchema({"type": "number"}), BeforeValidator(_number)]
"""A number, whole or not."""


T = TypeVar("T")


def _distinct(values: list[T]) -> list[T]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise refuse(f"`{argument(cast('Value', value))}` stands here twice", "remove one of them")
    return values


Axis = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct)]
"""The values of one axis, each once."""


class Axes(Model):
    """Values of which each combination makes a step of its own. An axis that is written here replaces that of the
    pipeline.
    """

    pool: Axis[str] | None = Field(
        default=None, description="Names of pools, in place of `pool`: the step runs once on each."
    )

    @model_validator(mode="after")
    def _few(self) -> Self:
        count = math.prod(len(values) for values in self.axes.values())
        if count > MOST_VARIANTS:
            raise refuse(f"{count} variants, and a step has at most {MOST_VARIANTS}", "remove values")
        return self

    @property
    def axes(self) -> dict[str, Sequence[Value]]:
        """The values of each axis that has any, in the order of the model's fields."""
        axes = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: values for name, values in axes.items() if values is not None}


class MatrixStepSettings(StepSettings):
    """Where a step runs and what it may use. Its `matrix` makes several steps of it."""

    pool: str = Field(
        default="",
        examples=["cpu"],
        description="Name of a pool of any of the stack's clusters; required, unless `matrix` has pools.",
    )
    matrix: Axes = Field(default_factory=Axes, description="Makes a step of each combination of values.")

    def _copies(self) -> Iterator[tuple[Path, Self]]:
        if self.matrix.pool is None:
            yield from super()._copies()
            return
        rest = self.matrix.model_copy(update={POOL: None})
        for index, pool in enumerate(self.matrix.pool):
            yield (MATRIX, POOL, index), self.model_copy(update={POOL: pool, MATRIX: rest})


def variants(
    settings: StepSettings, declare: Callable[[Mapping[str, Any], StepSettings], StepDeclaration]
) -> list[StepDeclaration]:
    """The steps that ``settings`` make of one, in the order of their values.

    ``declare`` is called with the values of each combination, by axis, and with the settings that place it. It
    returns the step under the name that others give as an input, which here becomes ``<name>-<value>-<value>``.
    Where there is no matrix, the step stays one.
    """
    parameters = dict[str, Sequence[Value]]()
    if isinstance(settings, MatrixStepSettings):
        parameters = {name: values for name, values in settings.matrix.axes.items() if name != POOL}
    steps: list[StepDeclaration] = []
    # A step with places is one step, wherever it runs.
    on_pools = [((POOL,), settings)] if settings.places else settings.on_pools
    for place, on_pool in on_pools:
        pool: dict[str, Value] = {POOL: on_pool.pool} if place != (POOL,) else {}
        for combination in itertools.product(*parameters.values()):
            chosen = dict(zip(parameters, combination, strict=True))
            step = declare(chosen, on_pool)
            if values := {**pool, **chosen}:
                step = replace(step, name=variant_name(step.name, values), variant=Variant(step.name, values))
            steps.append(step)
    return steps


def variant_name(step: str, values: Mapping[str, Value]) -> str:
    """``train-t4-100``, which does not depend on the other variants of the step.

    It ends in a digest of the values where it would be too long, or where other values could read the same.
    """
    texts = [value for value in values.values() if isinstance(value, str)]
    slugs = [_slug(value) for value in values.values()]
    name = "-".join([step, *slugs])
    exact = all(text and _slug(text) == text for text in texts)
    exact = exact and (len(texts) < 2 or not any("-" in text for text in texts))
    if exact and len(name) <= NAME_LIMIT:
        return name
    mark = hashlib.sha256(json.dumps(dict(values), sort_keys=True).encode()).hexdigest()[:7]
    return f"{name[: NAME_LIMIT - len(mark) - 1].rstrip('-')}-{mark}"


def _slug(value: Value) -> str:
    """The value in lower-case letters, digits and hyphens; no two numbers have the same."""
    if isinstance(value, str):
        return re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    return argument(value).replace("-", "m").replace("+", "").replace(".", "-")


def argument(value: Value) -> str:
    """A parameter's value as a step's command line has it: a truth value as ``true`` or ``false``."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)
