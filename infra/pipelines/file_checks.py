"""What is wrong with a ``pipeline.yaml`` whose keys are right each by itself."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from infra.pipelines import file_references, references
from infra.pipelines.contract import RESERVED_INPUTS
from infra.pipelines.file_build_checks import build_findings, own_build
from infra.pipelines.file_settings import SECTION_KEYS, annotation, axis, is_parameter, used_in
from infra.pipelines.file_words import VARIABLE
from infra.pipelines.matrix import MOST_VARIANTS, NAME_LIMIT, POOL, Axes, variant_name
from infra.pipelines.pipeline_file import Parameter, PipelineFile, PipelineStep
from infra.pipelines.step_rules import circle_of
from infra.schema.kubernetes_names import name_findings
from infra.schema.paths import below_problem
from infra.schema.problems import Finding, Path, did_you_mean, listed
from infra.schema.validation import findings as shape_findings

OWN_VARIABLES = "SLIPWAY_"
"""What the environment variables begin with that Slipway sets."""


def check(declared: PipelineFile) -> Iterator[Finding]:
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
    elif name in (*references.OWN, *RESERVED_INPUTS):
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
        for each in shape_findings(error, Axes):
            yield Finding((*at, *each.path), each.value, each.reason, each.fix, read)


def _step_name(at: Path, name: str) -> Iterator[Finding]:
    if len(name) > NAME_LIMIT:
        reason = f"{len(name)} characters, and a step's name has at most {NAME_LIMIT}: its Jobs' names hold it"
        yield Finding(at, name, reason, "shorten it")
        return
    yield from name_findings(at, name)
    if name in (*references.OWN, *RESERVED_INPUTS):
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
        yield from file_references.in_step((*at, "run", index), word, name, declared)
    for key, word in step.environment.items():
        yield from file_references.in_environment((*at, "environment", key), word, name, declared)
    if step.run and not step.run[0].strip():
        yield Finding(
            (*at, "run", 0), step.run[0], "the program has no name", "write it first: `[python, train.py]`"
        )
    own = (*references.OWN, *references.OF_ITEMS)
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
        yield from file_references.in_step((*place, "run", index), word, str(at[-1]), declared)
        for name in references.names(word):
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
