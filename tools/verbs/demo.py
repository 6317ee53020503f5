"""`slipway demo`."""

from typing import Annotated

import typer

from slipway.tools.verbs.options import AllPipelines, ConfigFile, Fresh, RehearsalFolder, Stack


def demo(
    stack: Stack = "",
    fresh: Fresh = False,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", min=0, help="End the apps after so long by itself.")
    ] = None,
    all_pipelines: AllPipelines = False,
    config_file: ConfigFile = None,
    output: RehearsalFolder = None,
) -> None:
    """Rehearse a stack on this machine, then keep its apps here until Ctrl-C.

    Exits with 0 where the apps were kept as long as asked, 1 where a Job or an app failed, 2 for wrong settings,
    130 when the rehearsal before was interrupted.
    """
    from slipway.offline.rehearsal.demo import show

    raise typer.Exit(show(stack, output, config_file, seconds, fresh=fresh, all_pipelines=all_pipelines))
