"""The section `pipelines` of a stack file: what each section in it runs, and so which keys it may have."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, ConfigDict
from typing_extensions import TypedDict

from infra.pipelines import apps
from infra.pipelines.apps import AppDeclaration, KeptAppSettings
from infra.pipelines.contract import PipelineSettings, ServiceDeclaration, StepDeclaration, placements
from infra.pipelines.discovery import (
    apps_of,
    folder_of,
    is_path,
    mounts_store,
    names_pipeline,
    section_of,
    services_of,
    steps_of,
)
from infra.schema.base import Team
from infra.schema.problems import Path, SettingsError
from infra.schema.request import AppAccess, AppVolume, Exposed

KEY = "pipelines"

T = TypeVar("T")


class _Unknown(PipelineSettings):
    """A section of which nobody can tell what it may have; `infra.settings.checks.pipelines` refuses it."""

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
        name: (_Unknown if folder is None else section_of(folder)) | None for name, folder in folders
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


def apps_with_store(sections: Mapping[str, PipelineSettings]) -> tuple[AppAccess, ...]:
    """The apps of the pipelines that the section `pipelines` runs which have the store mounted."""
    return tuple(
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


def exposed(sections: Mapping[str, PipelineSettings]) -> tuple[Exposed, ...]:
    """The apps of the pipelines that the section `pipelines` runs which are open to people outside the cluster."""
    return tuple(
        Exposed(f"{name}-{app.name}", app.placed_by.pool, (*at, "ingress"), app.placed_by.ingress)
        for name, settings in sections.items()
        for app in apps_if_any(name, settings)
        if app.placed_by.ingress is not None
        for at in [place_of(name, settings, app)]
    )
