"""From a folder with a ``pipeline.yaml`` to the `Pipeline` that it declares."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, cast

from pydantic import ValidationError

from slipway.infra.pipelines import mounts, pods, valkey
from slipway.infra.pipelines.app_kinds.contract import APPS, AppInStack, AppKind
from slipway.infra.pipelines.apps import AppDeclaration
from slipway.infra.pipelines.checkpoints import CHECKPOINTS
from slipway.infra.pipelines.contract import (
    AnyPipeline,
    Best,
    Pipeline,
    ServiceDeclaration,
    ServiceSettings,
    StepDeclaration,
    StepSettings,
    literal,
)
from slipway.infra.pipelines.file import checks
from slipway.infra.pipelines.file.section import SERVICES, is_field, section_of
from slipway.infra.pipelines.file.shape import (
    NAMES,
    PAGE,
    STEP_KEYS,
    PartialFile,
    PipelineFile,
    PipelineService,
    PipelineStep,
    used_in,
)
from slipway.infra.pipelines.inputs import data_of
from slipway.infra.pipelines.matrix import MOST_STEPS, Value, argument, variants
from slipway.infra.pipelines.pods import SUBSTITUTE, Command, Place, Probe, build_of, inside
from slipway.infra.schema.plain_values import order
from slipway.infra.schema.plain_values import plain_value_findings as plain_findings
from slipway.infra.schema.problems import Finding, Path, Problem, key_of
from slipway.infra.schema.repairs import (
    as_written,
    copied,
    leave_out,
    leave_out_wrong,
    repair,
    rests_on_readable,
    salvage,
)
from slipway.infra.schema.validation import findings as shape_findings
from slipway.infra.schema.yaml_files import ConfigError, Repeated, read_with_repeated


def filler(
    declared: PipelineFile,
    settings: Any,
    chosen: Mapping[str, Value] | None = None,
    kept: Collection[str] = (),
) -> Callable[[str], str]:
    """What puts the values of parameters in place of the references to them in a word.

    They are those of ``settings``, unless ``chosen`` has others. References to those in ``kept`` stay.
    """

    def value(reference: str) -> str | None:
        if reference not in declared.parameters or reference in kept:
            return None
        values = chosen or {}
        return literal(argument(values[reference] if reference in values else getattr(settings, reference)))

    return lambda word: pods.replace_references(word, value)


def services(declared: PipelineFile, settings: Any, place: Place) -> Sequence[ServiceDeclaration]:
    """The services to which a step connects with ``settings``, those of `slipway.infra.pipelines.file.section`."""
    used = {
        service
        for name, step in declared.steps.items()
        for service in connected(step, getattr(settings.steps, name))
    }
    return [
        _service(name, service, declared, settings, place)
        for name, service in declared.services.items()
        if name in used
    ]


def connected(step: PipelineStep, settings: Any) -> dict[str, None]:
    """The services to which ``step`` connects, which ``settings`` place: those that its keys need come first."""
    needed = [name for key in STEP_KEYS for name in key.connects(step, settings)]
    return dict.fromkeys([*needed, *step.connects])


def _service(
    name: str, service: PipelineService, declared: PipelineFile, settings: Any, place: Place
) -> ServiceDeclaration:
    placed_by: ServiceSettings = getattr(getattr(settings, SERVICES), name)
    fill = filler(declared, settings)
    substitute = service.rehearsal and service.rehearsal.substitute(fill, place)
    if service.kind == valkey.KIND:
        preset = valkey.declaration(name, placed_by)
        return replace(preset, image=service.image or preset.image, substitute=substitute or preset.substitute)
    return ServiceDeclaration(
        name=name,
        image=service.image or "",
        arguments=[fill(word) for word in service.run or ()],
        port=service.port or 0,
        placed_by=placed_by,
        probe=Probe(service.probe and service.probe.path),
        substitute=substitute,
        build=build_of(name, service.image, service.build, declared.build, place),
    )


def steps(declared: PipelineFile, settings: Any, place: Place) -> Sequence[StepDeclaration]:
    """The steps with ``settings``, those of `slipway.infra.pipelines.file.section`; variants in place of a
    matrix."""
    return [variant for name in declared.steps for variant in _variants(name, declared, settings, place)]


def _variants(name: str, declared: PipelineFile, settings: Any, place: Place) -> Sequence[StepDeclaration]:
    step = declared.steps[name]

    def declare(values: Mapping[str, Value], placed_by: StepSettings) -> StepDeclaration:
        fill = filler(declared, settings, values, {name for key in STEP_KEYS for name in key.kept(step)})
        declarations = [key.declare(step, placed_by, declared, fill) for key in STEP_KEYS]
        parts = [part for part in declarations if part is not None]
        return StepDeclaration(
            name=name,
            placed_by=placed_by,
            arguments=[fill(word) for word in step.run],
            inputs={other: other for other in used_in(step) if other in declared.steps},
            data={name: data for name, data in data_of(settings).items() if name in used_in(step)},
            after=step.after,
            requirements=step.requirements and place(step.requirements),
            results=(
                *(result for part in parts for result in part.results),
                *(result.declare(key) for key, result in step.results.items()),
            ),
            command=Command(
                place(inside(step.code)),
                step.files,
                step.rehearsal and step.rehearsal.substitute(fill, place),
                step.directory or "",
                mounts.declare(step.mounts),
            ),
            environment={variable: fill(word) for variable, word in step.environment.items()},
            secrets=step.secrets,
            best=step.best and Best(step.best.by, step.best.of),
            connects=tuple(connected(step, placed_by)),
            parts=parts,
            checkpoints=step.checkpoints and step.checkpoints.declare(),
            build=None if placed_by.image else build_of(name, step.image, step.build, declared.build, place),
        )

    return variants(getattr(settings.steps, name), declare)


def apps_in(
    declared: PipelineFile, settings: Any, steps: Sequence[StepDeclaration], place: Place
) -> Iterator[tuple[AppKind, AppInStack]]:
    """The apps that ``settings`` place; ``steps`` are those of the file."""
    section = getattr(settings, APPS, None)
    for name, app in declared.apps.items():
        placed_by = getattr(section, name, None)
        if placed_by is not None:
            fill = filler(declared, settings)
            yield app, AppInStack(name, placed_by, steps, declared.apps, declared.build, fill, place)


def steps_with_apps(declared: PipelineFile, settings: Any, place: Place) -> Sequence[StepDeclaration]:
    """The steps of the file, and those that run for its apps."""
    of_file = steps(declared, settings, place)
    of_apps = [step for app, stack in apps_in(declared, settings, of_file, place) for step in app.steps(stack)]
    return [*of_file, *of_apps]


def apps(declared: PipelineFile, settings: Any, place: Place) -> Sequence[AppDeclaration]:
    """The apps that ``settings`` place."""
    if not declared.apps:
        return []
    declarations: list[AppDeclaration] = []
    for app, stack in apps_in(declared, settings, steps(declared, settings, place), place):
        declaration = app.declare(stack)
        declarations.append(replace(declaration, image=app.image or declaration.image))
    return declarations


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


LEFT_OUT_KEYS = tuple(key.name for key in STEP_KEYS if key.is_left_out)

LEFT_OUT: Mapping[str, Any] = {
    "matrix": {},
    **dict.fromkeys(LEFT_OUT_KEYS),
    "files": [],
    "requirements": None,
    "directory": None,
    "mounts": {},
    SUBSTITUTE: None,
    CHECKPOINTS: None,
}
"""What stands in for a part of a step in which something is wrong, beside its results."""


CHECKS: tuple[Callable[[PipelineFile], Iterable[Finding]], ...] = (
    checks.check_steps,
    checks.check_inputs,
    lambda declared: (finding for key in STEP_KEYS for finding in key.findings(declared)),
    checks.check_services,
    checks.check_apps,
)


@dataclass
class _Reading:
    """What can be read of ``file``, what is wrong with it, and the places that were left out for that."""

    file: str
    declared: PipelineFile = field(default_factory=lambda: PartialFile.model_validate({}))
    problems: list[Problem] = field(default_factory=list[Problem])
    lost: set[Path] = field(default_factory=lambda: {()})
    renamed: list[Finding] = field(default_factory=list[Finding])


def read(folder: Folder) -> AnyPipeline:
    """The pipeline that ``folder`` declares, as far as it can be read, with everything that is wrong with it."""
    reading = _read(folder)
    name = "".join(part.capitalize() for part in re.split(r"[^A-Za-z0-9]+", folder.path.name)) or "Pipeline"
    return Pipeline(
        settings=section_of(name, reading.declared, reading.lost),
        steps=lambda settings: steps_with_apps(reading.declared, settings, folder.below),
        services=lambda settings: services(reading.declared, settings, folder.below),
        apps=lambda settings: apps(reading.declared, settings, folder.below),
        checks=(lambda section: checks.check_section(reading.declared, section),),
        measures_devices=reading.declared.measures_devices,
        problems=tuple(reading.problems),
        renamed=tuple(_problem(finding, reading.file) for finding in reading.renamed),
    )


def _read(folder: Folder) -> _Reading:
    name = next((name for name in NAMES if os.path.lexists(folder.path / name)), NAMES[0])
    file = f"{folder.shown}/{name}"
    reading = _Reading(file)
    if name != NAMES[0]:
        reading.problems.append(Problem(file, name, f"the file has to be called `{NAMES[0]}`", "rename it"))
    path = folder.path / name
    try:
        raw, repeated = read_with_repeated(path)
    except ConfigError as error:
        reading.problems.append(_unreadable(file, name, str(error).removeprefix(str(path))))
        return reading
    if not isinstance(raw, dict):
        reason = "not a section of keys and values"
        reading.problems.append(Problem(file, raw, reason, "write `steps:`, each with its values"))
        return reading
    content = cast("dict[str, Any]", raw)
    findings = [_repeated_key(key) for key in repeated]
    findings += _judge(content, reading)
    for finding in sorted(findings, key=lambda finding: order(content, finding.path)):
        reading.problems.append(_problem(finding, file))
    return reading


def _problem(finding: Finding, file: str) -> Problem:
    key = f"{file}: {key_of(finding.path, '')}".removesuffix(": ")
    return Problem(key, finding.value, finding.reason, finding.fix)


def _judge(content: Mapping[str, Any], reading: _Reading) -> list[Finding]:
    """What is wrong with ``content``; completes ``reading`` by what can be read of it."""
    values = cast("dict[str, Any]", copied(content))
    findings = [*plain_findings(values, lines=values), *_too_many(values)]
    reading.lost = {leave_out(values, finding.path) for finding in findings}
    repairs, renamed, written = repair(values, lambda _: PipelineFile)
    findings += repairs
    reading.renamed = renamed
    try:
        PipelineFile.model_validate(values)
    except ValidationError as error:
        shape = shape_findings(error, PipelineFile, PAGE)
        findings += [as_written(finding, written) for finding in shape if finding.path not in reading.lost]
        reading.lost |= leave_out_wrong(values, error, PipelineFile)
    reading.declared = salvage(values, reading.lost, PipelineFile, PartialFile)
    judged = [finding for check in CHECKS for finding in check(reading.declared)]
    reading.declared = _without(reading.declared, [finding.path for finding in judged])
    findings += [as_written(finding, written) for finding in judged if rests_on_readable(finding, reading.lost)]
    paths = [finding.path for finding in judged]
    reading.lost |= {path for path in paths if len(path) == 2 and not is_field(str(path[1]))}
    # A stack file may still change what is left out.
    reading.lost |= {path for path in paths if path[2:3] and path[2] in LEFT_OUT_KEYS}
    return findings


def _without(declared: PipelineFile, wrong: Collection[Path]) -> PipelineFile:
    """The file without those parts of its steps in which something is ``wrong``, so that its steps can be made.

    Of names that no settings can have, it has neither steps, services nor apps.
    """
    steps: dict[str, PipelineStep] = {}
    for name, step in declared.steps.items():
        if not is_field(name):
            continue
        keys = {path[2] for path in wrong if path[:2] == ("steps", name) and len(path) > 2}
        lost = {path[3] for path in wrong if path[:3] == ("steps", name, "results") and len(path) > 3}
        update: dict[str, Any] = {key: default for key, default in LEFT_OUT.items() if key in keys}
        update["results"] = {key: result for key, result in step.results.items() if key not in lost}
        steps[name] = step.model_copy(update=update)
    services = {name: service for name, service in declared.services.items() if is_field(name)}
    apps = {name: app for name, app in declared.apps.items() if is_field(name)}
    return declared.model_copy(update={"steps": steps, "services": services, "apps": apps})


def _too_many(content: Mapping[str, Any]) -> Iterator[Finding]:
    """A finding before anything else is examined: checks compare each step with the others."""
    steps = content.get("steps")
    if isinstance(steps, Mapping) and len(cast("dict[str, Any]", steps)) > MOST_STEPS:
        count = len(cast("dict[str, Any]", steps))
        reason = f"{count} steps, and a pipeline has at most {MOST_STEPS}"
        yield Finding(("steps",), None, reason, "make several pipelines of it, or use `items`")


def _repeated_key(key: Repeated) -> Finding:
    reason = f"the key stands here twice, again in line {key.line}"
    return Finding(key.place, key.place[-1], reason, "remove one of them, or rename it")


def _unreadable(file: str, name: str, error: str) -> Problem:
    """``error`` is the reader's without the file's name: ``:3: not YAML: …; the fix``."""
    line, _, rest = error.removeprefix(":").partition(": ") if error.startswith(":") else ("", "", error.strip())
    reason, mark, fix = rest.rpartition("; ")
    return Problem(
        f"{file}:{line}".rstrip(":"), name, reason if mark else fix, fix if mark else "correct the file"
    )
