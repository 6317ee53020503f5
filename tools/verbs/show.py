"""`slipway show`."""

from pathlib import Path
from typing import Annotated

import typer

from slipway.tools.verbs.options import Format, FormatOption, Stack

OF_HISTORY = ("runs", "compare", "retention")
"""What there is to show of the history of a stack."""


def show(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHAT",
            help="A result; `runs [PIPELINE/STEP]`, `compare RUN1 RUN2` or `retention`. "
            "Without it, the names of all results.",
        ),
    ] = None,
    stack: Stack = "",
    output: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="For copies of results; default: build/show/<stack>.")
    ] = None,
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal", help="The runs of the stack's rehearsals on this machine.")
    ] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Show results of a stack that is up: tables and numbers here, files and folders as copies.

    Also the runs that its store has, how two of them differ, and which of them the next run by the clock deletes.
    """
    as_json = format is Format.JSON
    if rehearsal or (names and names[0] in OF_HISTORY):
        from slipway.tools.history.cli import main as show_history

        raise typer.Exit(show_history(names or [], stack, rehearsal=rehearsal, as_json=as_json))
    from slipway.tools.show import main

    raise typer.Exit(main(names or [], stack, output, as_json=as_json))
