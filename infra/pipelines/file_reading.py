"""From a folder with a ``pipeline.yaml`` to the `Pipeline` that it declares."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, cast

from pydantic import ValidationError

from infra.pipelines import (
    file_app_checks,
    file_checks,
    file_item_checks,
    file_node_checks,
    file_results,
    file_service_checks,
)
from infra.pipelines.contract import AnyPipeline, Pipeline
from infra.pipelines.file_apps import apps
from infra.pipelines.file_services import services
from infra.pipelines.file_serving import publishing
from infra.pipelines.file_settings import is_field, section_of
from infra.pipelines.file_steps import steps
from infra.pipelines.matrix import MOST_STEPS
from infra.pipelines.pipeline_file import NAMES, PAGE, SUBSTITUTE, PartialFile, PipelineFile, PipelineStep
from infra.schema.corrections import as_written, repair
from infra.schema.plain_values import findings as plain_findings
from infra.schema.plain_values import order
from infra.schema.problems import Finding, Path, Problem, key_of
from infra.schema.salvage import copied, leave_out, leave_out_wrong, rests_on_readable, salvage
from infra.schema.validation import findings as shape_findings
from infra.schema.yaml_files import ConfigError, Repeated, read_with_repeated


@dataclass(frozen=True)
class Folder:
    """A folder that declares a pipeline. ``shown`` is its path as people know it, and ``path`` where it is.

    ``shipped`` is how its declarations name it: relative to the repository, or absolute.
    """

    path: FilePath
    shown: str
    shipped: str

    def below(self, path: str) -> str:
        """A file or folder in it, as declarations name it."""
        return "/".join([self.shipped, *(part for part in path.split("/") if part not in {"", "."})])


LEFT_OUT: Mapping[str, Any] = {"matrix": {}, "files": [], "requirements": None, SUBSTITUTE: None}
"""What stands in for a part of a step in which something is wrong, beside its results."""


CHECKS: tuple[Callable[[PipelineFile], Iterable[Finding]], ...] = (
    file_checks.check,
    file_service_checks.check,
    file_app_checks.check,
    file_item_checks.check,
    file_node_checks.check,
    file_results.check,
)


@dataclass
class _Reading:
    """What can be read of a file, what is wrong with it, and the places that were left out for that."""

    declared: PipelineFile = field(default_factory=lambda: PartialFile.model_validate({}))
    problems: list[Problem] = field(default_factory=list[Problem])
    lost: set[Path] = field(default_factory=lambda: {()})


def read(folder: Folder) -> AnyPipeline:
    """The pipeline that ``folder`` declares, as far as it can be read, with everything that is wrong with it."""
    reading = _read(folder)
    name = "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", folder.path.name)) or "Pipeline"
    return Pipeline(
        settings=section_of(name, reading.declared, reading.lost),
        steps=lambda settings: [
            *steps(reading.declared, settings, folder.below),
            *publishing(reading.declared, settings),
        ],
        services=lambda settings: services(reading.declared, settings, folder.below),
        apps=lambda settings: (
            apps(reading.declared, settings, steps(reading.declared, settings, folder.below), folder.below)
            if reading.declared.apps
            else []
        ),
        checks=(
            lambda section: file_item_checks.of_section(reading.declared, section),
            lambda section: file_node_checks.of_section(reading.declared, section),
        ),
        problems=tuple(reading.problems),
    )


def _read(folder: Folder) -> _Reading:
    found = _Reading()
    name = next((each for each in NAMES if os.path.lexists(folder.path / each)), NAMES[0])
    file = f"{folder.shown}/{name}"
    if name != NAMES[0]:
        found.problems.append(Problem(file, name, f"the file has to be called `{NAMES[0]}`", "rename it"))
    path = folder.path / name
    try:
        raw, repeated = read_with_repeated(path)
    except ConfigError as error:
        found.problems.append(_unreadable(file, name, str(error).removeprefix(str(path))))
        return found
    if not isinstance(raw, dict):
        reason = "not a section of keys and values"
        found.problems.append(
            Problem(file, raw, reason, "write `description:` and `steps:`, each with its values")
        )
        return found
    content = cast("dict[str, Any]", raw)
    findings = [_repeated(each) for each in repeated]
    findings += _judge(content, found)
    for each in sorted(findings, key=lambda each: order(content, each.path)):
        key = f"{file}: {key_of(each.path, '')}".removesuffix(": ")
        found.problems.append(Problem(key, each.value, each.reason, each.fix))
    return found


def _judge(content: Mapping[str, Any], found: _Reading) -> list[Finding]:
    """What is wrong with ``content``; completes ``found`` by what can be read of it."""
    values = cast("dict[str, Any]", copied(content))
    findings = [*plain_findings(values, lines=values), *_too_many(values)]
    found.lost = {leave_out(values, each.path) for each in findings}
    repairs, written = repair(values, lambda _: PipelineFile)
    findings += repairs
    try:
        PipelineFile.model_validate(values)
    except ValidationError as error:
        shape = shape_findings(error, PipelineFile, PAGE)
        findings += [as_written(each, written) for each in shape if each.path not in found.lost]
        found.lost |= leave_out_wrong(values, error, PipelineFile)
    found.declared = salvage(values, found.lost, PipelineFile, PartialFile)
    judged = [finding for check in CHECKS for finding in check(found.declared)]
    found.declared = _without(found.declared, [each.path for each in judged])
    told = [as_written(each, written) for each in judged if rests_on_readable(each, found.lost)]
    found.lost |= {each.path for each in judged if len(each.path) == 2 and not is_field(str(each.path[1]))}
    return [*findings, *told]


def _without(declared: PipelineFile, wrong: Collection[Path]) -> PipelineFile:
    """The file without those parts of its steps in which something is ``wrong``, so that its steps can be made.

    Of names that no settings can have, it has neither steps, services nor apps.
    """
    kept: dict[str, PipelineStep] = {}
    for name, step in declared.steps.items():
        if not is_field(name):
            continue
        keys = {path[2] for path in wrong if path[:2] == ("steps", name) and len(path) > 2}
        lost = {path[3] for path in wrong if path[:3] == ("steps", name, "results") and len(path) > 3}
        update: dict[str, Any] = {key: default for key, default in LEFT_OUT.items() if key in keys}
        update["results"] = {key: each for key, each in step.results.items() if key not in lost}
        kept[name] = step.model_copy(update=update)
    services = {name: each for name, each in declared.services.items() if is_field(name)}
    apps = {name: each for name, each in declared.apps.items() if is_field(name)}
    return declared.model_copy(update={"steps": kept, "services": services, "apps": apps})


def _too_many(content: Mapping[str, Any]) -> Iterator[Finding]:
    """Said before anything else is examined: each step is compared with the others."""
    steps = content.get("steps")
    if isinstance(steps, Mapping) and len(cast("dict[str, Any]", steps)) > MOST_STEPS:
        count = len(cast("dict[str, Any]", steps))
        reason = f"{count} steps, and a pipeline has at most {MOST_STEPS}"
        yield Finding(("steps",), None, reason, "make several pipelines of it, or use `items`")


def _repeated(key: Repeated) -> Finding:
    reason = f"the key stands here twice, again in line {key.line}"
    return Finding(key.place, key.place[-1], reason, "remove one of them, or rename it")


def _unreadable(file: str, name: str, said: str) -> Problem:
    """``said`` is the reader's error without the file's name: ``:3: not YAML: …; the fix``."""
    line, _, rest = said.removeprefix(":").partition(": ") if said.startswith(":") else ("", "", said.strip())
    reason, mark, fix = rest.rpartition("; ")
    return Problem(
        f"{file}:{line}".rstrip(":"), name, reason if mark else fix, fix if mark else "correct the file"
    )
