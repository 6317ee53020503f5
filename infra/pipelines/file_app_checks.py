"""What is wrong with the apps of a ``pipeline.yaml``, and with what connects to them."""

import re
from collections.abc import Iterator

from infra.pipelines import file_references, references
from infra.pipelines.app_rules import port_problem
from infra.pipelines.apps import OF_APPS, address_variables
from infra.pipelines.file_app_kinds import (
    NotebookApp,
    PageApp,
    PipelineApp,
    ProgramApp,
    ServingApp,
    TensorBoardApp,
    connections,
    words_of,
)
from infra.pipelines.file_build_checks import own_build
from infra.pipelines.file_checks import environment_findings
from infra.pipelines.file_service_checks import own_name
from infra.pipelines.pipeline_file import SUBSTITUTE, PipelineFile
from infra.pipelines.step_rules import circle_of
from infra.pipelines.tensorflow_serving import LABELS, step_name
from infra.schema.paths import below_problem
from infra.schema.problems import Finding, Path, did_you_mean, listed

APPS = "apps"

MODEL_NAME = re.compile(r"[A-Za-z][\w.-]{0,62}", re.ASCII)
"""A model's name: a folder's of the store, and in the paths of the server's REST."""


def check(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about names, ports, references and connections of apps."""
    for name, app in declared.apps.items():
        at: Path = (APPS, name)
        yield from own_name(at, name, declared, "an app's", {"steps": "a step", "services": "a service"})
        yield from _references(at, app, declared)
        yield from _connects(at, name, app, declared)
        if isinstance(app, TensorBoardApp | ServingApp) and app.step and app.step not in declared.steps:
            known = list(declared.steps)
            fix = did_you_mean(app.step, known, f"write {listed(known)}")
            yield Finding((*at, "step"), app.step, "there is no such step", fix, read=(("steps", app.step),))
        if isinstance(app, ServingApp):
            yield from _published(at, name, app, declared)
        if isinstance(app, ProgramApp):
            yield from own_build(at, app.image, app.build)
            yield from environment_findings(at, app.environment, app.secrets)
            yield from _ports(at, app)
            yield from _urls(at, app)
            yield from _after(at, app, declared)
            yield from _paths(at, app)
            yield from _rehearsal(at, app, declared)
    yield from _circle(declared)
    for name in OF_APPS if declared.apps else ():
        if name in declared.parameters and name not in references.OWN:
            reason = f"`{{{name}}}` means something else in commands of apps"
            yield Finding(("parameters", name), name, reason, "choose another name", read=((APPS,),))


def _references(at: Path, app: PipelineApp, declared: PipelineFile) -> Iterator[Finding]:
    wrong = [
        each
        for place, word in words_of(app)
        for each in file_references.in_app((*at, *place), word, app, declared)
    ]
    yield from wrong
    if isinstance(app, ProgramApp) and app.run and not wrong and "port" not in _names(app):
        fix = 'add `{port}` where it takes the port: `--port, "{port}"`'
        yield Finding((*at, "run"), app.run, "nothing tells the program on which port to listen", fix)


def _names(app: PipelineApp) -> set[str]:
    return {name for _, word in words_of(app) for name in references.names(word)}


def _connects(at: Path, name: str, app: PipelineApp, declared: PipelineFile) -> Iterator[Finding]:
    others = [each for each in declared.apps if each != name]
    seen: set[str] = set()
    for below, other in connections(app):
        place = (*at, *below)
        if other in seen:
            yield Finding(place, other, "it stands here twice", "remove one of them")
        elif other == name:
            yield Finding(place, other, "the app itself", "remove it")
        elif other in declared.services:
            reason = "a service, to which steps alone connect"
            yield Finding(place, other, reason, "name an app, or remove it", read=(("services", other),))
        elif other not in declared.apps:
            fix = did_you_mean(other, others, f"write {listed(others)}" if others else "remove it")
            yield Finding(place, other, "there is no such app", fix, read=((APPS, other),))
        elif isinstance(app, ProgramApp):
            yield from _told(at, app, other, declared.apps[other])
        else:
            yield from _model(at, app, other, declared.apps[other])
        seen.add(other)


def _model(at: Path, app: PipelineApp, other: str, of: PipelineApp) -> Iterator[Finding]:
    """The name of a model that the server which is asked does not have: nothing would ever answer."""
    if isinstance(app, PageApp | NotebookApp) and isinstance(of, ServingApp) and app.model != of.model:
        reason = f"the app `{other}` serves the model `{of.model}`"
        yield Finding(
            (*at, "model"), app.model or None, reason, f"write `{of.model}`", read=((APPS, other, "model"),)
        )

    if isinstance(app, PageApp) and isinstance(of, ServingApp) and app.version not in (None, *LABELS):
        reason = f"the app `{other}` has no version with that label, so that nothing would ever answer"
        fix = f"write {listed(LABELS)}, or `null` for the newest"
        yield Finding((*at, "version"), app.version, reason, fix, read=((APPS, other, "kind"),))


def _published(at: Path, name: str, app: ServingApp, declared: PipelineFile) -> Iterator[Finding]:
    """What the step that publishes could not read, or would write among the results of other steps."""
    if not MODEL_NAME.fullmatch(app.model):
        reason = "it names a folder of the store and a part of addresses"
        yield Finding((*at, "model"), app.model, reason, "write letters, digits, `-`, `_` and `.`, a letter first")
    if why := below_problem(app.path):
        reason = f"not a folder of the result of `{app.step}`: {why}"
        yield Finding((*at, "path"), app.path, reason, "write a path such as `saved_model`")
    named = set(references.names(app.requests)) if not references.single_brace(app.requests) else None
    if named is not None and not named & set(declared.steps) and named <= set(declared.parameters):
        reason = "no step is named whose result has them"
        yield Finding((*at, "requests"), app.requests, reason, "write for example `{prepare}/test.npz`")
    step = step_name(name)
    if step in declared.steps:
        reason = f"the step that publishes for the app `{name}` has that name"
        yield Finding(("steps", step), step, reason, "rename one of them", read=((*at, "kind"),))


def _told(at: Path, app: ProgramApp, other: str, of: PipelineApp) -> Iterator[Finding]:
    """Variables of the app in which it is told of the app ``other``."""
    for variable in address_variables(other, of.ports if isinstance(of, ProgramApp) else ()):
        section = next((each for each in ("environment", "secrets") if variable in getattr(app, each)), None)
        if section:
            reason = f"the app is told of the app `{other}` in that variable"
            yield Finding((*at, section, variable), variable, reason, "remove it, or rename the app")


def _ports(at: Path, app: ProgramApp) -> Iterator[Finding]:
    taken = {app.port: "`port`"}
    for name, number in app.ports.items():
        place = (*at, "ports", name)
        if why := port_problem(name):
            yield Finding(place, name, *why)
        if number in taken:
            reason = f"{taken[number]} is that port too"
            yield Finding(place, number, reason, "write another port", read=((*at, "port"),))
        taken.setdefault(number, f"`{name}`")
    known = ["http", *app.ports]
    if app.metrics and app.metrics.port not in known:
        fix = did_you_mean(app.metrics.port, known, f"write {listed(known)}")
        yield Finding((*at, "metrics", "port"), app.metrics.port, "there is no port of that name", fix)


def _urls(at: Path, app: ProgramApp) -> Iterator[Finding]:
    named: list[tuple[Path, str | None]] = [
        (("path",), app.path),
        (("probe", "path"), app.probe and app.probe.path),
        (("metrics", "path"), app.metrics and app.metrics.path),
    ]
    for below, path in named:
        if path is not None and not path.startswith("/"):
            yield Finding((*at, *below), path, "not the path of a URL", "begin it with `/`")


def _after(at: Path, app: ProgramApp, declared: PipelineFile) -> Iterator[Finding]:
    known = list(declared.steps)
    for index, other in enumerate(app.after):
        if other not in known:
            fix = did_you_mean(other, known, f"write {listed(known)}")
            yield Finding((*at, "after", index), other, "there is no such step", fix, read=(("steps", other),))


def _paths(at: Path, app: ProgramApp) -> Iterator[Finding]:
    """Paths that lead out of the pipeline's folder."""
    named: list[tuple[Path, str | None]] = [
        (("code",), None if app.code in {".", "./"} else app.code),
        (("requirements",), app.requirements),
        ((SUBSTITUTE, "requirements"), app.rehearsal and app.rehearsal.requirements),
        *((("files", index), pattern) for index, pattern in enumerate(app.files)),
    ]
    for below, path in named:
        if path is not None and (why := below_problem(path.removeprefix("./"))):
            reason = f"not a path below the pipeline's folder: {why}"
            fix = "write a path relative to it; move or copy what it names there"
            yield Finding((*at, *below), path, reason, fix)


def _rehearsal(at: Path, app: ProgramApp, declared: PipelineFile) -> Iterator[Finding]:
    if app.rehearsal is None:
        return
    place = (*at, SUBSTITUTE)
    if app.rehearsal.run is None and app.rehearsal.requirements is None:
        fix = "write `run`, `requirements` or both, or remove it"
        yield Finding(place, None, "empty", fix, all_of=(place,))
    for index, word in enumerate(app.rehearsal.run or ()):
        yield from file_references.in_app((*place, "run", index), word, app, declared)


def _circle(declared: PipelineFile) -> Iterator[Finding]:
    needs = {
        name: {other for _, other in connections(app) if other in declared.apps and other != name}
        for name, app in declared.apps.items()
    }
    if circle := circle_of(needs):
        first = min(circle, key=list(declared.apps).index)
        words = f"the apps {listed(circle, 'and')} wait for one another"
        yield Finding((APPS, first), first, words, "remove one of them from `connects`")
