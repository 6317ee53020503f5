"""Finds the pipelines: a folder below ``workloads/`` with a ``pipeline.py`` is one, and nothing else names it."""

import importlib
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TypeVar

from infra.pipelines.contract import AnyPipeline, Pipeline, PipelineSettings, StepDeclaration, Supplement
from infra.pipelines.results import PIPELINE_OUTPUTS
from infra.schema.problems import Problem, SettingsError, listed, nearest

ROOT = Path(__file__).resolve().parents[2]
"""The repository that this module is part of."""

WORKLOADS = "workloads"
"""The folder, and the package, that holds the pipelines."""

T = TypeVar("T", bound=object)


@cache
def pipeline_names() -> tuple[str, ...]:
    """The folders that declare a pipeline, sorted."""
    return _folders("pipeline.py")


def pipeline(folder: str) -> AnyPipeline:
    """The pipeline that ``folder`` declares; raises SettingsError where the declaration is broken."""
    return _declared(folder, "pipeline", "PIPELINE", Pipeline)


def declared_steps(folder: str, settings: PipelineSettings) -> Sequence[StepDeclaration]:
    """The steps that the pipeline of ``folder`` has with ``settings``, in its order.

    Raises SettingsError where it cannot say them, or where they do not fit together.
    """
    file = f"{WORKLOADS}/{folder}/pipeline.py"
    try:
        steps = tuple(pipeline(folder).steps(settings))
    except SettingsError:
        raise
    except Exception as error:
        raise _failed(file, "`steps` fails", error) from error
    known: set[str] = set()
    for step in steps:
        if step.name in known:
            raise _broken(file, f"two steps are called `{step.name}`")
        for other in (*step.inputs.values(), *step.after):
            if other not in {each.name for each in steps}:
                raise _broken(file, f"step `{step.name}` needs `{other}`, and there is no such step")
        for result in step.results:
            if result.name in PIPELINE_OUTPUTS:
                raise _broken(file, f"step `{step.name}`: `{result.name}` is an output that every pipeline has")
        known.add(step.name)
    try:
        TopologicalSorter({each.name: {*each.inputs.values(), *each.after} for each in steps}).prepare()
    except CycleError as error:
        raise _broken(file, f"the steps {listed(error.args[1][:-1], 'and')} wait for one another") from error
    return steps


def folder_of(name: str, uses: object = None) -> str | None:
    """The folder of the pipeline that a section ``name`` runs; the nearest one where it is misspelt, or None."""
    wanted = str(uses) if uses is not None else name
    return wanted if wanted in pipeline_names() else nearest(wanted, pipeline_names())


@cache
def supplements() -> Mapping[str, Supplement]:
    """What images lack, by the folder that declares it; raises SettingsError where a declaration is broken."""
    return {
        folder: _declared(folder, "supplement", "SUPPLEMENT", Supplement) for folder in _folders("supplement.py")
    }


def _folders(file: str) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in (ROOT / WORKLOADS).glob(f"*/{file}")))


@cache
def _declared(folder: str, module: str, attribute: str, kind: type[T]) -> T:
    file = f"{WORKLOADS}/{folder}/{module}.py"
    try:
        found = getattr(importlib.import_module(f"{WORKLOADS}.{folder}.{module}"), attribute, None)
    except SyntaxError as error:
        place = Path(error.filename or file)
        where = place.relative_to(ROOT).as_posix() if place.is_relative_to(ROOT) else str(place)
        raise _broken(file, f"Python cannot read {where}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        raise _failed(file, "it cannot be imported", error) from error
    if not isinstance(found, kind):
        what = "is not there" if found is None else f"is a {type(found).__name__}"
        raise _broken(file, f"`{attribute}` {what}, and has to be a `{kind.__name__}` of infra.pipelines.contract")
    return found


def _failed(file: str, what: str, error: Exception) -> SettingsError:
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename.endswith(file)]
    where = f" in line {lines[-1]}" if lines else ""
    return _broken(file, f"{what}{where}: {type(error).__name__}: {error}")


def _broken(file: str, reason: str) -> SettingsError:
    return SettingsError(
        [
            Problem(
                file, Path(file).stem.upper(), reason, "correct the file; docs/workloads.md says what it declares"
            )
        ]
    )
