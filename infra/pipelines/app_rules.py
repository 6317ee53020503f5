"""What keeps apps from being those of one pipeline, however it declares them."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from infra.pipelines import references
from infra.pipelines.apps import OF_APPS, AppDeclaration, KeptAppSettings, address_variables
from infra.pipelines.contract import ServiceDeclaration, StepDeclaration
from infra.pipelines.step_rules import circle_of, several_within
from infra.schema.problems import listed

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


def misfits(
    apps: Sequence[AppDeclaration], steps: Sequence[StepDeclaration], services: Sequence[ServiceDeclaration] = ()
) -> Iterator[str]:
    """The reasons why ``apps`` cannot be those of a pipeline with ``steps`` and ``services``.

    An app that another connects to may be left out by the stack file, which `infra.settings.checks.apps` finds.
    """
    names = Counter(each.name for each in apps)
    taken = {
        **{each.name: "a service" for each in services},
        **{name: "a step" for each in steps for name in (each.name, *([each.variant.of] if each.variant else []))},
    }
    for name, count in names.items():
        if count > 1:
            yield f"two apps are called `{name}`"
        if name in taken:
            yield f"an app and {taken[name].removeprefix('a ')} are called `{name}`"
    for app in apps:
        for reason in (*_program(app), *_ports(app), *_steps(app, steps), *_connects(app, apps)):
            yield f"app `{app.name}` {reason}"
    if circle := circle_of({each.name: ({*each.connects} & {*names}) - {each.name} for each in apps}):
        yield f"the apps {listed(circle, 'and')} wait for one another"


def _program(app: AppDeclaration) -> Iterator[str]:
    """What is wrong with the command line of an app, and with what it has."""
    if not app.arguments and app.module is None:
        yield "has neither a `module` nor a command line"
    if app.keeps_data != isinstance(app.placed_by, KeptAppSettings):
        yield "keeps data where `placed_by` is a `KeptAppSettings`, and else does not"
    words = [*app.arguments, *app.environment.values()]
    yield from references.misfits(words, {*app.inputs, *app.folders}, OF_APPS)
    used = {name for word in words for name in references.names(word)}
    for name in sorted({*OF_APPS} & {*app.inputs, *app.folders}):
        yield f"has an input or a folder `{name}`, a name that means something else in its command line"
    for name, there in (("data", app.keeps_data), ("token", app.token)):
        if name in used and not there:
            yield f"refers to `{name}`, and has none"
    for name in sorted({*app.environment} & {*app.secrets}):
        yield f"has the variable `{name}` in both `environment` and `secrets`"


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
    groups: dict[str, list[StepDeclaration]] = {}
    for step in steps:
        groups.setdefault(step.variant.of if step.variant else step.name, []).append(step)
    known = {*groups, *(step.name for step in steps)}
    for other in dict.fromkeys((*app.inputs.values(), *app.after)):
        if other not in known:
            yield f"needs the step `{other}`, and there is none"
    yield from several_within(app.inputs, [*app.arguments, *app.environment.values()], groups)


def _connects(app: AppDeclaration, apps: Sequence[AppDeclaration]) -> Iterator[str]:
    if app.name in app.connects:
        yield "connects to itself"
    for other in apps:
        if other.name in app.connects:
            for variable in address_variables(other.name, other.ports):
                if variable in {*app.environment, *app.secrets}:
                    yield f"sets `{variable}`, in which it is told of the app `{other.name}`"
