"""What is wrong with the apps, services and results of a ``pipeline.yaml``."""

import re
from collections.abc import Iterator, Mapping

from infra.pipelines import pods
from infra.pipelines.apps import OF_APPS, address_variables
from infra.pipelines.contract import OF_SERVICES, service_variables
from infra.pipelines.file import checks
from infra.pipelines.file.app_shapes import (
    NotebookApp,
    PageApp,
    PipelineApp,
    ProgramApp,
    ServingApp,
    TensorBoardApp,
    connections,
    words_of,
)
from infra.pipelines.file.checks import environment_findings, own_build
from infra.pipelines.file.shape import (
    RESULT_KINDS,
    SUBSTITUTE,
    PipelineFile,
    PipelineService,
    PipelineStep,
    StepResult,
)
from infra.pipelines.matrix import NAME_LIMIT
from infra.pipelines.python_file import circle_of, port_problem
from infra.pipelines.results import PIPELINE_OUTPUTS
from infra.pipelines.tensorflow_serving import LABELS, step_name
from infra.schema.base import Model
from infra.schema.names import name_findings
from infra.schema.paths import below_problem
from infra.schema.problems import Finding, Path, did_you_mean, listed

# What is wrong with the services of a ``pipeline.yaml``, and with what connects to them.


NEEDED = {
    "image": "`<registry>/<name>@sha256:<64 hexadecimal digits>`, or `build: <folder>` with a Dockerfile",
    "run": "the program and its arguments",
    "port": "the port on which it listens",
}
"""What a service of the kind `program` has to say, and what that is."""

OF_A_PROGRAM = ("run", "port", "probe", "build")
"""Keys of which every other kind has its own."""


def check_services(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about names, kinds and references of services, and about the steps that name them."""
    connected = {name for step in declared.steps.values() for name in service_connections(step)}
    for name, service in declared.services.items():
        at: Path = ("services", name)
        yield from own_name(at, name, declared, "a service's", {"steps": "a step"})
        yield from _kind(at, service, declared)
        yield from _service_references(at, service, declared)
        yield from _service_rehearsal(at, service)
        if name not in connected:
            fix = "name it in `connects`, or as `queue` of `items`, of a step, or remove it"
            yield Finding(at, name, "no step connects to it", fix, read=(("steps",),), all_of=(("steps",),))
    for name, step in declared.steps.items():
        yield from _service_connects(("steps", name), step, declared)
    yield from _parameters(declared)


def service_connections(step: PipelineStep) -> dict[str, Path]:
    """The services that a step names, each with its place below that of the step."""
    queue: dict[str, Path] = {step.items.queue: ("items", "queue")} if step.items and step.items.queue else {}
    return {**queue, **{name: ("connects", index) for index, name in enumerate(step.connects)}}


def own_name(
    at: Path, name: str, declared: PipelineFile, whose: str, others: Mapping[str, str]
) -> Iterator[Finding]:
    """What is wrong with the name of a service or an app; ``whose`` says which, as in `a service's`.

    ``others`` are the sections of ``declared`` that may not have it, too, and what they call one of theirs.
    """
    if len(name) > NAME_LIMIT:
        yield Finding(at, name, f"{len(name)} characters, and {whose} name has at most {NAME_LIMIT}", "shorten it")
        return
    yield from name_findings(at, name)
    if name[:1].isdigit():
        reason = "its environment variables begin with its name, and none begins with a digit"
        yield Finding(at, name, reason, "begin it with a letter")
    for section, what in others.items():
        if name in getattr(declared, section):
            yield Finding(at, name, f"{what} has that name too", "rename one of them", read=((section, name),))


def _kind(at: Path, service: PipelineService, declared: PipelineFile) -> Iterator[Finding]:
    if service.kind == "program":
        yield from own_build(at, service.image, service.build)
        built = service.build or declared.build
        for key, what in NEEDED.items():
            if getattr(service, key) is None and not (key == "image" and built):
                fix = f"add it: {what}; or write `kind: valkey` for a Valkey server"
                yield Finding((*at, key), None, "required, and not there", fix, read=((*at, "kind"),))
        return
    for key in OF_A_PROGRAM:
        if (value := getattr(service, key)) is not None:
            reason = f"a service of the kind `{service.kind}` has its own"
            shown = value.model_dump() if isinstance(value, Model) else value
            yield Finding((*at, key), shown, reason, "remove it", read=((*at, "kind"),))


def _service_references(at: Path, service: PipelineService, declared: PipelineFile) -> Iterator[Finding]:
    commands: list[tuple[Path, list[str]]] = [((*at, "run"), service.run or [])]
    if service.rehearsal and service.rehearsal.run:
        commands.append(((*at, SUBSTITUTE, "run"), service.rehearsal.run))
    for place, words in commands:
        wrong = [each for i, word in enumerate(words) for each in checks.in_service((*place, i), word, declared)]
        yield from wrong
        if words and not wrong and not any("port" in pods.names(word) for word in words):
            fix = 'add `{port}` where it takes the port: `--port, "{port}"`'
            yield Finding(place, words, "nothing tells the program on which port to listen", fix)
    if service.probe and not service.probe.path.startswith("/"):
        yield Finding((*at, "probe", "path"), service.probe.path, "not the path of a URL", "begin it with `/`")


def _service_rehearsal(at: Path, service: PipelineService) -> Iterator[Finding]:
    if service.rehearsal is None:
        return
    place, lock = (*at, SUBSTITUTE), service.rehearsal.requirements
    if service.rehearsal.run is None and lock is None:
        fix = "write `run`, `requirements` or both, or remove it"
        yield Finding(place, None, "empty", fix, all_of=(place,))
    if lock is not None and (why := below_problem(lock.removeprefix("./"))):
        reason = f"not a path below the pipeline's folder: {why}"
        yield Finding((*place, "requirements"), lock, reason, "write a path relative to it; move or copy it there")


def _service_connects(at: Path, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    known = list(declared.services)
    for index, name in enumerate(step.connects):
        if name in step.connects[:index]:
            yield Finding((*at, "connects", index), name, "it stands here twice", "remove one of them")
    for name, below in service_connections(step).items():
        if name not in declared.services:
            add = f"add it: `services: {{{name}: {{kind: valkey}}}}`"
            fix = did_you_mean(name, known, f"write {listed(known)}, or {add}" if known else add)
            yield Finding((*at, *below), name, "there is no such service", fix, read=(("services", name),))
            continue
        for variable in service_variables(name):
            section = next((each for each in ("environment", "secrets") if variable in getattr(step, each)), None)
            if section:
                reason = f"the step is told of the service `{name}` in that variable"
                yield Finding((*at, section, variable), variable, reason, "remove it, or rename the service")


def _parameters(declared: PipelineFile) -> Iterator[Finding]:
    """Parameters whose reference means something else in the commands of services."""
    for name in OF_SERVICES if declared.services else ():
        if name in declared.parameters:
            reason = f"`{{{name}}}` means something else in commands of services"
            yield Finding(("parameters", name), name, reason, "choose another name", read=(("services",),))


# What is wrong with the results that the steps of a ``pipeline.yaml`` declare.


NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
POINTER = re.compile(r"(/([^~/]|~[01])*)*")

JSON_KINDS = ("number", "table", "curves")

MANIFEST = "manifest.json"
"""What the last file of a whole result is called."""


def check_results(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about names, paths and pointers, and about the number that says which variant is best."""
    for name, step in declared.steps.items():
        at: Path = ("steps", name)
        for key, result in step.results.items():
            yield from _name((*at, "results", key), key)
            yield from _result((*at, "results", key), result)
        yield from _best(at, step)


def _name(at: Path, name: str) -> Iterator[Finding]:
    if not NAME.fullmatch(name):
        yield Finding(at, name, "not the name of a result", "write letters, digits, `_` and `-` after a letter")
    elif name in PIPELINE_OUTPUTS:
        yield Finding(at, name, f"`{name}` is an output that every pipeline has", "choose another name")


def _result(at: Path, result: StepResult) -> Iterator[Finding]:
    kinds = [kind for kind in RESULT_KINDS if getattr(result, kind) is not None]
    if len(kinds) != 1:
        reason = f"{listed(kinds, 'and')} at once" if kinds else "it does not say what it is, and where"
        yield Finding(at, kinds or None, reason, f"write one of {listed(RESULT_KINDS)}")
        return
    (kind,) = kinds
    for other, keys in RESULT_KINDS.items():
        for key in keys if other != kind else ():
            if getattr(result, key) is not None:
                own = "a table's" if other == "table" else f"a result's with `{other}`"
                yield Finding(
                    (*at, key), getattr(result, key), f"the key is {own}, and this has `{kind}`", "remove it"
                )
    if kind == "table" and not result.columns:
        yield Finding((*at, "columns"), None, "required, and not there", "add it: how each column is written")
    yield from _place((*at, kind), kind, getattr(result, kind))
    if result.logs is not None and (why := below_problem(result.logs)):
        yield Finding((*at, "logs"), result.logs, f"not a path below `{{output}}`: {why}", "write a relative path")


def _place(at: Path, kind: str, value: str) -> Iterator[Finding]:
    path, mark, pointer = value.partition("#") if kind in JSON_KINDS else (value, "", "")
    if why := below_problem(path):
        reason = f"not a path below `{{output}}`: {why}"
        yield Finding(at, value, reason, "write a path relative to it, such as `metrics.json`")
    elif path == MANIFEST:
        yield Finding(at, value, "Slipway writes the file of that name itself", "choose another name")
    elif not mark and "#" in value:
        reason = "only JSON files have parts, and this is not `*.json`"
        yield Finding(at, value, reason, "remove the `#`, or name a JSON file")
    elif not POINTER.fullmatch(pointer):
        reason = "no JSON pointer (RFC 6901) stands after the `#`: it begins with `/`, and `~` is written `~0`"
        yield Finding(at, value, reason, f"write for example `{path}#/{pointer.lstrip('/') or 'accuracy'}`")


def _best(at: Path, step: PipelineStep) -> Iterator[Finding]:
    numbers = [name for name, result in step.results.items() if result.number is not None]
    if step.best is not None and step.best.by not in numbers:
        reason = "no number among the step's results has that name"
        fix = did_you_mean(step.best.by, numbers, f"write {listed(numbers)}" if numbers else "add it to `results`")
        place = (*at, "best", "by")
        yield Finding(place, step.best.by, reason, fix, read=((*at, "results", step.best.by),))


# What is wrong with the apps of a ``pipeline.yaml``, and with what connects to them.


APPS = "apps"

MODEL_NAME = re.compile(r"[A-Za-z][\w.-]{0,62}", re.ASCII)
"""A model's name: a folder's of the store, and in the paths of the server's REST."""


def check_apps(declared: PipelineFile) -> Iterator[Finding]:
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
        if name in declared.parameters and name not in pods.OWN:
            reason = f"`{{{name}}}` means something else in commands of apps"
            yield Finding(("parameters", name), name, reason, "choose another name", read=((APPS,),))


def _references(at: Path, app: PipelineApp, declared: PipelineFile) -> Iterator[Finding]:
    wrong = [each for place, word in words_of(app) for each in checks.in_app((*at, *place), word, app, declared)]
    yield from wrong
    if isinstance(app, ProgramApp) and app.run and not wrong and "port" not in _names(app):
        fix = 'add `{port}` where it takes the port: `--port, "{port}"`'
        yield Finding((*at, "run"), app.run, "nothing tells the program on which port to listen", fix)


def _names(app: PipelineApp) -> set[str]:
    return {name for _, word in words_of(app) for name in pods.names(word)}


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
    named = set(pods.names(app.requests)) if not pods.single_brace(app.requests) else None
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
        yield from checks.in_app((*place, "run", index), word, app, declared)


def _circle(declared: PipelineFile) -> Iterator[Finding]:
    needs = {
        name: {other for _, other in connections(app) if other in declared.apps and other != name}
        for name, app in declared.apps.items()
    }
    if circle := circle_of(needs):
        first = min(circle, key=list(declared.apps).index)
        words = f"the apps {listed(circle, 'and')} wait for one another"
        yield Finding((APPS, first), first, words, "remove one of them from `connects`")
