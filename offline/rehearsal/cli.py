"""One rehearsal of a stack, from its configuration to the exit code."""

from pathlib import Path

from slipway.infra.exits import Exit
from slipway.infra.places import PROJECT
from slipway.infra.terminal import new_console
from slipway.offline.engine.project import SlipwayProject
from slipway.offline.evaluated.model import document
from slipway.offline.rehearsal import session
from slipway.offline.rehearsal.beside import is_beside
from slipway.offline.rehearsal.output import outcome
from slipway.offline.rehearsal.output.outcome import Options, Outcome
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
    as_json: bool = False,
) -> Exit:
    """Runs the stack in the folder ``output``, and prints how it went.

    With ``as_json`` a document on standard output says so, and all else goes to standard error.
    """
    options = Options(stack, PROJECT, outcome.folder_for(stack, output), fresh, disrupt, quiet)

    def run() -> Outcome:
        configuration = session.configure(
            stack, PROJECT, config_file, all_pipelines=all_pipelines, capacity=capacity
        )
        project = SlipwayProject.read(PROJECT)
        with project.in_folder():
            console = new_console(stderr=as_json)
            return Session(project.run, configuration, options, console, is_beside=is_beside).run()

    def run_for_document() -> Exit:
        # The summary needs none of it.
        from slipway.offline.rehearsal.output.document import kept_for_document, rehearsed  # noqa: PLC0415

        with kept_for_document() as stdout:
            done = run()
            stdout.write(document(rehearsed(done)))
        return done.exit_code

    return outcome.exit_code(run_for_document if as_json else lambda: run().exit_code)
