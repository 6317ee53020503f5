"""What is wrong with the results that the steps of a ``pipeline.yaml`` declare."""

import re
from collections.abc import Iterator

from infra.pipelines.pipeline_file import RESULT_KINDS, PipelineFile, PipelineStep, StepResult
from infra.pipelines.results import PIPELINE_OUTPUTS
from infra.schema.paths import below_problem
from infra.schema.problems import Finding, Path, did_you_mean, listed

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
POINTER = re.compile(r"(/([^~/]|~[01])*)*")

JSON_KINDS = ("number", "table", "curves")

MANIFEST = "manifest.json"
"""What the last file of a whole result is called."""


def check(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about names, paths and pointers, and about the number that says which variant is best."""
    for name, step in declared.steps.items():
        at: Path = ("steps", name)
        for key, result in step.results.items():
            yield from _name((*at, "results", key), key)
            yield from _result((*at, "results", key), result)
        yield from _best(at, step)


def _name(at: Path, name: str) -> Iterator[Finding]:
    if not NAME.fullmatch(name):
        yield Finding(at, name, "not the name of a result", "write letters, digits, `_` and `-` after a letter")
    elif name in PIPELINE_OUTPUTS:
        yield Finding(at, name, f"`{name}` is an output that every pipeline has", "choose another name")


def _result(at: Path, result: StepResult) -> Iterator[Finding]:
    kinds = [kind for kind in RESULT_KINDS if getattr(result, kind) is not None]
    if len(kinds) != 1:
        reason = f"{listed(kinds, 'and')} at once" if kinds else "it does not say what it is, and where"
        yield Finding(at, kinds or None, reason, f"write one of {listed(RESULT_KINDS)}")
        return
    (kind,) = kinds
    for other, keys in RESULT_KINDS.items():
        for key in keys if other != kind else ():
            if getattr(result, key) is not None:
                own = "a table's" if other == "table" else f"a result's with `{other}`"
                yield Finding(
                    (*at, key), getattr(result, key), f"the key is {own}, and this has `{kind}`", "remove it"
                )
    if kind == "table" and not result.columns:
        yield Finding((*at, "columns"), None, "required, and not there", "add it: how each column is written")
    yield from _place((*at, kind), kind, getattr(result, kind))
    if result.logs is not None and (why := below_problem(result.logs)):
        yield Finding((*at, "logs"), result.logs, f"not a path below `{{output}}`: {why}", "write a relative path")


def _place(at: Path, kind: str, value: str) -> Iterator[Finding]:
    path, mark, pointer = value.partition("#") if kind in JSON_KINDS else (value, "", "")
    if why := below_problem(path):
        reason = f"not a path below `{{output}}`: {why}"
        yield Finding(at, value, reason, "write a path relative to it, such as `metrics.json`")
    elif path == MANIFEST:
        yield Finding(at, value, "Slipway writes the file of that name itself", "choose another name")
    elif not mark and "#" in value:
        reason = "only JSON files have parts, and this is not `*.json`"
        yield Finding(at, value, reason, "remove the `#`, or name a JSON file")
    elif not POINTER.fullmatch(pointer):
        reason = "no JSON pointer (RFC 6901) stands after the `#`: it begins with `/`, and `~` is written `~0`"
        yield Finding(at, value, reason, f"write for example `{path}#/{pointer.lstrip('/') or 'accuracy'}`")


def _best(at: Path, step: PipelineStep) -> Iterator[Finding]:
    numbers = [name for name, result in step.results.items() if result.number is not None]
    if step.best is not None and step.best.by not in numbers:
        reason = "no number among the step's results has that name"
        fix = did_you_mean(step.best.by, numbers, f"write {listed(numbers)}" if numbers else "add it to `results`")
        place = (*at, "best", "by")
        yield Finding(place, step.best.by, reason, fix, read=((*at, "results", step.best.by),))
