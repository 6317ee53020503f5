"""`slipway pin-images` and `slipway pin-inputs`."""

from typing import Annotated

import typer

from slipway.tools.verbs.names import complete_pipelines
from slipway.tools.verbs.options import Stack


def pin_images() -> None:
    """Name the default images by the digests that their registries have; exits with 1 where one has none."""
    from slipway.tools.pin_images import main

    raise typer.Exit(main())


def pin_inputs(
    stack: Stack = "",
    pipeline: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Its inputs alone; without it, those of all pipelines.",
            autocompletion=complete_pipelines,
        ),
    ] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 where data is not as pinned.")
    ] = False,
) -> None:
    """Write into a stack file what the data is that its pipelines read. Changed data then runs steps again."""
    from slipway.tools.pin_inputs import main

    raise typer.Exit(main(stack, pipeline, check=check))
