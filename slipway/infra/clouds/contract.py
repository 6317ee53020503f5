"""The contract of a cloud: what the rest of the program asks of a place to run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, ClassVar

from slipway.infra.accelerators import AcceleratorFiles
from slipway.infra.api_server import ApiServer
from slipway.infra.commands import page
from slipway.infra.emulator import Emulator
from slipway.infra.platform import Data, Platform
from slipway.infra.platform import Store as MountedStore
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import Probe, Supply
from slipway.infra.review.stack import NodePool, Stack
from slipway.infra.schema.base import ClusterSettings, StoreSettings
from slipway.infra.schema.problems import Finding, Problem
from slipway.infra.schema.request import Request, Starter, Wish

Inputs = Mapping[str, Any]
"""Arguments or results of a provider's function."""

Check = Callable[[Request], Iterable[Finding]]
"""A rule: reports what a cloud does not accept in a stack file, as far as the file can be read."""


COPY = f'copy it into the store ({page("own-data.md")}), and write its folder there: `"{{store}}/<folder>"`'
"""What helps where a bucket cannot be mounted as an input."""


class Cloud(ABC):
    """A place to run: a cloud, or clusters that are already there.

    Each cloud has one subclass, in the ``__init__.py`` of its package, and `slipway.infra.clouds.registry` lists
    it. That file imports the settings alone. Every method imports what it needs, so that a cloud's rules and its
    SDK are imported only by stacks that use the cloud: an SDK alone takes longer to import than all the rest. Only
    `preflight_problems`, `platforms`, `readable` and `emulator` may import an SDK.

    For example::

        class Acme(Cloud):
            name, title, sdk = "acme", "Acme Cloud", "pulumi-acme"
            cluster, stores = AcmeCluster, (AcmeBucket,)

            def checks(self) -> Sequence[Check]:
                from slipway.infra.clouds.acme import rules

                return rules.CHECKS

            def platforms(self, request: Request) -> Mapping[str, Platform]:
                from slipway.infra.clouds.acme import platforms

                return platforms.platforms(request)

            def emulator(self, request: Request) -> Emulator:
                from slipway.infra.clouds.acme.emulator import AcmeEmulator

                return AcmeEmulator(request)

            def review(self) -> Review:
                from slipway.infra.clouds.acme.review import REVIEW

                return REVIEW
    """

    name: ClassVar[str]
    """That of its package, of its clusters as their ``cloud``, and of the Pulumi package of its resources."""
    title: ClassVar[str]
    """Its name for people."""
    sdk: ClassVar[str | None]
    """The distribution that declares its resources; None: there is none."""
    cluster: ClassVar[type[ClusterSettings]]
    """The settings of its clusters in a stack file."""
    stores: ClassVar[Sequence[type[StoreSettings]]]
    """The settings of its stores in a stack file, one class per kind."""
    has_starter: ClassVar[bool] = True
    """Whether `make new` writes stacks that run on it; it then has a `starter`."""

    @abstractmethod
    def checks(self) -> Sequence[Check]:
        """What a stack file may not say of it."""

    @abstractmethod
    def platforms(self, request: Request) -> Mapping[str, Platform]:
        """Declares everything that the stack has on this cloud, and returns its clusters by name."""

    @abstractmethod
    def emulator(self, request: Request) -> Emulator:
        """What stands in for this cloud when the stack is evaluated without it."""

    @abstractmethod
    def review(self) -> Review:
        """What a preview says of its resources."""

    def provider_problems(self, configuration: Mapping[str, Any]) -> Sequence[Problem]:  # noqa: ARG002
        """What is wrong with its provider's keys in the stack's whole ``configuration``. Default: nothing."""
        return []

    def preflight_problems(self, request: Request | None) -> Sequence[Problem]:  # noqa: ARG002
        """What the stack lacks beside its settings, before anything is declared. Default: nothing.

        ``request`` is None where the settings are wrong. It may ask clusters that are already there.
        """
        return []

    def readable(self, store: MountedStore, arguments: Mapping[str, str]) -> MountedStore:  # noqa: ARG002
        """``store`` of another stack with the functions that read it, made from ``arguments``.

        These are that store's ``reader``, from that stack's output. Default: it cannot be read from outside.
        """
        return store

    def probes(self, stack: Stack, request: Request | None) -> Sequence[Probe]:  # noqa: ARG002
        """What is checked of ``stack`` on this machine and in the cloud before its first `pulumi up`.

        ``request`` is None where the settings are wrong. Default: nothing is checked.
        """
        return []

    def supply(self, stack: Stack, pool: NodePool) -> Supply | None:  # noqa: ARG002
        """What the cloud has for a node of ``pool``, which ``stack`` declares. Default: None, nobody is asked."""
        return None

    def servers(self, stack: Stack, request: Request | None) -> Mapping[str, ApiServer]:  # noqa: ARG002
        """The API servers of its clusters that are there before the first `pulumi up`, by the cluster's name.

        ``request`` is None where the settings are wrong. Default: there are none.
        """
        return {}

    def computed(self, function: str, args: Inputs, provider: Inputs) -> Inputs | None:  # noqa: ARG002
        """The result of a function of its provider that needs no cloud: ``index/getRegion:getRegion``.

        ``provider`` are the settings of the provider that is asked. A value that only the cloud knows is an
        `Unknown`. Default: None, every function asks the cloud.
        """
        return None

    def input_problem(self, data: Data, cluster: str, request: Request) -> tuple[str, str] | None:  # noqa: ARG002
        """Reason and fix where ``cluster`` has no way to mount ``data``, which is in a bucket; None where it has.

        Its `Platform.input_volume` then mounts it, and `platforms` lets Jobs read the ``request.inputs``.
        ``request`` is what can be read of a stack file with mistakes. Default: clusters mount no further buckets.
        """
        return f"cluster `{cluster}` ({self.title}) mounts no bucket beside the store", COPY

    def refresh(self, files: AcceleratorFiles, today: date) -> None:  # noqa: ARG002
        """Writes what its public price list says today of accelerators into ``files``. Default: nothing.

        Raises RefreshError where an answer is missing, and what `requests` raises.
        """
        return

    def starter(self, wish: Wish) -> Starter | Sequence[Problem]:
        """What a new stack file has of it; the problems where it has no such thing.

        Raises NotImplementedError where it has no starter.
        """
        raise NotImplementedError(f"{self.name} has no starter for {wish}")
