"""Writes what `slipway new` is asked for: a project, a pipeline or a stack."""

from collections.abc import Mapping
from pathlib import Path

from slipway.command.new import project as projects
from slipway.command.new import stack as stacks
from slipway.command.new import writing as pipelines
from slipway.command.new.writing import Draft, RefusedError, carry_out
from slipway.infra.commands import command, option
from slipway.infra.exits import Exit
from slipway.infra.places import PROJECT
from slipway.infra.schema.problems import Problem

OF_A_STACK = ("CLOUD", "USES", "REGION", "GPU")
WAYS = f"`{command('new', pipeline='churn')}`, then `{command('new', stack='mine', cloud='…', uses='churn')}`"


def write_new(project: str, pipeline: str, stack: str, given: Mapping[str, str], example: str) -> Exit:
    """Writes it, as `carry_out` says. ``given`` are the options of a stack, by `OF_A_STACK`, empty where not."""
    named = {key: given[key] for key in OF_A_STACK if given[key]}
    if project and not (pipeline or stack or named):
        return carry_out(lambda: projects.draft(project, Path.cwd()), Path.cwd())
    return carry_out(lambda: _draft(pipeline, stack, named, example), PROJECT)


def _draft(pipeline: str, stack: str, given: Mapping[str, str], example: str) -> Draft:
    """What the options ask for; raises `RefusedError`."""
    if pipeline and stack:
        reason = "a pipeline and a stack are made one after the other"
        both = f"{option('pipeline')} and {option('stack')}"
        raise RefusedError([Problem(both, f"{pipeline} and {stack}", reason, f"first {WAYS}")])
    if stack:
        return stacks.draft(stack, given, example)
    if pipeline and not given:
        return pipelines.draft(pipeline)
    if pipeline:
        reason = "of a stack: a pipeline runs wherever a stack puts it"
        fix = f"write `{command('new', pipeline=pipeline)}`, then `{_new_stack({**given, 'USES': pipeline})}`"
    elif given:
        reason, fix = "of a stack, whose name is missing", f"write `{_new_stack(given)}`"
    else:
        either = f"{option('pipeline')} or {option('stack')}"
        raise RefusedError([Problem(either, None, "nothing says what to make", f"write {WAYS}")])
    raise RefusedError(
        [Problem(" and ".join(option(key.lower()) for key in given), " and ".join(given.values()), reason, fix)]
    )


def _new_stack(given: Mapping[str, str]) -> str:
    return command("new", stack="mine", **{key.lower(): value for key, value in given.items()})
