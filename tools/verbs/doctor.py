"""`slipway doctor`."""

import typer

from slipway.tools.verbs.options import Format, FormatOption, Stacks


def doctor(stack: Stacks = None, format: FormatOption = Format.TEXT) -> None:
    """Say what is missing before the first `pulumi up` of each stack, with the command that mends it.

    Changes nothing, and asks clouds and clusters only for what they have. Exits with 0 where all that could be
    checked is fine, and with 1 where something is missing or wrong.
    """
    from slipway.tools.doctor.cli import main

    raise typer.Exit(main(stack or [], as_json=format is Format.JSON))
