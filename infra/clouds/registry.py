"""The places to run: the one list that names them.

A cloud is a package with ``settings`` (what a stack file says of it), ``rules`` (what it may not say),
``platforms`` (what is declared) and ``emulator`` (what stands in for it). Its rules and its SDK are imported only
by stacks that use it: a cloud's SDK alone takes longer than all the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from infra.clouds.aws.settings import AwsCluster, EfsStore, S3Store
from infra.clouds.existing.settings import ExistingCluster, NfsStore, PvcStore, S3CompatibleStore
from infra.clouds.gcp.settings import GcpCluster, GcsStore
from infra.platform import Emulator, Platform
from infra.review.contract import Review

if TYPE_CHECKING:
    # All of these rest on the unions below: importing them here would be a cycle.
    from infra.schema.findings import Finding
    from infra.schema.problems import Problem
    from infra.settings.model import Settings
    from infra.settings.parsing import Reading

Cluster = Annotated[GcpCluster | AwsCluster | ExistingCluster, Field(discriminator="cloud")]
Store = Annotated[
    GcsStore | S3Store | EfsStore | PvcStore | NfsStore | S3CompatibleStore, Field(discriminator="kind")
]

Check = Callable[["Reading"], Iterable["Finding"]]


@dataclass(frozen=True)
class Declarations:
    """What a cloud declares: its platforms, its stand-in, and what a stack lacks for it beside its settings.

    ``problems`` are given the settings, None where they are wrong. They may ask clusters that are there.
    """

    problems: "Callable[[Settings | None], Sequence[Problem]]"
    platforms: "Callable[[Settings], Mapping[str, Platform]]"
    emulator: "Callable[[Settings], Emulator]"


@dataclass(frozen=True)
class Cloud:
    """A place to run.

    ``title`` is its name for people and ``sdk`` the distribution that declares its resources, where there is one.
    ``problems`` are given the whole configuration, and find what is wrong with the keys of its provider.
    ``problems``, ``checks``, ``declarations`` and ``review`` import its package, all but ``declarations`` without
    its SDK.
    """

    title: str
    sdk: str | None
    problems: "Callable[[Mapping[str, Any]], Sequence[Problem]]"
    checks: "Callable[[], Sequence[Check]]"
    declarations: Callable[[], Declarations]
    review: Callable[[], Review]


def _gcp_problems(values: Mapping[str, Any]) -> "Sequence[Problem]":
    from infra.clouds.gcp.rules.project import problems  # noqa: PLC0415

    return problems(values)


def _gcp_checks() -> "Sequence[Check]":
    from infra.clouds.gcp.rules import CHECKS  # noqa: PLC0415

    return CHECKS


def _gcp_review() -> Review:
    from infra.clouds.gcp.review.hooks import REVIEW  # noqa: PLC0415

    return REVIEW


def _gcp() -> Declarations:
    from infra.clouds.gcp import emulator, platforms, project  # noqa: PLC0415

    return Declarations(lambda _: project.problems(), platforms.platforms, emulator.GcpEmulator)


def _aws_problems(values: Mapping[str, Any]) -> "Sequence[Problem]":
    from infra.clouds.aws.rules.clusters import provider_problems  # noqa: PLC0415

    return provider_problems(values)


def _aws_checks() -> "Sequence[Check]":
    from infra.clouds.aws.rules import CHECKS  # noqa: PLC0415

    return CHECKS


def _aws_review() -> Review:
    from infra.clouds.aws.review.hooks import REVIEW  # noqa: PLC0415

    return REVIEW


def _aws() -> Declarations:
    from infra.clouds.aws import account, emulator, platforms  # noqa: PLC0415

    return Declarations(lambda _: account.problems(), platforms.platforms, emulator.AwsEmulator)


def _existing_checks() -> "Sequence[Check]":
    from infra.clouds.existing.rules import CHECKS  # noqa: PLC0415

    return CHECKS


def _existing_review() -> Review:
    from infra.clouds.existing.review.hooks import REVIEW  # noqa: PLC0415

    return REVIEW


def _existing() -> Declarations:
    from infra.clouds.existing import emulator, platforms, preflight  # noqa: PLC0415

    return Declarations(preflight.problems, platforms.platforms, emulator.ExistingEmulator)


CLOUDS: Mapping[str, Cloud] = {
    "gcp": Cloud("Google Cloud", "pulumi-gcp", _gcp_problems, _gcp_checks, _gcp, _gcp_review),
    "aws": Cloud("AWS", "pulumi-aws", _aws_problems, _aws_checks, _aws, _aws_review),
    "existing": Cloud("Existing cluster", None, lambda _: (), _existing_checks, _existing, _existing_review),
}
"""By the ``cloud`` of a cluster, which is also the Pulumi package of a cloud's resources."""
