"""The command line of `slipway rehearse`."""

from typing import Annotated

import typer

from slipway.infra.places import PROJECT
from slipway.offline.engine.project import SlipwayProject
from slipway.offline.rehearsal import session
from slipway.offline.rehearsal.beside import is_beside
from slipway.offline.rehearsal.output import outcome
from slipway.offline.rehearsal.output.outcome import Options, console_for
from slipway.offline.rehearsal.session import Session


def _parse_disrupt(value: str | None) -> str | None:
    """Raises BadParameter for an index that is no number."""
    _, colon, index = (value or "").partition(":")
    if colon and not (index.isascii() and index.isdigit()):
        raise typer.BadParameter(f"{index!r} is no index of a pod: a number from 0")
    return value


def main(  # noqa: PLR0917  # One parameter per option of the command line.
    stack: Annotated[str, typer.Option("--stack", "-s", help="The stack to rehearse.")] = "",
    fresh: outcome.Fresh = False,
    quiet: Annotated[
        int, typer.Option("--quiet", "-q", count=True, help="Say less: failures and the report; twice: failures.")
    ] = 0,
    disrupt: Annotated[
        str | None,
        typer.Option(
            metavar="JOB[:INDEX]",
            callback=_parse_disrupt,
            help="Evict this training's pod once, as a Spot node's end does; of several the one with this index.",
        ),
    ] = None,
    all_pipelines: outcome.AllPipelines = False,
    config_file: outcome.ConfigFile = None,
    output: outcome.Output = None,
) -> None:
    """Run a stack on this machine: no cluster is created, and its Jobs run as local processes on the CPU.

    Exits with 0 where every Job succeeded, 1 where one failed, 2 for wrong settings, 130 when interrupted.
    """
    options = Options(stack, PROJECT, outcome.folder_for(stack, output), config_file, fresh, disrupt, quiet)

    def run() -> int:
        configuration = session.configure(stack, PROJECT, config_file, all_pipelines=all_pipelines)
        project = SlipwayProject.read(PROJECT)
        with project.in_folder():
            return Session(project.run, configuration, options, console_for(), is_beside=is_beside).run().exit_code

    raise typer.Exit(outcome.exit_code(run))
