"""What a ``pipeline.py`` declares, held to its types: whatever fails in it is one error with the file's name."""

import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from slipway.infra.commands import page
from slipway.infra.pipelines import pods
from slipway.infra.pipelines.apps import (
    OF_APPS,
    AppDeclaration,
    KeptAppSettings,
    address_variables,
    own_variables,
    told_twice,
)
from slipway.infra.pipelines.checkpoints import CHECKPOINT
from slipway.infra.pipelines.contract import (
    OF_SERVICES,
    RESERVED_INPUTS,
    AnyPipeline,
    Pipeline,
    PipelineSettings,
    ServiceDeclaration,
    StepDeclaration,
    service_variables,
)
from slipway.infra.pipelines.matrix import MOST_STEPS, ROLES, role_problems
from slipway.infra.pipelines.mounts import SCRATCH, path_problem
from slipway.infra.pipelines.pods import MOST_WORDS
from slipway.infra.pipelines.results import PIPELINE_OUTPUTS, Number
from slipway.infra.pipelines.scripts import is_script
from slipway.infra.schema.problems import Finding, Problem, SettingsError, listed

MOST = {"arguments": MOST_WORDS, "results": 200}
"""How many parts a field of a step, service or app may have. All are read some hundred times in an evaluation."""

LONGEST = 500
"""Characters of another library's error that are shown: it may hold a whole value."""


def hold_to_types(file: str, declared: AnyPipeline) -> AnyPipeline:
    """The pipeline of ``file``, whose functions raise SettingsError where they fail or return something else.

    Raises SettingsError where it is itself of other types than `Pipeline` has.
    """
    _check(file, "PIPELINE", declared, Pipeline[PipelineSettings])
    return replace(
        declared,
        steps=_Checked(file, "steps", declared.steps, StepDeclaration),
        services=_Checked(file, "services", declared.services, ServiceDeclaration),
        apps=_Checked(file, "apps", declared.apps, AppDeclaration),
        checks=[_Checked(file, "checks", check, Finding) for check in declared.checks],
    )


def validate(file: str, value: Any, handler: Callable[[Any], Any]) -> Any:
    """A section of the pipeline of ``file`` by its model; raises SettingsError where the model itself fails."""
    try:
        return handler(value)
    except (SettingsError, ValidationError):
        raise
    except Exception as error:
        raise failure(file, "a field or a validator of its `settings` fails", error) from error


@dataclass(frozen=True)
class _Checked:
    """A function of ``file`` that returns several ``kind``."""

    file: str
    name: str
    function: Callable[[Any], Iterable[Any]]
    kind: type[object]

    def __call__(self, given: Any) -> Sequence[Any]:
        try:
            returned = tuple(self.function(given))
        except SettingsError:
            raise
        except Exception as error:
            raise failure(self.file, f"`{self.name}` fails", error) from error
        for index, declared in enumerate(returned):
            for key, most in MOST.items():
                value = getattr(declared, key, ())
                if isinstance(value, list | tuple) and (count := len(cast("Sequence[object]", value))) > most:
                    raise declaration_error(
                        self.file, f"`{self.name}[{index}].{key}` has {count} parts, and at most {most}"
                    )
        # More steps are refused for their number, and reading thousands takes longer than anybody waits.
        _check(self.file, self.name, returned[:MOST_STEPS], tuple[self.kind, ...])
        return returned


def _check(file: str, name: str, value: object, kind: Any) -> None:
    try:
        read = _adapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in wrong["loc"])
        raise declaration_error(file, f"`{name}{place}` has another type: {wrong['msg']}") from error
    for place in _made(value, read, name):
        raise declaration_error(
            file, f"`{place}` has another type: it is a mapping, and has to be made by its class"
        )


def _made(given: Any, read: Any, place: str) -> Iterator[str]:
    """The places where pydantic read a model from the mapping that ``given`` has there."""
    if isinstance(read, BaseModel) and not isinstance(given, BaseModel):
        yield place
    elif is_dataclass(read):
        for field in fields(read):
            yield from _made(getattr(given, field.name), getattr(read, field.name), f"{place}.{field.name}")
    elif isinstance(read, list | tuple):
        for index, pair in enumerate(zip(given, cast("Sequence[Any]", read), strict=True)):
            yield from _made(*pair, f"{place}[{index}]")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    config = ConfigDict(revalidate_instances="always", arbitrary_types_allowed=True)
    return TypeAdapter(kind, config=config)


def failure(file: str, what: str, error: Exception) -> SettingsError:
    """Code of ``file`` raised ``error``."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename.endswith(file)]
    where = f" in line {lines[-1]}" if lines else ""
    text = str(error)
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return declaration_error(file, f"{what}{where}: {type(error).__name__}: {text}")


def declaration_error(file: str, reason: str) -> SettingsError:
    """The declaration in ``file`` is wrong."""
    return SettingsError([problem(file, reason)])


def problem(file: str, reason: str) -> Problem:
    """What is wrong with the declaration in ``file``."""
    return Problem(
        file, Path(file).stem.upper(), reason, f"correct the file; {page('steps.md')} says what it declares"
    )


# What keeps steps from being those of one pipeline, however it declares them.


PIPELINE = "pipeline"
"""The reference in a step's arguments that means the pipeline's directory."""


def _groups(steps: Iterable[StepDeclaration]) -> dict[str, list[StepDeclaration]]:
    """The steps by the name of the one that they are made of."""
    groups: dict[str, list[StepDeclaration]] = {}
    for step in steps:
        groups.setdefault(step.variant.of if step.variant else step.name, []).append(step)
    return groups


def step_misfits(steps: Sequence[StepDeclaration], services: Sequence[ServiceDeclaration] = ()) -> Iterator[str]:
    """The reasons why ``steps`` and ``services`` cannot be those of one pipeline."""
    groups = _groups(steps)
    names = Counter(step.name for step in steps)
    twice = [name for name, count in names.items() if count > 1]
    twice += [name for name, group in groups.items() if name in names and any(step.variant for step in group)]
    for name in dict.fromkeys(twice):
        yield f"two steps are called `{name}`"
    for step in steps:
        embedded = several_within(step, groups)
        for reason in (*_alone(step, {*groups, *names}), *embedded):
            yield f"step `{step.name}` {reason}"
    of = {step.name: name for name, group in groups.items() for step in group}
    needs = {
        name: {of.get(need, need) for step in group for need in _needs(step)} for name, group in groups.items()
    }
    if circle := circle_of(needs):
        yield f"the steps {listed(circle, 'and')} wait for one another"
    yield from _services(steps, services)
    yield from _items(steps, groups)
    yield from _nodes(steps)
    yield from _mounts(steps, groups)


def _services(steps: Sequence[StepDeclaration], services: Sequence[ServiceDeclaration]) -> Iterator[str]:
    """What is wrong with services and with the steps that connect to them."""
    names = Counter(service.name for service in services)
    for service in services:
        for reason in pods.misfits(service.arguments, (), OF_SERVICES):
            yield f"service `{service.name}` {reason}"
    for name, count in names.items():
        if count > 1:
            yield f"two services are called `{name}`"
        if any(name in {step.name, step.variant.of if step.variant else step.name} for step in steps):
            yield f"a service and a step are called `{name}`"
        if not any(name in step.connects for step in steps):
            yield f"no step connects to the service `{name}`"
    for step in steps:
        for name in dict.fromkeys(step.connects):
            if name not in names:
                yield f"step `{step.name}` connects to `{name}`, and there is no such service"
            for variable in service_variables(name):
                if variable in {*step.environment, *step.secrets}:
                    yield f"step `{step.name}` sets `{variable}`, in which it is told of the service `{name}`"


def _items(steps: Sequence[StepDeclaration], groups: Mapping[str, Sequence[StepDeclaration]]) -> Iterator[str]:
    """What is wrong with steps that work on items, and with workers of steps without."""
    for step in steps:
        if step.items is None:
            if step.workers != 1:
                yield f"step `{step.name}` has several workers and no `items`: they would write one directory"
            continue
        if step.command is None:
            yield f"step `{step.name}` has `items`, and only a `command` can"
        if step.workers < 1 or (step.workers > 1 and step.items.mode == "ordered"):
            yield f"step `{step.name}` has {step.workers} workers for items that wait for one another"
        if step.items.queue is not None and step.items.queue not in step.connects:
            yield f"step `{step.name}` has the queue `{step.items.queue}`, and does not connect to it"
        for name in {*step.inputs} & {*pods.OF_ITEMS}:
            yield f"step `{step.name}` has an input `{name}`, a name that means something else in arguments"
        for name in pods.names(step.items.files):
            group = groups.get(step.inputs.get(name, ""), ())
            if len(group) > 1 and not group[0].best:
                yield f"step `{step.name}` has items of `{name}`, which is several steps without a `best`"


def _mounts(steps: Sequence[StepDeclaration], groups: Mapping[str, Sequence[StepDeclaration]]) -> Iterator[str]:
    """What is wrong with mounts of steps: a mount is one folder, which is known before the program starts."""
    for step in steps:
        for mount in step.command.mounts if step.command else ():
            name = mount.source.name
            known = {*step.inputs, *step.data, *([] if step.items else [pods.OUTPUT]), pods.STORE, SCRATCH}
            if problem := path_problem(mount.path):
                yield f"step `{step.name}` mounts `{mount.path}`: {problem[0]}"
            elif name not in known:
                yield f"step `{step.name}` mounts `{mount.source.text}`, which is none of {listed(sorted(known))}"
            elif len(groups.get(step.inputs.get(name, ""), ())) > 1:
                yield f"step `{step.name}` mounts `{mount.source.text}`, and `{name}` is several steps"


def _nodes(steps: Sequence[StepDeclaration]) -> Iterator[str]:
    """What is wrong with steps that run on several nodes."""
    for step in steps:
        nodes = step.nodes
        if nodes is None:
            continue
        if step.items is not None:
            yield f"step `{step.name}` has both items, on which pods work by themselves, and several nodes"
        unknown = [role for role in nodes.roles if role not in ROLES]
        for role in unknown:
            yield f"step `{step.name}` has a role `{role}`, and TensorFlow knows {listed(ROLES, 'and')}"
        if nodes.roles and not unknown:
            for reason, _ in role_problems(nodes.roles, nodes.count):
                yield f"step `{step.name}`: {reason}"
        if nodes.count < 1 or min(nodes.roles.values(), default=1) < 1:
            yield f"step `{step.name}` has fewer than one node, or a role without a pod"


def circle_of(needs: Mapping[str, set[str]]) -> Sequence[str]:
    """The steps of a circle in ``needs``, which has by each step those that it waits for; empty where none is."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return error.args[1][:-1]
    return []


def several_within(
    declared: StepDeclaration | AppDeclaration, groups: Mapping[str, Sequence[StepDeclaration]]
) -> Iterator[str]:
    """What is wrong with references to an input that is several steps: only an argument can become several.

    ``groups`` are all steps by the name of the one that they are made of.
    """
    for name, other in declared.inputs.items():
        group = [step for step in groups.get(other, ()) if step.name != other]
        if not group or group[0].best:
            continue
        if any(name in pods.names(word) and word != f"{{{name}}}" for word in declared.arguments):
            yield f"reads `{other}`, which is several steps: write `{{{name}}}` alone, a word for each"
        if is_script(declared.arguments) and any(name in pods.names(word) for word in declared.arguments):
            yield f"has `{other}`, which is several steps, in its script, in which a reference is one word"
        for variable, word in declared.environment.items():
            if name in pods.names(word):
                yield f"has `{other}`, which is several steps, in the variable `{variable}`, which is one word"


def _needs(step: StepDeclaration) -> dict[str, None]:
    return dict.fromkeys((*step.inputs.values(), *step.after))


def _alone(step: StepDeclaration, known: set[str]) -> Iterator[str]:
    """What is wrong with one step of a pipeline that has the steps ``known``."""
    if (step.module is None) == (step.command is None):
        yield "needs either a `module` or a `command`"
    for other in _needs(step):
        if other not in known:
            yield f"needs `{other}`, and there is no such step"
    everywhere = (*pods.OWN, PIPELINE, *(pods.OF_ITEMS if step.items else ()))
    everywhere += (CHECKPOINT,) if step.checkpoints and step.command else ()
    if step.search:
        everywhere = (*everywhere, *step.search.parameters)
    words = [*step.arguments, *step.environment.values(), *([step.items.files] if step.items else [])]
    yield from pods.misfits(words, {*step.inputs, *step.folders, *step.data}, everywhere)
    several = bool(step.items or step.nodes or step.search)
    for name in sorted({*step.environment, *step.secrets} & pods.variables_of_steps(several=several)):
        yield f"sets `{name}`, which its pods have with a value of their own"
    for name in sorted({*step.data} & {*step.inputs, *step.folders}):
        yield f"has `{name}` as data and as an input or a folder"
    for name in (*step.inputs, *step.data):
        if name in RESERVED_INPUTS:
            yield f"has an input `{name}`, a name that means something else in arguments"
    for name in sorted({result.name for result in step.results} & set(PIPELINE_OUTPUTS)):
        yield f"has a result `{name}`, which is an output that every pipeline has"
    for name, count in Counter(result.name for result in step.results).items():
        if count > 1:
            yield f"has {count} results `{name}`, and shows one of a name"
    numbers = [result.name for result in step.results if isinstance(result, Number)]
    if step.best and step.best.by not in numbers:
        yield f"has its best by `{step.best.by}`, which is no `Number` of its results"


# What keeps apps from being those of one pipeline, however it declares them.


PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
LONGEST_PORT_NAME = 15
"""How Kubernetes has ports named: RFC 6335 (kubernetes.io/docs/reference/kubernetes-api, ServicePort.name and
ContainerPort.name, seen November 2026)."""

HTTP = "http"


def port_problem(name: str) -> tuple[str, str] | None:
    """Reason and fix where a port beside `HTTP` cannot be called ``name``."""
    if name == HTTP:
        return "`port` is called that", "choose another name"
    plain = PORT_NAME.fullmatch(name) and len(name) <= LONGEST_PORT_NAME
    if plain and "--" not in name and re.search("[a-z]", name):
        return None
    fix = (
        f"write at most {LONGEST_PORT_NAME} lower-case letters, digits and single hyphens, and a letter among them"
    )
    return "not the name of a port", fix


def app_misfits(
    apps: Sequence[AppDeclaration], steps: Sequence[StepDeclaration], services: Sequence[ServiceDeclaration] = ()
) -> Iterator[str]:
    """The reasons why ``apps`` cannot be those of a pipeline with ``steps`` and ``services``.

    An app that another connects to may be left out by the stack file, which `slipway.infra.settings.checks.apps`
    finds.
    """
    names = Counter(app.name for app in apps)
    taken = {
        **{service.name: "service" for service in services},
        **{name: "step" for step in steps for name in (step.name, *([step.variant.of] if step.variant else []))},
    }
    for name, count in names.items():
        if count > 1:
            yield f"two apps are called `{name}`"
        if name in taken:
            yield f"an app and a {taken[name]} are called `{name}`"
    for app in apps:
        for reason in (*_program(app), *_ports(app), *_steps(app, steps), *_connects(app, apps)):
            yield f"app `{app.name}` {reason}"
    if circle := circle_of({app.name: ({*app.connects} & {*names}) - {app.name} for app in apps}):
        yield f"the apps {listed(circle, 'and')} wait for one another"


def _program(app: AppDeclaration) -> Iterator[str]:
    """What is wrong with the command line of an app, and with what it has."""
    if not app.arguments and app.module is None:
        yield "has neither a `module` nor a command line"
    if app.keeps_data != isinstance(app.placed_by, KeptAppSettings):
        yield "keeps data where `placed_by` is a `KeptAppSettings`, and else does not"
    words = [*app.arguments, *app.environment.values()]
    yield from pods.misfits(words, {*app.inputs, *app.folders}, OF_APPS)
    used = {name for word in words for name in pods.names(word)}
    for name in sorted({*OF_APPS} & {*app.inputs, *app.folders}):
        yield f"has an input or a folder `{name}`, a name that means something else in its command line"
    for name, given in (("data", app.keeps_data), ("token", app.token)):
        if name in used and not given:
            yield f"refers to `{name}`, and has none"
    for name in sorted({*app.environment} & {*app.secrets}):
        yield f"has the variable `{name}` in both `environment` and `secrets`"
    for name in sorted({*app.environment, *app.secrets} & own_variables(app.name, token=app.token)):
        yield f"sets `{name}`, which its pods have with a value of their own"


def _ports(app: AppDeclaration) -> Iterator[str]:
    for name in app.ports:
        if why := port_problem(name):
            yield f"has a port `{name}`: {why[0]}; {why[1]}"
    numbers = Counter([app.port, *app.ports.values()])
    for number, count in numbers.items():
        if count > 1:
            yield f"has the port {number} under two names"
        if not 1024 <= number <= 65535:
            yield f"listens on port {number}, and a program that is not root can on 1024 to 65535"
    if app.metrics and app.metrics.port not in (HTTP, *app.ports):
        yield f"answers Prometheus on the port `{app.metrics.port}`, which it does not have"


def _steps(app: AppDeclaration, steps: Sequence[StepDeclaration]) -> Iterator[str]:
    groups = _groups(steps)
    known = {*groups, *(step.name for step in steps)}
    for other in dict.fromkeys((*app.inputs.values(), *app.after)):
        if other not in known:
            yield f"needs the step `{other}`, and there is none"
    yield from several_within(app, groups)


def _connects(app: AppDeclaration, apps: Sequence[AppDeclaration]) -> Iterator[str]:
    if app.name in app.connects:
        yield "connects to itself"
    told = {other.name: address_variables(other.name, other.ports) for other in apps if other.name in app.connects}
    for variable, (first, second) in told_twice(told).items():
        yield f"is told of the apps `{first}` and `{second}` in one variable, `{variable}`"
    for other in apps:
        if other.name in app.connects:
            for variable in address_variables(other.name, other.ports):
                if variable in {*app.environment, *app.secrets}:
                    yield f"sets `{variable}`, in which it is told of the app `{other.name}`"
