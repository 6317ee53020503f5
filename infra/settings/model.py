"""The typed shape of a stack file: what may stand under the ``slipway:`` keys of ``stacks/Pulumi.<env>.yaml``.

Shapes and single-value rules live in the models; rules that join several keys are in
``checks``, and those of one cloud in its ``rules``. All report into one `SettingsError`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SecretStr, create_model

from infra.clouds.registry import Cluster, Store
from infra.pipelines.contract import PipelineSettings
from infra.pipelines.images import CPU_IMAGE
from infra.platform import Egress
from infra.schema.base import Cidr, Model, Team
from infra.schema.paths import LocalPath, StorePath
from infra.schema.request import Request
from infra.schema.secret_values import SecretText
from infra.settings.kueue import KueueSettings
from infra.settings.metrics import MetricsSettings
from infra.settings.pipelines import (
    any_services,
    app_volumes,
    apps_of_teams,
    apps_with_store,
    exposed,
    section_type,
)
from infra.settings.registry import RegistrySettings
from infra.settings.suppressions import Policies

Port = Annotated[int, Field(ge=1, le=65535)]


class AllowedNetwork(Model):
    """A network that pods may connect to."""

    cidr: Cidr = Field(description="Its block of addresses, for example that of a package mirror.")
    ports: list[Port] = Field(default=[443], min_length=1, description="Ports.")
    protocols: list[Literal["TCP", "UDP"]] = Field(default=["TCP"], min_length=1, description="Protocols.")


class EgressSettings(Model):
    """What the Jobs' pods may connect to: name servers, what the store and the pods' identity need of the node,
    HTTPS to public addresses, and the networks named here.
    """

    restrict: bool = Field(
        default=True,
        description="Limit it by a NetworkPolicy. `false` lets pods connect to everything.",
    )
    allow: dict[str, AllowedNetwork] = Field(
        default_factory=dict[str, AllowedNetwork],
        description="More networks, by a name of your choice: a package mirror or proxy inside your network.",
    )

    def allowed(self) -> list[Egress] | None:
        """The networks that ``allow`` names; None where nothing is limited."""
        if not self.restrict:
            return None
        return [Egress(each.cidr, tuple(each.ports), tuple(each.protocols)) for each in self.allow.values()]


class Rehearsal(Model):
    """What rehearsals alone use.

    Beside the keys below it may have all that may stand under `slipway:`, which is laid over the stack's own
    settings key by key.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    store_files: dict[StorePath, LocalPath] = Field(
        default_factory=dict[str, str],
        description="Files and folders of this machine, by the path in the store that they are copied to before "
        "the Jobs run. A relative one is below the repository.",
    )


class Settings(Model):
    """One stack, as its file declares it."""

    protect: bool = Field(
        default=False,
        description="One switch: deletion protection, Pulumi's protect, and no force_destroy on what holds data.",
    )
    namespace: str = Field(default="slipway", description="Kubernetes namespace that the Jobs run in.")
    service_account: str = Field(default="runner", description="Kubernetes service account of the Jobs.")
    egress: EgressSettings = Field(
        default_factory=EgressSettings, description="Where the Jobs' pods may connect to."
    )
    clusters: dict[str, Cluster] = Field(min_length=1, description="Clusters by name.")
    store: Store | None = Field(
        default=None,
        description="The one store that all clusters share. Required, but for clusters of another stack, which "
        "have that stack's.",
    )
    teams: dict[str, Team] = Field(
        default_factory=dict[str, Team],
        description="Teams whose own stacks run Jobs on this stack's clusters, by the name of their folder in the "
        "store. With them the stack has the output `platform`.",
    )
    kueue: KueueSettings | None = Field(
        default=None,
        description="Kueue holds each Job back until there is room for all of its pods. Default: none; for a "
        "team's stack, that of the stack that has the clusters.",
    )
    metrics: MetricsSettings | None = Field(
        default=None,
        description="What is measured of Jobs, apps, queues and GPUs, and who reads it. Default: nothing is. "
        "Switched on or off, it changes the pods of all steps: their Jobs start again, and find the results that "
        "are there.",
    )
    pipelines: dict[str, PipelineSettings] = Field(
        default_factory=dict[str, PipelineSettings],
        description="The pipelines to run, each by a name: that of a folder below `workloads/`, or one of your "
        "choice with `uses`. Jobs, folders in the store and stack outputs have the name.",
    )
    secrets: dict[str, SecretText] = Field(
        default_factory=dict[str, SecretStr],
        description="What steps are given as environment variables and nobody else may read, by name. "
        "`pulumi config set --secret --path 'slipway:secrets.<name>'` encrypts a value; one in clear is refused.",
    )
    registry: RegistrySettings | None = Field(
        default=None,
        description="Where images are built that pipelines declare by `build`, and which registry has them.",
    )
    policies: Policies = Field(default_factory=Policies, description="What the policies may find in this stack.")
    rehearsal: Rehearsal = Field(
        default_factory=Rehearsal,
        description="Settings that `make rehearse` lays over the ones above, for what needs a network, and files "
        "for its store; `pulumi up` checks and ignores it.",
    )

    @property
    def request(self) -> Request:
        """What the clouds are given of it."""
        return Request(
            clusters=self.clusters,
            store=self.store,
            namespace=self.namespace,
            service_account=self.service_account,
            protect=self.protect,
            pool_names={name: tuple(cluster.pools) for name, cluster in self.clusters.items()},
            teams=self.teams,
            has_secrets=bool(self.secrets),
            has_services=any_services(self.pipelines) or bool(self.metrics and self.metrics.installs_prometheus),
            apps=apps_with_store(self.pipelines),
            has_dashboards=bool(self.metrics and self.metrics.collect and self.metrics.dashboards),
            builds_on=self._builds_on,
            exposed=exposed(self.pipelines),
            team_apps=apps_of_teams(self.teams),
            app_volumes=app_volumes(self.pipelines),
            python_image=CPU_IMAGE,
        )

    @property
    def _builds_on(self) -> str | None:
        """The cluster whose cloud has the registry that images are pushed to; None where another one has them."""
        if self.registry is None or self.registry.repository:
            return None
        pool = self.registry.pool
        return next((name for name, cluster in self.clusters.items() if pool in cluster.pools), None)


def model_of(values: Mapping[str, Any]) -> type[Settings]:
    """The settings with the keys of the pipelines that ``values``, plain values of a stack file, run.

    Raises SettingsError where the declaration of one of them is broken.
    """
    return with_pipelines(section_type(values))


@cache
def with_pipelines(section: Any) -> type[Settings]:
    """The settings in which ``section`` is the type of the section `pipelines`."""
    field = Settings.model_fields["pipelines"]
    return create_model("Settings", __base__=Settings, __doc__=Settings.__doc__, pipelines=(section, field))
