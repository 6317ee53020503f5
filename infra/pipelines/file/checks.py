"""What is wrong with a ``pipeline.yaml`` whose keys are right each by itself."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from infra.pipelines import pods
from infra.pipelines.apps import OF_APPS, address_variables
from infra.pipelines.contract import (
    OF_SERVICES,
    RESERVED_INPUTS,
    MultiNodeSettings,
    PipelineSettings,
    Section,
    service_variables,
)
from infra.pipelines.file.app_shapes import PipelineApp, ProgramApp
from infra.pipelines.file.parts import VARIABLE, Build
from infra.pipelines.file.settings import (
    MODE,
    NODES,
    SECTION_KEYS,
    WORKERS,
    annotation,
    axis,
    is_parameter,
    used_in,
)
from infra.pipelines.file.shape import Parameter, PipelineFile, PipelineStep, StepNodes
from infra.pipelines.matrix import MOST_VARIANTS, NAME_LIMIT, POOL, Axes, variant_name
from infra.pipelines.node_roles import ROLES, WORKER, fewest, meant, unsuitable
from infra.pipelines.python_file import circle_of
from infra.pipelines.results import ITEM_COLUMNS, ITEMS, ITEMS_FILE
from infra.schema.names import name_findings
from infra.schema.paths import below_problem, pattern_problem
from infra.schema.problems import Finding, Path, did_you_mean, listed, nearest
from infra.schema.validation import findings as shape_findings

# What is wrong with the nodes of the steps of a ``pipeline.yaml`` that run on several.
#
# The same holds for what a stack file says of them, which `node_settings` checks.


def check_nodes(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about roles, and about what a step on several nodes cannot have."""
    for name, step in declared.steps.items():
        if step.nodes is None:
            continue
        at: Path = ("steps", name, NODES)
        if step.items is not None:
            reason = "the pods of a step with `items` know nothing of one another, and each works on its own"
            fix = "remove it, and write how many pods work on the items as `workers`; or remove `items`"
            yield Finding(at, step.nodes.count, reason, fix, read=((*at[:2], "items"),))
        yield from _roles((*at, "roles"), step.nodes)


def node_settings(declared: PipelineFile, section: Section[Any]) -> Iterator[Finding]:
    """Findings about what a stack file says of steps on several nodes."""
    for name, step in declared.steps.items():
        settings = getattr(getattr(section.settings, "steps", None), name, None)
        if step.nodes is None or not isinstance(settings, MultiNodeSettings):
            continue
        roles, count = step.nodes.roles, settings.nodes
        if count != step.nodes.count and count < fewest(roles):
            yield Finding(
                section.key("steps", name, NODES),
                count,
                f"its pods have the roles {listed(_counted(roles), 'and')}: on fewer nodes fewer have the role "
                f"`{WORKER}`, and there has to be one",
                f"write `{NODES}: {fewest(roles)}` or more",
            )


def _counted(roles: dict[str, int]) -> list[str]:
    return [f"{role}: {count}" for role, count in roles.items()]


def _roles(at: Path, nodes: StepNodes) -> Iterator[Finding]:
    unknown = [role for role in nodes.roles if role not in ROLES]
    for role in unknown:
        same = meant(role)
        fix = f"write `{same}`" if same else did_you_mean(role, ROLES, f"write {listed(ROLES)}")
        yield Finding((*at, role), nodes.roles[role], f"TensorFlow knows no role `{role}`", fix)
    if nodes.roles and not unknown:
        for reason, fix in unsuitable(nodes.roles, nodes.count):
            yield Finding(
                at, nodes.roles, reason, fix, read=((*at[:-1], "count"), *((*at, each) for each in ROLES))
            )


# What is wrong with the images that a ``pipeline.yaml`` has built: of steps, of services and of apps alike.


def own_build(at: Path, image: str | None, build: Build | None) -> Iterator[Finding]:
    """What is wrong with the ``build`` of the program at ``at``, which may have an ``image`` too."""
    yield from build_findings((*at, "build"), build)
    if build and image:
        reason = f"the {_KINDS[str(at[0])]} has a `build` too, and only one of them can be its image"
        yield Finding((*at, "image"), image, reason, "remove one of them", read=((*at, "build"),))


_KINDS = {"steps": "step", "services": "service", "apps": "app"}


def build_findings(at: Path, build: Build | None) -> Iterator[Finding]:
    """Paths of the build at ``at`` that lead out of the pipeline's folder, and names that no ``ARG`` can have."""
    if build is None:
        return
    context = None if build.context in {".", "./"} else build.context
    for key, path in (("context", context), ("dockerfile", build.dockerfile)):
        if path is not None and (why := below_problem(path.removeprefix("./"))):
            around = "the pipeline's folder" if key == "context" else "the context"
            reason = f"not a path below {around}: {why}"
            yield Finding(
                (*at, key), path, reason, "write a path relative to it; move or copy what it names there"
            )
    for name in build.args:
        if not VARIABLE.fullmatch(name):
            fix = "write letters, digits and `_`, and begin with a letter or `_`"
            yield Finding((*at, "args", name), name, "not the name of an argument", fix)


# What is wrong with the references in a ``pipeline.yaml``: in words of commands, and in patterns of files.


SINGLE_BRACE = ("a brace that belongs to no reference", "write `{{` and `}}` for braces")


def in_step(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which stands in the command of the step ``name``."""
    step = declared.steps[name]
    of_items = pods.OF_ITEMS if step.items else ()
    if step.items and step.items.mode != "ordered" and pods.PREVIOUS not in declared.parameters:
        of_items = (pods.ITEM,)
        if pods.PREVIOUS in pods.names(word):
            reason = f"`{{{pods.PREVIOUS}}}` is the result of the item before, and these wait for no other"
            fix = "write `mode: ordered` in `items`, or remove it"
            yield Finding(at, word, reason, fix, read=((*at[:2], "items"),))
            return
    others = [each for each in declared.steps if each != name]
    yield from _in_word(at, word, [*pods.OWN, *of_items, *declared.parameters, *others], name, declared)


def in_environment(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, the value of an environment variable of the step ``name``."""
    of_item = (*pods.OF_ITEMS, pods.OUTPUT)
    used = [each for each in pods.names(word) if each in of_item and each not in declared.parameters]
    if declared.steps[name].items and used:
        reason = f"`{{{used[0]}}}` is another for each item, and all items have one environment"
        yield Finding(at, word, reason, "write it in `run`", read=((*at[:2], "items"),))
        return
    yield from in_step(at, word, name, declared)


def in_items(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, the pattern of files of the items of the step ``name``."""
    others = [step for step in declared.steps if step != name]
    yield from _in_word(at, word, [pods.STORE, *declared.parameters, *others], name, declared)


def in_service(at: Path, word: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which stands in the command of a service."""
    for name in pods.names(word):
        if name in declared.steps or name in pods.OWN:
            reason = "services do not mount the store, and so know nothing of what steps write"
            yield Finding(at, word, reason, "remove it", read=(("steps", name),))
            return
    yield from _in_word(at, word, [*OF_SERVICES, *declared.parameters], "", declared)


def in_app(at: Path, word: str, app: PipelineApp, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which stands in the command, the environment or another key of an app."""
    for name in pods.names(word):
        if name in declared.services:
            reason = f"`{name}` is a service, to which steps alone connect"
            yield Finding(at, word, reason, "remove it", read=(("services", name),))
            return
        if name in declared.apps and name not in declared.steps:
            variable = address_variables(name)[0]
            reason = f"`{name}` is an app, whose address other apps find in their environment"
            fix = f"name it in `connects`, and read `{variable}`"
            yield Finding(at, word, reason, fix, read=(("apps", name),))
            return
        step = declared.steps.get(name)
        if step and step.matrix and not step.best and not _alone(word):
            reason = f"`{name}` has a matrix, and so is several steps"
            fix = f"add `best` to the step, or write `{{{name}}}` alone, which becomes one word for each"
            yield Finding(at, word, reason, fix, read=(("steps", name, "matrix"),))
            return
    own = OF_APPS if isinstance(app, ProgramApp) else ()
    yield from _in_word(at, word, [*own, *declared.parameters, *declared.steps], "", declared)


def _alone(word: str) -> bool:
    """Whether ``word`` is nothing but one reference."""
    return f"{{{next(pods.names(word), '')}}}" == word


def _in_word(at: Path, word: str, known: Collection[str], step: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which may refer to what is ``known``; it stands in ``step``, or in a service."""
    if pods.single_brace(word):
        yield Finding(at, word, *SINGLE_BRACE)
        return
    for name in dict.fromkeys(pods.names(word)):
        read: tuple[Path, ...] = ((*at[:2], "items"),)
        if name in known:
            continue
        if name == step:
            reason, fix = f"`{{{name}}}` is the step itself", "write `{output}` for the directory that it writes"
        elif name in declared.services:
            variable = service_variables(name)[0]
            reason = f"`{name}` is a service, whose address steps find in their environment"
            fix = f"name it in `connects`, and read `{variable}`"
        elif name in pods.OF_ITEMS and step and not declared.steps[step].items:
            reason = f"only a step with `items` has `{{{name}}}`, and this has none"
            fix = "add `items`, with a pattern of `files`, or remove it"
        else:
            yield _unknown(at, word, name, known)
            continue
        yield Finding(at, word, reason, fix, read)


def _unknown(at: Path, word: str, name: str, known: Collection[str]) -> Finding:
    near = nearest(name, known)
    fix = f"did you mean `{{{near}}}`?" if near else f"write one of {listed(known)}, or `{{{{{name}}}}}`"
    fix += f"{'' if near else '.'} A new parameter is declared as `parameters: {{{name}: …}}`"
    if f"${{{name}}}" in word:
        fix = f"write `${{{{{name}}}}}` for a variable of the shell"
    read = (("parameters", name), ("steps", name), ("services", name))
    return Finding(at, word, f"no step and no parameter is called `{name}`", fix, read)


OWN_VARIABLES = "SLIPWAY_"
"""What the environment variables begin with that Slipway sets."""


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
        yield from environment_findings(at, step.environment, step.secrets)
        yield from _paths(at, step)
        yield from _after(at, name, step, declared)
        yield from _matrix(at, step, declared)
        yield from _substitute(at, step, declared)
        yield from own_build(at, step.image, step.build)
    yield from build_findings(("build",), declared.build)
    yield from _same_names(declared)
    yield from _circle(declared)


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
    wrong = list(_wrong(list[unchosen], parameter.choices, (*at, "choices"), kind))
    yield from wrong
    if not wrong:
        yield from _wrong(annotation(parameter), parameter.default, (*at, "default"), kind, (*at, "choices"))


def _wrong(kind: Any, value: object, at: Path, *read: Path) -> Iterator[Finding]:
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
    found: dict[str, list[str]] = {}
    for name, step in declared.steps.items():
        for other in used_in(step):
            if other != name:
                found.setdefault(other, []).append(name)
    return found


def _references(
    at: Path, name: str, step: PipelineStep, declared: PipelineFile, readers: Sequence[str]
) -> Iterator[Finding]:
    for index, word in enumerate(step.run):
        yield from in_step((*at, "run", index), word, name, declared)
    for key, word in step.environment.items():
        yield from in_environment((*at, "environment", key), word, name, declared)
    if step.run and not step.run[0].strip():
        yield Finding(
            (*at, "run", 0), step.run[0], "the program has no name", "write it first: `[python, train.py]`"
        )
    own = (*pods.OWN, *pods.OF_ITEMS)
    misspelt = set(used_in(step)) - {*own, *declared.steps, *declared.parameters}
    if (step.results or readers) and step.run and not misspelt and "output" not in used_in(step):
        what = "its results" if step.results else f"what {listed(readers, 'and')} read{'s' * (len(readers) == 1)}"
        yield Finding(
            (*at, "run"),
            step.run,
            f"nothing tells the program where to write {what}",
            'add `{output}` where it takes the path: `--output, "{output}"`',
            read=((*at, "environment"), (*at, "results")),
        )


def environment_findings(
    at: Path, environment: Mapping[str, str], secrets: Mapping[str, str]
) -> Iterator[Finding]:
    """What is wrong with the names of environment variables of a step or app at ``at``, and with its secrets."""
    for section, names in (("environment", list(environment)), ("secrets", list(secrets))):
        for name in names:
            if not VARIABLE.fullmatch(name):
                fix = "write letters, digits and `_`, and no digit first"
                yield Finding((*at, section, name), name, "not the name of an environment variable", fix)
            elif name.startswith(OWN_VARIABLES):
                reason = f"variables that begin with `{OWN_VARIABLES}` are Slipway's"
                yield Finding((*at, section, name), name, reason, "choose another name")
    for name, secret in secrets.items():
        place = (*at, "secrets", name)
        yield from name_findings(place, secret)
        if name in environment:
            yield Finding(place, secret, "`environment` has that variable too", "remove one of them")


def _paths(at: Path, step: PipelineStep) -> Iterator[Finding]:
    """Paths that lead out of the pipeline's folder."""
    named: list[tuple[Path, str | None]] = [
        ((*at, "code"), None if step.code in {".", "./"} else step.code),
        ((*at, "requirements"), step.requirements),
        ((*at, "rehearsal", "requirements"), step.rehearsal and step.rehearsal.requirements),
        *(((*at, "files", index), pattern) for index, pattern in enumerate(step.files)),
    ]
    for place, path in named:
        if path is not None and (why := below_problem(path.removeprefix("./"))):
            reason = f"not a path below the pipeline's folder: {why}"
            yield Finding(place, path, reason, "write a path relative to it; move or copy what it names there")


def _after(at: Path, name: str, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    others = [each for each in declared.steps if each != name]
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
            yield from _wrong(axis(declared.parameters[name]), values, place, ("parameters", name))
    count = math.prod(map(len, step.matrix.values()))
    if count > MOST_VARIANTS:
        reason = f"{count} variants, and a step has at most {MOST_VARIANTS}"
        yield Finding((*at, "matrix"), step.matrix, reason, "remove values")


def _substitute(at: Path, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    if step.rehearsal is None:
        return
    place = (*at, "rehearsal")
    if step.rehearsal.run is None and step.rehearsal.requirements is None:
        fix = "write `run`, `requirements` or both, or remove it"
        yield Finding(place, None, "empty", fix, all_of=(place,))
    read = [name for name in used_in(step) if name in declared.steps]
    for index, word in enumerate(step.rehearsal.run or ()):
        yield from in_step((*place, "run", index), word, str(at[-1]), declared)
        for name in pods.names(word):
            if name in declared.steps and name != at[-1] and name not in read:
                reason = f"`run` of the step does not read `{name}`, so a rehearsal has no directory of it"
                fix = "write the same inputs in both"
                yield Finding((*place, "run", index), word, reason, fix, read=((*at, "run"),))


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
        name: {each for each in (*used_in(step), *step.after) if each in declared.steps and each != name}
        for name, step in declared.steps.items()
    }
    circle: Sequence[str] = circle_of(needs)
    if circle:
        first = min(circle, key=list(declared.steps).index)
        words = f"the steps {listed(circle, 'and')} wait for one another"
        yield Finding(("steps", first), first, words, "remove one of the references, or an `after`")


# What is wrong with the items of the steps of a ``pipeline.yaml``, and with the workers on them.
#
# The same holds for what a stack file says of workers, which `of_section` checks.


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
        yield from _told(at, step)
        yield from _results(at, step)
    if any(step.items for step in declared.steps.values()):
        yield from _names(declared)


def of_section(declared: PipelineFile, section: Section[Any]) -> Iterator[Finding]:
    """Findings about what a stack file says of steps with items."""
    for name, step in declared.steps.items():
        settings = getattr(_steps_of(section.settings), name, None)
        if step.items is None or settings is None:
            continue
        at = section.key("steps", name)
        mode, workers = getattr(settings, MODE), getattr(settings, WORKERS)
        if (mode, workers) != (step.items.mode, step.workers or 1):
            yield from _waiting((*at, WORKERS), mode, workers, read=((*at, MODE),))


def _steps_of(settings: PipelineSettings) -> object:
    return getattr(settings, "steps", None)


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
        roots = [f"{{{each}}}" for each in (*(each for each in declared.steps if each != name), pods.STORE)]
        reason = "not a pattern of files below the output of a step, or below the store"
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


def _told(at: Path, step: PipelineStep) -> Iterator[Finding]:
    """A program that is not told on which item it works."""
    words = [name for word in step.run for name in pods.names(word)]
    if step.run and pods.ITEM not in words:
        reason = "nothing tells the program which item it works on"
        fix = 'add `{item}` where it takes the path: `--day, "{item}"`'
        yield Finding((*at, "run"), step.run, reason, fix, read=((*at, "items"),))


def _results(at: Path, step: PipelineStep) -> Iterator[Finding]:
    assert step.items is not None
    for key, result in step.results.items():
        where = [result.number, result.table, result.curves, result.picture, result.file]
        path = next((each for each in where if each is not None), "").partition("#")[0]
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
        for section, there in (("steps", declared.steps), ("parameters", declared.parameters)):
            if name in there:
                reason = f"`{{{name}}}` means something else in commands of steps with items"
                yield Finding((section, name), name, reason, "choose another name", read=(("steps",),))
