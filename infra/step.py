"""A step of a pipeline: what a Job runs, where, with what, and which results it needs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from infra.pipelines.contract import Best, Items, Nodes, Variant
from infra.pipelines.results import Result
from infra.platform import Platform, Pool, Priority, Resources
from infra.service import Service

STORE_GATE, DEVICES_GATE, ACCELERATOR_GATE, NETWORK_GATE = GATES = (
    "store-gate",
    "devices-gate",
    "accelerator-gate",
    "network-gate",
)
"""What stands in front of the cluster's or the pool's name in the names of gates."""

SCHEDULED_RUN = "scheduled-run"
"""What stands in front of the pipeline's name in the names of what runs it by the clock."""

IDLE_WATCH = "idle-watch"
"""What stands in front of an app's name in the names of what stops it while nobody uses it."""

GATES_FOLDER = "gates"
"""The folder of the store that gates write to."""

CODE = "code"
"""The folder of a bundle that has a command's own files."""

IMAGE_BUILD = "image-build"
"""The name in place of a pipeline's of the Jobs that build images."""

PRIORITIES: tuple[Priority, ...] = ("low", "normal", "high")
"""Of steps, the least urgent first."""

PACKAGES = "packages"
"""The name in place of a pipeline's of the steps that publish what images lack, and of the input that it is."""


OWN_NAMES: Mapping[str, str] = {
    **dict.fromkeys(GATES, "Jobs of that name are gates"),
    SCHEDULED_RUN: "Jobs of that name run other pipelines by the clock",
    IDLE_WATCH: "Jobs of that name stop apps that nobody uses",
    IMAGE_BUILD: "Jobs of that name build images",
    PACKAGES: f"`{PACKAGES}/` of the store has the packages that images lack",
}
"""The names in place of a pipeline's of Slipway's own objects, with why no pipeline may have them.

Network policies select pods by this label, and some of these pods may connect to everything.
"""


@dataclass(frozen=True)
class Requirements:
    """Python packages that an init container installs for a step before it starts, from a pinned file.

    ``file`` is the requirements file's path in the repository; it ships in the bundle.
    """

    file: str


@dataclass(frozen=True)
class Command:
    """A program that ``workloads.runtime.command`` starts in the folder ``code``, an absolute path.

    ``files`` are patterns below ``code`` of Python files that ship beside those that the program imports.
    ``left_out`` are files below it that do not ship: the pipeline's lock files.
    """

    code: Path
    files: Sequence[str] = ()
    left_out: frozenset[Path] = frozenset()


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
class Step:
    """What one Job runs.

    ``module`` is started as ``python -m <module>`` with ``arguments``; where it is None, ``arguments`` are the
    whole command line of ``command``. ``arguments`` may hold ``{store}`` (where the store is
    mounted), ``{output}`` (this step's directory in the store), ``{<input>}`` (the directory of an input step)
    and ``{<folder>}`` (a folder shipped with the step). ``inputs`` are steps whose results it reads: when one of
    them runs again, so does this. ``after`` are steps that only have to succeed first. ``time_limit`` is in
    seconds and includes retries and scheduling. ``fingerprint`` is whatever else decides the result (the driver
    that a gate tests): when it changes, the step runs again. ``files`` are files of the repository, beside the
    module's own, that the step reads below its working directory. ``reads_nodes`` gives its pod a token that may
    read the cluster's nodes. ``results`` are what is worth showing of its directory. ``supplements`` says that it
    publishes what the image of the steps that read it lacks, so that their accelerator gate needs it, too.
    ``attached`` are files from anywhere on this machine, by their path below the step's working directory.
    ``interpreter`` is the Python that starts the module. ``secrets`` are names of the stack's secrets by the
    environment variable that has the value. ``choices`` are inputs, by their name in the arguments, of which the
    program is given the best. ``variant`` says which of several steps made from one it is, and ``best`` which of
    them others read. ``connects`` are the services that its pods may connect to, by their names in the pipeline.
    With ``items``, ``workers`` pods of it run at once; with ``nodes``, as many as those say, which is never one.
    ``priority`` decides which Job comes first where they wait for one another.
    """

    pipeline: str
    name: str
    module: str | None
    arguments: Sequence[str]
    image: str
    platform: Platform
    pool: Pool
    resources: Resources
    time_limit: int
    inputs: Mapping[str, "Step"] = field(default_factory=dict[str, "Step"])
    after: Sequence["Step"] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    requirements: Requirements | None = None
    files: Sequence[str] = ()
    attached: Mapping[str, Path] = field(default_factory=dict[str, Path])
    interpreter: str = "python"
    folders: Mapping[str, Path] = field(default_factory=dict[str, Path])
    uses_store: bool = True
    reads_nodes: bool = False
    fingerprint: str = ""
    results: Sequence[Result] = ()
    supplements: bool = False
    command: Command | None = None
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])
    choices: Mapping[str, Choice] = field(default_factory=dict[str, Choice])
    variant: Variant | None = None
    best: Best | None = None
    connects: Mapping[str, Service] = field(default_factory=dict[str, Service])
    items: Items | None = None
    workers: int = 1
    nodes: Nodes | None = None
    priority: Priority = "normal"

    @property
    def pods(self) -> int:
        """How many pods of it run at once."""
        return self.nodes.count if self.nodes else self.workers

    @property
    def requests(self) -> Resources:
        """What its pod asks for: its resources as the pool's cluster takes them."""
        return self.pool.admitted(self.resources)

    @property
    def job(self) -> str:
        """The name that its Job keeps from run to run: ``<pipeline>-<step>``."""
        return f"{self.pipeline}-{self.name}"

    @property
    def is_own(self) -> bool:
        """Whether it is one of a pipeline's own steps: no gate, and nothing that installs what others need."""
        return not self.supplements and self.pipeline not in (*GATES, PACKAGES)

    @property
    def publishes(self) -> bool:
        """Whether it leaves a result in a directory of its own."""
        return self.command is not None or any("{output}" in argument for argument in self.arguments)


def with_those_before(steps: Iterable[Step]) -> list[Step]:
    """``steps`` and all that they need, gates included, each once."""
    found: dict[int, Step] = {}
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if id(step) not in found:
            found[id(step)] = step
            waiting += [*step.inputs.values(), *step.after]
    return list(found.values())
