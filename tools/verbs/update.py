"""`slipway update`."""

from typing import Annotated

import typer


def update(
    version: Annotated[
        str, typer.Argument(metavar="[VERSION]", help="The newest that the index has without it.")
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 where there is another version.")
    ] = False,
) -> None:
    """Write another version of the package into requirements.txt, with the digests of all that it needs.

    Prints what the releases between change, harm first. Installs nothing: `slipway preview --base HEAD` then says
    what the new version does to each stack, before anything is up. What the project pins for itself stays. Exits
    with 2 where there is no such version.
    """
    from slipway.tools.update import main

    raise typer.Exit(main(version, check=check))
