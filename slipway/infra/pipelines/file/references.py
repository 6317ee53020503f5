"""What is wrong with references in words of commands, and in patterns of files, of a ``pipeline.yaml``."""

from collections.abc import Collection, Iterator

from slipway.infra.pipelines import pods
from slipway.infra.pipelines.checkpoints import CHECKPOINT, CHECKPOINTS
from slipway.infra.pipelines.contract import OF_SERVICES, service_variables
from slipway.infra.pipelines.file.shape import PipelineFile
from slipway.infra.pipelines.inputs import INPUTS
from slipway.infra.pipelines.pods import reference_findings
from slipway.infra.schema.problems import Finding, Path

CHECKPOINTS_FIX = "add `checkpoints: {}`, or remove it"


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
    others = [other for other in declared.steps if other != name]
    of_checkpoints = [CHECKPOINT] if step.checkpoints else []
    known = [*pods.OWN, *of_items, *of_checkpoints, *declared.parameters, *declared.inputs, *others]
    yield from _in_word(at, word, known, name, declared)


def in_environment(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, the value of an environment variable of the step ``name``."""
    of_item = (*pods.OF_ITEMS, pods.OUTPUT)
    names = [part for part in pods.names(word) if part in of_item and part not in declared.parameters]
    if declared.steps[name].items and names:
        reason = f"`{{{names[0]}}}` is another for each item, and all items have one environment"
        yield Finding(at, word, reason, "write it in `run`", read=((*at[:2], "items"),))
        return
    yield from _several_steps(at, word, name, declared, "a variable") or in_step(at, word, name, declared)


def _several_steps(at: Path, word: str, name: str, declared: PipelineFile, what: str) -> list[Finding]:
    """A finding where ``word``, which stands in the step ``name`` as ``what``, refers to variants of a step."""
    for part in pods.names(word):
        other = declared.steps.get(part)
        if other and part != name and other.matrix and not other.best:
            reason = f"`{part}` has a matrix, and so is several steps, and {what} is one word"
            return [Finding(at, word, reason, "add `best` to the step", read=(("steps", part, "matrix"),))]
    return []


def in_script(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, a reference in the script of the step ``name``."""
    yield from _several_steps(at, word, name, declared, "a reference in a script") or in_step(
        at, word, name, declared
    )


def in_items(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, the pattern of files of the items of the step ``name``."""
    others = [step for step in declared.steps if step != name]
    yield from _in_word(at, word, [pods.STORE, *declared.parameters, *declared.inputs, *others], name, declared)


def in_service(at: Path, word: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which stands in the command of a service."""
    for name in pods.names(word):
        if name in declared.steps or name in pods.OWN:
            reason = "services do not mount the store, and so know nothing of what steps write"
            yield Finding(at, word, reason, "remove it", read=(("steps", name),))
            return
        if name in declared.inputs:
            reason = f"`{name}` is an input, which steps alone read"
            yield Finding(at, word, reason, "remove it", read=((INPUTS, name),))
            return
    yield from _in_word(at, word, [*OF_SERVICES, *declared.parameters], "", declared)


def _in_word(at: Path, word: str, known: Collection[str], step: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which may refer to what is ``known``; it stands in ``step``, or in a service."""
    if pods.single_brace(word):
        yield from reference_findings(at, word, known)
        return
    unknown = [name for name in dict.fromkeys(pods.names(word)) if name not in known]
    for name in unknown:
        if name == step:
            reason, fix = f"`{{{name}}}` is the step itself", "write `{output}` for the directory that it writes"
        elif name in declared.services:
            variable = service_variables(name)[0]
            reason = f"`{name}` is a service, whose address steps find in their environment"
            fix = f"name it in `connects`, and read `{variable}`"
        elif name in pods.OF_ITEMS and step and not declared.steps[step].items:
            reason = f"only a step with `items` has `{{{name}}}`, and this has none"
            fix = "add `items`, with a pattern of `files`, or remove it"
        elif name == CHECKPOINT and step:
            reason, fix = f"only a step with `checkpoints` has `{{{name}}}`, and this has none", CHECKPOINTS_FIX
        else:
            continue
        known = [*known, name]
        yield Finding(at, word, reason, fix, read=((*at[:2], "items"), (*at[:2], CHECKPOINTS)))
    yield from reference_findings(at, word, known)
