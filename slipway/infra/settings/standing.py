"""Where a wrong value stands: in the stack file, or as a default in the file of a pipeline that the stack runs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from slipway.infra.pipelines.discovery import file_of, folder_of, location
from slipway.infra.pipelines.file.shape import NAMES
from slipway.infra.schema.problems import Finding, Path, Problem, key_of
from slipway.infra.schema.repairs import section_at
from slipway.infra.schema.yaml_files import ConfigError, read_yaml
from slipway.infra.settings.pipelines import KEY

GROUPS = ("resources", "nodes", "search", "items")
"""Sections of a step of a ``pipeline.yaml`` whose keys a stack file has in the step's own section."""


def problem_of(finding: Finding, raw: Mapping[str, Any]) -> Problem:
    """The problem with its key as a person finds it, in the file that has the value.

    ``raw`` are the plain values of the stack file.
    """
    problem = finding.problem()
    place = "" if _stands(raw, finding.path) else _in_pipeline(finding.path, raw)
    if not place:
        return problem
    return replace(problem, key=place, fix=f"{problem.fix}; for this stack alone, there is `{problem.key}`")


def _stands(values: object, path: Path) -> bool:
    """Whether something stands at ``path``; of an item of a list, whether the list does."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    return not path or str(path[-1]) in map(str, section_at(values, path[:-1]) or ())


def _in_pipeline(path: Path, raw: Mapping[str, Any]) -> str:
    """The place of a pipeline's value in its ``pipeline.yaml``; empty where that has none."""
    if path[:1] != (KEY,) or len(path) < 3:
        return ""
    section = section_at(raw, path[:2]) or {}
    folder = folder_of(str(path[1]), section.get("uses"))
    file = file_of(folder) if folder else ""
    if folder is None or not file.endswith(NAMES):
        return ""
    try:
        content = read_yaml(location(folder).path / file.rpartition("/")[2])
    except ConfigError:
        return ""
    return next((f"{file}: {key_of(at, '')}" for at in _places(path[2:]) if _has(content, at)), "")


def _places(path: Path) -> Iterator[Path]:
    """Where a ``pipeline.yaml`` may have the default of the key ``path`` of its section."""
    if len(path) == 1:
        yield "parameters", path[0], "default"
        return
    yield *path, "count"  # Of `nodes`.
    for group in GROUPS if len(path) > 2 else ():
        yield *path[:2], group, *path[2:]
    yield path


def _has(content: object, path: Path) -> bool:
    """Whether ``path`` leads to something that is no section."""
    section = section_at(content, path[:-1]) or {}
    return _stands(content, path) and not isinstance(section.get(path[-1]), Mapping)
