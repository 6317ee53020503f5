"""Finds the pipelines: a folder below ``workloads/`` with a ``pipeline.yaml`` or a ``pipeline.py`` is one.

Nothing else names it, and none of `RESERVED` is one. A stack file may also name a folder elsewhere on this machine
by its path.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeVar

from pydantic import WrapValidator

from slipway.infra.pipelines import python_file
from slipway.infra.pipelines.apps import AppDeclaration
from slipway.infra.pipelines.contract import (
    AnyPipeline,
    Pipeline,
    PipelineSettings,
    ServiceDeclaration,
    StepDeclaration,
    Supplement,
    placements,
)
from slipway.infra.pipelines.file import reading
from slipway.infra.pipelines.file.reading import Folder
from slipway.infra.pipelines.file.shape import NAMES
from slipway.infra.pipelines.file.shape import NAMES as FILES
from slipway.infra.pipelines.images import GPU_IMAGE
from slipway.infra.pipelines.python_file import (
    declaration_error,
    failure,
    hold_to_types,
    problem,
    step_misfits,
    validate,
)
from slipway.infra.places import LIBRARY, PACKAGE, PROJECT, checkout
from slipway.infra.schema.problems import Problem, SettingsError, key_of, nearest

WORKLOADS = "workloads"
"""The folder, and the package, that holds the pipelines."""

RESERVED = ("apps", "cuda", "gates", "image_builds", "runtime", "schedule")
"""The folders of ``workloads/`` that pods of any pipeline need. None of them is a pipeline's."""

PYTHON = "pipeline.py"

SUPPLEMENT = "supplement.py"

T = TypeVar("T", bound=object)


@cache
def pipeline_names() -> tuple[str, ...]:
    """The folders below ``workloads/`` that declare a pipeline, sorted."""
    return tuple(sorted({name for file in (PYTHON, *FILES) for name in _folders(file)}))


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
    return any(os.path.lexists(location(folder).path / file) for file in (PYTHON, *FILES))


def pipeline(folder: str) -> AnyPipeline:
    """The pipeline that ``folder`` declares, with what is wrong with it in its ``problems``.

    Raises SettingsError where a declaration in Python is broken.
    """
    place = location(folder)
    if not (place.path / PYTHON).is_file():
        return _read(folder)
    if others := [file for file in FILES if os.path.lexists(place.path / file)]:
        declared = _read(folder)
        reason = f"the folder has a `{PYTHON}` too, and only one of them can declare the pipeline"
        both = Problem(f"{place.shown}/{others[0]}", others[0], reason, "remove one of them")
        return replace(declared, problems=(both, *declared.problems))
    return _read_python(folder)


@cache
def _read(folder: str) -> AnyPipeline:
    return reading.read(location(folder))


@cache
def _read_python(folder: str) -> AnyPipeline:
    return hold_to_types(file_of(folder), _load(folder, "pipeline", "PIPELINE", Pipeline))


def section_of(folder: str) -> Any:
    """The type of a section that runs the pipeline of ``folder``: its settings.

    Reading a value as one raises SettingsError where the settings in Python fail at it, beside what they refuse.
    """
    return Annotated[pipeline(folder).settings, WrapValidator(partial(validate, file_of(folder)))]


def steps_of(folder: str, settings: PipelineSettings) -> Sequence[StepDeclaration]:
    """The steps that the pipeline of ``folder`` has with ``settings``, in its order, whether they fit or not.

    Raises SettingsError where it cannot declare them.
    """
    return _call(folder, settings, "steps", pipeline(folder).steps)


def services_of(folder: str, settings: PipelineSettings) -> Sequence[ServiceDeclaration]:
    """The services that the pipeline of ``folder`` has with ``settings``, in its order, whether they fit or not.

    Raises SettingsError where it cannot declare them.
    """
    return _call(folder, settings, "services", pipeline(folder).services)


def apps_of(folder: str, settings: PipelineSettings) -> Sequence[AppDeclaration]:
    """The apps that the pipeline of ``folder`` has with ``settings``, in its order, whether they fit or not.

    Raises SettingsError where it cannot declare them.
    """
    return _call(folder, settings, "apps", pipeline(folder).apps)


def _call(
    folder: str, settings: PipelineSettings, name: str, function: Callable[[Any], Sequence[T]]
) -> Sequence[T]:
    try:
        return _declared(function, _Section(settings))
    except SettingsError:
        raise
    except Exception as error:
        raise failure(file_of(folder), f"`{name}` fails", error) from error


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
    """The same steps; raises SettingsError also where they do not fit together, or the declaration is wrong."""
    if problems := pipeline(folder).problems:
        raise SettingsError(problems)
    steps = steps_of(folder, settings)
    services, apps = services_of(folder, settings), apps_of(folder, settings)
    if reasons := [*step_misfits(steps, services), *python_file.app_misfits(apps, steps, services)]:
        raise SettingsError([problem(file_of(folder), reason) for reason in reasons])
    return steps


def folder_of(name: str, uses: object = None) -> str | None:
    """The folder of the pipeline that a section ``name`` runs; the nearest one where it is misspelt, or None."""
    wanted = str(uses) if uses is not None else name
    if uses is not None and is_path(wanted):
        return wanted if names_pipeline(wanted) else None
    return wanted if wanted in pipeline_names() else nearest(wanted, pipeline_names())


def file_of(folder: str) -> str:
    """The file that declares the pipeline of ``folder``, as people know it."""
    place = location(folder)
    return next(
        (f"{place.shown}/{file}" for file in (PYTHON, *FILES) if (place.path / file).is_file()), place.shown
    )


@cache
def supplements() -> Mapping[str, Supplement]:
    """What images lack, by the folder that declares it; raises SettingsError where a declaration is broken."""
    folders = [*_packaged_folders(SUPPLEMENT), *_folders(SUPPLEMENT)]
    return {folder: _load(folder, SUPPLEMENT.removesuffix(".py"), "SUPPLEMENT", Supplement) for folder in folders}


def lacked_by(app: AppDeclaration) -> Mapping[str, Supplement]:
    """What the image of ``app`` lacks for the GPUs that it asks for, by the folder that declares it."""
    image = app.placed_by.image or app.image or ("" if app.build else GPU_IMAGE)
    if not app.placed_by.asked_gpus:
        return {}
    return {folder: supplement for folder, supplement in supplements().items() if supplement.is_lacking(image)}


def mounts_store(app: AppDeclaration) -> bool:
    """Whether ``app`` has the store mounted: it refers to it, or its image lacks what is published there."""
    return app.uses_store or bool(lacked_by(app))


def _folders(file: str) -> tuple[str, ...]:
    return tuple(folder for folder in _folders_with(file, PROJECT) if folder not in RESERVED)


def _packaged_folders(file: str) -> tuple[str, ...]:
    return tuple(folder for folder in _folders_with(file, LIBRARY / PACKAGE) if folder in RESERVED)


def _folders_with(file: str, root: Path) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in (root / WORKLOADS).glob(f"*/{file}")))


@cache
def _load(folder: str, module: str, attribute: str, kind: type[T]) -> T:
    place = location(folder)
    file = f"{place.shown}/{module}.py"
    try:
        if is_path(folder):
            imported = _import_file(place.path / f"{module}.py")
        else:
            package = f"{PACKAGE}.{WORKLOADS}" if folder in RESERVED else WORKLOADS
            imported = importlib.import_module(f"{package}.{folder}.{module}")
        declared = getattr(imported, attribute, None)
    except SyntaxError as error:
        at = Path(error.filename or file)
        where = at.relative_to(PROJECT).as_posix() if at.is_relative_to(PROJECT) else str(at)
        raise declaration_error(file, f"Python cannot read {where}:{error.lineno}: {error.msg}") from error
    except MemoryError:
        # So Python's parser says that it has too many brackets within one another.
        reason = "Python cannot read it: it is nested too deeply, or larger than the memory"
        raise declaration_error(file, reason) from None
    except Exception as error:
        raise failure(file, "it cannot be imported", error) from error
    if not isinstance(declared, kind):
        what = "is not there" if declared is None else f"is a {type(declared).__name__}"
        raise declaration_error(
            file, f"`{attribute}` {what}, and has to be a `{kind.__name__}` of slipway.infra.pipelines.contract"
        )
    return declared


def _import_file(file: Path) -> ModuleType:
    """The module in a file that belongs to no package."""
    spec = importlib.util.spec_from_file_location(f"pipeline of {file.parent}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Pydantic looks for the types of a model's fields there.
    spec.loader.exec_module(module)
    return module


# A pipeline as a stack runs it: under a name, with settings of its own.


@dataclass(frozen=True)
class DeclaredPipeline:
    """A pipeline of a stack: its name there, the folder that declares it, and its settings."""

    name: str
    folder: str
    settings: PipelineSettings

    @cached_property
    def steps(self) -> Sequence[StepDeclaration]:
        """What it declares; raises SettingsError."""
        return declared_steps(self.folder, self.settings)

    @property
    def unchecked(self) -> Sequence[StepDeclaration]:
        """The same steps where the declaration has mistakes; raises SettingsError where it cannot declare them."""
        return steps_of(self.folder, self.settings)

    @property
    def services(self) -> Sequence[ServiceDeclaration]:
        """The services that it declares; raises SettingsError where it cannot declare them."""
        return services_of(self.folder, self.settings)

    @property
    def apps(self) -> Sequence[AppDeclaration]:
        """The apps that it declares; raises SettingsError where it cannot declare them."""
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
        """The place of a key of a step, a service or an app in the ``pipeline.yaml``.

        Of a pipeline in Python, as `key` says it.
        """
        file = file_of(self.folder)
        if not file.endswith(NAMES):
            return self.key(declared)
        section, name = "apps" if isinstance(declared, AppDeclaration) else "services", declared.name
        if isinstance(declared, StepDeclaration):
            section, name = "steps", declared.variant.of if declared.variant else name
        return f"{file}: {key_of((section, name, *key), '')}"

    def declared_for_all(self, declared: StepDeclaration | ServiceDeclaration | AppDeclaration, *key: str) -> str:
        """The place of a key at the top of the ``pipeline.yaml``; of one in Python, that of ``declared``."""
        file = file_of(self.folder)
        return f"{file}: {key_of(key, '')}" if file.endswith(NAMES) else self.key(declared)

    def setting(self, *parts: str | int) -> str:
        """A key of its section."""
        return key_of(("pipelines", self.name, *parts))
