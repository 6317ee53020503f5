"""What is wrong with references in words of commands, and in patterns of files, of a ``pipeline.yaml``."""

from collections.abc import Collection, Iterator

from slipway.infra.pipelines import pods
from slipway.infra.pipelines.checkpoints import CHECKPOINT, CHECKPOINTS
from slipway.infra.pipelines.contract import OF_SERVICES, service_variables
from slipway.infra.pipelines.file.shape import STEP_KEYS, PipelineFile
from slipway.infra.pipelines.inputs import INPUTS
from slipway.infra.pipelines.pods import reference_findings
from slipway.infra.schema.problems import Finding, Path

CHECKPOINTS_FIX = "add `checkpoints: {}`, or remove it"


def in_step(
    at: Path, word: str, name: str, declared: PipelineFile, *, environment: bool = False
) -> Iterator[Finding]:
    """Findings about ``word``, which stands in the command of the step ``name``, or in its ``environment``."""
    step = declared.steps[name]
    for key in STEP_KEYS:
        if key.written(step):
            wrong = list(key.word_findings(at, word, step, declared, environment=environment))
            if wrong:
                yield from wrong
                return
    others = [other for other in declared.steps if other != name]
    of_keys = [reference for key in STEP_KEYS for reference in key.in_run(step, declared)]
    of_checkpoints = [CHECKPOINT] if step.checkpoints else []
    known = [*pods.OWN, *of_keys, *of_checkpoints, *declared.parameters, *declared.inputs, *others]
    yield from in_word(at, word, known, name, declared)


def in_environment(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, the value of an environment variable of the step ``name``."""
    several = _several_steps(at, word, name, declared, "a variable")
    yield from several or in_step(at, word, name, declared, environment=True)


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
    yield from in_word(at, word, [*OF_SERVICES, *declared.parameters], "", declared)


def in_word(at: Path, word: str, known: Collection[str], step: str, declared: PipelineFile) -> Iterator[Finding]:
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
        elif lacking := [key for key in STEP_KEYS if name in key.references and step]:
            reason = f"only a step with `{lacking[0].name}` has `{{{name}}}`, and this has none"
            fix = lacking[0].references[name]
        elif name == CHECKPOINT and step:
            reason, fix = f"only a step with `checkpoints` has `{{{name}}}`, and this has none", CHECKPOINTS_FIX
        else:
            continue
        known = [*known, name]
        read = ((*at[:2], key) for key in (*(key.name for key in STEP_KEYS), CHECKPOINTS))
        yield Finding(at, word, reason, fix, read=tuple(read))
    yield from reference_findings(at, word, known)
