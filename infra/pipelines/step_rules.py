"""What keeps steps from being those of one pipeline, however it declares them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from infra.pipelines import references
from infra.pipelines.contract import (
    OF_SERVICES,
    RESERVED_INPUTS,
    ServiceDeclaration,
    StepDeclaration,
    service_variables,
)
from infra.pipelines.node_roles import ROLES, unsuitable
from infra.pipelines.results import PIPELINE_OUTPUTS, Number
from infra.schema.problems import listed

PIPELINE = "pipeline"
"""The reference in a step's arguments that means the pipeline's directory."""


def misfits(steps: Sequence[StepDeclaration], services: Sequence[ServiceDeclaration] = ()) -> Iterator[str]:
    """The reasons why ``steps`` and ``services`` cannot be those of one pipeline."""
    groups: dict[str, list[StepDeclaration]] = {}
    for step in steps:
        groups.setdefault(step.variant.of if step.variant else step.name, []).append(step)
    names = Counter(step.name for step in steps)
    twice = [name for name, count in names.items() if count > 1]
    twice += [name for name, group in groups.items() if name in names and any(each.variant for each in group)]
    for name in dict.fromkeys(twice):
        yield f"two steps are called `{name}`"
    for step in steps:
        embedded = several_within(step.inputs, step.arguments, groups)
        for reason in (*_alone(step, {*groups, *names}), *embedded):
            yield f"step `{step.name}` {reason}"
    of = {step.name: name for name, group in groups.items() for step in group}
    needs = {
        name: {of.get(each, each) for step in group for each in _needs(step)} for name, group in groups.items()
    }
    if circle := circle_of(needs):
        yield f"the steps {listed(circle, 'and')} wait for one another"
    yield from _services(steps, services)
    yield from _items(steps, groups)
    yield from _nodes(steps)


def _services(steps: Sequence[StepDeclaration], services: Sequence[ServiceDeclaration]) -> Iterator[str]:
    """What is wrong with services and with the steps that connect to them."""
    names = Counter(each.name for each in services)
    for service in services:
        for reason in references.misfits(service.arguments, (), OF_SERVICES):
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
        for name in {*step.inputs} & {*references.OF_ITEMS}:
            yield f"step `{step.name}` has an input `{name}`, a name that means something else in arguments"
        for name in references.names(step.items.files):
            group = groups.get(step.inputs.get(name, ""), ())
            if len(group) > 1 and not group[0].best:
                yield f"step `{step.name}` has items of `{name}`, which is several steps without a `best`"


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
            for reason, _ in unsuitable(nodes.roles, nodes.count):
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
    inputs: Mapping[str, str], words: Iterable[str], groups: Mapping[str, Sequence[StepDeclaration]]
) -> Iterator[str]:
    """What is wrong with ``words`` that have more than the reference to an input that is several steps.

    ``groups`` are all steps by the name of the one that they are made of.
    """
    texts = list(words)
    for name, other in inputs.items():
        group = [each for each in groups.get(other, ()) if each.name != other]
        embedded = any(name in references.names(word) and word != f"{{{name}}}" for word in texts)
        if group and not group[0].best and embedded:
            yield f"reads `{other}`, which is several steps: write `{{{name}}}` alone, a word for each"


def _needs(step: StepDeclaration) -> dict[str, None]:
    return dict.fromkeys((*step.inputs.values(), *step.after))


def _alone(step: StepDeclaration, known: set[str]) -> Iterator[str]:
    """What is wrong with one step of a pipeline that has the steps ``known``."""
    if (step.module is None) == (step.command is None):
        yield "needs either a `module` or a `command`"
    for other in _needs(step):
        if other not in known:
            yield f"needs `{other}`, and there is no such step"
    own = (*references.OWN, PIPELINE, *(references.OF_ITEMS if step.items else ()))
    words = [*step.arguments, *step.environment.values(), *([step.items.files] if step.items else [])]
    yield from references.misfits(words, {*step.inputs, *step.folders}, own)
    for name in step.inputs:
        if name in RESERVED_INPUTS:
            yield f"has an input `{name}`, a name that means something else in arguments"
    for name in sorted({each.name for each in step.results} & set(PIPELINE_OUTPUTS)):
        yield f"has a result `{name}`, which is an output that every pipeline has"
    for name, count in Counter(each.name for each in step.results).items():
        if count > 1:
            yield f"has {count} results `{name}`, and shows one of a name"
    numbers = [each.name for each in step.results if isinstance(each, Number)]
    if step.best and step.best.by not in numbers:
        yield f"has its best by `{step.best.by}`, which is no `Number` of its results"
