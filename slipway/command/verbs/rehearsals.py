"""`slipway rehearse` and `slipway demo`."""

from typing import Annotated

import typer

from slipway.command.verbs.options import (
    AllPipelines,
    Capacity,
    ConfigFile,
    Format,
    FormatOption,
    Fresh,
    RehearsalFolder,
    Stack,
)


def _parse_disrupt(value: str | None) -> str | None:
    """Raises BadParameter for what names no pod."""
    if value is not None:
        from slipway.rehearse.cluster.job_controller import Target

        try:
            Target.parse(value)
        except ValueError:
            example = "write `train`, `train:1` for the pod with the index 1, or `train:after=20s`"
            raise typer.BadParameter(f"{value!r} names no pod: {example}") from None
    return value


def rehearse(
    stack: Stack = "",
    fresh: Fresh = False,
    quiet: Annotated[
        int, typer.Option("--quiet", "-q", count=True, help="Say less: failures and the report; twice: failures.")
    ] = 0,
    disrupt: Annotated[
        str | None,
        typer.Option(
            metavar="STEP[:INDEX][:after=20s]",
            callback=_parse_disrupt,
            help="Evict this step's pod once, as a Spot node's end does: so long after its program was started, "
            "or after a third of its epochs or steps.",
        ),
    ] = None,
    all_pipelines: AllPipelines = False,
    capacity: Capacity = None,
    config_file: ConfigFile = None,
    output: RehearsalFolder = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Run a stack on this machine: no cluster is created, and its Jobs run as local processes on the CPU.

    Exits with 0 where every Job succeeded, 1 where one failed, 2 for wrong settings, 130 when interrupted.
    """
    from slipway.rehearse.cli import rehearse as run

    raise typer.Exit(
        run(
            stack,
            output,
            config_file,
            fresh=fresh,
            disrupt=disrupt,
            quiet=quiet,
            all_pipelines=all_pipelines,
            capacity=capacity,
            as_json=format is Format.JSON,
        )
    )


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
    from slipway.rehearse.demo import show

    raise typer.Exit(show(stack, output, config_file, seconds, fresh=fresh, all_pipelines=all_pipelines))
