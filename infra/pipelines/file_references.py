"""What is wrong with the references in a ``pipeline.yaml``: in words of commands, and in patterns of files."""

from collections.abc import Collection, Iterator

from infra.pipelines import references
from infra.pipelines.apps import OF_APPS, address_variables
from infra.pipelines.contract import OF_SERVICES, service_variables
from infra.pipelines.file_app_kinds import PipelineApp, ProgramApp
from infra.pipelines.pipeline_file import PipelineFile
from infra.schema.problems import Finding, Path, listed, nearest

SINGLE_BRACE = ("a brace that belongs to no reference", "write `{{` and `}}` for braces")


def in_step(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which stands in the command of the step ``name``."""
    step = declared.steps[name]
    of_items = references.OF_ITEMS if step.items else ()
    if step.items and step.items.mode != "ordered" and references.PREVIOUS not in declared.parameters:
        of_items = (references.ITEM,)
        if references.PREVIOUS in references.names(word):
            reason = f"`{{{references.PREVIOUS}}}` is the result of the item before, and these wait for no other"
            fix = "write `mode: ordered` in `items`, or remove it"
            yield Finding(at, word, reason, fix, read=((*at[:2], "items"),))
            return
    others = [each for each in declared.steps if each != name]
    yield from _in_word(at, word, [*references.OWN, *of_items, *declared.parameters, *others], name, declared)


def in_environment(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, the value of an environment variable of the step ``name``."""
    of_item = (*references.OF_ITEMS, references.OUTPUT)
    used = [each for each in references.names(word) if each in of_item and each not in declared.parameters]
    if declared.steps[name].items and used:
        reason = f"`{{{used[0]}}}` is another for each item, and all items have one environment"
        yield Finding(at, word, reason, "write it in `run`", read=((*at[:2], "items"),))
        return
    yield from in_step(at, word, name, declared)


def in_items(at: Path, word: str, name: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, the pattern of files of the items of the step ``name``."""
    others = [each for each in declared.steps if each != name]
    yield from _in_word(at, word, [references.STORE, *declared.parameters, *others], name, declared)


def in_service(at: Path, word: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which stands in the command of a service."""
    for name in references.names(word):
        if name in declared.steps or name in references.OWN:
            reason = "services do not mount the store, and so know nothing of what steps write"
            yield Finding(at, word, reason, "remove it", read=(("steps", name),))
            return
    yield from _in_word(at, word, [*OF_SERVICES, *declared.parameters], "", declared)


def in_app(at: Path, word: str, app: PipelineApp, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which stands in the command, the environment or another key of an app."""
    for name in references.names(word):
        if name in declared.services:
            reason = f"`{name}` is a service, to which steps alone connect"
            yield Finding(at, word, reason, "remove it", read=(("services", name),))
            return
        if name in declared.apps and name not in declared.steps:
            variable = address_variables(name)[0]
            reason = f"`{name}` is an app, whose address other apps find in their environment"
            fix = f"name it in `connects`, and read `{variable}`"
            yield Finding(at, word, reason, fix, read=(("apps", name),))
            return
        step = declared.steps.get(name)
        if step and step.matrix and not step.best and not _alone(word):
            reason = f"`{name}` has a matrix, and so is several steps"
            fix = f"add `best` to the step, or write `{{{name}}}` alone, which becomes one word for each"
            yield Finding(at, word, reason, fix, read=(("steps", name, "matrix"),))
            return
    own = OF_APPS if isinstance(app, ProgramApp) else ()
    yield from _in_word(at, word, [*own, *declared.parameters, *declared.steps], "", declared)


def _alone(word: str) -> bool:
    """Whether ``word`` is nothing but one reference."""
    return f"{{{next(references.names(word), '')}}}" == word


def _in_word(at: Path, word: str, known: Collection[str], step: str, declared: PipelineFile) -> Iterator[Finding]:
    """Findings about ``word``, which may refer to what is ``known``; it stands in ``step``, or in a service."""
    if references.single_brace(word):
        yield Finding(at, word, *SINGLE_BRACE)
        return
    for name in dict.fromkeys(references.names(word)):
        read: tuple[Path, ...] = ((*at[:2], "items"),)
        if name in known:
            continue
        if name == step:
            reason, fix = f"`{{{name}}}` is the step itself", "write `{output}` for the directory that it writes"
        elif name in declared.services:
            variable = service_variables(name)[0]
            reason = f"`{name}` is a service, whose address steps find in their environment"
            fix = f"name it in `connects`, and read `{variable}`"
        elif name in references.OF_ITEMS and step and not declared.steps[step].items:
            reason = f"only a step with `items` has `{{{name}}}`, and this has none"
            fix = "add `items`, with a pattern of `files`, or remove it"
        else:
            yield _unknown(at, word, name, known)
            continue
        yield Finding(at, word, reason, fix, read)


def _unknown(at: Path, word: str, name: str, known: Collection[str]) -> Finding:
    near = nearest(name, known)
    fix = f"did you mean `{{{near}}}`?" if near else f"write one of {listed(known)}, or `{{{{{name}}}}}`"
    fix += f"{'' if near else '.'} A new parameter is declared as `parameters: {{{name}: …}}`"
    if f"${{{name}}}" in word:
        fix = f"write `${{{{{name}}}}}` for a variable of the shell"
    read = (("parameters", name), ("steps", name), ("services", name))
    return Finding(at, word, f"no step and no parameter is called `{name}`", fix, read)
