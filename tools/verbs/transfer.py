"""`slipway put` and `slipway get`."""

from typing import Annotated

import typer

from slipway.tools.verbs.options import Stack

Source = Annotated[str, typer.Option("--from", metavar="PATH", help="What is copied: a file or a folder.")]
Target = Annotated[
    str, typer.Option("--to", metavar="PATH", help="What it is there; with `/` at its end a folder.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are there with another content.")]


def put(*, source: Source, target: Target, stack: Stack = "", force: Force = False) -> None:
    """Copy files into the store of a stack that is up. What is there is not copied again."""
    from slipway.tools.transfer.cli import PUT, main

    raise typer.Exit(main(PUT, stack, source, target, force=force))


def get(*, source: Source, target: Target, stack: Stack = "", force: Force = False) -> None:
    """Copy files out of the store of a stack that is up. What is here is not copied again."""
    from slipway.tools.transfer.cli import GET, main

    raise typer.Exit(main(GET, stack, source, target, force=force))
