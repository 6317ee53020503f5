"""What is wrong with the searches of a ``pipeline.yaml`` whose keys are right each by itself."""

from collections.abc import Iterator

from slipway.infra.pipelines import pods
from slipway.infra.pipelines.file.checks import value_findings
from slipway.infra.pipelines.file.section import annotation, axis
from slipway.infra.pipelines.file.shape import PipelineFile, PipelineStep
from slipway.infra.pipelines.search import NUMBERS, RESULTS, SEARCH, SearchParameter, StepSearch
from slipway.infra.schema.base import Int
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed

OTHERS = {
    "matrix": "list the values in `search.parameters`, with `method: grid`",
    "items": "make two steps of it",
    "nodes": "make two steps of it",
    "best": "write `by` and `of` in `search`",
}
"""Keys that a step with a search cannot have, each with what to do instead."""


def check_searches(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about searches: their parameters, the number that they are by, and what they cannot be with."""
    for name, step in declared.steps.items():
        if step.search is not None:
            at: Path = ("steps", name, SEARCH)
            yield from _others(at, step)
            for key in step.search.parameters:
                yield from _parameter(at, key, step, declared)
            yield from _number(at, step, step.search)
            yield from step.search.stop_findings(at)
            yield from step.search.count_findings(at)


def _others(at: Path, step: PipelineStep) -> Iterator[Finding]:
    """Keys of the step that it cannot have beside a search."""
    for key, fix in OTHERS.items():
        if getattr(step, key):
            reason = f"a step with `{SEARCH}` has no `{key}`"
            yield Finding((*at[:2], key), None, reason, f"remove it: {fix}", read=(at,))


def _parameter(at: Path, name: str, step: PipelineStep, declared: PipelineFile) -> Iterator[Finding]:
    assert step.search is not None
    parameter, known = step.search.parameters[name], declared.parameters.get(name)
    used = [word for text in step.run for word in pods.names(text) if word in declared.parameters]
    place = (*at, "parameters", name)
    if known is None:
        fix = did_you_mean(name, used, f"write {listed(used)}" if used else "add it to `parameters` of the file")
        yield Finding(place, name, "there is no such parameter", fix, read=(("parameters", name),))
        return
    if name not in used:
        reason = "`run` does not use that parameter, so all trials would be the same"
        yield Finding(place, name, reason, f"add `{{{name}}}` to `run`", read=((*at[:2], "run"),))
    for variable, word in step.environment.items():
        if name in pods.names(word):
            reason = f"`{{{name}}}` is another for each trial, and all trials have one environment"
            yield Finding((*at[:2], "environment", variable), word, reason, "write it in `run`", read=(at,))
    yield from parameter.findings(place, known.type, step.search.method)
    if parameter.values is not None or known.type in NUMBERS:
        yield from _values(place, name, parameter, declared)


def _values(place: Path, name: str, parameter: SearchParameter, declared: PipelineFile) -> Iterator[Finding]:
    """Values that the parameter of the pipeline cannot have."""
    known, read = declared.parameters[name], ("parameters", name)
    if parameter.values is not None:
        yield from value_findings(axis(known), parameter.values, (*place, "values"), read)
        return
    for key in ("low", "high"):
        yield from value_findings(annotation(known), getattr(parameter, key), (*place, key), read)
    if known.type == "integer":
        yield from value_findings(Int, parameter.step, (*place, "step"), read)


def _number(at: Path, step: PipelineStep, search: StepSearch) -> Iterator[Finding]:
    numbers = [name for name, result in step.results.items() if result.number is not None]
    if search.by not in numbers:
        reason = "no number among the step's results has that name"
        fix = did_you_mean(search.by, numbers, f"write {listed(numbers)}" if numbers else "add it to `results`")
        yield Finding((*at, "by"), search.by, reason, fix, read=((*at[:2], "results", search.by),))
    for name in step.results:
        if name in RESULTS:
            reason = "every search has a result of that name"
            yield Finding((*at[:2], "results", name), name, reason, "choose another name", read=(at,))
