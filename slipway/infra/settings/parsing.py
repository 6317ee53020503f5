"""What can be read of a stack file, wrong parts left out, so that the checks still see the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, Union, cast

from pydantic import ConfigDict, Field, SecretStr, ValidationError, create_model

from slipway.infra.clouds.registry import CLUSTERS, Cluster, Store
from slipway.infra.pipelines.contract import PipelineSettings
from slipway.infra.platform_output import Resolve
from slipway.infra.schema import validation
from slipway.infra.schema.base import ClusterSettings, Model, Team
from slipway.infra.schema.plain_values import plain_value_findings
from slipway.infra.schema.problems import Finding, Path
from slipway.infra.schema.repairs import (
    as_section,
    as_written,
    copied,
    leave_out,
    leave_out_wrong,
    repair,
    rests_on_readable,
    salvage,
)
from slipway.infra.schema.request import Request
from slipway.infra.schema.secret_values import SecretText
from slipway.infra.settings import pipelines as references
from slipway.infra.settings.model import (
    SECTIONS,
    EgressSettings,
    MetricsSettings,
    RegistrySettings,
    Settings,
    model_of,
)
from slipway.infra.settings.pipelines import (
    KEY,
    any_services,
    app_volumes,
    apps_of_teams,
    apps_with_store,
    bucket_inputs,
)


def _draft(model: type[ClusterSettings]) -> type[ClusterSettings]:
    """The cluster's model without the demand for a pool."""
    pools: Any = model.model_fields["pools"].annotation
    return create_model(f"{model.__name__}Draft", __base__=model, pools=(pools, Field(default_factory=dict)))


if TYPE_CHECKING:
    ClusterDraft = Cluster
else:
    ClusterDraft = Annotated[
        Union[tuple(map(_draft, CLUSTERS))],  # noqa: UP007
        Field(discriminator="cloud"),
    ]

OVERLAY = "rehearsal"
"""The section that is read by itself, laid over the rest."""


class Draft(Model):
    """`Settings` in which every section may be absent, because its shape was wrong."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    protect: bool = False
    namespace: str = "slipway"
    service_account: str = "runner"
    egress: EgressSettings = Field(default_factory=EgressSettings)
    clusters: dict[str, ClusterDraft] = Field(default_factory=dict)
    store: Store | None = None
    teams: dict[str, Team] = Field(default_factory=dict[str, Team])
    metrics: MetricsSettings | None = None
    pipelines: dict[str, PipelineSettings] = Field(default_factory=dict[str, PipelineSettings])
    secrets: dict[str, SecretText] = Field(default_factory=dict[str, SecretStr])
    registry: RegistrySettings | None = None


@dataclass(frozen=True)
class Reading:
    """What a stack file says as far as it can be read.

    ``settings`` is None where its shape is wrong somewhere; ``draft`` holds what is right. ``clusters`` are the
    names of all clusters of the file, and ``names`` the cluster and name of every pool, readable or not.
    ``findings`` are the wrong shapes, and ``unreadable`` the places that were left out for them. ``renamed`` are
    keys that still work by the name of an earlier release. ``written`` are
    the keys that stand in the file where it was read as if they were spelt right.
    """

    settings: Settings | None
    draft: Draft
    clusters: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]
    renamed: tuple[Finding, ...]
    unreadable: frozenset[Path]
    written: Mapping[Path, str]

    @cached_property
    def request(self) -> Request:
        """What the rules of the clouds are given of it."""
        draft = self.draft
        pool_names = {name: tuple(pool for of, pool in self.names if of == name) for name in draft.clusters}
        return Request(
            clusters=draft.clusters,
            store=draft.store,
            namespace=draft.namespace,
            service_account=draft.service_account,
            protect=draft.protect,
            pool_names=pool_names,
            teams=draft.teams,
            has_services=any_services(draft.pipelines),
            apps=apps_with_store(draft.pipelines, pool_names),
            team_apps=apps_of_teams(draft.teams),
            app_volumes=app_volumes(draft.pipelines),
            inputs=bucket_inputs(draft.pipelines),
        )

    def judges(self, finding: Finding) -> bool:
        """Whether everything the finding rests on could be read."""
        return rests_on_readable(finding, self.unreadable)


def read(raw: Mapping[str, Any], resolve: Resolve | None = None) -> Reading:
    """Reads ``raw``, the plain values of a stack file.

    Without ``resolve`` clusters of other stacks have no pools, and nothing is found wrong with them.
    """
    values = cast("dict[str, Any]", copied(raw))
    findings = list(plain_value_findings(values, OVERLAY))
    lost = {leave_out(values, finding.path) for finding in findings}
    referred = references.resolve(values, resolve)
    findings += referred.findings
    lost |= referred.lost
    repairs, renamed, written = repair(values, model_of)
    findings += repairs
    clusters = tuple(str(name) for name in as_section(values.get("clusters")) or {})
    names = tuple(_pool_names(values))
    settings, model = None, model_of(values)
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        findings += [
            as_written(finding, written)
            for finding in validation.findings(error, model)
            if finding.path not in lost
        ]
        lost |= leave_out_wrong(values, error, model)
    draft = salvage(values, lost, model, _draft_of(model), sections=(KEY,))
    return Reading(
        settings=None if findings else settings,
        draft=draft,
        clusters=clusters,
        names=names,
        findings=tuple(findings),
        renamed=tuple(renamed),
        unreadable=frozenset(lost),
        written=written,
    )


@cache
def _draft_of(model: type[Settings]) -> type[Draft]:
    """`Draft` with the pipelines of ``model``."""
    field = model.model_fields["pipelines"]
    section: Any = Annotated[(field.annotation, *field.metadata)]
    return create_model("Draft", __base__=Draft, pipelines=(section, Field(default_factory=dict)), **SECTIONS)


def _pool_names(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for cluster, content in (as_section(raw.get("clusters")) or {}).items():
        for pool in as_section((as_section(content) or {}).get("pools")) or {}:
            yield str(cluster), str(pool)
