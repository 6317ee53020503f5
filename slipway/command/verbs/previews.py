"""`slipway preview` and `slipway check`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from slipway.command.verbs.options import Stacks


class Format(StrEnum):
    """Whom the output is for; a comment of a pull request is Markdown."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


class FailOn(StrEnum):
    """Severities of findings, as `slipway.infra.review.contract.Severity` has them."""

    ERROR = "error"
    WARNING = "warning"


FormatOption = Annotated[Format, typer.Option("--format", help="What to write.")]
FailOnOption = Annotated[FailOn, typer.Option("--fail-on", help="The least severity that fails.")]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="File to write, in place of the terminal.")
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="File for the JSON, beside the output.")]


def preview(
    stack: Stacks = None,
    base: Annotated[
        str, typer.Option(metavar="REVISION", help="Compare with where this revision and that one parted.")
    ] = "",
    format: FormatOption = Format.TEXT,
    fail_on: FailOnOption = FailOn.ERROR,
    output: Output = None,
    json: Json = None,
    times: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What `pulumi stack export` wrote: the times of that stack's last run."),
    ] = None,
) -> None:
    """Say what a change would do to each stack, what it costs, and what is wrong with it.

    Needs no cloud, no credentials and no Pulumi CLI. Exits with 0 where all is well, 1 for findings at or above
    --fail-on, 2 where a stack cannot be evaluated or this fails, 130 when interrupted.
    """
    from slipway.preview.cli import Files, main

    files = Files(format.value, output, json)
    raise typer.Exit(main(stack or [], base, fail_on.value, files, times))


def check(
    stack: Stacks = None,
    format: FormatOption = Format.TEXT,
    fail_on: FailOnOption = FailOn.ERROR,
    output: Output = None,
    json: Json = None,
) -> None:
    """Hold every stack to the policies, whatever it costs and changes.

    Exits with 0 where none breaks one, 1 for findings at or above --fail-on, 2 where a stack cannot be evaluated.
    """
    from slipway.preview.cli import Files, main

    raise typer.Exit(main(stack or [], "", fail_on.value, Files(format.value, output, json), policies_only=True))
