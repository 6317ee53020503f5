"""One rehearsal of a stack, from its configuration to the exit code."""

from pathlib import Path

from slipway.infra.exits import Exit
from slipway.infra.places import PROJECT
from slipway.infra.terminal import new_console
from slipway.offline.engine.project import SlipwayProject
from slipway.offline.rehearsal import session
from slipway.offline.rehearsal.beside import is_beside
from slipway.offline.rehearsal.output import outcome
from slipway.offline.rehearsal.output.outcome import Options
from slipway.offline.rehearsal.session import Session


def rehearse(
    stack: str,
    output: Path | None,
    config_file: Path | None,
    *,
    fresh: bool,
    disrupt: str | None,
    quiet: int,
    all_pipelines: bool,
    capacity: str | None,
) -> Exit:
    """Runs the stack in the folder ``output``, and prints how it went."""
    options = Options(stack, PROJECT, outcome.folder_for(stack, output), config_file, fresh, disrupt, quiet)

    def run() -> Exit:
        configuration = session.configure(
            stack, PROJECT, config_file, all_pipelines=all_pipelines, capacity=capacity
        )
        project = SlipwayProject.read(PROJECT)
        with project.in_folder():
            return Session(project.run, configuration, options, new_console(), is_beside=is_beside).run().exit_code

    return outcome.exit_code(run)
