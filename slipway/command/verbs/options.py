"""The options that several verbs have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from slipway.command.verbs.names import complete_pipelines, complete_stacks, stacks
from slipway.infra.commands import command
from slipway.infra.exits import Exit, report_error
from slipway.infra.places import PACKAGE, PROJECT, PROJECT_FILE


class Format(StrEnum):
    """Whom the output is for."""

    TEXT = "text"
    JSON = "json"


def enter_project() -> None:
    """Ends the process outside of a project."""
    if not (PROJECT / PROJECT_FILE).is_file():
        begin = f"{PACKAGE} new acme"
        report_error(f"neither here nor above is a {PROJECT_FILE}: go to a project, or write one with `{begin}`")
        raise typer.Exit(Exit.REFUSED)


def _only_stack(ctx: typer.Context, value: str) -> str:
    """The stack: the project's only one where none is named. Ends the process where that is none or several."""
    if value or ctx.resilient_parsing:
        return value
    enter_project()
    names = stacks()
    if len(names) == 1:
        return names[0]
    some = f"one of {', '.join(names)}" if names else "the project has no stack file yet"
    example = command(str(ctx.info_name), stack=names[0] if names else "dev")
    report_error(f"name the stack, {some}: {example}")
    raise typer.Exit(Exit.REFUSED)


Stack = Annotated[
    str,
    typer.Option(
        "--stack",
        "-s",
        metavar="NAME",
        help="The stack; the project's only one without it.",
        callback=_only_stack,
        autocompletion=complete_stacks,
    ),
]
Stacks = Annotated[
    list[str] | None,
    typer.Option(
        "--stack",
        "-s",
        metavar="NAME",
        help="A stack; may be given several times. All without it.",
        autocompletion=complete_stacks,
    ),
]
Pipeline = Annotated[
    str, typer.Option(metavar="NAME", help="A folder below workloads/.", autocompletion=complete_pipelines)
]
Kubeconfig = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A kubeconfig, in place of the one that the stack has.")
]
Context = Annotated[str, typer.Option(metavar="NAME", help="Its context.")]

FormatOption = Annotated[Format, typer.Option("--format", help="What to write; JSON is for programs.")]

Fresh = Annotated[bool, typer.Option("--fresh", help="Forget what earlier rehearsals of the stack did.")]
AllPipelines = Annotated[
    bool,
    typer.Option("--benchmark", help="Run pipelines that measure accelerators, too; on a CPU they take long."),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Use the configuration in this file instead of the stack's own."),
]
Capacity = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Give pools nodes when this trace says so, on a fast clock, in place of at once."
    ),
]
RehearsalFolder = Annotated[
    Path | None,
    typer.Option("--output", metavar="FOLDER", help="For all that it makes; default: build/rehearsal/<stack>."),
]
