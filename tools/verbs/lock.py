"""`slipway lock`."""

import typer

from slipway.tools.verbs.options import Pipeline


def lock(pipeline: Pipeline = "") -> None:
    """Compile the lock file of a pipeline, requirements.txt, from the list of packages in its requirements.in.

    A version that the lock file has stays until its line is deleted or the list asks for another one. Exits with
    2 where there is no such list, and with 1 where no versions of these packages go together.
    """
    from slipway.tools.lock import compile_lock

    raise typer.Exit(compile_lock(pipeline))
