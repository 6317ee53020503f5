"""The verbs that write into a project, and what explains its keys: `slipway new`, `explain`, `lock`."""

from typing import Annotated

import typer

from slipway.command.verbs.names import complete_pipelines
from slipway.command.verbs.options import Format, FormatOption, Pipeline, enter_project

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of a project to write, as a folder here.")]


def new(
    project: Name = "",
    pipeline: Annotated[str, typer.Option(metavar="NAME", help="Of a pipeline to write.")] = "",
    stack: Annotated[str, typer.Option(metavar="NAME", help="Of a stack to write.")] = "",
    cloud: Annotated[str, typer.Option(metavar="CLOUD", help="Where the stack runs.")] = "",
    uses: Annotated[
        str,
        typer.Option(
            metavar="PIPELINE",
            help="What the stack runs: a folder below workloads/, or a path.",
            autocompletion=complete_pipelines,
        ),
    ] = "",
    region: Annotated[
        str, typer.Option(metavar="REGION", help="Of the stack's cluster; default: the cloud's first choice.")
    ] = "",
    gpu: Annotated[str, typer.Option(metavar="ACCELERATOR", help="Of the stack's GPU pool.")] = "",
    example: Annotated[
        str, typer.Option(metavar="PIPELINE", help="What a stack runs that names no pipeline.")
    ] = "",
) -> None:
    """Write a project, a pipeline's folder or a stack file that can be rehearsed at once.

    Asks nothing, and overwrites nothing: all of it is written, or nothing.
    """
    # A project is made where none is.
    if not project:
        enter_project()
    from slipway.command.new.cli import write_new

    given = {"CLOUD": cloud, "USES": uses, "REGION": region, "GPU": gpu}
    raise typer.Exit(write_new(project, pipeline, stack, given, example))


def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its path; names of your own may be left out.")] = "",
    output_format: FormatOption = Format.TEXT,
) -> None:
    """Say what a key of a stack file or of pipeline.yaml means: its value, its default, and the keys below it."""
    from slipway.command.reference.explain import main

    raise typer.Exit(main(key, as_json=output_format is Format.JSON))


def lock(pipeline: Pipeline = "") -> None:
    """Compile the lock file of a pipeline, requirements.txt, from the list of packages in its requirements.in.

    A version that the lock file has stays until its line is deleted or the list asks for another one. Exits with
    2 where there is no such list, and with 1 where no versions of these packages go together.
    """
    from slipway.command.lock import compile_lock

    raise typer.Exit(compile_lock(pipeline))


def pin_images() -> None:
    """Name the default images by the digests that their registries have; exits with 1 where one has none."""
    from slipway.command.pin_images import main

    raise typer.Exit(main())
