"""What is wrong with the services of a ``pipeline.yaml``, and with what connects to them."""

from collections.abc import Iterator, Mapping

from infra.pipelines import file_references, references
from infra.pipelines.contract import OF_SERVICES, service_variables
from infra.pipelines.file_build_checks import own_build
from infra.pipelines.matrix import NAME_LIMIT
from infra.pipelines.pipeline_file import SUBSTITUTE, PipelineFile, PipelineService, PipelineStep
from infra.schema.base import Model
from infra.schema.kubernetes_names import name_findings
from infra.schema.paths import below_problem
from infra.schema.problems import Finding, Path, did_you_mean, listed

NEEDED = {
    "image": "`<registry>/<name>@sha256:<64 hexadecimal digits>`, or `build: <folder>` with a Dockerfile",
    "run": "the program and its arguments",
    "port": "the port on which it listens",
}
"""What a service of the kind `program` has to say, and what that is."""

OF_A_PROGRAM = ("run", "port", "probe", "build")
"""Keys of which every other kind has its own."""


def check(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about names, kinds and references of services, and about the steps that name them."""
    connected = {name for step in declared.steps.values() for name in connections(step)}
    for name, service in declared.services.items():
        at: Path = ("services", name)
        yield from own_name(at, name, declared, "a service's", {"steps": "a step"})
        yield from _kind(at, service, declared)
        yield from _references(at, service, declared)
        yield from _rehearsal(at, service)
        if name not in connected:
            fix = "name it in `connects`, or as `queue` of `items`, of a step, or remove it"
            yield Finding(at, name, "no step connects to it", fix, read=(("steps",),), all_of=(("steps",),))
    for name, step in declared.steps.items():
        yield from _connects(("steps", name), step, declared)
    yield from _parameters(declared)


def connections(step: PipelineStep) -> dict[str, Path]:
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


def _references(at: Path, service: PipelineService, declared: PipelineFile) -> Iterator[Finding]:
    commands: list[tuple[Path, list[str]]] = [((*at, "run"), service.run or [])]
    if service.rehearsal and service.rehearsal.run:
        commands.append(((*at, SUBSTITUTE, "run"), service.rehearsal.run))
    for place, words in commands:
        wrong = [
            each
            for i, word in enumerate(words)
            for each in file_references.in_service((*place, i), word, declared)
        ]
        yield from wrong
        if words and not wrong and not any("port" in references.names(word) for word in words):
            fix = 'add `{port}` where it takes the port: `--port, "{port}"`'
            yield Finding(place, words, "nothing tells the program on which port to listen", fix)
    if service.probe and not service.probe.path.startswith("/"):
        yield Finding((*at, "probe", "path"), service.probe.path, "not the path of a URL", "begin it with `/`")


def _rehearsal(at: Path, service: PipelineService) -> Iterator[Finding]:
    if service.rehearsal is None:
        return
    place, lock = (*at, SUBSTITUTE), service.rehearsal.requirements
    if service.rehearsal.run is None and lock is None:
        fix = "write `run`, `requirements` or both, or remove it"
        yield Finding(place, None, "empty", fix, all_of=(place,))
    if lock is not None and (why := below_problem(lock.removeprefix("./"))):
        reason = f"not a path below the pipeline's folder: {why}"
        yield Finding((*place, "requirements"), lock, reason, "write a path relative to it; move or copy it there")


def _connects(at: Path, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    known = list(declared.services)
    for index, name in enumerate(step.connects):
        if name in step.connects[:index]:
            yield Finding((*at, "connects", index), name, "it stands here twice", "remove one of them")
    for name, below in connections(step).items():
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
