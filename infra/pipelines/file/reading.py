"""From a folder with a ``pipeline.yaml`` to the `Pipeline` that it declares."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, cast

from pydantic import ValidationError

from infra.pipelines import notebook, page, pods, tensorboard, tensorflow_serving, valkey
from infra.pipelines.apps import AppDeclaration, AppSettings, Metrics
from infra.pipelines.contract import (
    AnyPipeline,
    Best,
    Command,
    Items,
    MultiNodeSettings,
    Nodes,
    Pipeline,
    Probe,
    ServiceDeclaration,
    ServiceSettings,
    StepDeclaration,
    StepSettings,
    Substitute,
    literal,
)
from infra.pipelines.file import checks, server_checks
from infra.pipelines.file.app_shapes import (
    NotebookApp,
    PageApp,
    PipelineApp,
    ProgramApp,
    ServingApp,
    TensorBoardApp,
    keeps_data,
    refers,
    words_of,
)
from infra.pipelines.file.parts import build_of
from infra.pipelines.file.settings import APPS, ASSIGNMENT, QUEUE, SERVICES, is_field, section_of, used_in
from infra.pipelines.file.shape import (
    NAMES,
    PAGE,
    SUBSTITUTE,
    PartialFile,
    PipelineFile,
    PipelineService,
    PipelineStep,
    RehearsalCommand,
    StepResult,
    TableColumn,
)
from infra.pipelines.matrix import MOST_STEPS, Value, variants, written
from infra.pipelines.node_roles import resized
from infra.pipelines.pods import Command as AppCommand
from infra.pipelines.pods import Probe as AppProbe
from infra.pipelines.results import Column, Curves, File, Number, Picture, Result, Table, heading, items_table
from infra.schema.paths import below_problem
from infra.schema.problems import Finding, Path, Problem, key_of
from infra.schema.quantities import seconds
from infra.schema.validation import (
    as_written,
    copied,
    leave_out,
    leave_out_wrong,
    order,
    repair,
    rests_on_readable,
    salvage,
)
from infra.schema.validation import findings as shape_findings
from infra.schema.validation import plain_value_findings as plain_findings
from infra.schema.yaml_files import ConfigError, Repeated, read_with_repeated

# The services of a ``pipeline.yaml``, and which of its steps connect to them, with the settings of a stack.


Place = Callable[[str], str]
"""A path below the pipeline's folder as a declaration names it: below the repository, or absolute."""


def services(declared: PipelineFile, settings: Any, place: Place) -> Sequence[ServiceDeclaration]:
    """The services to which a step connects with ``settings``, those of `infra.pipelines.file.settings`."""
    used = {
        service
        for name, step in declared.steps.items()
        for service in (*step.connects, queue_of(step, getattr(settings.steps, name)))
    }
    return [
        _service(name, each, declared, settings, place) for name, each in declared.services.items() if name in used
    ]


def queue_of(step: PipelineStep, settings: Any) -> str | None:
    """The service that hands out the items of ``step``, which ``settings`` place; None where none does."""
    with_queue = step.items is not None and getattr(settings, ASSIGNMENT, None) == QUEUE
    return step.items.queue if step.items and with_queue else None


def substitute(declared: RehearsalCommand | None, filled: Callable[[str], str], place: Place) -> Substitute | None:
    """What a rehearsal runs instead; ``filled`` is a word with the values of parameters in place of references."""
    if declared is None:
        return None
    requirements = declared.requirements
    return Substitute([filled(word) for word in declared.run or ()], requirements and place(requirements))


def _service(
    name: str, service: PipelineService, declared: PipelineFile, settings: Any, place: Place
) -> ServiceDeclaration:
    placed_by: ServiceSettings = getattr(getattr(settings, SERVICES), name)

    def value(reference: str) -> str | None:
        known = reference in declared.parameters
        return literal(written(getattr(settings, reference))) if known else None

    def filled(word: str) -> str:
        return pods.replaced(word, value)

    instead = substitute(service.rehearsal, filled, place)
    if service.kind == valkey.KIND:
        preset = valkey.declaration(name, placed_by)
        return replace(preset, image=service.image or preset.image, substitute=instead or preset.substitute)
    return ServiceDeclaration(
        name=name,
        image=service.image or "",
        arguments=[filled(word) for word in service.run or ()],
        port=service.port or 0,
        placed_by=placed_by,
        probe=Probe(service.probe and service.probe.path),
        substitute=instead,
        build=build_of(name, service.image, service.build, declared.build, place),
    )


# The steps that publish the models which apps of a ``pipeline.yaml`` serve, where a stack names these apps.


def publishing(declared: PipelineFile, settings: Any) -> Sequence[StepDeclaration]:
    """One step for each app that serves a model and that ``settings`` place."""
    section = getattr(settings, APPS, None)
    placed = {
        name: (app, getattr(section, name, None))
        for name, app in declared.apps.items()
        if isinstance(app, ServingApp)
    }
    return [
        _publishing(name, app, placed_by, declared, settings)
        for name, (app, placed_by) in placed.items()
        if placed_by is not None
    ]


def _publishing(
    name: str, app: ServingApp, placed_by: Any, declared: PipelineFile, settings: Any
) -> StepDeclaration:
    def value(reference: str) -> str | None:
        known = reference in declared.parameters
        return literal(written(getattr(settings, reference))) if known else None

    requests = pods.replaced(app.requests, value)
    reads = {each: each for each in pods.names(requests) if each in declared.steps}
    served = app.model_copy(update={"requests": requests})
    return tensorflow_serving.publishing(name, placed_by, served, reads)


# The steps of a ``pipeline.yaml``, with its references resolved by the settings of a stack.


def steps(declared: PipelineFile, settings: Any, place: Place) -> Sequence[StepDeclaration]:
    """The steps with ``settings``, those of `infra.pipelines.file.settings`; variants in place of a matrix."""
    return [variant for name in declared.steps for variant in _variants(name, declared, settings, place)]


def _variants(name: str, declared: PipelineFile, settings: Any, place: Place) -> Sequence[StepDeclaration]:
    step = declared.steps[name]
    # A folder that leads out is refused; its files, which may be many, are not looked at.
    code = "." if below_problem(step.code.removeprefix("./")) else step.code

    def declare(own: Mapping[str, Value], placed_by: StepSettings) -> StepDeclaration:
        def value(reference: str) -> str | None:
            if reference not in declared.parameters:
                return None
            return literal(written(own[reference] if reference in own else getattr(settings, reference)))

        def filled(word: str) -> str:
            return pods.replaced(word, value)

        queue = queue_of(step, placed_by)
        return StepDeclaration(
            name=name,
            module=None,
            placed_by=placed_by,
            arguments=[filled(word) for word in step.run],
            inputs={each: each for each in used_in(step) if each in declared.steps},
            after=step.after,
            requirements=step.requirements and place(step.requirements),
            results=_results(step),
            command=Command(place(code), step.files, substitute(step.rehearsal, filled, place)),
            environment={key: filled(each) for key, each in step.environment.items()},
            secrets=step.secrets,
            best=step.best and Best(step.best.by, step.best.of),
            connects=tuple(dict.fromkeys([*([queue] if queue else []), *step.connects])),
            items=_items(step, placed_by, filled, queue),
            workers=getattr(placed_by, "workers", 1) if step.items else 1,
            nodes=_nodes(step, placed_by),
            build=None if placed_by.image else build_of(name, step.image, step.build, declared.build, place),
        )

    return variants(getattr(settings.steps, name), declare)


def _items(step: PipelineStep, settings: Any, filled: Callable[[str], str], queue: str | None) -> Items | None:
    if step.items is None:
        return None
    return Items(
        files=filled(step.items.files),
        mode=settings.mode,
        queue=queue,
        attempts=step.items.attempts,
        allow_failed=step.items.allow_failed,
        lease=seconds(step.items.lease),
    )


def _nodes(step: PipelineStep, settings: StepSettings) -> Nodes | None:
    """The pods of a step on several nodes, where there are several."""
    if step.nodes is None or not isinstance(settings, MultiNodeSettings) or settings.nodes == 1:
        return None
    roles = resized(step.nodes.roles, settings.nodes)
    return Nodes(settings.nodes, roles, seconds(settings.wait), step.nodes.port)


def _results(step: PipelineStep) -> tuple[Result, ...]:
    """The declared results, and the table of the items where there are any."""
    table = [items_table(_columns(step.items.columns))] if step.items else []
    return (*table, *(result(key, each) for key, each in step.results.items()))


def _columns(declared: Mapping[str, TableColumn]) -> tuple[Column, ...]:
    return tuple(
        Column(key=key, title=each.title or heading(key), format=each.format) for key, each in declared.items()
    )


def result(name: str, declared: StepResult) -> Result:
    """A result under ``name``, as stack outputs and the report know it."""
    title = declared.title or heading(name)
    where = declared.number or declared.table or declared.curves or declared.picture or declared.file or ""
    path, _, select = where.partition("#")
    if declared.number is not None:
        return Number(name=name, title=title, path=path, select=select, format=declared.format or "number")
    if declared.table is not None:
        columns = _columns(declared.columns or {})
        compare = (declared.compare[0], declared.compare[1]) if declared.compare else None
        return Table(name=name, title=title, path=path, select=select, columns=columns, compare=compare)
    if declared.curves is not None:
        return Curves(
            name=name,
            title=title,
            path=path,
            select=select,
            curves=tuple(declared.draw or ()),
            unit=declared.unit or "epoch",
            logs=declared.logs or "",
        )
    return (File if declared.picture is None else Picture)(name=name, title=title, path=where)


# The apps of a ``pipeline.yaml`` that the settings of a stack name, with its references resolved.


PYTHON = ("python", "python3")
"""The programs whose files an app needs from the pipeline's folder, whether it says so or not."""


def apps(
    declared: PipelineFile, settings: Any, steps: Sequence[StepDeclaration], place: Place
) -> Sequence[AppDeclaration]:
    """The apps that ``settings`` place, those of `infra.pipelines.file.settings`; ``steps`` are the pipeline's."""
    section = getattr(settings, APPS, None)
    placed = {name: getattr(section, name, None) for name in declared.apps} if section else {}
    return [
        _App(name, declared, settings, steps, place).declared(declared.apps[name], placed_by)
        for name, placed_by in placed.items()
        if placed_by is not None
    ]


class _App:
    """What one app is declared from."""

    def __init__(
        self, name: str, declared: PipelineFile, settings: Any, steps: Sequence[StepDeclaration], place: Place
    ) -> None:
        self.name = name
        self.file = declared
        self.settings = settings
        self.steps = steps
        self.place = place

    def declared(self, app: PipelineApp, placed_by: Any) -> AppDeclaration:
        """The app as `infra.pipelines.contract` knows it."""
        found = self._of_kind(app, placed_by)
        return replace(found, image=app.image or found.image)

    def _of_kind(self, app: PipelineApp, placed_by: Any) -> AppDeclaration:
        inputs = self._inputs(word for _, word in words_of(app))
        match app:
            case ProgramApp():
                return self._program(app, placed_by, inputs)
            case PageApp():
                samples = app.samples and self._filled(app.samples)
                shown = app.model_copy(update={"samples": samples})
                return page.declaration(self.name, placed_by, shown, inputs)
            case NotebookApp():
                return notebook.declaration(
                    self.name,
                    placed_by,
                    self.steps,
                    serving=app.serving,
                    model=app.model,
                    examples=self._filled(app.examples),
                )
            case TensorBoardApp():
                return tensorboard.declaration(self.name, placed_by, *self._made_of(app.step))
            case ServingApp():
                return tensorflow_serving.declaration(self.name, placed_by, app)

    def _made_of(self, name: str | None) -> list[str]:
        """The step of that name, or all variants that are made of it."""
        if name is None:
            return []
        return [step.name for step in self.steps if step.variant and step.variant.of == name] or [name]

    def _program(self, app: ProgramApp, placed_by: AppSettings, inputs: dict[str, str]) -> AppDeclaration:
        code = app.code if app.code is not None else "." if app.run[:1] and app.run[0] in PYTHON else None
        if code is not None and below_problem(code.removeprefix("./")):
            # A folder that leads out is refused; its files, which may be many, are not looked at.
            code = "."
        instead = substitute(app.rehearsal, self._filled, self.place)
        return AppDeclaration(
            name=self.name,
            title=app.title or heading(self.name),
            placed_by=placed_by,
            port=app.port,
            ports=app.ports,
            arguments=[self._filled(word) for word in app.run],
            command=None if code is None else AppCommand(self.place(code), app.files),
            inputs=inputs,
            after=app.after,
            connects=[connect for connect in app.connects if connect in self.file.apps and connect != self.name],
            environment={key: self._filled(word) for key, word in app.environment.items()},
            secrets=app.secrets,
            requirements=app.requirements and self.place(app.requirements),
            probe=AppProbe(app.probe and app.probe.path),
            metrics=app.metrics and Metrics(app.metrics.path, app.metrics.port),
            people=app.people,
            path=app.path,
            writes=app.writes,
            token=refers(app, "token"),
            keeps_data=keeps_data(app),
            grace=seconds(app.grace),
            build=None
            if placed_by.image
            else build_of(self.name, app.image, app.build, self.file.build, self.place),
            substitute=instead,
        )

    def _filled(self, word: str) -> str:
        """``word`` with the values of parameters in place of their references."""
        known = self.file.parameters

        def value(reference: str) -> str | None:
            return literal(written(getattr(self.settings, reference))) if reference in known else None

        return pods.replaced(word, value)

    def _inputs(self, words: Iterable[str]) -> dict[str, str]:
        names = dict.fromkeys(name for word in words for name in pods.names(word))
        return {name: name for name in names if name in self.file.steps}


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
    checks.check_steps,
    server_checks.check_services,
    server_checks.check_apps,
    checks.check_items,
    checks.check_nodes,
    server_checks.check_results,
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
            lambda section: checks.of_section(reading.declared, section),
            lambda section: checks.node_settings(reading.declared, section),
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
    for finding in sorted(findings, key=lambda each: order(content, each.path)):
        key = f"{file}: {key_of(finding.path, '')}".removesuffix(": ")
        found.problems.append(Problem(key, finding.value, finding.reason, finding.fix))
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
