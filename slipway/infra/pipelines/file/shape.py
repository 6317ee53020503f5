"""The shape of ``pipeline.yaml``, by which a folder declares a pipeline.

What its keys mean is in their descriptions, of which docs/pipeline.schema.json is made.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

from pydantic import Field, create_model

from slipway.infra.commands import page
from slipway.infra.features import features
from slipway.infra.pipelines import pods
from slipway.infra.pipelines.app_kinds.contract import AppKind
from slipway.infra.pipelines.app_kinds.program import ProgramApp
from slipway.infra.pipelines.checkpoints import StepCheckpoints
from slipway.infra.pipelines.inputs import Input
from slipway.infra.pipelines.matrix import Bound, Scalar
from slipway.infra.pipelines.mounts import Mount, Mounted, references
from slipway.infra.pipelines.pods import Built, RehearsalCommand, Word, Words
from slipway.infra.pipelines.results import DeclaredResult, StepResult
from slipway.infra.pipelines.scripts import Run
from slipway.infra.schema.base import Cpu, Duration, Int, Memory, Model, Size
from slipway.infra.schema.names import Image
from slipway.infra.schema.renamed import Removed

APP_KINDS = (ProgramApp, *(kind for feature in features() for kind in feature.app_kinds))
"""The kinds of apps."""

STEP_KEYS = tuple(key for feature in features() for key in feature.step_keys)
"""What features add to steps."""

if TYPE_CHECKING:
    App = AppKind
else:
    App = Annotated[Union[APP_KINDS], Field(discriminator="kind")]  # noqa: UP007

NAMES = ("pipeline.yaml", "pipeline.yml")
"""The file, and how it is misspelt."""

PAGE = page("pipeline.md")
"""The page that describes its keys."""


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


class ServiceResources(Model):
    """What a service asks for where the stack file does not say it. Where neither does, it gets one CPU, 4Gi of
    memory and 4Gi of scratch space; a Valkey server gets 250m of CPU and 256Mi of memory.
    """

    cpu: Cpu | None = Field(default=None, description="CPU asked for.")
    memory: Memory | None = Field(default=None, description="Memory asked for, and its limit.")
    ephemeral_storage: Size | None = Field(default=None, description="Scratch space for temporary files.")


class StepResources(ServiceResources):
    """What a step asks for where the stack file does not say it. Where neither does, it gets one CPU, 4Gi of
    memory, 4Gi of scratch space and no GPU.
    """

    gpus: Int | None = Field(default=None, ge=0, description="GPUs, or shares of one.")
    shm: Memory | None = Field(
        default=None, description="Size of `/dev/shm`, within `memory`; default: half of it with GPUs, else 64Mi."
    )


class ServiceProbe(Model):
    """How a service shows that it is ready."""

    path: str = Field(description="The path at which it answers HTTP with a status below 400: `/healthz`.")


class PipelineStep(Model):
    """A step: a program, what it reads, and what it needs."""

    removed: ClassVar[Mapping[str, Removed]] = {
        "notebook": Removed('write `run: [papermill, train.ipynb, "{output}/train.ipynb"]`'),
        "parameters": Removed('write them into `run`: `[papermill, …, -p, trees, "{trees}"]`'),
    }

    run: Run = Field(
        description="The command: its program and its arguments, or a text that bash reads. `{output}` is the "
        "directory that it writes, `{<step>}` the output of an earlier step, `{<parameter>}` a parameter's value, "
        "`{store}` the store; `{{` and `}}` are braces. With `items`, `{item}` is the item's file, `{output}` a "
        "directory of its own, `{previous}` the result before it.",
    )
    description: str | None = Field(default=None, description="What the step does.")
    code: str = Field(default=".", description="The folder whose files it needs, and in which it starts.")
    files: list[str] = Field(
        default_factory=list[str],
        description="Patterns of files below `code` that ship beside the others: Python files that are found by "
        "name and not imported, and hidden files, `.env.example`. A folder stands for the files in it.",
    )
    directory: str | None = Field(
        default=None,
        description="Where the program starts in place of `code`, where it cannot write: `{output}`, `{scratch}` "
        "(a folder below `$TMPDIR`), a folder below one of them, or a path of `mounts`.",
    )
    mounts: dict[str, Mounted] = Field(
        default_factory=dict[str, Mount],
        description="Folders at paths that the program has built in, by the path: "
        '`{/data: "{store}/uploads", /models: "{train}", /out: "{output}"}`.',
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
    connects: list[str] = Field(
        default_factory=list[str],
        description="Services that its program connects to; that of `items` need not be here.",
    )
    checkpoints: StepCheckpoints | None = Field(
        default=None,
        description="Copies the checkpoints of its program beside it, and restores the newest; default: it writes "
        "them to `{output}` itself.",
    )
    results: dict[str, DeclaredResult] = Field(
        default_factory=dict[str, StepResult],
        description="Files worth showing, by a name. A text is a picture (`*.png`), a number (`*.json#/pointer`), "
        "or any other file.",
    )
    rehearsal: RehearsalCommand | None = Field(
        default=None, description="What a rehearsal runs where this machine lacks the program."
    )


if not TYPE_CHECKING:
    PipelineStep = create_model(
        "PipelineStep",
        __base__=(PipelineStep, *(key.fields for key in STEP_KEYS)),
        __doc__=PipelineStep.__doc__,
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

    description: str = Field(default="", description="What the pipeline does, in a sentence.")
    parameters: dict[str, Parameter] = Field(
        default_factory=dict[str, Parameter], description="Keys of the pipeline's section in stack files."
    )
    measures_devices: bool = Field(
        default=False,
        description="Its results are figures of accelerators, worth nothing from a CPU: rehearsals leave it out, "
        "unless `--benchmark` asks for it.",
    )
    build: Built | None = Field(
        default=None,
        description="Builds an image in the cluster for all programs of your own without an `image` or a `build`.",
    )
    inputs: dict[str, Input] = Field(
        default_factory=dict[str, Input],
        description="Data that is there and that steps read, by name. The stack file says where it is.",
    )
    services: dict[str, PipelineService] = Field(
        default_factory=dict[str, PipelineService], description="Programs that run beside the steps, by name."
    )
    steps: dict[str, PipelineStep] = Field(min_length=1, description="The steps by name.")
    apps: dict[str, App] = Field(
        default_factory=dict[str, AppKind],
        description="Programs that run after the steps and stay, by name: a model server, a page, a notebook.",
    )


def used_in(step: PipelineStep) -> dict[str, None]:
    """What ``step`` refers to, each once: its command, environment and keys, its mounts, and where it starts."""
    words = [*step.run, *step.environment.values(), *(word for key in STEP_KEYS for word in key.words(step))]
    names = [name for word in words for name in pods.names(word)]
    return dict.fromkeys([*names, *references(step.mounts, step.directory)])


class _PartialParameter(Parameter):
    type: Any = None


class _PartialStep(PipelineStep):
    run: Run = Field(default_factory=list[str])


PartialFile: type[PipelineFile] = create_model(
    "PartialFile",
    __base__=PipelineFile,
    parameters=(dict[str, _PartialParameter], Field(default_factory=dict)),
    steps=(dict[str, _PartialStep], Field(default_factory=dict)),
)
"""A file with mistakes, without what is wrong. A parameter without a type can have any value."""
