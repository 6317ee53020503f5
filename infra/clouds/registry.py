"""The clouds: the one list that names them.

A cloud is a package of this room. Its settings are imported here. Everything else is loaded by its dotted name,
so that a cloud's rules and its SDK are imported only by stacks that use it: an SDK alone takes longer than all the
rest. The package has these names:

- ``rules:CHECKS``: what a stack file may not say of it, a sequence of `Check`;
- ``rules:provider_problems``: what is wrong with the configuration of its Pulumi provider;
- ``preflight:problems``: what else has to be right before anything is declared;
- ``platforms:platforms``: declares its resources;
- ``emulator:Emulator``: stands in for it, a subclass of `infra.emulator.Emulator`;
- ``review:REVIEW``: what a preview says of its resources, an `infra.review.contract.Review`;
- ``doctor:probes``: what is checked on this machine and in the cloud before the first `pulumi up`;
- ``doctor:servers``: its clusters that are there before that;
- ``store:readable``: lets a store be read by another stack, where `Store.reader` says how;
- ``starter:starter``: what a new stack file has of it, where the cloud ``has_starter``.

All but ``preflight``, ``platforms`` and ``emulator`` are imported without an SDK.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from infra.api_server import ApiServer
from infra.clouds.aws.settings import AwsCluster, EfsStore, S3Store
from infra.clouds.existing.settings import ExistingCluster, NfsStore, PvcStore, S3CompatibleStore
from infra.clouds.gcp.settings import FilestoreStore, GcpCluster, GcsStore
from infra.clouds.other_stack.settings import OtherStackCluster
from infra.emulator import Emulator
from infra.platform import Platform
from infra.platform import Store as MountedStore
from infra.review.contract import Review
from infra.review.facts import Probe
from infra.review.stack import Stack
from infra.schema.base import ClusterSettings, StoreSettings
from infra.schema.problems import Finding, Problem
from infra.schema.request import Request, Starter, Wish

Check = Callable[[Request], Iterable[Finding]]
"""A rule: reports what a cloud does not accept in a stack file, as far as the file can be read."""


@dataclass(frozen=True)
class Cloud:
    """A place to run.

    ``name`` is that of its package in this room. ``title`` is its name for people, and ``sdk`` the distribution
    that declares its resources, None where there is none. ``cluster`` and ``stores`` are the settings that a stack
    file may have of it. ``has_starter`` says whether `make new` writes stacks that run on it.
    """

    name: str
    title: str
    sdk: str | None
    cluster: type[ClusterSettings]
    stores: Sequence[type[StoreSettings]]
    has_starter: bool = True

    def checks(self) -> Sequence[Check]:
        """Its rules."""
        return self._load("rules:CHECKS")

    def provider_problems(self, configuration: Mapping[str, Any]) -> Sequence[Problem]:
        """What is wrong with its provider's keys in the stack's whole ``configuration``."""
        return self._load("rules:provider_problems")(configuration)

    def preflight_problems(self, request: Request | None) -> Sequence[Problem]:
        """What the stack lacks beside its settings; ``request`` is None where these are wrong.

        It may ask clusters that are there.
        """
        return self._load("preflight:problems")(request)

    def platforms(self, request: Request) -> Mapping[str, Platform]:
        """Declares everything that the stack has on this cloud, and returns its clusters by name."""
        return self._load("platforms:platforms")(request)

    def readable(self, store: MountedStore, arguments: Mapping[str, str]) -> MountedStore:
        """``store`` with what reads it, made from what the output of another stack has as its ``reader``."""
        return self._load("store:readable")(store, arguments)

    def emulator(self, request: Request) -> Emulator:
        """What stands in for this cloud when the stack is evaluated without it."""
        return self._load("emulator:Emulator")(request)

    def review(self) -> Review:
        """What a preview says of its resources."""
        return self._load("review:REVIEW")

    def probes(self, stack: Stack, request: Request | None) -> Sequence[Probe]:
        """What is checked of ``stack`` before its first `pulumi up`; ``request`` is None where it is wrong."""
        return self._load("doctor:probes")(stack, request)

    def servers(self, stack: Stack, request: Request | None) -> Mapping[str, ApiServer]:
        """The API servers of its clusters that are there before that, by the cluster's name."""
        return self._load("doctor:servers")(stack, request)

    def starter(self, wish: Wish) -> Starter | Sequence[Problem]:
        """What a new stack file has of it; the problems where it has no such thing."""
        return self._load("starter:starter")(wish)

    def _load(self, name: str) -> Any:
        return resolve_name(f"infra.clouds.{self.name}.{name}")


CLOUDS: Mapping[str, Cloud] = {
    cloud.name: cloud
    for cloud in (
        Cloud("gcp", "Google Cloud", "pulumi-gcp", GcpCluster, (GcsStore, FilestoreStore)),
        Cloud("aws", "AWS", "pulumi-aws", AwsCluster, (S3Store, EfsStore)),
        Cloud("existing", "Existing cluster", None, ExistingCluster, (PvcStore, NfsStore, S3CompatibleStore)),
        Cloud("other_stack", "Another stack's cluster", None, OtherStackCluster, (), has_starter=False),
    )
}
"""By the ``cloud`` of a cluster, which is also the Pulumi package of a cloud's resources."""

CLUSTERS: Sequence[type[ClusterSettings]] = [cloud.cluster for cloud in CLOUDS.values()]
STORES: Sequence[type[StoreSettings]] = [store for cloud in CLOUDS.values() for store in cloud.stores]

if TYPE_CHECKING:
    Cluster = ClusterSettings
    Store = StoreSettings
else:
    Cluster = Annotated[Union[tuple(CLUSTERS)], Field(discriminator="cloud")]  # noqa: UP007
    Store = Annotated[Union[tuple(STORES)], Field(discriminator="kind")]  # noqa: UP007


def reviews() -> list[Review]:
    """The reviews of all clouds, then that of Kubernetes."""
    return [*(cloud.review() for cloud in CLOUDS.values()), resolve_name("infra.kubernetes.review:REVIEW")]


def emulators(request: Request) -> list[Emulator]:
    """One emulator for each cloud of the stack's clusters."""
    used = {cloud for cluster in request.clusters.values() for cloud in cluster.clouds}
    return [cloud.emulator(request) for name, cloud in CLOUDS.items() if name in used]
