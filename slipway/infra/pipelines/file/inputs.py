"""What is wrong with the inputs that a ``pipeline.yaml`` declares: data that no step of it makes."""

from collections.abc import Iterator, Mapping

from slipway.infra.pipelines import mounts, pods
from slipway.infra.pipelines.contract import RESERVED_INPUTS
from slipway.infra.pipelines.file.shape import PipelineFile, used_in
from slipway.infra.pipelines.inputs import INPUTS
from slipway.infra.pipelines.matrix import NAME_LIMIT
from slipway.infra.schema.names import name_findings
from slipway.infra.schema.problems import Finding, Path


def check_inputs(declared: PipelineFile) -> Iterator[Finding]:
    """Findings about names of inputs, and about those that no step reads."""
    read = {name for step in declared.steps.values() for name in used_in(step)}
    for name in declared.inputs:
        at: Path = (INPUTS, name)
        wrong = list(_name(at, name, declared))
        yield from wrong
        if name not in read and not wrong:
            fix = f"write `{{{name}}}` in `run` of a step, in its `items` or its `mounts`, or remove the input"
            yield Finding(at, name, "no step reads it", fix, read=(("steps",),), all_of=(("steps",),))
    if declared.inputs and INPUTS in declared.parameters:
        reason = "the pipeline has inputs, and its section of a stack file says where they are below that key"
        yield Finding(("parameters", INPUTS), INPUTS, reason, "choose another name", read=((INPUTS,),))


def _name(at: Path, name: str, declared: PipelineFile) -> Iterator[Finding]:
    if len(name) > NAME_LIMIT:
        reason = f"{len(name)} characters, and an input's name has at most {NAME_LIMIT}: its volume's has it"
        yield Finding(at, name, reason, "shorten it")
        return
    yield from name_findings(at, name)
    if name in (*pods.OWN, *pods.OF_ITEMS, *RESERVED_INPUTS, mounts.SCRATCH):
        yield Finding(at, name, f"`{{{name}}}` means something else in commands", "choose another name")
    others: Mapping[str, tuple[str, Mapping[str, object]]] = {
        "steps": ("a step", declared.steps),
        "parameters": ("a parameter", declared.parameters),
        "services": ("a service", declared.services),
    }
    for section, (title, names) in others.items():
        if name in names:
            reason = f"{title} has that name too, and `{{{name}}}` could mean either"
            yield Finding(at, name, reason, "rename one of them", read=((section, name),))
    for step, section in declared.steps.items():
        if section.matrix and name.startswith(f"{step}-"):
            reason = f"`{step}` has a matrix, and one of its variants could be called that"
            yield Finding(at, name, reason, "choose another name", read=(("steps", step, "matrix"),))
