"""The clouds: the one list that names them.

A cloud is a package of this room, whose ``__init__.py`` has its subclass of `slipway.infra.clouds.contract.Cloud`.
"""

from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from slipway.infra.clouds.aws import Aws
from slipway.infra.clouds.contract import Cloud
from slipway.infra.clouds.existing import ExistingClusters
from slipway.infra.clouds.gcp import GoogleCloud
from slipway.infra.clouds.other_stack import OtherStack
from slipway.infra.emulator import Emulator
from slipway.infra.places import DISTRIBUTION
from slipway.infra.review.contract import Review
from slipway.infra.schema.base import ClusterSettings, StoreSettings
from slipway.infra.schema.problems import Problem, SettingsError, key_of
from slipway.infra.schema.request import Request


def _by_name(*clouds: Cloud) -> Mapping[str, Cloud]:
    return {cloud.name: cloud for cloud in clouds}


_OF_STACKS = _by_name(GoogleCloud(), Aws(), ExistingClusters())
"""Where a stack has clusters of its own."""

CLOUDS: Mapping[str, Cloud] = {**_OF_STACKS, **_by_name(OtherStack(_OF_STACKS))}
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
    # It is needed by reviews alone; settings are read without them.
    from slipway.infra.kubernetes.review import REVIEW  # noqa: PLC0415

    return [*(cloud.review() for cloud in CLOUDS.values()), REVIEW]


def require_packages(names: Collection[str]) -> None:
    """Raises SettingsError where what declares the resources of one of these clouds is not installed."""
    missing = {
        name: cloud.sdk
        for name, cloud in CLOUDS.items()
        if name in names and cloud.sdk and not find_spec(cloud.sdk.replace("-", "_"))
    }
    if missing:
        extras = f"`{DISTRIBUTION}[{','.join(missing)}]`, beside the extras that stand there"
        fix = f"write {extras}, into requirements.txt, and install that again"
        raise SettingsError(
            [Problem(key_of(("clusters",)), name, f"{sdk} is not installed", fix) for name, sdk in missing.items()]
        )


def emulators(request: Request) -> list[Emulator]:
    """One emulator for each cloud of the stack's clusters. Raises SettingsError as `require_packages` does."""
    used = {cloud for cluster in request.clusters.values() for cloud in cluster.clouds}
    require_packages(used)
    return [cloud.emulator(request) for name, cloud in CLOUDS.items() if name in used]
