"""What can be read of a stack file, wrong parts left out, so that the checks still see the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Union, cast

from pydantic import ConfigDict, Field, SecretStr, ValidationError, create_model
from pydantic_core import ErrorDetails

from infra.clouds.registry import CLUSTERS, Cluster, Store
from infra.pipelines.contract import PipelineSettings
from infra.platform_output import Resolve
from infra.schema import plain_values, validation
from infra.schema.base import ClusterSettings, Model, Team
from infra.schema.problems import Finding, Path
from infra.schema.request import Request
from infra.schema.secret_values import SecretText
from infra.settings import references
from infra.settings.corrections import as_written, repair, section_at
from infra.settings.model import Settings, model_of


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
    clusters: dict[str, ClusterDraft] = Field(default_factory=dict)
    store: Store | None = None
    teams: dict[str, Team] = Field(default_factory=dict[str, Team])
    pipelines: dict[str, PipelineSettings] = Field(default_factory=dict[str, PipelineSettings])
    secrets: dict[str, SecretText] = Field(default_factory=dict[str, SecretStr])


@dataclass(frozen=True)
class Reading:
    """What a stack file says as far as it can be read.

    ``settings`` is None where its shape is wrong somewhere; ``draft`` holds what is right. ``clusters`` are the
    names of all clusters of the file, and ``names`` the cluster and name of every pool, readable or not.
    ``findings`` are the wrong shapes, and ``unreadable`` the places that were left out for them. ``written`` are
    the keys that stand in the file where it was read as if they were spelt right.
    """

    settings: Settings | None
    draft: Draft
    clusters: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]
    unreadable: frozenset[Path]
    written: Mapping[Path, str]

    @property
    def request(self) -> Request:
        """What the rules of the clouds are given of it."""
        draft = self.draft
        return Request(
            clusters=draft.clusters,
            store=draft.store,
            namespace=draft.namespace,
            service_account=draft.service_account,
            protect=draft.protect,
            pool_names={name: tuple(pool for of, pool in self.names if of == name) for name in draft.clusters},
            teams=draft.teams,
        )

    def judges(self, finding: Finding) -> bool:
        """Whether everything the finding rests on could be read."""
        places = (finding.path, *finding.read)
        return not any(
            any(place[: len(lost)] == lost for place in places)
            or any(lost[: len(section)] == section for section in finding.all_of)
            for lost in self.unreadable
        )


def read(raw: Mapping[str, Any], resolve: Resolve | None = None) -> Reading:
    """Reads ``raw``, the plain values of a stack file.

    Without ``resolve`` clusters of other stacks have no pools, and nothing is found wrong with them.
    """
    values = cast("dict[str, Any]", _copy(raw))
    found = list(plain_values.findings(values, OVERLAY))
    lost = {_leave_out(values, each.path) for each in found}
    referred = references.resolve(values, resolve)
    found += referred.findings
    lost |= referred.lost
    repairs, written = repair(values)
    found += repairs
    clusters = tuple(str(name) for name in _section(values.get("clusters")) or {})
    names = tuple(_pool_names(values))
    settings, model = None, model_of(values)
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        found += [as_written(each, written) for each in validation.findings(error, model) if each.path not in lost]
        lost |= _leave_out_wrong(values, error, model)
    draft = _salvage(values, lost, model)
    return Reading(None if found else settings, draft, clusters, names, tuple(found), frozenset(lost), written)


def _copy(value: Any) -> Any:
    """A copy in which a section that an alias of YAML repeats is there as often: each can be changed by itself."""
    if isinstance(value, Mapping):
        return {key: _copy(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    return [_copy(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _leave_out_wrong(values: dict[str, Any], error: ValidationError, model: type[Settings]) -> set[Path]:
    """Removes what is wrong and returns its places, with those of what is missing."""
    lost: set[Path] = set()
    for detail in error.errors(include_url=False):
        place = validation.place_of(detail, model)
        if near := validation.misspelt_key(detail, model):
            lost.add((*place[:-1], near))
        lost.add(place if detail["type"] == "missing" else _leave_out(values, place))
    return lost


def _salvage(values: dict[str, Any], lost: set[Path], model: type[Settings]) -> Draft:
    """What is right of ``values``, which it changes; ``lost`` grows by the places of what else is left out.

    A required value that is not there has a stand-in, so that the rest of its section can be read.
    """
    stood_in: set[Path] = set()
    draft = _draft_of(model)
    while True:
        try:
            return draft.model_validate(values)
        except ValidationError as remaining:
            for detail in remaining.errors(include_url=False):
                place = validation.place_of(detail, model)
                if detail["type"] == "missing" and place not in stood_in and _stand_in(values, detail, model):
                    stood_in.add(place)
                    lost.add(place)
                else:
                    lost.add(_leave_out(values, place[:-1] if detail["type"] == "missing" else place))


@cache
def _draft_of(model: type[Settings]) -> type[Draft]:
    """`Draft` with the pipelines of ``model``."""
    field = model.model_fields["pipelines"]
    section: Any = Annotated[(field.annotation, *field.metadata)]
    return create_model("Draft", __base__=Draft, pipelines=(section, Field(default_factory=dict)))


def _stand_in(values: dict[str, Any], detail: ErrorDetails, model: type[Settings]) -> bool:
    """Puts a value where ``detail`` says that one is missing; False where nothing can stand in for it."""
    *way, last = validation.place_of(detail, model)
    section = section_at(values, tuple(way))
    found = validation.stand_in(detail["loc"], model, sections=detail["loc"][0] == "pipelines")
    if section is None or found is None:
        return False
    section[last] = found
    return True


def _leave_out(values: dict[Any, Any], place: Path) -> Path:
    """Removes the value at ``place`` and returns what was removed.

    That is more than the place where a part of it cannot be removed alone: a whole list, so that the indexes of
    its other items still say where they stand, or the section nearest to a place that is not there.
    """
    section = values
    for depth, part in enumerate(place):
        key = next((key for key in section if str(key) == str(part)), None)
        if key is None:
            break
        inner = _section(section[key])
        if inner is None or depth == len(place) - 1 or str(place[depth + 1]) not in map(str, inner):
            del section[key]
            return place[: depth + 1]
        section = inner
    values.clear()
    return ()


def _pool_names(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for cluster, content in (_section(raw.get("clusters")) or {}).items():
        for pool in _section((_section(content) or {}).get("pools")) or {}:
            yield str(cluster), str(pool)


def _section(value: object) -> dict[Any, Any] | None:
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else None
