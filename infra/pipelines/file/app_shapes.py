"""The shape of the section ``apps`` of a ``pipeline.yaml``: the keys of each kind of app.

What a kind is stands in a module of its own; here is what people write of it, and what stack files may say of it.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from infra.pipelines import notebook, page, pods, tensorboard, tensorflow_serving
from infra.pipelines.apps import AppSettings, KeptAppSettings
from infra.pipelines.file.parts import Built, RehearsalCommand, Word, Words
from infra.schema.base import Cpu, Duration, Int, Memory, Model, Size
from infra.schema.images import Image
from infra.schema.problems import Path

PROGRAM = "program"

PortNumber = Annotated[Int, Field(ge=1024, le=65535)]
"""A port that a program may listen on which is not root."""


class AppResources(Model):
    """What each pod of an app asks for where the stack file does not say it. Where neither does, it is what the
    kind of the app asks for; a program of your own gets one CPU, 4Gi of memory and 4Gi of scratch space.
    """

    cpu: Cpu | None = Field(default=None, description="CPU asked for, as a Kubernetes quantity.")
    memory: Memory | None = Field(default=None, description="Memory asked for, and its limit.")
    ephemeral_storage: Size | None = Field(default=None, description="Scratch space for temporary files.")
    gpus: Int | None = Field(default=None, ge=0, description="GPUs, or shares of one.")


class AppKeys(Model):
    """What every kind of app has."""

    description: str | None = Field(default=None, description="What the app does.")
    image: Image | None = Field(default=None, description="Its image by digest; default: that of its kind.")
    resources: AppResources = Field(default_factory=AppResources, description="What each of its pods asks for.")


class AppProbe(Model):
    """How an app shows that it is ready for requests."""

    path: str = Field(description="The path at which it answers HTTP with a status below 400: `/healthz`.")


class AppMetrics(Model):
    """Where an app answers Prometheus."""

    path: str = Field(default="/metrics", description="The path.")
    port: str = Field(default="http", description="The port by its name: `http`, or one of `ports`.")


class ProgramApp(AppKeys):
    """An app that is a program of your own: it starts after the steps that it reads, and stays. Only apps that
    connect to it reach it, and people by a port-forward.
    """

    kind: Literal["program"] = Field(description="A program of your own.")
    run: Words = Field(
        description="The command: its program and its arguments. `{port}` is the port on which it listens, "
        "`{<step>}` the output of a step, `{<parameter>}` a parameter's value, `{store}` the store, `{pipeline}` "
        "the pipeline's directory there, `{token}` a generated token that is an output of the stack, and `{data}` "
        "the directory of a volume of its own; `{{` and `}}` are braces."
    )
    build: Built | None = Field(
        default=None, description="Builds its image in the cluster; default: the `build` of the pipeline, if any."
    )
    port: PortNumber = Field(description="The port on which it answers HTTP, from 1024 on.")
    ports: dict[str, PortNumber] = Field(
        default_factory=dict[str, int], description="Other ports, by a name: `grpc: 8500`."
    )
    title: str | None = Field(default=None, description="What people call it; default: its name.")
    path: str = Field(default="/", description="Its first page.")
    people: bool = Field(default=True, description="Whether people use it, or other apps alone.")
    code: str | None = Field(
        default=None,
        description="The folder whose files it needs, and in which it starts; default: the pipeline's own where "
        "`run` begins with `python`, else none.",
    )
    files: list[str] = Field(
        default_factory=list[str],
        description="Patterns of Python files below `code` that are found by name and not imported.",
    )
    requirements: str | None = Field(
        default=None,
        description="A lock file, with hashes, of the packages that its image lacks; each of its pods installs "
        "them before it starts.",
    )
    environment: dict[str, Word] = Field(
        default_factory=dict[str, str],
        description="Environment variables, with the same references as `run`.",
    )
    secrets: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="Environment variables with a secret: its name in the stack file's `slipway:secrets`.",
    )
    connects: list[str] = Field(
        default_factory=list[str],
        description="Apps that its program connects to. It has their host and port as `<APP>_ADDRESS` in its "
        "environment, and their other ports as `<APP>_<PORT>_ADDRESS`.",
    )
    after: list[str] = Field(
        default_factory=list[str],
        description="Steps that have to succeed before it starts. It does not start anew when one runs again, as "
        "it does for a step that `run` or `environment` refer to.",
    )
    probe: AppProbe | None = Field(
        default=None, description="How it shows that it is ready; default: it accepts a connection."
    )
    metrics: AppMetrics | None = Field(default=None, description="Where it answers Prometheus; default: nowhere.")
    writes: bool = Field(
        default=False, description="Whether it may write to the store, to `{pipeline}/<app>`; default: it reads."
    )
    storage: Size | None = Field(
        default=None, description="Size of its volume where the stack file does not say it; default: 5Gi."
    )
    grace: Duration = Field(
        default="30s", description="So long it may work on its last requests once it is told to stop."
    )
    rehearsal: RehearsalCommand | None = Field(
        default=None, description="What a rehearsal runs where this machine lacks the program."
    )


class PageApp(AppKeys, page.Page):
    """A web page where people try the image classifier that another app serves."""

    kind: Literal["page"] = Field(description="The page.")


class NotebookApp(AppKeys):
    """JupyterLab beside the store, with the pipeline's steps at hand. It asks for its token, which is an output of
    the stack; is stopped where nobody uses it; and keeps its folder on a volume.
    """

    kind: Literal["notebook"] = Field(description="A notebook.")
    serving: str | None = Field(
        default=None, description="An app that serves a model, which the notebook may ask."
    )
    model: str = Field(default="", description="The model's name there.")
    examples: Word = Field(
        default="", description="A pattern of files of the store to ask it with: `{prepare}/images/*.png`."
    )


class TensorBoardApp(AppKeys):
    """TensorBoard over the runs of the pipeline, finished and in progress."""

    kind: Literal["tensorboard"] = Field(description="TensorBoard.")
    step: str | None = Field(
        default=None, description="The step whose runs it shows; default: those of all steps."
    )


class ServingApp(AppKeys, tensorflow_serving.Served):
    """TensorFlow Serving over the versions of a model. A step, `<app>-publish`, makes a version of each training
    that answers real requests as it should; what is published before stays.
    """

    kind: Literal["tensorflow-serving"] = Field(description="The server, with the step that publishes for it.")


PipelineApp = Annotated[
    ProgramApp | PageApp | NotebookApp | TensorBoardApp | ServingApp, Field(discriminator="kind")
]
"""An app, by its `kind`."""

SETTINGS: Mapping[str, type[AppSettings]] = {
    PROGRAM: AppSettings,
    page.KIND: page.PageSettings,
    notebook.KIND: notebook.NotebookSettings,
    tensorboard.KIND: tensorboard.TensorBoardSettings,
    tensorflow_serving.KIND: tensorflow_serving.ServingSettings,
}
"""What a stack file may say of each kind."""

RESOURCES: Mapping[str, Mapping[str, str]] = {notebook.KIND: notebook.RESOURCES}
"""What the pods of a kind ask for where nobody says it, in place of what the settings have."""


def settings_of(app: PipelineApp) -> type[AppSettings]:
    """What a stack file may say of ``app``."""
    return KeptAppSettings if isinstance(app, ProgramApp) and keeps_data(app) else SETTINGS[app.kind]


def keeps_data(app: ProgramApp) -> bool:
    """Whether a program has a volume: where it refers to it."""
    return refers(app, "data")


def refers(app: ProgramApp, name: str) -> bool:
    """Whether the command line or the environment of a program refers to ``name``."""
    return any(name in pods.names(word) for word in (*app.run, *app.environment.values()))


def words_of(app: PipelineApp) -> Sequence[tuple[Path, str]]:
    """What of ``app`` may hold references, each with its place below that of the app.

    Of what they refer to, a kind that is no program of your own may read steps and parameters alone.
    """
    match app:
        case ProgramApp():
            environment = [(("environment", key), word) for key, word in app.environment.items()]
            return [*((("run", index), word) for index, word in enumerate(app.run)), *environment]
        case PageApp():
            return [(("samples",), app.samples)] if app.samples else []
        case NotebookApp():
            return [(("examples",), app.examples)]
        case TensorBoardApp():
            return []
        case ServingApp():
            return [(("requests",), app.requests)]


def connections(app: PipelineApp) -> Sequence[tuple[Path, str]]:
    """The apps that ``app`` connects to, each with its place below that of the app."""
    if isinstance(app, ProgramApp):
        return [(("connects", index), name) for index, name in enumerate(app.connects)]
    serving = app.serving if isinstance(app, PageApp | NotebookApp) else None
    return [(("serving",), serving)] if serving else []
