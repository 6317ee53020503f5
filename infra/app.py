"""An app of a pipeline on its cluster: what runs after its steps, where, with what, and who may connect to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.pipelines.apps import AppDeclaration, address_variables, folder_of, object_name, token_variable
from infra.pipelines.contract import service_variables
from infra.platform import Platform, Pool, Resources
from infra.step import Choice, Command, Step

HTTP = "http"
"""The name of the port that every app has."""


@dataclass(frozen=True)
class App:
    """One app, placed. ``declared`` says what it is.

    ``inputs`` are the steps whose results it reads, by the input's name, and ``after`` those that only have to
    succeed first. ``clients`` are the names of the pipeline's apps that connect to it, and ``connects`` those that
    it connects to, by their names. ``command`` is its own code, where it ships any, and ``folders`` are images
    that it ships. ``choices`` are inputs, by their names in the arguments, that are the best of several.
    ``storage`` is in MiB. ``spare`` says that its pool has room for one pod more than it has at most, so that a
    new one can be there before an old one goes.
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
    folders: Mapping[str, Path] = field(default_factory=dict[str, Path])
    storage: int = 0
    spare: bool = True
    choices: Mapping[str, Choice] = field(default_factory=dict[str, Choice])

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
        placed_by = self.declared.placed_by
        return placed_by.autoscale.most if placed_by.autoscale else placed_by.replicas

    @property
    def uses_store(self) -> bool:
        """Whether it has the store mounted."""
        return self.declared.uses_store or bool(self.inputs)

    @property
    def follows(self) -> str:
        """The run whose results it reads, or the newest one; empty where these are those of the last `up`."""
        return self.declared.placed_by.follow or ""

    @property
    def supplies(self) -> dict[str, Step]:
        """The inputs that publish what its image lacks, by their names."""
        return {name: each for name, each in self.inputs.items() if each.supplements}
