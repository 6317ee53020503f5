"""The command line of `slipway new`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from slipway.infra.commands import command
from slipway.infra.places import PROJECT
from slipway.infra.schema.problems import Problem
from slipway.tools.new import project as projects
from slipway.tools.new import stack as stacks
from slipway.tools.new import writing as pipelines
from slipway.tools.new.writing import Draft, RefusedError, carry_out

OF_A_STACK = ("CLOUD", "USES", "REGION", "GPU")
WAYS = f"`{command('new', pipeline='churn')}`, then `{command('new', stack='mine', cloud='…', uses='churn')}`"


def main(  # noqa: PLR0917  # One parameter per option of the command line.
    project: Annotated[str, typer.Argument(help="Name of a project to write, as a folder here.")] = "",
    pipeline: Annotated[str, typer.Option(help="Name of a pipeline to write.")] = "",
    stack: Annotated[str, typer.Option(help="Name of a stack to write.")] = "",
    cloud: Annotated[str, typer.Option(help="Where the stack runs.")] = "",
    uses: Annotated[str, typer.Option(help="The pipeline that the stack runs: a folder's name, or a path.")] = "",
    region: Annotated[
        str, typer.Option(help="Region of the stack's cluster; default: the cloud's first choice.")
    ] = "",
    gpu: Annotated[str, typer.Option(help="Accelerator of the stack's GPU pool.")] = "",
    example: Annotated[str, typer.Option(help="What a stack runs that names no pipeline.")] = "",
) -> None:
    """Write a project, a pipeline's folder or a stack file that can be rehearsed at once.

    Asks nothing, and overwrites nothing. Exits with 0 where it is written, with 2 where an option is wrong, and
    with 1 where it cannot be written; nothing is then left behind.
    """
    given = dict(zip(OF_A_STACK, (cloud, uses, region, gpu), strict=True))
    named = {key: value for key, value in given.items() if value}
    if project and not (pipeline or stack or named):
        carry_out(lambda: projects.draft(project, Path.cwd()), Path.cwd())
        return
    carry_out(lambda: _draft(pipeline, stack, named, example), PROJECT)


def _draft(pipeline: str, stack: str, given: Mapping[str, str], example: str) -> Draft:
    """What the options ask for; raises `RefusedError`."""
    if pipeline and stack:
        reason = "a pipeline and a stack are made one after the other"
        raise RefusedError([Problem("PIPELINE and STACK", f"{pipeline} and {stack}", reason, f"first {WAYS}")])
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
        raise RefusedError([Problem("PIPELINE or STACK", None, "nothing says what to make", f"write {WAYS}")])
    raise RefusedError([Problem(" and ".join(given), " and ".join(given.values()), reason, fix)])


def _new_stack(given: Mapping[str, str]) -> str:
    return command("new", stack="mine", **{key.lower(): value for key, value in given.items()})
