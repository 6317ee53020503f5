"""Steps, services and apps of a pipeline, each on its pool: what Jobs and Deployments are made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slipway.infra.pipelines.apps import AppDeclaration, address_variables, folder_of, object_name, token_variable
from slipway.infra.pipelines.contract import OF_SERVICES, IdleGpus, Probe, StepProgram, service_variables
from slipway.infra.pipelines.pods import ProgramMount
from slipway.infra.platform import Platform, Pool, Priority, Rate, Resources, Store, add
from slipway.infra.schema.names import KUBERNETES_NAME_LIMIT, fit

NAME_LIMIT = KUBERNETES_NAME_LIMIT - 12
"""Longest name of a service's objects, some of which have a word behind it."""

DATA, PORT, PASSWORD = OF_SERVICES
"""References in the arguments of a service: its volume, its port, and its password."""


@dataclass(frozen=True)
class Service:
    """One long-running program with a port and a volume.

    ``arguments`` are its whole command line, with the references above. ``storage`` is in MiB. ``clients`` are the
    names of the pipeline's steps that connect to it.
    """

    pipeline: str
    name: str
    image: str
    platform: Platform
    pool: Pool
    resources: Resources
    arguments: Sequence[str]
    port: int
    storage: int
    clients: Sequence[str]
    probe: Probe = field(default_factory=Probe)

    @property
    def requests(self) -> Resources:
        """What its pod asks for: its resources as the pool's cluster takes them."""
        return self.pool.admitted(self.resources)

    @property
    def object_name(self) -> str:
        """The name of its Kubernetes objects, and its host name in the namespace: ``<pipeline>-<service>``."""
        return fit(f"{self.pipeline}-{self.name}", NAME_LIMIT)

    @property
    def address(self) -> str:
        """Host and port, as its clients reach it."""
        return f"{self.object_name}:{self.port}"

    @property
    def address_variable(self) -> str:
        """The environment variable in which its clients find the address."""
        return service_variables(self.name)[0]

    @property
    def password_variable(self) -> str:
        """The environment variable in which its clients, and it itself, find the password."""
        return service_variables(self.name)[1]


STORE_GATE = "store-gate"
"""What stands in front of the cluster's name in the names of gates."""

SCHEDULED_RUN = "scheduled-run"
"""What stands in front of the pipeline's name in the names of what runs it by the clock."""

CLUSTER_RUN = "cluster-run"
"""What stands in front of the cluster's name in the names of what starts Jobs that `up` does not wait for."""

MOVER = "mover"
"""What stands in front of a step's name in the names of what decides at which of its places the step runs."""

GATES_FOLDER = "gates"
"""The folder of the store that gates write to."""

GPU_TEST = "gpu-test"
"""The folder of `GATES_FOLDER` that says which GPUs passed their test."""

FOLDERS = "/folders"
"""Where pods have what they only read, beside results: data that is there."""

CODE = "code"
"""The folder of a bundle that has a command's own files."""

CODE_PART = "part"
"""The file of a ConfigMap that holds a part of the archive of a step's code."""

IMAGE_BUILD = "image-build"
"""The name in place of a pipeline's of the Jobs that build images."""

PRIORITIES: tuple[Priority, ...] = ("low", "normal", "high")
"""Of steps, the least urgent first."""

PACKAGES = "packages"
"""The name in place of a pipeline's of the steps that publish what images lack, and of the input that it is."""


LIBRARIES = "libraries"
"""The input with the CUDA libraries that an image lacks."""


OWN_NAMES: Mapping[str, str] = {
    STORE_GATE: "Jobs of that name are gates",
    SCHEDULED_RUN: "Jobs of that name run other pipelines by the clock",
    CLUSTER_RUN: "Jobs of that name start the Jobs of pipelines that run in the cluster",
    MOVER: "Jobs of that name move steps from one place to another",
    IMAGE_BUILD: "Jobs of that name build images",
    PACKAGES: f"`{PACKAGES}/` of the store has the packages that images lack",
}
"""The names in place of a pipeline's of Slipway's own objects, with why no pipeline may have them.

Network policies select pods by this label, and some of these pods may connect to everything.
"""


@dataclass(frozen=True)
class Command:
    """A program that ``slipway.runtime.steps.command`` starts in the folder ``code``, an absolute path.

    ``files`` are patterns below ``code`` of Python files that ship beside those that the program imports.
    ``left_out`` are files below it that do not ship: the pipeline's lock files. ``directory`` and ``mounts`` are
    those of the declaration.
    """

    code: Path
    files: Sequence[str] = ()
    left_out: frozenset[Path] = frozenset()
    directory: str = ""
    mounts: Sequence[ProgramMount] = ()


@dataclass(frozen=True)
class Choice:
    """An input that is one of several: the names of those ``among`` the step's inputs, and how it is chosen.

    ``path`` and ``select`` say where each has the number that counts, ``of`` whether the largest or smallest wins.
    Where they are equal the first of ``among`` does.
    """

    among: Sequence[str]
    path: str
    select: str
    of: Literal["max", "min"]


@dataclass(frozen=True)
class DeviceTest:
    """What tests the GPUs of a pod before its program starts: `slipway.runtime.gates.gpus`, by ``interpreter``.

    Its ``arguments`` may hold the references of a step's arguments.
    """

    arguments: Sequence[str]
    interpreter: str = "python"


@dataclass(frozen=True)
class Places:
    """Where a step may run: ``steps`` are the step on each of its places, the first to be tried first.

    These differ in platform, pool and resources only, and have no places themselves. Without nodes for
    ``next_after`` seconds the next one is tried; with ``returns`` the step goes back to an earlier one at a
    checkpoint. ``deadline`` is in seconds from the first try, ``work`` in seconds of computing. ``max_price`` is
    in US dollars.
    """

    steps: Sequence["Step"]
    next_after: int
    returns: bool = True
    deadline: int | None = None
    work: int | None = None
    max_price: float | None = None

    @property
    def platforms(self) -> list[Platform]:
        """The clusters of its places, each once: that of the first place comes first."""
        return list({step.platform.name: step.platform for step in self.steps}.values())

    @property
    def hardware(self) -> list[tuple[str, int]]:
        """The accelerators that the result may be made on, each with the number in a pod."""
        return sorted({(step.pool.accelerator or "", step.resources.gpus) for step in self.steps})


@dataclass(frozen=True, kw_only=True)
class Step(StepProgram):
    """What one Job runs: a step on its pool."""

    pipeline: str
    image: str
    platform: Platform
    pool: Pool
    resources: Resources
    time_limit: int
    """Seconds, retries and scheduling included."""
    inputs: Mapping[str, "Step"] = field(default_factory=dict[str, "Step"])
    """Steps whose results it reads: when one of them runs again, so does this."""
    after: Sequence["Step"] = ()
    """Steps that only have to succeed first."""
    files: Sequence[str] = ()
    """Files of the repository, beside the module's own, that the step reads below its working directory."""
    attached: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Files from anywhere on this machine, by their path below the step's working directory."""
    interpreter: str = "python"
    """The Python that starts the module."""
    uses_store: bool = True
    has_token: bool = False
    """Gives its pod the token of its service account, with which it asks the Kubernetes API."""
    supplements: bool = False
    """It publishes what the image of the steps that read it lacks: the test of their GPUs needs it, too."""
    command: Command | None = None
    choices: Mapping[str, Choice] = field(default_factory=dict[str, Choice])
    """Inputs, by their name in the arguments, of which the program is given the best."""
    connects: Mapping[str, Service] = field(default_factory=dict[str, Service])
    """The services that its pods may connect to, by their names in the pipeline."""
    priority: Priority = "normal"
    """Decides which Job comes first where they wait for one another."""
    places: Places | None = None
    """Where it may run: ``platform``, ``pool`` and ``resources`` are those of the first, and one Job at a time
    runs it."""
    test: DeviceTest | None = None
    """Runs in its own pods before its program."""
    cache: int = 0
    """MiB of its ephemeral storage that keep what it reads."""
    idle: IdleGpus | None = None
    """What becomes of it while it does not use its GPUs."""
    shm: int | None = None
    """MiB of `/dev/shm`, where that is not the default."""

    @property
    def shared_memory(self) -> int:
        """MiB of `/dev/shm`, of its memory; 0 where it is the container runtime's."""
        return shared_memory(self.resources) if self.shm is None else self.shm

    @property
    def buckets(self) -> int:
        """How many buckets of its data its pods mount."""
        return sum(not data.in_store for data in self.data.values())

    @property
    def store(self) -> Store:
        """The store as its pods have it, which mount the buckets of its data, too."""
        return self.platform.store_with(self.buckets)

    @property
    def platforms(self) -> list[Platform]:
        """The clusters that it may run on, its own first."""
        return self.places.platforms if self.places else [self.platform]

    @property
    def packages(self) -> set[str]:
        """The inputs that have packages which its image lacks."""
        return {PACKAGES, LIBRARIES, *(name for part in self.parts for name in part.packages)}

    @property
    def requests(self) -> Resources:
        """What its pod asks for: its resources as the pool's cluster takes them."""
        return self.pool.admitted(self.resources)

    @property
    def rate(self) -> Rate | None:
        """What an hour of one of its pods costs: of its node or, where pods are billed, of the pod."""
        sidecar = self.store.sidecar if self.uses_store else Resources(cpu=0, memory=0)
        return self.pool.rate(add(self.requests, sidecar))

    @property
    def job(self) -> str:
        """The name that its Job keeps from run to run: ``<pipeline>-<step>``."""
        return f"{self.pipeline}-{self.name}"

    @property
    def group_name(self) -> str:
        """The name of what its pods share, if they are a group: the Service that gives them host names."""
        return fit(self.job, KUBERNETES_NAME_LIMIT)

    @property
    def is_own(self) -> bool:
        """Whether it is one of a pipeline's own steps: no gate, and nothing that installs what others need."""
        return not self.supplements and self.pipeline not in (STORE_GATE, PACKAGES)

    @property
    def publishes(self) -> bool:
        """Whether it leaves a result in a directory of its own."""
        return self.command is not None or any("{output}" in argument for argument in self.arguments)


SHARED_MEMORY, SHARED_MEMORY_PLACE = "shared-memory", "/dev/shm"
"""The volume with the memory that processes of a pod share, and where programs look for it."""


def shared_memory(resources: Resources) -> int:
    """MiB of `/dev/shm` where nothing says it: as of a machine, half of its memory for what has GPUs, else 0.

    The runtime's 64 MiB end workers of PyTorch's DataLoader by SIGBUS (torch/csrc/DataLoader.cpp), and make
    NCCL fail (docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html, both seen November 2026). A
    limit reserves nothing: pages count for the pod's memory as they are written.
    """
    return resources.memory // 2 if resources.gpus else 0


def with_those_before(steps: Iterable[Step]) -> list[Step]:
    """``steps`` and all that they need, gates included, each once."""
    collected: dict[int, Step] = {}
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if id(step) not in collected:
            collected[id(step)] = step
            waiting += [*step.inputs.values(), *step.after]
    return list(collected.values())


HTTP = "http"
"""The name of the port that every app has."""


@dataclass(frozen=True)
class App:
    """One app, placed. ``declared`` says what it is.

    ``inputs`` are the steps whose results it reads, by the input's name, and ``after`` those that only have to
    succeed first. ``clients`` are the names of the pipeline's apps that connect to it, and ``connects`` those that
    it connects to, by their names. ``command`` is its own code, where it ships any. ``choices`` are
    inputs, by their names in the arguments, that are the best of several.
    ``storage`` is in MiB. ``spare`` says that its pool has room for one pod more than it has at most, so that a
    new one can be there before an old one goes. ``test`` runs in its own pods before its program.
    """

    pipeline: str
    declared: AppDeclaration
    image: str
    platform: Platform
    pool: Pool
    resources: Resources
    inputs: Mapping[str, Step] = field(default_factory=dict[str, Step])
    after: Sequence[Step] = ()
    clients: Sequence[str] = ()
    connects: Mapping[str, "App"] = field(default_factory=dict[str, "App"])
    command: Command | None = None
    storage: int = 0
    spare: bool = True
    choices: Mapping[str, Choice] = field(default_factory=dict[str, Choice])
    test: DeviceTest | None = None

    @property
    def name(self) -> str:
        """Its name in the pipeline."""
        return self.declared.name

    @property
    def requests(self) -> Resources:
        """What each of its pods asks for: its resources as the pool's cluster takes them."""
        return self.pool.admitted(self.resources)

    @property
    def object_name(self) -> str:
        """The name of its Kubernetes objects, and its host name in the namespace: ``<pipeline>-<app>``."""
        return object_name(self.pipeline, self.name)

    @property
    def folder(self) -> str:
        """The folder of the store that it has to itself where it writes, as a path below the root."""
        return folder_of(self.pipeline, self.name)

    @property
    def service_account(self) -> str:
        """Its Kubernetes service account, which no other app has."""
        return self.object_name

    @property
    def address(self) -> str:
        """Host and port, as the apps that connect to it reach it."""
        return f"{self.object_name}:{self.declared.port}"

    @property
    def address_variable(self) -> str:
        """The environment variable in which these find it."""
        return service_variables(self.name)[0]

    @property
    def addresses(self) -> dict[str, str]:
        """Where the apps that connect to it find each of its ports, by environment variable."""
        variables = address_variables(self.name, self.declared.ports)
        return {
            name: f"{self.object_name}:{port}"
            for name, port in zip(variables, self.all_ports.values(), strict=True)
        }

    @property
    def all_ports(self) -> dict[str, int]:
        """Its ports by name; that of people and of the other apps is called `HTTP`."""
        return {HTTP: self.declared.port, **self.declared.ports}

    @property
    def token_variable(self) -> str:
        """The environment variable in which it alone finds its token."""
        return token_variable(self.name)

    @property
    def most(self) -> int:
        """The most pods that it has at once, but for those of an update."""
        return self.declared.placed_by.most

    @property
    def uses_store(self) -> bool:
        """Whether it has the store mounted."""
        return self.declared.uses_store or bool(self.inputs)

    @property
    def follows(self) -> str:
        """The run whose results it reads, or the newest one; empty where these are those of the last `up`."""
        return self.declared.placed_by.follow or ""

    @property
    def supplements(self) -> dict[str, Step]:
        """The inputs that publish what its image lacks, by their names."""
        return {name: step for name, step in self.inputs.items() if step.supplements}
