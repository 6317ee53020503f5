"""Finds the pipelines: a folder below ``workloads/`` with a ``pipeline.yaml`` is one.

Nothing else names it. A stack file may also name a folder elsewhere on this machine
by its path.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from slipway.infra.pipelines.apps import AppDeclaration
from slipway.infra.pipelines.contract import (
    AnyPipeline,
    PipelineSettings,
    ServiceDeclaration,
    StepDeclaration,
    Supplement,
    placements,
)
from slipway.infra.pipelines.cuda import SUPPLEMENTS
from slipway.infra.pipelines.file import reading
from slipway.infra.pipelines.file.reading import Folder
from slipway.infra.pipelines.file.shape import NAMES as FILES
from slipway.infra.pipelines.images import GPU_IMAGE
from slipway.infra.places import PROJECT, checkout
from slipway.infra.schema.problems import SettingsError, key_of, nearest

WORKLOADS = "workloads"
"""The folder, and the package, that holds the pipelines."""

T = TypeVar("T", bound=object)


@cache
def pipeline_names() -> tuple[str, ...]:
    """The folders below ``workloads/`` that declare a pipeline, sorted."""
    return tuple(sorted({path.parent.name for file in FILES for path in (PROJECT / WORKLOADS).glob(f"*/{file}")}))


def is_path(uses: str) -> bool:
    """Whether a pipeline is named by the path of its folder on this machine."""
    return "/" in uses or uses.startswith((".", "~"))


def location(folder: str) -> Folder:
    """The folder of a pipeline: one below ``workloads/``, or the path of one, which need not be there.

    A relative path is below this repository. One that leads out of it is relative to the user's checkout, so that
    another revision, checked out elsewhere, means the same folder.
    """
    if not is_path(folder):
        return Folder(PROJECT / WORKLOADS / folder, f"{WORKLOADS}/{folder}", f"{WORKLOADS}/{folder}")
    try:
        named = Path(folder).expanduser()
    except RuntimeError:
        # `~name` of somebody whom this machine does not know.
        named = Path(folder)
    path = Path(os.path.normpath(PROJECT / named))
    if path.is_relative_to(PROJECT):
        inside = path.relative_to(PROJECT).as_posix()
        return Folder(path, inside, inside)
    path = Path(os.path.normpath(checkout(PROJECT) / named))
    return Folder(path, folder.rstrip("/"), path.as_posix())


def outside(folder: str) -> bool:
    """Whether the files of a pipeline are outside of this repository, be it by a link."""
    return not location(folder).path.resolve().is_relative_to(PROJECT.resolve())


def names_pipeline(folder: str) -> bool:
    """Whether there is a pipeline in ``folder``, right or wrong."""
    if not is_path(folder):
        return folder in pipeline_names()
    return any(os.path.lexists(location(folder).path / file) for file in FILES)


@cache
def pipeline(folder: str) -> AnyPipeline:
    """The pipeline that ``folder`` declares, with what is wrong with it in its ``problems``."""
    return reading.read(location(folder))


def steps_of(folder: str, settings: PipelineSettings) -> Sequence[StepDeclaration]:
    """The steps that the pipeline of ``folder`` has with ``settings``, in its order."""
    return _declared(pipeline(folder).steps, _Section(settings))


def services_of(folder: str, settings: PipelineSettings) -> Sequence[ServiceDeclaration]:
    """The services that the pipeline of ``folder`` has with ``settings``, in its order."""
    return _declared(pipeline(folder).services, _Section(settings))


def apps_of(folder: str, settings: PipelineSettings) -> Sequence[AppDeclaration]:
    """The apps that the pipeline of ``folder`` has with ``settings``, in its order."""
    return _declared(pipeline(folder).apps, _Section(settings))


@dataclass(frozen=True, eq=False)
class _Section:
    """A section of a stack file, equal to itself alone: its fields may have no hash."""

    settings: PipelineSettings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Section) and other.settings is self.settings

    def __hash__(self) -> int:
        return id(self.settings)


# The checks of a stack ask for the steps and apps of each section dozens of times.
@lru_cache(maxsize=256)
def _declared(function: Callable[[Any], Sequence[T]], section: _Section) -> Sequence[T]:
    return tuple(function(section.settings))


def declared_steps(folder: str, settings: PipelineSettings) -> Sequence[StepDeclaration]:
    """The same steps; raises SettingsError where the declaration is wrong."""
    if problems := pipeline(folder).problems:
        raise SettingsError(problems)
    return steps_of(folder, settings)


def folder_of(name: str, uses: object = None) -> str | None:
    """The folder of the pipeline that a section ``name`` runs; the nearest one where it is misspelt, or None."""
    wanted = str(uses) if uses is not None else name
    if uses is not None and is_path(wanted):
        return wanted if names_pipeline(wanted) else None
    return wanted if wanted in pipeline_names() else nearest(wanted, pipeline_names())


def file_of(folder: str) -> str:
    """The file that declares the pipeline of ``folder``, as people know it."""
    place = location(folder)
    return next((f"{place.shown}/{file}" for file in FILES if (place.path / file).is_file()), place.shown)


def lacked_by(app: AppDeclaration) -> Mapping[str, Supplement]:
    """What the image of ``app`` lacks for the GPUs that it asks for, by the folder that declares it."""
    image = app.placed_by.image or app.image or ("" if app.build else GPU_IMAGE)
    if not app.placed_by.asked_gpus:
        return {}
    return {folder: supplement for folder, supplement in SUPPLEMENTS.items() if supplement.is_lacking(image)}


def mounts_store(app: AppDeclaration) -> bool:
    """Whether ``app`` has the store mounted: it refers to it, or its image lacks what is published there."""
    return app.uses_store or bool(lacked_by(app))


@dataclass(frozen=True)
class DeclaredPipeline:
    """A pipeline of a stack: its name there, the folder that declares it, and its settings."""

    name: str
    folder: str
    settings: PipelineSettings

    @cached_property
    def steps(self) -> Sequence[StepDeclaration]:
        """What it declares; raises SettingsError where the file has mistakes."""
        return declared_steps(self.folder, self.settings)

    @property
    def measures_devices(self) -> bool:
        """Whether its results are figures of accelerators."""
        return pipeline(self.folder).measures_devices

    @property
    def unchecked(self) -> Sequence[StepDeclaration]:
        """The same steps as far as they can be read, where the file has mistakes."""
        return steps_of(self.folder, self.settings)

    @property
    def services(self) -> Sequence[ServiceDeclaration]:
        """The services that it declares."""
        return services_of(self.folder, self.settings)

    @property
    def apps(self) -> Sequence[AppDeclaration]:
        """The apps that it declares."""
        return apps_of(self.folder, self.settings)

    def key(self, declared: StepDeclaration | ServiceDeclaration | AppDeclaration) -> str:
        """The key of the stack file that places a step, a service or an app."""
        sections = placements(self.settings)
        places = (
            at
            for at, settings in sections
            if any(
                placed_by is declared.placed_by for placed_by in (settings, *(on for _, on in settings.on_pools))
            )
        )
        return self.setting(*next(places, ()))

    def declared_at(self, declared: StepDeclaration | ServiceDeclaration | AppDeclaration, *key: str) -> str:
        """The place of a key of a step, a service or an app in the ``pipeline.yaml``."""
        section, name = "apps" if isinstance(declared, AppDeclaration) else "services", declared.name
        if isinstance(declared, StepDeclaration):
            section, name = "steps", declared.variant.of if declared.variant else name
        return f"{file_of(self.folder)}: {key_of((section, name, *key), '')}"

    def declared_for_all(self, *key: str) -> str:
        """The place of a key at the top of the ``pipeline.yaml``."""
        return f"{file_of(self.folder)}: {key_of(key, '')}"

    def setting(self, *parts: str | int) -> str:
        """A key of its section."""
        return key_of(("pipelines", self.name, *parts))
