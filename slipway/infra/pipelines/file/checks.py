"""What is wrong with a ``pipeline.yaml`` whose keys are right each by itself.

A class that stands for a part of the file (an app, a build, a result, nodes) has the checks of that part itself.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from slipway.infra.pipelines import mounts, pods
from slipway.infra.pipelines.app_kinds.contract import (
    APPS,
    AppInFile,
    app_findings,
    circle_findings,
    circle_of,
    program_name_findings,
)
from slipway.infra.pipelines.apps import OF_APPS
from slipway.infra.pipelines.checkpoints import CHECKPOINT, CHECKPOINTS
from slipway.infra.pipelines.contract import (
    OF_SERVICES,
    RESERVED_INPUTS,
    Section,
    service_variables,
)
from slipway.infra.pipelines.file.references import in_environment, in_script, in_service, in_step
from slipway.infra.pipelines.file.section import SECTION_KEYS, annotation, axis, is_parameter
from slipway.infra.pipelines.file.shape import (
    STEP_KEYS,
    Parameter,
    PipelineFile,
    PipelineService,
    PipelineStep,
    used_in,
)
from slipway.infra.pipelines.inputs import INPUTS
from slipway.infra.pipelines.matrix import MOST_VARIANTS, NAME_LIMIT, POOL, Axes, variant_name
from slipway.infra.pipelines.pods import (
    SUBSTITUTE,
    build_findings,
    environment_findings,
    path_findings,
    url_findings,
    variables_of_steps,
)
from slipway.infra.pipelines.scripts import is_script, script_of
from slipway.infra.schema.base import Model
from slipway.infra.schema.names import name_findings
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.validation import findings as shape_findings

RESERVED = (*RESERVED_INPUTS, *(name for key in STEP_KEYS for name in key.reserved))
"""Names that mean something else in a step's arguments, so that none of its inputs can have them."""

REFERENCES = tuple(name for key in STEP_KEYS for name in key.references)
"""References that only steps with some key have."""


def check_steps(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about names, references, parameters, matrices and the order of the steps."""
    for name, parameter in declared.parameters.items():
        yield from _parameter_name(name, declared)
        yield from _parameter(("parameters", name), parameter)
    readers = _readers(declared)
    for name, step in declared.steps.items():
        at: Path = ("steps", name)
        yield from _step_name(at, name)
        yield from _references(at, name, step, declared, readers.get(name, []))
        taken = variables_of_steps(several=any(key.part.is_indexed and key.written(step) for key in STEP_KEYS))
        yield from environment_findings(at, step.environment, step.secrets, taken)
        yield from path_findings((*at, "code"), step.code, folder=True)
        yield from path_findings((*at, "requirements"), step.requirements)
        for index, pattern in enumerate(step.files):
            yield from path_findings((*at, "files", index), pattern)
        yield from mounts.findings(at, step.mounts, step.directory, _mountable(name, step, declared))
        yield from _after(at, name, step, declared)
        yield from _matrix(at, step, declared)
        yield from _substitute(at, step, declared)
        yield from build_findings((*at, "build"), step.build, step.image)
        if step.checkpoints is not None:
            yield from _checkpoints((*at, CHECKPOINTS), step, declared)
        for key, result in step.results.items():
            yield from result.findings((*at, "results", key), key)
        yield from _best(at, step)
    yield from build_findings(("build",), declared.build)
    yield from _same_names(declared)
    yield from _circle(declared)


def check_section(declared: PipelineFile, section: Section[Any]) -> Iterator[Finding]:
    """Findings about what a stack file says of the keys that features add to steps."""
    for name, step in declared.steps.items():
        settings = getattr(getattr(section.settings, "steps", None), name, None)
        for key in STEP_KEYS if settings is not None else ():
            if key.written(step):
                yield from key.section_findings(section.key("steps", name), step, settings, declared)


def _parameter_name(name: str, declared: PipelineFile) -> Iterator[Finding]:
    at: Path = ("parameters", name)
    if name in SECTION_KEYS:
        reason = "the name has a meaning of its own in every pipeline's section of a stack file"
        yield Finding(at, name, reason, "choose another name")
    elif not is_parameter(name):
        fix = "write letters, digits, `_` and `-` after a letter, and do not begin with `model_`"
        yield Finding(at, name, "not the name of a parameter", fix)
    elif name in (*pods.OWN, *RESERVED):
        yield Finding(at, name, f"`{{{name}}}` means something else in commands", "choose another name")
    elif name in declared.steps:
        reason = f"a step has that name too, and `{{{name}}}` could mean either"
        yield Finding(at, name, reason, "rename one of them", read=(("steps", name),))


def _parameter(at: Path, parameter: Parameter) -> Iterator[Finding]:
    """What is wrong with a parameter's bounds, its choices and its default."""
    kind = (*at, "type")
    low, high = parameter.minimum, parameter.maximum
    for key, bound in (("minimum", low), ("maximum", high)):
        if bound is not None and parameter.type not in {"integer", "number"}:
            yield Finding((*at, key), bound, f"a {parameter.type} has no {key}", "remove it", read=(kind,))
    if low is not None and high is not None and low > high:
        yield Finding(
            (*at, "maximum"), high, f"below the minimum, {low}", "exchange them", read=((*at, "minimum"),)
        )
        return
    unchosen = annotation(parameter.model_copy(update={"choices": None}))
    if parameter.choices is not None and parameter.type == "boolean":
        yield Finding((*at, "choices"), parameter.choices, "a boolean has two values anyway", "remove it")
        return
    wrong = list(value_findings(list[unchosen], parameter.choices, (*at, "choices"), kind))
    yield from wrong
    if not wrong:
        yield from value_findings(
            annotation(parameter), parameter.default, (*at, "default"), kind, (*at, "choices")
        )


def value_findings(kind: Any, value: object, at: Path, *read: Path) -> Iterator[Finding]:
    """What is wrong with a value of the type ``kind``; nothing where there is none."""
    if value is None:
        return
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        for finding in shape_findings(error, Axes):
            yield Finding((*at, *finding.path), finding.value, finding.reason, finding.fix, read)


def _step_name(at: Path, name: str) -> Iterator[Finding]:
    if len(name) > NAME_LIMIT:
        reason = f"{len(name)} characters, and a step's name has at most {NAME_LIMIT}: its Jobs' names hold it"
        yield Finding(at, name, reason, "shorten it")
        return
    yield from name_findings(at, name)
    if name in (*pods.OWN, *RESERVED):
        yield Finding(at, name, f"`{{{name}}}` means something else in commands", "choose another name")


def _readers(declared: PipelineFile) -> dict[str, list[str]]:
    """The steps that refer to each step."""
    readers: dict[str, list[str]] = {}
    for name, step in declared.steps.items():
        for other in used_in(step):
            if other != name:
                readers.setdefault(other, []).append(name)
    return readers


def _references(
    at: Path, name: str, step: PipelineStep, declared: PipelineFile, readers: Sequence[str]
) -> Iterator[Finding]:
    script = is_script(step.run)
    for index, word in enumerate(step.run):
        if script:
            yield from in_script((*at, "run"), word, name, declared)
        else:
            yield from in_step((*at, "run", index), word, name, declared)
    for key, word in step.environment.items():
        yield from in_environment((*at, "environment", key), word, name, declared)
    if step.run and not step.run[0].strip():
        yield Finding(
            (*at, "run", 0), step.run[0], "the program has no name", "write it first: `[python, train.py]`"
        )
    known = {*pods.OWN, *REFERENCES, CHECKPOINT, *declared.steps, *declared.parameters, *declared.inputs}
    misspelt = set(used_in(step)) - known
    if (step.results or readers) and step.run and not misspelt and "output" not in used_in(step):
        what = "its results" if step.results else f"what {listed(readers, 'and')} read{'s' * (len(readers) == 1)}"
        yield Finding(
            (*at, "run"),
            script_of(step.run) if script else step.run,
            f"nothing tells the program where to write {what}",
            'add `{output}` where it takes the path: `--output, "{output}"`; for a program that writes where it '
            'starts, `directory: "{output}"`; for one with a path built in, `mounts: {/out: "{output}"}`',
            read=((*at, "environment"), (*at, "results")),
        )


def _mountable(name: str, step: PipelineStep, declared: PipelineFile) -> mounts.Mountable:
    """What the step ``name`` can mount, and why it cannot mount the rest that its command may refer to."""
    known: dict[str, tuple[str, str] | None] = dict.fromkeys([*pods.OWN, mounts.SCRATCH, *declared.inputs])
    if any(key.part.is_shared and key.written(step) for key in STEP_KEYS):
        reason = "an item or a trial has a directory of its own, and mounts are there before the first is chosen"
        known |= dict.fromkeys([pods.OUTPUT, *REFERENCES], (reason, "write it in `run`, or as `directory`"))
    for other, read in declared.steps.items():
        if other == mounts.SCRATCH:
            known[other] = ("a step has that name too, and it could mean either", "rename the step")
        elif other == name:
            known[other] = ("the step itself", "write `{output}` for the directory that it writes")
        elif read.matrix and read.best:
            reason = f"which `{other}` is best is known when the program starts, and mounts are there before"
            known[other] = (reason, f"write `{{{other}}}` in `run`")
        else:
            several = f"`{other}` has a matrix, and so is several steps, and a mount is one folder"
            known[other] = (several, f"write `{{{other}}}` in `run`, a word for each") if read.matrix else None
    return known


def _after(at: Path, name: str, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    others = [other for other in declared.steps if other != name]
    for index, other in enumerate(step.after):
        place = (*at, "after", index)
        if other == name:
            yield Finding(place, other, "the step itself", "remove it")
        elif other not in others:
            fix = did_you_mean(other, others, f"write {listed(others)}" if others else "remove it")
            yield Finding(place, other, "there is no such step", fix, read=(("steps", other),))


def _matrix(at: Path, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    used = [name for name in used_in(step) if name in declared.parameters]
    for name, values in step.matrix.items():
        place = (*at, "matrix", name)
        if name == POOL:
            reason = "which pools there are, a stack file says"
            fix = f"write it there: `steps: {{{at[-1]}: {{matrix: {{pool: […]}}}}}}`"
            yield Finding(place, values, reason, fix)
        elif name not in declared.parameters:
            fix = did_you_mean(name, used, f"write {listed(used)}" if used else "remove it")
            yield Finding(place, values, "there is no such parameter", fix, read=(("parameters", name),))
        elif name not in used:
            reason = "the step's command does not use that parameter, so its variants would all be the same"
            fix = f"add `{{{name}}}` to `run`, or remove it"
            yield Finding(place, values, reason, fix, read=((*at, "run"), (*at, "environment")))
        else:
            yield from value_findings(axis(declared.parameters[name]), values, place, ("parameters", name))
    count = math.prod(map(len, step.matrix.values()))
    if count > MOST_VARIANTS:
        reason = f"{count} variants, and a step has at most {MOST_VARIANTS}"
        yield Finding((*at, "matrix"), step.matrix, reason, "remove values")


def _substitute(at: Path, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    if step.rehearsal is None:
        return
    place = (*at, SUBSTITUTE)
    directories = (*declared.steps, *declared.inputs)
    read = [name for name in used_in(step) if name in directories]
    yield from step.rehearsal.findings(place)
    for index, word in enumerate(step.rehearsal.run or ()):
        yield from in_step((*place, "run", index), word, str(at[-1]), declared)
        for name in pods.names(word):
            if name in directories and name != at[-1] and name not in read:
                reason = f"`run` of the step does not read `{name}`, so a rehearsal has no directory of it"
                fix = "write the same inputs in both"
                yield Finding((*place, "run", index), word, reason, fix, read=((*at, "run"),))


def _checkpoints(at: Path, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    assert step.checkpoints is not None
    sections = (("steps", declared.steps), ("parameters", declared.parameters), ("inputs", declared.inputs))
    others: list[Path] = [(section, CHECKPOINT) for section, names in sections if CHECKPOINT in names]
    yield from step.checkpoints.findings(at, step.run, nodes=bool(getattr(step, "nodes", None)), others=others)


def _best(at: Path, step: PipelineStep) -> Iterator[Finding]:
    numbers = [name for name, result in step.results.items() if result.number is not None]
    if step.best is not None and step.best.by not in numbers:
        reason = "no number among the step's results has that name"
        fix = did_you_mean(step.best.by, numbers, f"write {listed(numbers)}" if numbers else "add it to `results`")
        place = (*at, "best", "by")
        yield Finding(place, step.best.by, reason, fix, read=((*at, "results", step.best.by),))


def _same_names(declared: PipelineFile) -> Iterator[Finding]:
    """Variants that would be called like another step."""
    for name, step in declared.steps.items():
        for axis_name, values in step.matrix.items() if len(step.matrix) == 1 else ():
            for index, value in enumerate(values):
                variant = variant_name(name, {axis_name: value})
                if variant in declared.steps:
                    yield Finding(
                        ("steps", name, "matrix", axis_name, index),
                        value,
                        f"the step of this value would be called `{variant}`, like another step",
                        "rename one of the steps",
                        read=(("steps", variant),),
                    )


def _circle(declared: PipelineFile) -> Iterator[Finding]:
    needs: Mapping[str, set[str]] = {
        name: {other for other in (*used_in(step), *step.after) if other in declared.steps and other != name}
        for name, step in declared.steps.items()
    }
    circle: Sequence[str] = circle_of(needs)
    if circle:
        first = min(circle, key=list(declared.steps).index)
        words = f"the steps {listed(circle, 'and')} wait for one another"
        yield Finding(("steps", first), first, words, "remove one of the references, or an `after`")


def check_inputs(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about names of inputs, and about those that no step reads."""
    read = {name for step in declared.steps.values() for name in used_in(step)}
    for name in declared.inputs:
        at: Path = (INPUTS, name)
        wrong = list(_input_name(at, name, declared))
        yield from wrong
        if name not in read and not wrong:
            fix = f"write `{{{name}}}` in `run` of a step, in its `items` or its `mounts`, or remove the input"
            yield Finding(at, name, "no step reads it", fix, read=(("steps",),), all_of=(("steps",),))
    if declared.inputs and INPUTS in declared.parameters:
        reason = "the pipeline has inputs, and its section of a stack file says where they are below that key"
        yield Finding(("parameters", INPUTS), INPUTS, reason, "choose another name", read=((INPUTS,),))


def _input_name(at: Path, name: str, declared: PipelineFile) -> Iterator[Finding]:
    if len(name) > NAME_LIMIT:
        reason = f"{len(name)} characters, and an input's name has at most {NAME_LIMIT}: its volume's has it"
        yield Finding(at, name, reason, "shorten it")
        return
    yield from name_findings(at, name)
    if name in (*pods.OWN, *REFERENCES, *RESERVED, mounts.SCRATCH):
        yield Finding(at, name, f"`{{{name}}}` means something else in commands", "choose another name")
    others: Mapping[str, tuple[str, Mapping[str, object]]] = {
        "steps": ("a step", declared.steps),
        "parameters": ("a parameter", declared.parameters),
        "services": ("a service", declared.services),
    }
    for section, (title, names) in others.items():
        if name in names:
            reason = f"{title} has that name too, and `{{{name}}}` could mean either"
            yield Finding(at, name, reason, "rename one of them", read=((section, name),))
    for step, section in declared.steps.items():
        if section.matrix and name.startswith(f"{step}-"):
            reason = f"`{step}` has a matrix, and one of its variants could be called that"
            yield Finding(at, name, reason, "choose another name", read=(("steps", step, "matrix"),))


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
        yield from program_name_findings(at, name, "a service's", {"steps": ("a step", declared.steps)})
        yield from _kind(at, service, declared)
        yield from _service_references(at, service, declared)
        if service.rehearsal:
            yield from service.rehearsal.findings((*at, SUBSTITUTE))
        if name not in connected:
            fix = "name it in `connects`, or as `queue` of `items`, of a step, or remove it"
            yield Finding(at, name, "no step connects to it", fix, read=(("steps",),), all_of=(("steps",),))
    for name, step in declared.steps.items():
        yield from _service_connects(("steps", name), step, declared)
    yield from _reserved_parameters(declared, OF_SERVICES, "services")


def service_connections(step: PipelineStep) -> dict[str, Path]:
    """The services that a step names, each with its place below that of the step."""
    needed = {name: place for key in STEP_KEYS for name, place in key.connects(step).items()}
    return {**needed, **{name: ("connects", index) for index, name in enumerate(step.connects)}}


def _kind(at: Path, service: PipelineService, declared: PipelineFile) -> Iterator[Finding]:
    if service.kind == "program":
        yield from build_findings((*at, "build"), service.build, service.image)
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
        wrong = [
            finding for index, word in enumerate(words) for finding in in_service((*place, index), word, declared)
        ]
        yield from wrong
        if words and not wrong and not any("port" in pods.names(word) for word in words):
            fix = 'add `{port}` where it takes the port: `--port, "{port}"`'
            yield Finding(place, words, "nothing tells the program on which port to listen", fix)
    yield from url_findings((*at, "probe", "path"), service.probe and service.probe.path)


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
            for section, variables in (("environment", step.environment), ("secrets", step.secrets)):
                if variable in variables:
                    reason = f"the step is told of the service `{name}` in that variable"
                    yield Finding((*at, section, variable), variable, reason, "remove it, or rename the service")


def _reserved_parameters(declared: PipelineFile, references: Collection[str], section: str) -> Iterator[Finding]:
    """Parameters whose reference means something else in the commands of services or apps."""
    for name in references if getattr(declared, section) else ():
        if name in declared.parameters:
            reason = f"`{{{name}}}` means something else in commands of {section}"
            yield Finding(("parameters", name), name, reason, "choose another name", read=((section,),))


def check_apps(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about names, references and connections of apps, and about what is peculiar to their kind."""
    variants = [name for name, step in declared.steps.items() if step.matrix and not step.best]
    others = {"steps": ("a step", declared.steps), "services": ("a service", declared.services)}
    for name, app in declared.apps.items():
        at: Path = (APPS, name)
        yield from program_name_findings(at, name, "an app's", others)
        yield from app_findings(
            app,
            AppInFile(
                at,
                name,
                parameters=declared.parameters,
                steps=declared.steps,
                variants=variants,
                services=declared.services,
                apps=declared.apps,
                inputs=declared.inputs,
            ),
        )
    yield from circle_findings(declared.apps)
    yield from _reserved_parameters(declared, [name for name in OF_APPS if name not in pods.OWN], APPS)
