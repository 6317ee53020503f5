"""What a step becomes that is not one pod: a step for each combination of values of its matrix, or several pods.

These steps run side by side, as pools allow; the pods of one training run together.

The settings of a pipeline in Python place such a step by a subclass of `MatrixStepSettings`, whose ``matrix`` is a
subclass of `Axes` with a field for each parameter that may vary: ``rate: Axis[Float] | None``.
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

from slipway.infra.pipelines.contract import MOST_NODES, MultiNodeSettings, StepDeclaration, StepSettings, Variant
from slipway.infra.schema.base import Duration, Int, Model, refuse
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed

POOL = "pool"
"""The axis of a matrix that puts the step on several pools."""

MATRIX, NODES = "matrix", "nodes"
"""Keys of a step, in a ``pipeline.yaml`` and in a stack file."""

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


class MatrixNodesSettings(MatrixStepSettings, MultiNodeSettings):
    """Where a step runs that can run on several nodes, and what each of its pods may use. Its `matrix` makes
    several steps of it, each on as many nodes.
    """


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


# A step that becomes several pods: TensorFlow's roles of the pods of one training, which of them can be
# together, and how a ``pipeline.yaml`` writes them.


CHIEF, WORKER, PS, EVALUATOR = ROLES = ("chief", "worker", "ps", "evaluator")
"""The roles of `tf.distribute.cluster_resolver.TFConfigClusterResolver` and of Kubeflow's TFJob
(www.tensorflow.org/guide/distributed_training, "TF_CONFIG", seen November 2026)."""

ONCE = (CHIEF, EVALUATOR)
"""Roles that one pod at most can have."""

OTHER_NAMES: Mapping[str, str] = {
    "master": CHIEF,
    "parameterserver": PS,
    "parameter_server": PS,
    "parameter-server": PS,
    "server": PS,
    "eval": EVALUATOR,
    "slave": WORKER,
}
"""What else the roles are called: TFJob's `Master` is the chief."""


def role_called(role: str) -> str | None:
    """The role that ``role``, which is none, is another name of; None where it is no role's."""
    lower = role.lower()
    name = OTHER_NAMES.get(lower, lower.removesuffix("s") if lower not in ROLES else lower)
    return name if name in ROLES else None


def role_problems(roles: Mapping[str, int], count: int) -> Iterator[tuple[str, str]]:
    """Why pods with these ``roles``, known ones, are not the ``count`` pods of one training, each with a fix."""
    for role in ONCE:
        if roles.get(role, 0) > 1:
            yield f"{roles[role]} pods with the role `{role}`, of which there is one at most", f"write `{role}: 1`"
    if not roles.get(CHIEF) and not roles.get(WORKER):
        yield (
            f"none of the pods trains: {listed(roles, 'and')} never end by themselves",
            f"add `{WORKER}`, with a number of pods",
        )
    pods = sum(roles.values())
    if pods != count:
        without = pods - roles.get(WORKER, 0)
        fix = f"write `count: {pods}`"
        yield (
            f"the roles are those of {pods} pods, and the step runs on {count} nodes",
            f"{fix}, or `{WORKER}: {count - without}`" if count > without else fix,
        )


def resize(roles: Mapping[str, int], count: int) -> dict[str, int]:
    """``roles`` for ``count`` pods: workers are added or left out. There may be too few of them: none, or less."""
    if not roles:
        return {}
    missing = count - sum(roles.values())
    return dict(roles) if not missing else {**roles, WORKER: roles.get(WORKER, 0) + missing}


def fewest(roles: Mapping[str, int]) -> int:
    """The least number of pods for which `resize` leaves a worker, or the roles as they are where none has it."""
    others = sum(amount for role, amount in roles.items() if role != WORKER)
    return others + 1 if WORKER in roles else others


FIRST_PORT = 1025
"""The lowest port of a program on several nodes: a user's, as that below it is, at which the pods meet."""


def _nodes_section(value: Any) -> Any:
    """The section that ``value``, plain YAML, stands for: ``count: 2`` for ``2``.

    Raises what pydantic shows for what is neither a section nor a number of nodes.
    """
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse("neither a number nor a section", "write `2`, or a section with `count`: `{count: 2}`")
    if not 1 <= value <= MOST_NODES:
        raise refuse(f"a step runs on 1 to {MOST_NODES} nodes", f"write a number from 1 to {MOST_NODES}")
    return {"count": value}


class StepNodes(Model):
    """The nodes on which a step runs at once: a pod on each, which asks for what `resources` say, and on a pool
    with GPUs for all of its node's. Each program finds the others in `TF_CONFIG`, and its place among them in
    `RANK` and `WORLD_SIZE`; `MASTER_ADDR` and `MASTER_PORT` are where those of PyTorch meet, and
    `JAX_COORDINATOR_ADDRESS` is where those of JAX do. All start together. Where a pod is lost, all start again
    once it is replaced: programs save checkpoints, and go on with the newest. `{output}` is one directory for all.
    """

    count: Int = Field(ge=1, le=MOST_NODES, description="Number of nodes; on one the step runs as any step.")
    roles: dict[str, Annotated[Int, Field(ge=1)]] = Field(
        default_factory=dict[str, int],
        description=f"How many pods have each of TensorFlow's roles ({listed(ROLES, 'and')}), in the order of "
        "their ranks: `{chief: 1, worker: 3}`. They add up to `count`. Default: all are workers.",
    )
    wait: Duration = Field(
        default="10m",
        description="Pods that are there wait so long for those that are missing; then the step fails, and frees "
        "its nodes.",
    )
    port: Int = Field(
        default=2222,
        ge=FIRST_PORT,
        le=65535,
        description="The port that the program of each pod has to itself; the pods meet at the one below it.",
    )

    def findings(self, at: Path) -> Iterator[Finding]:
        """Findings about the roles of this section at ``at``."""
        unknown = [role for role in self.roles if role not in ROLES]
        for role in unknown:
            name = role_called(role)
            fix = f"write `{name}`" if name else did_you_mean(role, ROLES, f"write {listed(ROLES)}")
            place = (*at, "roles", role)
            yield Finding(place, self.roles[role], f"TensorFlow knows no role `{role}`", fix)
        if self.roles and not unknown:
            read = ((*at, "count"), *((*at, "roles", role) for role in ROLES))
            for reason, fix in role_problems(self.roles, self.count):
                yield Finding((*at, "roles"), self.roles, reason, fix, read=read)

    def count_findings(self, at: Path, count: int) -> Iterator[Finding]:
        """A finding where a stack file has too small a ``count``, at ``at``, for the roles of this section."""
        if count != self.count and count < fewest(self.roles):
            counts = [f"{role}: {amount}" for role, amount in self.roles.items()]
            yield Finding(
                at,
                count,
                f"its pods have the roles {listed(counts, 'and')}: on fewer nodes fewer have the role "
                f"`{WORKER}`, and there has to be one",
                f"write `{NODES}: {fewest(self.roles)}` or more",
            )


DeclaredNodes = Annotated[StepNodes, BeforeValidator(_nodes_section, json_schema_input_type=Int | StepNodes)]
"""The nodes of a step: a section, or their number alone."""
