"""What keeps steps from being those of one pipeline, however it declares them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from infra.pipelines.contract import RESERVED_INPUTS, StepDeclaration
from infra.pipelines.results import PIPELINE_OUTPUTS, Number
from infra.schema.problems import listed


def misfits(steps: Sequence[StepDeclaration]) -> Iterator[str]:
    """The reasons why ``steps`` cannot be those of one pipeline."""
    groups: dict[str, list[StepDeclaration]] = {}
    for step in steps:
        groups.setdefault(step.variant.of if step.variant else step.name, []).append(step)
    names = Counter(step.name for step in steps)
    twice = [name for name, count in names.items() if count > 1]
    twice += [name for name, group in groups.items() if name in names and any(each.variant for each in group)]
    for name in dict.fromkeys(twice):
        yield f"two steps are called `{name}`"
    for step in steps:
        for reason in _alone(step, {*groups, *names}):
            yield f"step `{step.name}` {reason}"
    of = {step.name: name for name, group in groups.items() for step in group}
    needs = {
        name: {of.get(each, each) for step in group for each in _needs(step)} for name, group in groups.items()
    }
    if circle := circle_of(needs):
        yield f"the steps {listed(circle, 'and')} wait for one another"


def circle_of(needs: Mapping[str, set[str]]) -> Sequence[str]:
    """The steps of a circle in ``needs``, which has by each step those that it waits for; empty where none is."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return error.args[1][:-1]
    return []


def _needs(step: StepDeclaration) -> dict[str, None]:
    return dict.fromkeys((*step.inputs.values(), *step.after))


def _alone(step: StepDeclaration, known: set[str]) -> Iterator[str]:
    """What is wrong with one step of a pipeline that has the steps ``known``."""
    if (step.module is None) == (step.command is None):
        yield "needs either a `module` or a `command`"
    for other in _needs(step):
        if other not in known:
            yield f"needs `{other}`, and there is no such step"
    for name in step.inputs:
        if name in RESERVED_INPUTS:
            yield f"has an input `{name}`, a name that means something else in arguments"
    for name in sorted({each.name for each in step.results} & set(PIPELINE_OUTPUTS)):
        yield f"has a result `{name}`, which is an output that every pipeline has"
    numbers = [each.name for each in step.results if isinstance(each, Number)]
    if step.best and step.best.by not in numbers:
        yield f"has its best by `{step.best.by}`, which is no `Number` of its results"
