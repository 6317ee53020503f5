"""The typed shape of a stack file: what may stand under the ``slipway:`` keys of ``stacks/Pulumi.<env>.yaml``.

Shapes and single-value rules live in the models; rules that join several keys are in
``checks``, and those of one cloud in its ``rules``. All report into one `SettingsError`.
"""

import re
from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, create_model

from slipway.infra.clouds.registry import Cluster, Store
from slipway.infra.commands import page
from slipway.infra.features import features
from slipway.infra.pipelines.contract import PipelineSettings, PodSettings
from slipway.infra.pipelines.images import CPU_IMAGE
from slipway.infra.platform import Egress
from slipway.infra.schema.base import Cidr, Cpu, Duration, Labels, Memory, Model, Size, Team, refuse
from slipway.infra.schema.names import REFERENCE
from slipway.infra.schema.paths import LocalPath, StorePath
from slipway.infra.schema.renamed import Removed
from slipway.infra.schema.request import Request
from slipway.infra.schema.secret_values import SecretText
from slipway.infra.settings.pipelines import (
    any_services,
    app_volumes,
    apps_of_teams,
    apps_with_store,
    bucket_inputs,
    section_type,
)


def _reason(value: str) -> str:
    if not value.strip():
        raise refuse("empty", "say why the stack may have what the policy finds, and who decided it")
    return value


Reason = Annotated[str, AfterValidator(_reason)]
"""A text that is not empty."""


def _day(value: str) -> str:
    # The CLI hands over a day without quotes as its first second (Pulumi 3.260, seen November 2026).
    day = value.removesuffix("T00:00:00Z")
    try:
        if date.fromisoformat(day).isoformat() == day:
            return day
    except ValueError:
        pass
    raise refuse("not a day", 'write year, month and day in quotes, as `"2027-03-31"`')


Day = Annotated[str, AfterValidator(_day)]
"""A day as ISO 8601 writes it."""


class Suppression(Model):
    """Findings of one policy that the stack lives with; [policies](policies.md) lists the policies."""

    reason: Reason = Field(description="Why the stack may have what the policy finds.")
    until: Day | None = Field(
        default=None,
        description="Last day of the suppression; after it the findings are back. Default: it does not end.",
    )
    resources: list[str] | None = Field(
        default=None,
        min_length=1,
        description="Names of the resources, or configuration keys, that it is for; default: all.",
    )


class Policies(Model):
    """What the policies may find in this stack."""

    suppress: dict[str, Suppression] = Field(
        default_factory=dict[str, Suppression], description="Findings to live with, by the id of their policy."
    )


KEY = "registry"

_HOST = re.compile(r"(?:[^/]*[.:][^/]*|localhost)/.+")


def _repository(value: str) -> str:
    example = "write for example `registry.example.org/team/slipway`"
    if "@" in value or ":" in value.rpartition("/")[2]:
        raise refuse("a repository has no tag and no digest: each image has its own", example)
    if not REFERENCE.fullmatch(f"{value}@sha256:{'0' * 64}"):
        raise refuse("no registry can have a repository of this name", example)
    if not _HOST.fullmatch(value):
        raise refuse("it begins with no registry: what stands before the first `/` has a dot or a port", example)
    return value


Repository = Annotated[str, AfterValidator(_repository)]
"""A repository of a registry, the registry's host first."""


class RegistrySettings(PodSettings):
    """Where images are built that pipelines declare by `build`, and which registry has them. Without `repository`
    that is the cloud's own, Artifact Registry or ECR, which the stack declares, and to which the build's own
    identity may push.
    """

    cpu: Cpu = Field(default="2", description="CPU that a build asks for, as a Kubernetes quantity.")
    memory: Memory = Field(default="4Gi", description="Memory asked for, and its limit.")
    ephemeral_storage: Size = Field(
        default="16Gi", description="Disk space for the layers of the image, its base images included."
    )
    time_limit: Duration = Field(default="1h", description="Hard limit of a build, waiting for a node included.")
    repository: Repository | None = Field(
        default=None,
        description="A repository of another registry: `registry.example.org/team/slipway`. It has to keep tags "
        "from being moved, but those that begin with `cache-`.",
    )
    login: str | None = Field(
        default=None,
        description="The secret of `slipway:secrets` with the login that pushes to it: the JSON that `docker "
        "login` leaves.",
    )
    pull_login: str | None = Field(
        default=None, description="The secret with the login that pulls from it; default: that of `login`."
    )


_INSTALL = Removed(f"install Prometheus and its exporters yourself; {page('metrics.md')} says how")


class PrometheusSettings(Model):
    """The Prometheus that is on the cluster, with an operator that serves `monitoring.coreos.com/v1`."""

    removed: ClassVar[Mapping[str, Removed]] = dict.fromkeys(
        ("install", "chart", "version", "retention", "storage"), _INSTALL
    )

    namespace: str = Field(
        description="Namespace of Prometheus's own pods, which alone may read what is measured."
    )
    pod_labels: Labels = Field(
        default_factory=lambda: {"app.kubernetes.io/name": "prometheus"},
        description="Labels of Prometheus's own pods.",
    )
    labels: Labels = Field(default_factory=dict, description="Labels by which it finds a PodMonitor.")


class MetricsSettings(Model):
    """Metrics of Jobs and apps. Without the section only steps on GPU pools are measured, and no one reads their
    metrics.

    Switched on or off, `usage` changes the pods of all steps: their Jobs start again, and find the results that
    are there.
    """

    removed: ClassVar[Mapping[str, Removed]] = {
        **dict.fromkeys(("dashboards", "gpus"), _INSTALL),
        "idle": Removed("remove it: limits of 5 and 30 % hold"),
        "port": Removed("remove it: it is 9410"),
    }

    usage: bool = Field(
        default=True,
        description="Measure beside each step's program what it uses of CPU, memory and GPUs, and keep it in the "
        "store with its results.",
    )
    collect: bool = Field(
        default=True,
        description="Have metrics read, by the cloud's own service or else by `prometheus`. Only that reader may "
        "connect to their ports.",
    )
    interval: Duration = Field(default="30s", description="Time between two readings, 5 s to 2 min.")
    prometheus: PrometheusSettings | None = Field(
        default=None,
        description="The Prometheus that reads them where the cloud does not: required there, unless `collect` is "
        "`false`.",
    )


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
        return [
            Egress(network.cidr, tuple(network.ports), tuple(network.protocols)) for network in self.allow.values()
        ]


class Rehearsal(Model):
    """What rehearsals alone use.

    Beside the keys below it may have all that may stand under `slipway:`, which is laid over the stack's own
    settings key by key.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    store_files: dict[StorePath, LocalPath] = Field(
        default_factory=dict[str, str],
        description="Files and folders of this machine, relative to the repository, by the path in the store to "
        "which they are copied first.",
    )
    capacity: LocalPath | None = Field(
        default=None,
        description="How many nodes pools can have, and for how long: a JSON file. Steps with `places` wait and "
        "move by it, on a fast clock.",
    )


class _Settings(Model):
    """One stack, as its file declares it."""

    removed: ClassVar[Mapping[str, Removed]] = {
        "until": Removed(f"end the stack by `pulumi destroy` in a scheduled workflow; {page('ci.md')} has one")
    }

    protect: bool = Field(
        default=False,
        description="Keep what holds data from being deleted: deletion protection, Pulumi's protect, and no "
        "force_destroy.",
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
        description="Teams whose own stacks run Jobs on these clusters, by their folder in the store. The stack "
        "then has the output `platform`.",
    )
    metrics: MetricsSettings | None = Field(
        default=None,
        description="What is measured of Jobs, and who reads it. Switched on or off, all Jobs start again, "
        "and find their results.",
    )
    pipelines: dict[str, PipelineSettings] = Field(
        default_factory=dict[str, PipelineSettings],
        description="The pipelines to run, by name: a folder below `workloads/`, or one of your choice with "
        "`uses`. Jobs, folders in the store and stack outputs have the name.",
    )
    secrets: dict[str, SecretText] = Field(
        default_factory=dict[str, SecretStr],
        description="Secret environment variables of steps. `pulumi config set --secret --path "
        "'slipway:secrets.<name>'` encrypts a value; one in clear is refused.",
    )
    registry: RegistrySettings | None = Field(
        default=None,
        description="Where images are built that pipelines declare by `build`, and which registry has them.",
    )
    policies: Policies = Field(default_factory=Policies, description="What the policies may find in this stack.")
    rehearsal: Rehearsal = Field(
        default_factory=Rehearsal,
        description="Settings that a rehearsal lays over the ones above, and files for its store; `pulumi up` "
        "checks and ignores it.",
    )

    @property
    def request(self) -> Request:
        """What the clouds are given of it."""
        pool_names = {name: tuple(cluster.pools) for name, cluster in self.clusters.items()}
        return Request(
            clusters=self.clusters,
            store=self.store,
            namespace=self.namespace,
            service_account=self.service_account,
            protect=self.protect,
            pool_names=pool_names,
            teams=self.teams,
            has_secrets=bool(self.secrets),
            has_services=any_services(self.pipelines),
            apps=apps_with_store(self.pipelines, pool_names),
            builds_on=self._builds_on,
            team_apps=apps_of_teams(self.teams),
            app_volumes=app_volumes(self.pipelines),
            python_image=CPU_IMAGE,
            inputs=bucket_inputs(self.pipelines),
        )

    @property
    def _builds_on(self) -> str | None:
        """The cluster whose cloud has the registry that images are pushed to; None where another one has them."""
        if self.registry is None or self.registry.repository:
            return None
        pool = self.registry.pool
        return next((name for name, cluster in self.clusters.items() if pool in cluster.pools), None)


SECTIONS: Mapping[str, Any] = {key: value for feature in features() for key, value in feature.sections.items()}
"""The sections that features have, each with its type and field."""

if TYPE_CHECKING:
    Settings = _Settings
else:
    Settings = create_model("Settings", __base__=_Settings, __doc__=_Settings.__doc__, **SECTIONS)


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
