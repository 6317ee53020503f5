"""The sections of pipelines in a stack file, and what of them refers to another stack, cluster or pool."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, ConfigDict, ValidationError
from typing_extensions import TypedDict

from slipway.infra.commands import page
from slipway.infra.pipelines import apps
from slipway.infra.pipelines.apps import AppDeclaration, KeptAppSettings
from slipway.infra.pipelines.contract import PipelineSettings, ServiceDeclaration, StepDeclaration, placements
from slipway.infra.pipelines.discovery import (
    apps_of,
    folder_of,
    is_path,
    mounts_store,
    names_pipeline,
    pipeline,
    services_of,
    steps_of,
)
from slipway.infra.pipelines.inputs import INPUTS, data_of
from slipway.infra.pipelines.places import PLACES, agent_account, mover_account, orders_folder
from slipway.infra.platform_output import OUTPUT, VERSION, PlatformFacts, Resolve, UnreadableStackError
from slipway.infra.schema.base import Team
from slipway.infra.schema.ingress import IngressSettings
from slipway.infra.schema.problems import Finding, Path, SettingsError, did_you_mean, key_of, listed
from slipway.infra.schema.request import AppAccess, AppVolume, InputAccess

CLOUD = "other_stack"
"""The ``cloud`` by which the settings know such a cluster; in a stack file, its `stack` says enough."""

READ = ("pools", "facts", "team")
"""Keys whose values come from the other stack."""


@dataclass
class Referred:
    """What was found wrong with clusters of other stacks, and the places that could not be filled for it."""

    findings: list[Finding] = field(default_factory=list[Finding])
    lost: set[Path] = field(default_factory=set[Path])


def unread(stack: str) -> Mapping[str, Any]:
    """An `slipway.infra.platform_output.Resolve` for those who have no other stacks."""
    raise UnreadableStackError(f"nothing here can read the outputs of stack `{stack}`", "preview or rehearse it")


def resolve(values: dict[str, Any], read: Resolve | None) -> Referred:
    """Completes the clusters of other stacks in ``values``, plain values of a stack file which may be wrong.

    Without ``read``, they only get their ``cloud``.
    """
    referred = Referred()
    clusters = {str(name): _section(content) for name, content in _section(values.get("clusters")).items()}
    others = {name: section for name, section in clusters.items() if _refers(section)}
    for name, section in others.items():
        referred.findings += _own_keys(name, section)
        section["cloud"] = CLOUD
    if others:
        referred.findings += _own_store(values, others)
        referred.lost.add(("store",))
    elif values.get("store") is None:
        referred.lost.add(("store",))
        referred.findings.append(_no_store("store" in values))
        values.pop("store", None)
    if read is not None:
        for name, section in others.items():
            _fill(name, section, values, read, referred)
    return referred


def _refers(section: Mapping[Any, Any]) -> bool:
    return section.get("cloud") == CLOUD or "stack" in section or ("cluster" in section and "cloud" not in section)


def _own_keys(name: str, section: dict[Any, Any]) -> Iterator[Finding]:
    """What a stack file cannot say of a cluster that another stack has; it is taken away."""
    for key in ("cloud", *READ):
        value = section.pop(key, None)
        if value is not None and not (key == "cloud" and value == CLOUD):
            whose = f"stack `{section.get('stack')}`"
            yield Finding(
                ("clusters", name, key), value, f"the file of {whose} says it, which has the cluster", "remove it"
            )


def _own_store(values: dict[str, Any], others: Mapping[str, Mapping[Any, Any]]) -> Iterator[Finding]:
    store = values.pop("store", None)
    # Pulumi.yaml gives every stack an empty one.
    if store:
        name, section = next(iter(others.items()))
        reason = f"cluster `{name}` is one of stack `{section.get('stack')}`, and has the store of that stack"
        yield Finding(("store",), store, reason, "remove it")


def _no_store(empty: bool) -> Finding:
    add = f"add it: the one store that all clusters share, as {page('settings.md')} describes it"
    return Finding(("store",), None, "empty" if empty else "required, and not there", add)


def _fill(
    name: str, section: dict[Any, Any], values: Mapping[str, Any], read: Resolve, referred: Referred
) -> None:
    at: Path = ("clusters", name)
    stack, cluster = section.get("stack"), section.get("cluster")
    referred.lost.add((*at, "pools"))
    if not isinstance(stack, str) or not isinstance(cluster, str):
        return
    facts = _facts((*at, "stack"), stack, values, read)
    if isinstance(facts, Finding):
        # All clusters of one stack would say the same.
        if not any(
            (finding.value, finding.reason) == (facts.value, facts.reason) for finding in referred.findings
        ):
            referred.findings.append(facts)
        return
    if cluster not in facts.clusters:
        known = sorted(facts.clusters)
        fix = did_you_mean(cluster, known, f"write {listed(known)}")
        reason = f"stack `{stack}` has no cluster of that name"
        referred.findings.append(Finding((*at, "cluster"), cluster, reason, fix))
        return
    team = _team(stack, facts, values)
    if isinstance(team, Finding):
        if team not in referred.findings:
            referred.findings.append(team)
        team = ""
    platform = facts.clusters[cluster]
    # Outputs come in no order, and the first of pools that are alike is where gates run.
    section["pools"] = dict(sorted(platform.pools.items()))
    referred.lost.discard((*at, "pools"))
    if team:
        section.update(facts=platform, team=team)


def _facts(at: Path, stack: str, values: Mapping[str, Any], read: Resolve) -> PlatformFacts | Finding:
    """What the output of ``stack`` says, or why it cannot be used."""
    bring_up = f"run `pulumi up -s {stack}` (whoever has that stack)"
    try:
        outputs = read(stack)
    except UnreadableStackError as error:
        return Finding(at, stack, error.reason, error.fix)
    if not outputs:
        reason = "the stack has no outputs: it has not been brought up, was destroyed, or its last update failed"
        return Finding(at, stack, reason, bring_up)
    output = outputs.get(OUTPUT)
    namespace = values.get("namespace") or "slipway"
    if not isinstance(output, Mapping):
        return Finding(
            at,
            stack,
            f"the stack has no output `{OUTPUT}`, because its file names no teams",
            f"name yours there, `slipway:teams: {{<team>: {{namespace: {namespace}}}}}`, and {bring_up}",
        )
    version: object = cast("Mapping[str, Any]", output).get("version")
    if version != VERSION:
        # Numbers in outputs are floats.
        version = int(version) if isinstance(version, float) else version
        newer = isinstance(version, int) and version > VERSION
        reason = (
            f"its output `{OUTPUT}` has version {version}, and this checkout of Slipway reads version {VERSION}"
        )
        return Finding(at, stack, reason, "update this checkout" if newer else f"{bring_up} with a newer checkout")
    try:
        return PlatformFacts.model_validate(output)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = key_of(tuple(part for part in wrong["loc"] if part != "[key]"), "")
        reason = f"its output `{OUTPUT}` is not as version {VERSION} has it: {key}: {wrong['msg']}"
        return Finding(at, stack, reason, bring_up)


def _team(stack: str, facts: PlatformFacts, values: Mapping[str, Any]) -> str | Finding:
    """The team whose namespace and service account these settings have, or why there is none."""
    namespace = values.get("namespace") or "slipway"
    account = values.get("service_account") or "runner"
    for name, team in facts.teams.items():
        if (team.namespace, team.service_account) == (namespace, account):
            return name
    near = next((team for team in facts.teams.values() if team.namespace == namespace), None)
    if near is not None:
        reason = f"stack `{stack}` lets Jobs in namespace `{namespace}` run as `{near.service_account}` only"
        return Finding(("service_account",), account, reason, f"write `{near.service_account}`")
    teams = ", ".join(
        f"`{name}` in namespace `{team.namespace}` as `{team.service_account}`"
        for name, team in facts.teams.items()
    )
    reason = f"stack `{stack}` has no team with that namespace; it has {teams}"
    fix = "write one of these, or have yours added to `slipway:teams` in that stack's file"
    return Finding(("namespace",), namespace, reason, fix, read=(("service_account",),))


def _section(value: object) -> dict[Any, Any]:
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else dict[Any, Any]()


KEY = "pipelines"

T = TypeVar("T")


class _Unknown(PipelineSettings):
    """A section of which nobody can tell what it may have; `slipway.infra.settings.checks.pipelines` refuses
    it."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def section_type(values: Mapping[str, Any]) -> Any:
    """The type of the section in ``values``, plain values of a stack file which may be wrong.

    It is a mapping in which each name has the settings of its pipeline. Raises SettingsError where the declaration
    of one is broken.
    """
    return _mapping_of(tuple(_named(values)))


def folders_in(values: Mapping[str, Any]) -> list[str]:
    """The folders of the pipelines that ``values``, which may be wrong, run."""
    return [folder for name, folder in _named(values) if folder and _sections(values)[name] is not None]


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """The name of each section, and the folder of its pipeline, where that is known."""
    for name, section in _sections(values).items():
        uses = cast("dict[Any, Any]", section).get("uses") if isinstance(section, dict) else None
        yield name, folder_of(name, uses)


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """The sections by name; those that say nothing are None."""
    sections: object = values.get(KEY)
    items = cast("dict[Any, Any]", sections).items() if isinstance(sections, dict) else ()
    return {str(name): section for name, section in items}


def each_of(names: Iterable[str]) -> Any:
    """The type of a section that runs each of these pipelines once, under its own name."""
    return _mapping_of(tuple((name, name) for name in names))


@cache
def _mapping_of(folders: tuple[tuple[str, str | None], ...]) -> Any:
    keys: dict[str, Any] = {
        name: (_Unknown if folder is None else pipeline(folder).settings) | None for name, folder in folders
    }
    mapping: Any = TypedDict("Pipelines", keys, total=False)  # type: ignore[operator]
    mapping.__pydantic_config__ = ConfigDict(extra="forbid")
    return Annotated[mapping, AfterValidator(_without_empty)]


def _without_empty(sections: dict[str, PipelineSettings | None]) -> dict[str, PipelineSettings]:
    """A section that says nothing is none."""
    return {name: section for name, section in sections.items() if section is not None}


def folder(name: str, settings: PipelineSettings) -> str:
    """The folder that declares the pipeline which a valid section runs."""
    return settings.uses or name


def is_known(name: str, settings: PipelineSettings) -> bool:
    """Whether there is a pipeline that the section runs. A path has to be written as `uses`."""
    return names_pipeline(folder(name, settings)) and (settings.uses is not None or not is_path(name))


def _if_any(
    name: str, settings: PipelineSettings, read: Callable[[str, PipelineSettings], Sequence[T]]
) -> Sequence[T]:
    """What ``read`` returns; nothing where it raises SettingsError.

    That may be no fault of the declaration's where settings are wrong; for right ones, loading raises it.
    """
    if not is_known(name, settings):
        return ()
    try:
        return read(folder(name, settings), settings)
    except SettingsError:
        return ()


def steps_if_any(name: str, settings: PipelineSettings) -> Sequence[StepDeclaration]:
    """The steps of the pipeline that the section runs, right or wrong; none where it cannot declare them."""
    return _if_any(name, settings, steps_of)


def services_if_any(name: str, settings: PipelineSettings) -> Sequence[ServiceDeclaration]:
    """The services of the pipeline that the section runs, right or wrong; none where it cannot declare them."""
    return _if_any(name, settings, services_of)


def any_services(sections: Mapping[str, PipelineSettings]) -> bool:
    """Whether a pipeline that the section `pipelines` runs has a service, or an app that keeps data: both have a
    volume to themselves.
    """
    return any(
        services_if_any(name, settings) or any(app.keeps_data for app in apps_if_any(name, settings))
        for name, settings in sections.items()
    )


def apps_if_any(name: str, settings: PipelineSettings) -> Sequence[AppDeclaration]:
    """The apps of the pipeline that the section runs, right or wrong; none where it cannot declare them."""
    return _if_any(name, settings, apps_of)


def apps_with_store(
    sections: Mapping[str, PipelineSettings], pool_names: Mapping[str, Sequence[str]]
) -> tuple[AppAccess, ...]:
    """The apps of the pipelines that the section `pipelines` runs which have the store mounted, and what moves
    steps with places, which reads their checkpoints. ``pool_names`` are those of the stack, by cluster."""
    movers = tuple(
        access
        for name, settings in sections.items()
        for step in steps_if_any(name, settings)
        if step.placed_by.places
        for access in _movers(name, settings, step, pool_names)
    )
    return movers + tuple(
        AppAccess(
            f"{name}-{app.name}",
            app.placed_by.pool,
            apps.object_name(name, app.name),
            apps.folder_of(name, app.name) if app.writes else None,
            place_of(name, settings, app),
        )
        for name, settings in sections.items()
        for app in apps_if_any(name, settings)
        if mounts_store(app)
    )


def _movers(
    name: str, settings: PipelineSettings, step: StepDeclaration, pool_names: Mapping[str, Sequence[str]]
) -> Iterator[AppAccess]:
    """What moves ``step``, and what acts for it in each further cluster of its places."""
    cluster_of = {pool: cluster for cluster, pools in pool_names.items() for pool in pools}
    home = cluster_of.get(step.placed_by.pool)
    others: dict[str, str] = {}
    for pool in step.placed_by.pools:
        if (cluster := cluster_of.get(pool, home)) not in {home, None}:
            others.setdefault(str(cluster), pool)
    at: Path = (*place_of(name, settings, step), PLACES)
    account = mover_account(name, step.name)
    folder = orders_folder(name, step.name) if others else None
    yield AppAccess(account, step.placed_by.pool, account, folder, at)
    for cluster, pool in others.items():
        # An account of its own: where two clusters are of one project, those of one name are one identity.
        account = agent_account(name, step.name, cluster)
        yield AppAccess(account, pool, account, folder, at)


def bucket_inputs(sections: Mapping[str, PipelineSettings]) -> tuple[InputAccess, ...]:
    """The data in further buckets that steps read, of the pipelines that the section `pipelines` runs."""
    accesses: list[InputAccess] = []
    for name, settings in sections.items():
        steps = steps_if_any(name, settings)
        for key, data in data_of(settings).items():
            pools = dict.fromkeys(pool for step in steps if key in step.data for pool in step.placed_by.pools)
            if pools and not data.in_store:
                accesses.append(InputAccess(data, tuple(pools), (KEY, name, INPUTS, key)))
    return tuple(accesses)


def app_volumes(sections: Mapping[str, PipelineSettings]) -> tuple[AppVolume, ...]:
    """The volumes of the apps that keep data, of the pipelines that the section `pipelines` runs."""
    return tuple(
        AppVolume(
            apps.object_name(name, app.name),
            app.placed_by.pool,
            app.placed_by.storage,
            (*place_of(name, settings, app), "storage"),
        )
        for name, settings in sections.items()
        for app in apps_if_any(name, settings)
        if isinstance(app.placed_by, KeptAppSettings)
    )


def apps_of_teams(teams: Mapping[str, Team]) -> dict[str, tuple[AppAccess, ...]]:
    """The apps of the teams' stacks that have the store mounted, by the team: as its section in ``teams`` says."""
    return {
        name: tuple(
            AppAccess(
                f"{name}-{pipeline}-{app}",
                "",
                apps.object_name(pipeline, app),
                apps.folder_of(pipeline, app) if rights == "write" else None,
                ("teams", name, "apps", pipeline, app),
            )
            for pipeline, section in team.apps.items()
            for app, rights in section.items()
        )
        for name, team in teams.items()
        if team.apps
    }


def place_of(
    name: str, settings: PipelineSettings, declared: StepDeclaration | ServiceDeclaration | AppDeclaration
) -> Path:
    """Where the stack file places ``declared`` of the pipeline ``name``: at its section, or at the pipeline's."""
    places = (at for at, placed_by in placements(settings, (KEY, name)) if placed_by is declared.placed_by)
    return next(places, (KEY, name))


@dataclass(frozen=True)
class Exposed:
    """An app that people reach from outside the cluster, with the place of its ``ingress`` in the stack file.

    ``name`` is unique in the stack, ``<pipeline>-<app>``, and ``pool`` is the one that its pods run on.
    """

    name: str
    pool: str
    at: Path
    ingress: IngressSettings


def exposed(sections: Mapping[str, PipelineSettings]) -> tuple[Exposed, ...]:
    """The apps of the pipelines that the section `pipelines` runs which are open to people outside the cluster."""
    return tuple(
        Exposed(f"{name}-{app.name}", app.placed_by.pool, (*at, "ingress"), app.placed_by.ingress)
        for name, settings in sections.items()
        for app in apps_if_any(name, settings)
        if app.placed_by.ingress is not None
        for at in [place_of(name, settings, app)]
    )
