"""The shape of ``pipeline.yaml``, by which a folder declares a pipeline without Python.

What its keys mean is in their descriptions, of which docs/pipeline.schema.json is made.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import AfterValidator, BeforeValidator, Field, create_model

from infra.pipelines.contract import MOST_NODES
from infra.pipelines.file.app_shapes import PipelineApp
from infra.pipelines.file.parts import (
    Bound,
    Built,
    RehearsalCommand,
    Scalar,
    ServiceProbe,
    ServiceResources,
    StepResources,
    Word,
    Words,
)
from infra.pipelines.node_roles import ROLES
from infra.pipelines.results import Format
from infra.schema.base import Duration, Int, Model, Size, refuse
from infra.schema.images import Image
from infra.schema.problems import did_you_mean, listed
from infra.schema.quantities import seconds

# The shape of ``nodes`` of a step in ``pipeline.yaml``.


FIRST_PORT = 1025
"""The lowest port of a program on several nodes: a user's, as that below it is, at which the pods meet."""


def nodes_section(value: Any) -> Any:
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


NAMES = ("pipeline.yaml", "pipeline.yml")
"""The file, and how it is misspelt."""

PAGE = "docs/pipeline.md"
"""The page that describes its keys."""

SUBSTITUTE = "rehearsal"
"""The key of a step or service with what runs in place of its command."""

MOST_WORKERS = 1000
"""Pods of one step: a namespace of so many is still a small one for Kubernetes, and a mistake has more."""

SHORTEST_LEASE, LONGEST_LEASE = 5, 3600
"""Seconds. A worker says several times in a lease that it lives, over a network that may be slow for seconds; and
for as long as a lease, nobody takes over the item of a worker that died."""


def _sentence(value: str) -> str:
    if not value.strip():
        raise refuse("empty", "write what it does, in a sentence")
    return value.strip()


FORMATS = get_args(Format)

RESULT_KINDS: Mapping[str, Sequence[str]] = {
    "number": ("format",),
    "table": ("columns", "compare"),
    "curves": ("draw", "unit", "logs"),
    "picture": (),
    "file": (),
}
"""The kinds of results, each with the keys that it alone may have."""


class Parameter(Model):
    """A key of the pipeline's section in stack files."""

    type: Literal["integer", "number", "string", "boolean"] = Field(description="What its values are.")
    default: Scalar | None = Field(
        default=None, description="Its value where the stack file has none; without it, each stack file has to."
    )
    minimum: Bound | None = Field(default=None, description="The least that a number can be.")
    maximum: Bound | None = Field(default=None, description="The most that a number can be.")
    choices: Annotated[list[Scalar], Field(min_length=1)] | None = Field(
        default=None, description="The only values that it can have."
    )
    description: str | None = Field(default=None, description="What it is, for the reference of the settings.")


class BestVariant(Model):
    """Which of a step's variants later steps read."""

    by: str = Field(description="A number among the step's results.")
    of: Literal["max", "min"] = Field(default="max", description="Whether the largest or the smallest is best.")


class TableColumn(Model):
    """A column of a table."""

    format: Format = Field(default="text", description="How its values are written.")
    title: str | None = Field(default=None, description="Its heading; default: the key.")


def _column(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in FORMATS:
        raise refuse("not one of the values it can have", did_you_mean(value, FORMATS, f"write {listed(FORMATS)}"))
    return {"format": value}


def _result(value: Any) -> Any:
    """``metrics.json#/accuracy`` is a number, ``curve.png`` a picture, and any other path a file."""
    if not isinstance(value, str | dict):
        raise refuse("neither a path nor a section", "write a path: `metrics.json#/accuracy`, `curve.png`")
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    path, mark, _ = value.partition("#")
    if mark and path.lower().endswith(".json"):
        return {"number": value}
    return {"picture" if value.lower().endswith(".png") else "file": value}


class StepResult(Model):
    """What a step leaves that is worth showing. One of the first five keys says what it is, and where: a path
    below the step's output, for a part of a JSON file with ``#`` and a JSON pointer (RFC 6901).
    """

    number: str | None = Field(default=None, description="A number of a JSON file: `metrics.json#/test/accuracy`.")
    table: str | None = Field(default=None, description="A list of objects of a JSON file, a row each.")
    curves: str | None = Field(
        default=None, description="A list of objects of a JSON file, one for each epoch, with a number by curve."
    )
    picture: str | None = Field(default=None, description="A PNG file.")
    file: str | None = Field(default=None, description="Any other file, of which the place is shown.")
    title: str | None = Field(default=None, description="What people read above it; default: its name.")
    format: Format | None = Field(default=None, description="How a number is written.")
    columns: (
        dict[
            str,
            Annotated[TableColumn, BeforeValidator(_column, json_schema_input_type=Format | TableColumn)],
        ]
        | None
    ) = Field(
        default=None, description="A table's columns, which it needs: how each is written, by the rows' keys."
    )
    compare: Annotated[list[str], Field(min_length=2, max_length=2)] | None = Field(
        default=None,
        description="Two keys of a table's rows, the value and the truth; rows that differ are marked.",
    )
    draw: list[str] | None = Field(
        default=None, description="The names of the curves that are drawn; default: all."
    )
    unit: str | None = Field(default=None, description="What an object of the curves stands for: `epoch`.")
    logs: str | None = Field(default=None, description="The folder with the curves that TensorBoard reads.")


def _lease(value: str) -> str:
    if not SHORTEST_LEASE <= seconds(value) <= LONGEST_LEASE:
        example = f"write `{SHORTEST_LEASE}s` to `{LONGEST_LEASE // 60}m`, for example `60s`"
        raise refuse(f"{seconds(value)} seconds, and a lease has {SHORTEST_LEASE} to {LONGEST_LEASE}", example)
    return value


class StepItems(Model):
    """What a step works on piece by piece: its program runs once for each item, a file that `files` matches. An
    item's name is that of the file without its extension: `day-1` for `day-1.csv` and `day-1.csv.gz`. Items are
    ordered by name. A pattern that matches no file, or two of one name, fails the step.
    """

    files: Word = Field(
        description="A pattern of files, with the references of `run`: `{prepare}/days/*.csv`, `{store}/days/*`."
    )
    mode: Literal["parallel", "ordered"] = Field(
        default="parallel",
        description="`ordered`: one item after the other, each with the result of the one before as `{previous}`.",
    )
    queue: str | None = Field(
        default=None,
        description="The service that hands the items out; default: each worker has its own share of them.",
    )
    attempts: Int = Field(
        default=3, ge=1, le=100, description="After so many failures an item is set aside, and the others go on."
    )
    allow_failed: Int = Field(
        default=0, ge=0, description="The step fails in the end where more items than this were set aside."
    )
    lease: Annotated[Duration, AfterValidator(_lease)] = Field(
        default="60s", description="A worker that is silent for so long loses its item to another one."
    )
    columns: dict[
        str,
        Annotated[TableColumn, BeforeValidator(_column, json_schema_input_type=Format | TableColumn)],
    ] = Field(
        default_factory=dict[str, TableColumn],
        description="More columns of the table of items: values of the `summary.json` that the program leaves.",
    )


class PipelineStep(Model):
    """A step: a program, what it reads, and what it needs."""

    run: Words = Field(
        description="The command: its program and its arguments. `{output}` is the directory that it writes, "
        "`{<step>}` the output of an earlier step, `{<parameter>}` a parameter's value, `{store}` the store; "
        "`{{` and `}}` are braces. Of a step with `items`, `{item}` is the path of the item's file, `{output}` a "
        "directory of the item's own, and `{previous}` the directory of the result of the item before."
    )
    description: str | None = Field(default=None, description="What the step does.")
    code: str = Field(default=".", description="The folder whose files it needs, and in which it starts.")
    files: list[str] = Field(
        default_factory=list[str],
        description="Patterns of Python files below `code` that are found by name and not imported.",
    )
    requirements: str | None = Field(
        default=None, description="A lock file, with hashes, of the packages that its image lacks."
    )
    after: list[str] = Field(
        default_factory=list[str], description="Steps that have to succeed first, beside those that it reads."
    )
    environment: dict[str, Word] = Field(
        default_factory=dict[str, str],
        description="Environment variables, with the same references as `run`.",
    )
    secrets: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Environment variables with a secret: its name in the stack file's `slipway:secrets`.",
    )
    image: Image | None = Field(default=None, description="Its image by digest; default: TensorFlow's.")
    build: Built | None = Field(
        default=None, description="Builds its image in the cluster; default: the `build` of the pipeline, if any."
    )
    resources: StepResources = Field(default_factory=StepResources, description="What it asks for.")
    time_limit: Duration | None = Field(
        default=None, description="Hard limit over all retries, waiting for a node included; default: 2h."
    )
    matrix: dict[str, Annotated[list[Scalar], Field(min_length=1)]] = Field(
        default_factory=dict[str, list[Scalar]],
        description="Values of parameters, of which each combination makes a step of its own.",
    )
    best: BestVariant | None = Field(
        default=None, description="Which variant later steps read; default: all of them."
    )
    items: StepItems | None = Field(
        default=None, description="What its program runs for piece by piece; default: it runs once."
    )
    workers: Int | None = Field(
        default=None,
        ge=1,
        le=MOST_WORKERS,
        description="Pods that work on the items at once; default: 1.",
    )
    nodes: Annotated[StepNodes, BeforeValidator(nodes_section, json_schema_input_type=Int | StepNodes)] | None = (
        Field(
            default=None,
            description="Runs it on several nodes at once, as one training whose pods know one another: a number, "
            "or a section; default: it runs in one pod.",
        )
    )
    connects: list[str] = Field(
        default_factory=list[str],
        description="Services that its program connects to. It has their host and port as `<SERVICE>_ADDRESS` in "
        "its environment, and their password as `<SERVICE>_PASSWORD`. That of `items` need not be here.",
    )
    results: dict[
        str,
        Annotated[StepResult, BeforeValidator(_result, json_schema_input_type=str | StepResult)],
    ] = Field(
        default_factory=dict[str, StepResult],
        description="Files worth showing, by a name. A text is a picture (`*.png`), a number (`*.json#/pointer`), "
        "or any other file.",
    )
    rehearsal: RehearsalCommand | None = Field(
        default=None, description="What a rehearsal runs where this machine lacks the program."
    )


class PipelineService(Model):
    """A program that runs beside the steps, with a port, a volume and a password of its own. Only steps that
    connect to it reach it, and it reaches nothing. It is there before the first of them starts.
    """

    kind: Literal["program", "valkey"] = Field(
        default="program",
        description="`valkey`: a Valkey server, which needs no other key; else a program of your own.",
    )
    description: str | None = Field(default=None, description="What the service does.")
    image: Image | None = Field(default=None, description="Its image by digest. A program needs one, or `build`.")
    build: Built | None = Field(
        default=None, description="Builds its image in the cluster; default: the `build` of the pipeline, if any."
    )
    run: Words | None = Field(
        default=None,
        description="The command, which a program needs. `{data}` is the directory of its volume, `{port}` its "
        "port, `{password}` its password, `{<parameter>}` a parameter's value; `{{` and `}}` are braces.",
    )
    port: Int | None = Field(default=None, ge=1, le=65535, description="The port that a program listens on.")
    probe: ServiceProbe | None = Field(
        default=None, description="How it shows that it is ready; default: it accepts a connection."
    )
    storage: Size | None = Field(
        default=None, description="Size of its volume where the stack file does not say it; default: 1Gi."
    )
    resources: ServiceResources = Field(default_factory=ServiceResources, description="What it asks for.")
    rehearsal: RehearsalCommand | None = Field(
        default=None, description="What a rehearsal runs where this machine lacks the program."
    )


class PipelineFile(Model):
    """A pipeline."""

    description: Annotated[str, AfterValidator(_sentence)] = Field(
        description="What the pipeline does, in a sentence."
    )
    parameters: dict[str, Parameter] = Field(
        default_factory=dict[str, Parameter], description="Keys of the pipeline's section in stack files."
    )
    build: Built | None = Field(
        default=None,
        description="Builds an image in the cluster for the steps, services and apps that are programs of your "
        "own and have neither an `image` nor a `build`.",
    )
    services: dict[str, PipelineService] = Field(
        default_factory=dict[str, PipelineService], description="Programs that run beside the steps, by name."
    )
    steps: dict[str, PipelineStep] = Field(min_length=1, description="The steps by name.")
    apps: dict[str, PipelineApp] = Field(
        default_factory=dict[str, PipelineApp],
        description="Programs that run after the steps and stay, by name: a model server, a page, a notebook.",
    )


class _PartialParameter(Parameter):
    type: Any = None


class _PartialStep(PipelineStep):
    run: Words = Field(default_factory=list[str])


PartialFile: type[PipelineFile] = create_model(
    "PartialFile",
    __base__=PipelineFile,
    description=(str, ""),
    parameters=(dict[str, _PartialParameter], Field(default_factory=dict)),
    steps=(dict[str, _PartialStep], Field(default_factory=dict)),
)
"""A file with mistakes, without what is wrong. A parameter without a type can have any value."""
