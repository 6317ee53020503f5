"""What is wrong with a ``pipeline.yaml`` whose keys are right each by itself.

A class that stands for a part of the file (an app, a build, a result, nodes) has the checks of that part itself.
"""

import math
import re
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
    MultiNodeSettings,
    Section,
    service_variables,
)
from slipway.infra.pipelines.file.references import in_environment, in_items, in_script, in_service, in_step
from slipway.infra.pipelines.file.section import MODE, SECTION_KEYS, WORKERS, annotation, axis, is_parameter
from slipway.infra.pipelines.file.shape import Parameter, PipelineFile, PipelineService, PipelineStep, used_in
from slipway.infra.pipelines.matrix import MOST_VARIANTS, NAME_LIMIT, NODES, POOL, Axes, variant_name
from slipway.infra.pipelines.pods import (
    SUBSTITUTE,
    build_findings,
    environment_findings,
    path_findings,
    url_findings,
    variables_of_steps,
)
from slipway.infra.pipelines.results import ITEM_COLUMNS, ITEMS, ITEMS_FILE
from slipway.infra.pipelines.scripts import is_script, script_of
from slipway.infra.pipelines.search import SEARCH, TRIALS
from slipway.infra.schema.base import Model
from slipway.infra.schema.names import name_findings
from slipway.infra.schema.paths import pattern_problem
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed
from slipway.infra.schema.validation import findings as shape_findings

# Steps: names, references, parameters, matrices, and their order.


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
        taken = variables_of_steps(several=bool(step.items or step.nodes or step.search))
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
        if step.nodes is not None:
            yield from _nodes((*at, NODES), step)
        if step.checkpoints is not None:
            yield from _checkpoints((*at, CHECKPOINTS), step, declared)
        for key, result in step.results.items():
            yield from result.findings((*at, "results", key), key)
        yield from _best(at, step)
    yield from build_findings(("build",), declared.build)
    yield from _same_names(declared)
    yield from _circle(declared)


def check_section(declared: PipelineFile, section: Section[Any]) -> Iterator[Finding]:
    """Findings about what a stack file says of the items, the workers and the nodes of steps."""
    for name, step in declared.steps.items():
        settings = getattr(getattr(section.settings, "steps", None), name, None)
        at = section.key("steps", name)
        if step.nodes is not None and isinstance(settings, MultiNodeSettings):
            yield from step.nodes.count_findings((*at, NODES), settings.nodes)
        if step.search is not None and settings is not None:
            search, trials = step.search.in_stack(settings), step.search.trials or step.search.combinations or None
            if search != step.search.model_copy(update={TRIALS: trials}):
                kinds = {name: parameter.type for name, parameter in declared.parameters.items()}
                yield from search.changed_findings(at, kinds)
        if step.items is not None and settings is not None:
            mode, workers = getattr(settings, MODE), getattr(settings, WORKERS)
            if (mode, workers) != (step.items.mode, step.workers or 1):
                yield from _waiting((*at, WORKERS), mode, workers, read=((*at, MODE),))


def _parameter_name(name: str, declared: PipelineFile) -> Iterator[Finding]:
    at: Path = ("parameters", name)
    if name in SECTION_KEYS:
        reason = "the name has a meaning of its own in every pipeline's section of a stack file"
        yield Finding(at, name, reason, "choose another name")
    elif not is_parameter(name):
        fix = "write letters, digits, `_` and `-` after a letter, and do not begin with `model_`"
        yield Finding(at, name, "not the name of a parameter", fix)
    elif name in (*pods.OWN, *RESERVED_INPUTS):
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
    if name in (*pods.OWN, *RESERVED_INPUTS):
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
    known = {*pods.OWN, *pods.OF_ITEMS, CHECKPOINT, *declared.steps, *declared.parameters, *declared.inputs}
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
    if step.items or step.search:
        reason = "an item or a trial has a directory of its own, and mounts are there before the first is chosen"
        known |= dict.fromkeys([pods.OUTPUT, *pods.OF_ITEMS], (reason, "write it in `run`, or as `directory`"))
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


def _nodes(at: Path, step: PipelineStep) -> Iterator[Finding]:
    assert step.nodes is not None
    if step.items is not None:
        reason = "the pods of a step with `items` know nothing of one another, and each works on its own"
        fix = "remove it, and write how many pods work on the items as `workers`; or remove `items`"
        yield Finding(at, step.nodes.count, reason, fix, read=((*at[:2], "items"),))
    yield from step.nodes.findings(at)


def _checkpoints(at: Path, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    assert step.checkpoints is not None
    sections = (("steps", declared.steps), ("parameters", declared.parameters), ("inputs", declared.inputs))
    others: list[Path] = [(section, CHECKPOINT) for section, names in sections if CHECKPOINT in names]
    yield from step.checkpoints.findings(at, step.run, nodes=step.nodes is not None, others=others)


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


# Items of steps, and the workers on them.


ORDERED = "ordered"

PATTERN = re.compile(r"\{(?P<root>[^{}]*)\}/+(?P<rest>.*[^/])", re.DOTALL)
"""A pattern of files: a directory that a reference names, and what is below it."""


def check_items(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about items, workers, and what a step with items can have."""
    for name, step in declared.steps.items():
        at: Path = ("steps", name)
        if step.items is None:
            if step.workers is not None:
                reason = "only a step with `items` has workers: several pods would write one directory"
                fix = "add `items`, with a pattern of `files`, or remove it"
                yield Finding((*at, WORKERS), step.workers, reason, fix, read=((*at, "items"),))
            continue
        yield from _files((*at, "items", "files"), name, step, declared)
        yield from _waiting((*at, WORKERS), step.items.mode, step.workers or 1, read=((*at, "items", MODE),))
        yield from _item_reference(at, step)
        yield from _results(at, step)
    if any(step.items for step in declared.steps.values()):
        yield from _names(declared)


def _waiting(at: Path, mode: str, workers: int, read: tuple[Path, ...]) -> Iterator[Finding]:
    """More workers than can work, however the items are handed out."""
    if mode == ORDERED and workers > 1:
        reason = f"in the mode `{ORDERED}` one item is worked on at a time, so {workers - 1} of them would idle"
        yield Finding(at, workers, reason, f"write `{WORKERS}: 1`, or `{MODE}: parallel`", read=read)


def _files(at: Path, name: str, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    assert step.items is not None
    pattern = step.items.files
    wrong = list(in_items(at, pattern, name, declared))
    if wrong:
        yield from wrong
        return
    match = PATTERN.fullmatch(pattern)
    if match is None or match["root"] in declared.parameters or ".." in match["rest"].split("/"):
        roots = [f"{{{root}}}" for root in (*declared.steps, *declared.inputs, pods.STORE) if root != name]
        reason = "not a pattern of files below the output of a step, an input or the store"
        yield Finding(at, pattern, reason, f"begin it with {listed(roots)}: `{roots[0]}/days/*.csv`")
        return
    if why := pattern_problem(pattern):
        yield Finding(at, pattern, why, "write a shorter pattern")
        return
    for read in pods.names(pattern):
        other = declared.steps.get(read)
        if other is not None and other.matrix and not other.best:
            reason = f"`{read}` becomes several steps, and items are files of one directory"
            yield Finding(at, pattern, reason, f"add `best` to `{read}`", read=(("steps", read),))


def _item_reference(at: Path, step: PipelineStep) -> Iterator[Finding]:
    """A finding where the command does not name the item."""
    words = [name for word in step.run for name in pods.names(word)]
    if step.run and pods.ITEM not in words:
        reason = "nothing tells the program which item it works on"
        fix = 'add `{item}` where it takes the path: `--day, "{item}"`'
        command = script_of(step.run) if is_script(step.run) else step.run
        yield Finding((*at, "run"), command, reason, fix, read=((*at, "items"),))


def _results(at: Path, step: PipelineStep) -> Iterator[Finding]:
    assert step.items is not None
    for key, result in step.results.items():
        paths = [result.number, result.table, result.curves, result.picture, result.file]
        path = next((path for path in paths if path is not None), "").partition("#")[0]
        if key == ITEMS:
            reason = "the table of the items has that name, and every step with items has one"
            yield Finding((*at, "results", key), key, reason, "choose another name; `items.columns` adds columns")
        elif path and path != ITEMS_FILE:
            reason = f"each item has a directory of its own; that of the step has `{ITEMS_FILE}` alone"
            fix = "add the value to `items.columns`, or make the file in a later step that reads all items"
            yield Finding((*at, "results", key), path, reason, fix, read=((*at, "items"),))
    known = {column.key for column in ITEM_COLUMNS}
    for key in step.items.columns:
        if key in known:
            reason = "every table of items has that column"
            yield Finding((*at, "items", "columns", key), key, reason, "remove it, or rename the value")


def _names(declared: PipelineFile) -> Iterator[Finding]:
    for name in pods.OF_ITEMS:
        for section, names in (("steps", declared.steps), ("parameters", declared.parameters)):
            if name in names:
                reason = f"`{{{name}}}` means something else in commands of steps with items"
                yield Finding((section, name), name, reason, "choose another name", read=(("steps",),))


# Services, and the steps that connect to them.


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
    queue: dict[str, Path] = {step.items.queue: ("items", "queue")} if step.items and step.items.queue else {}
    if step.search and step.search.queue:
        queue = {step.search.queue: (SEARCH, "queue")}
    return {**queue, **{name: ("connects", index) for index, name in enumerate(step.connects)}}


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


# Apps of all kinds.


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
