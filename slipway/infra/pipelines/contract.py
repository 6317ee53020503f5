"""What a pipeline declares in its ``pipeline.yaml``: settings, checks, steps, and results to show.

A declaration is plain data and functions of plain data. It is read without TensorFlow and without Pulumi, and
knows neither clusters nor Jobs: `slipway.infra.placement.placing` puts its steps on pools.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, model_validator

from slipway.infra.pipelines.apps import AppDeclaration
from slipway.infra.pipelines.checkpoints import Checkpoints
from slipway.infra.pipelines.images import ImageBuild
from slipway.infra.pipelines.places import PLACES, Places, with_first_pool
from slipway.infra.pipelines.pods import Command, PodSettings, Probe, Substitute
from slipway.infra.pipelines.results import Result
from slipway.infra.pipelines.step_keys import StepPart
from slipway.infra.platform import Data, Priority, Resources
from slipway.infra.schema.base import Duration, Float, Int, Memory, Model, PoolSettings, Size, refuse
from slipway.infra.schema.cron import Cron, TimeZone
from slipway.infra.schema.names import Image
from slipway.infra.schema.problems import Finding, Path, Problem
from slipway.infra.schema.quantities import mebibytes
from slipway.infra.schema.renamed import Removed

RESERVED_INPUTS = ("output", "store", "pipeline", "packages", "libraries")
"""Names that mean something else in a step's arguments, so that none of its inputs can have them."""

OF_SERVICES = ("data", "port", "password")
"""References in the arguments of a service: the directory of its volume, its port, and its password."""


IDLE = "idle"


class IdleGpus(Model):
    """When a step holds GPUs that it does not use, and what follows."""

    below: Int = Field(
        default=5,
        ge=1,
        le=100,
        description="The step's GPUs are idle while they are busy for fewer percent of a sample, on average.",
    )
    after: Duration = Field(default="10m", description="Idle for so long without a break, the step is told.")
    then: Literal["warn", "stop"] = Field(
        default="warn",
        description="`warn`: the log says so, with the money, each time that it was idle for as long. `stop`: the "
        "program is told to end, as when its node is taken away, and the step fails with exit code 22.",
    )


class StepSettings(PodSettings):
    """Where a step runs and what it may use."""

    gpus: Int = Field(default=0, ge=0, description="GPUs (or shares of one) that the step asks for.")
    shm: Memory | None = Field(
        default=None,
        description="Size of `/dev/shm`, by which processes share memory, such as the workers of PyTorch's "
        "DataLoader; what is in it counts for `memory`. Default: half of `memory` with GPUs, else the 64Mi of the "
        "container runtime.",
    )
    time_limit: Duration = Field(
        default="2h", description="Hard limit over all retries, waiting for a node included."
    )
    image: Image | None = Field(
        default=None,
        description="Image by digest (`…@sha256:…`); default: TensorFlow's official one for the pool.",
    )
    cache: Size | None = Field(
        default=None,
        description="Disk of the node for what it reads, beside `ephemeral_storage`: results of other steps and "
        "folders of the store are copied there before the program starts; of buckets what was read once stays "
        "there. Each bucket, and all copies together, get an equal part. Default: all is read over the network "
        "each time.",
    )
    priority: Priority | None = Field(
        default=None,
        description="Which Job comes first where several wait in a queue; default: `normal`. Only with "
        "`slipway:kueue`, whose `preemption` says whether it stops others.",
    )
    idle: IdleGpus | None = Field(
        default=None, description="What becomes of the step while it does not use its GPUs; default: nothing."
    )
    places: Places | None = Field(
        default=None,
        description="In place of `pool`: pools in the order in which they are tried, each a name, or a section "
        "with `pool` and other `gpus`, `cpu` and `memory`. The step has one result, wherever it ran.",
    )
    next_after: Duration = Field(
        default="15m",
        description="How long nodes may be missing before the next of its `places` is tried. A GPU node of a "
        "cloud takes about ten minutes to start.",
    )
    returns: Literal["at-checkpoint", "never"] = Field(
        default="at-checkpoint",
        description="With `places`: whether the step goes back to an earlier one that has nodes again, once it "
        "has saved a checkpoint.",
    )
    deadline: Duration | None = Field(
        default=None,
        description="With `places`: how long after its first try it should be done. While it is ahead, it "
        "waits for cheap places; when it falls behind, it takes one whose nodes are sure. Needs `work`.",
    )
    work: Duration | None = Field(
        default=None, description="How long its program computes in all, without interruption; for `deadline`."
    )
    max_price: Float | None = Field(
        default=None,
        gt=0,
        description="With `places`: US dollars for the nodes of the step, at list prices. Before they are spent "
        "it ends at a checkpoint, and fails.",
    )

    @model_validator(mode="before")
    @classmethod
    def _first_pool(cls, values: Any) -> Any:
        return with_first_pool(values)

    @property
    def asked_gpus(self) -> int:
        """The GPUs (or shares of one) that it asks for."""
        return self.gpus

    @property
    def asked(self) -> Resources:
        """What each pod asks for, its cache included."""
        resources, cache = super().asked, mebibytes(self.cache) if self.cache else 0
        return replace(resources, ephemeral_storage=resources.ephemeral_storage + cache)

    @property
    def pools(self) -> list[str]:
        """The pool on which it runs, or those of its places."""
        return [place.pool for place in self.places] if self.places else [self.pool]

    def _copies(self) -> Iterator[tuple[Path, Self]]:
        for index, place in enumerate(self.places or ()):
            yield (PLACES, index), self.model_copy(update={PLACES: None, **place.changes})


class ServiceSettings(PodSettings):
    """Where a service runs and what it may use."""

    storage: Size = Field(default="1Gi", description="Size of the volume that keeps its data.")


def _webhook(value: str) -> str:
    try:
        parts = urlsplit(value)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "https" or not parts.hostname or not value.isprintable() or " " in value:
        raise refuse("no address by HTTPS", "write `https://…`")
    if parts.username or parts.query:
        fix = "write `secret: <name>` in its place, and set that secret of `slipway:secrets` to the address"
        raise refuse("what stands before its host or behind `?` is a key, which the stack file would show", fix)
    return value


class Notify(Model):
    """The webhook that gets the outcome of scheduled runs: its address, or the secret that holds it."""

    url: Annotated[str, AfterValidator(_webhook)] | None = Field(
        default=None, description="Its address, `https://…`, which the stack file shows."
    )
    secret: str | None = Field(
        default=None,
        description="The secret of `slipway:secrets` that is its address: whoever knows that of a chat service "
        "can write there.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.url is None) == (self.secret is None):
            raise refuse("it has to be one address", "write either `url` or `secret`")
        return self


class Schedule(Model):
    """When a pipeline runs by itself in its cluster, and which webhook gets the outcome."""

    removed: ClassVar[Mapping[str, Removed]] = {
        "retention": Removed("remove it, and delete the folders of old results with the tool of the store's cloud")
    }

    cron: Cron = Field(description="Minute, hour, day, month and day of the week, as crontab has them.")
    time_zone: TimeZone = Field(default="Etc/UTC", description="The time zone of `cron`, by its IANA name.")
    notify: Notify | None = Field(
        default=None,
        description="A webhook that is told of a run that failed, and of the next good one; default: nobody is.",
    )


class PipelineSettings(Model):
    """A pipeline's section of a stack file. Each pipeline has keys of its own beside these."""

    uses: str | None = Field(
        default=None,
        description="The folder below `workloads/` that declares the pipeline, or the path of one on this "
        "machine, such as `../churn`, relative to the repository; default: the section's name.",
    )
    schedule: Schedule | None = Field(
        default=None,
        description="Runs the pipeline again by itself, never twice at a time; default: only with `up`.",
    )
    runs: Literal["up", "cluster"] = Field(
        default="up",
        description="Who waits for the steps. `up`: `pulumi up` ends when they are done. `cluster`: it ends once "
        "all is declared, and a pod in the cluster starts each step when those before it are done.",
    )


S = TypeVar("S", bound=PipelineSettings)


@dataclass(frozen=True)
class Section(Generic[S]):
    """A pipeline's section of a stack file, as its checks see it.

    ``settings`` are valid each by itself; where the file has a wrong value, its default or a stand-in is there.
    ``pools`` are the stack's pools by name, with the place of each.
    """

    at: Path
    settings: S
    pools: Mapping[str, tuple[Path, PoolSettings]]

    def key(self, *parts: str | int) -> Path:
        """The place of a key of the section, for a `Finding`."""
        return (*self.at, *parts)


@dataclass(frozen=True)
class Variant:
    """Which of the steps made from one that has a matrix: ``of`` is that step's name.

    ``values`` are its own values of the parameters of the matrix, and of ``pool`` where the matrix has pools.
    """

    of: str
    values: Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class Best:
    """Which variant of a step others read: that with the largest or smallest ``by``, a `Number` of its results."""

    by: str
    of: Literal["max", "min"] = "max"


@dataclass(frozen=True)
class ServiceDeclaration:
    """A program that runs beside the steps, and to which only those that name it may connect.

    ``arguments`` are its whole command line. They may hold ``{data}`` (the directory of its volume), ``{port}``
    and ``{password}`` (generated, and known to it and its clients alone). A step that ``connects`` has its host
    and port as ``<NAME>_ADDRESS`` and the password as ``<NAME>_PASSWORD`` in its environment. ``build`` is its
    image where ``image`` is empty, built in the cluster.
    """

    name: str
    image: str
    arguments: Sequence[str]
    port: int
    placed_by: ServiceSettings
    probe: Probe = field(default_factory=Probe)
    substitute: Substitute | None = None
    build: ImageBuild | None = None


@dataclass(frozen=True, kw_only=True)
class StepProgram:
    """What runs in a step, the same as it is declared and as it is placed."""

    name: str
    arguments: Sequence[str]
    """The whole command line of a step with a command, its program first; else arguments of its ``module``. They
    and the values of ``environment`` may hold ``{output}``, the step's directory in the store, ``{<input>}``, that
    of an input, ``{store}``, ``{<name>}`` of its data and, with checkpoints, ``{checkpoint}``; until the step is
    placed also ``{pipeline}``, the pipeline's directory. `literal` escapes braces.
    """
    module: str | None = None
    """A module of the package that is started as ``python -m <module>``, where there is no command."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of the stack's ``slipway:secrets`` by the environment variable that has the value."""
    results: Sequence[Result] = ()
    """What is worth showing of its directory."""
    variant: Variant | None = None
    """Which of several steps made from one it is."""
    best: Best | None = None
    """Which of these others read."""
    data: Mapping[str, Data] = field(default_factory=dict[str, Data])
    """Folders of buckets or of the store that are there: with another digest it runs again."""
    checkpoints: Checkpoints | None = None
    """How those of its program are copied beside it."""
    parts: Sequence[StepPart] = ()
    """What its keys of features make of it."""

    @property
    def pods(self) -> int:
        """How many pods of it run at once."""
        return max((part.pods for part in self.parts), default=1)

    @property
    def pods_key(self) -> str:
        """The key of a stack file that says so; empty where it is always one."""
        return next((part.pods_key for part in self.parts), "")

    @property
    def ports(self) -> Mapping[str, int]:
        """Where its pods reach one another, by purpose, if they are a group."""
        return {purpose: port for part in self.parts for purpose, port in part.ports.items()}

    @property
    def is_group(self) -> bool:
        """Whether its pods run together, each on a node of its own and with a host name."""
        return bool(self.ports)

    @property
    def is_indexed(self) -> bool:
        """Whether each of its pods has an index."""
        return any(part.is_indexed for part in self.parts)

    @property
    def shares(self) -> str:
        """The key whose work its pods take from one another; empty where there is none."""
        return next((part.key for part in self.parts if part.is_shared), "")


@dataclass(frozen=True, kw_only=True)
class StepDeclaration(StepProgram):
    """One step as a pipeline declares it: what a Job runs, and which of the pipeline's settings place it.

    ``inputs`` and ``after`` may name the step that variants are made of: ``after`` then means all of them, and so
    does an input, whose argument ``{<input>}`` becomes one argument for each, unless their ``best`` says which one
    it is.
    """

    placed_by: StepSettings
    """An object of the settings, or a copy of one on another pool."""
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Steps of the pipeline by the input's name: when one runs again, so does this step."""
    after: Sequence[str] = ()
    """Steps that only have to succeed first."""
    requirements: str | None = None
    """A pinned requirements file, relative to the repository or absolute. It is installed once for all steps that
    name an equal file and run in the same image, on a node without GPUs."""
    command: Command | None = None
    """What ships with it."""
    connects: Sequence[str] = ()
    """Services of the pipeline."""
    build: ImageBuild | None = None
    """The image that it runs in where ``placed_by`` names none, built in the cluster."""


@dataclass(frozen=True)
class Pipeline(Generic[S]):
    """A pipeline, as its `pipeline.yaml` declares it.

    The docstring of ``settings`` says what it does. ``steps`` are made from valid settings. ``checks`` find what
    is wrong with keys that are right each by itself. ``measures_devices`` says that its results are figures of
    accelerators, which are worth nothing from a CPU. ``problems`` are what is wrong with the declaration itself;
    the rest then stands for what of it can be read, so that stack files are still checked against it. ``renamed``
    are keys of the file that still work by the name of an earlier release.

    ``services`` and ``apps`` are made like ``steps``.
    """

    settings: type[S]
    steps: Callable[[S], Sequence[StepDeclaration]]
    checks: Sequence[Callable[[Section[S]], Iterable[Finding]]] = ()
    measures_devices: bool = False
    problems: Sequence[Problem] = ()
    services: Callable[[S], Sequence[ServiceDeclaration]] = lambda _: ()
    apps: Callable[[S], Sequence[AppDeclaration]] = lambda _: ()
    renamed: Sequence[Problem] = ()


@dataclass(frozen=True)
class Supplement:
    """Files that a container image lacks, published once in the store.

    Its step runs ``module`` in ``image`` on a pool without GPUs. Each GPU step whose image ``is_lacking`` reads
    what it published: ``--<name>=<directory>`` is added to that step's arguments.
    ``files`` are files of the repository that ship with the step. ``resources`` are the most that it asks for,
    ``time_limit`` is in seconds. A step that reads it needs ``scratch`` of ephemeral storage; ``scratch_for`` says
    in an error what for.
    """

    name: str
    module: str
    image: str
    is_lacking: Callable[[str], bool]
    arguments: Sequence[str]
    resources: Resources
    time_limit: int
    scratch: Size
    scratch_for: str
    files: Sequence[str] = ()


def placements(settings: object, at: Path = ()) -> Iterator[tuple[Path, PodSettings]]:
    """Every `PodSettings` in ``settings``, a model or what stands in one, with its place below ``at``."""
    if isinstance(settings, PodSettings):
        yield at, settings
    elif isinstance(settings, BaseModel):
        for name in type(settings).model_fields:
            yield from placements(getattr(settings, name), (*at, name))
    elif isinstance(settings, Mapping):
        for key, value in cast("Mapping[object, object]", settings).items():
            yield from placements(value, (*at, str(key)))
    elif isinstance(settings, list | tuple):
        for index, value in enumerate(cast("Sequence[object]", settings)):
            yield from placements(value, (*at, index))


def service_variables(name: str) -> tuple[str, str]:
    """The environment variables in which steps find the address and the password of the service ``name``."""
    prefix = name.upper().replace("-", "_")
    return f"{prefix}_ADDRESS", f"{prefix}_PASSWORD"


def literal(text: str) -> str:
    """``text`` as it has to stand in a step's arguments, where braces mean something."""
    return text.replace("{", "{{").replace("}", "}}")


AnyPipeline = Pipeline[Any]
