"""An app of a pipeline on its cluster: what runs after its steps, where, with what, and who may connect to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.pipelines.apps import AppDeclaration, folder_of, object_name
from infra.pipelines.contract import service_variables
from infra.platform import Platform, Pool, Resources
from infra.step import Step


@dataclass(frozen=True)
class App:
    """One app, placed. ``declared`` says what it is.

    ``inputs`` are the steps whose results it reads, by the input's name, and ``after`` those that only have to
    succeed first. ``clients`` are the names of the pipeline's apps that connect to it.
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
