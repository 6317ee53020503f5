"""The command line: ``python -m offline.rehearsal --stack gcp-dev``."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from infra.program import ROOT, declare
from infra.schema.printable import printable_lines
from infra.schema.problems import SettingsError
from offline.engine.monitor import EvaluationError
from offline.engine.stack_config import ConfigError
from offline.evaluation.failures import where
from offline.rehearsal import session
from offline.rehearsal.outcome import FAILED, INTERRUPTED, WRONG_SETTINGS, Options
from offline.rehearsal.session import Session
from offline.rehearsal.state import BusyError, FolderError


def _disrupted(value: str | None) -> str | None:
    """Raises BadParameter for an index that is no number."""
    _, colon, index = (value or "").partition(":")
    if colon and not (index.isascii() and index.isdigit()):
        raise typer.BadParameter(f"{index!r} is no index of a pod: a number from 0")
    return value


def main(  # noqa: PLR0917  # One parameter per option of the command line.
    stack: Annotated[str, typer.Option("--stack", "-s", help="The stack to rehearse.")] = "gcp-dev",
    fresh: Annotated[bool, typer.Option(help="Forget what earlier rehearsals of the stack did.")] = False,
    quiet: Annotated[
        int, typer.Option("--quiet", "-q", count=True, help="Say less: failures and the report; twice: failures.")
    ] = 0,
    disrupt: Annotated[
        str | None,
        typer.Option(
            metavar="JOB[:INDEX]",
            callback=_disrupted,
            help="Evict this training's pod once, as a Spot node's end does; of several the one with this index.",
        ),
    ] = None,
    all_pipelines: Annotated[
        bool,
        typer.Option("--benchmark", help="Run pipelines that measure accelerators, too; on a CPU they take long."),
    ] = False,
    config_file: Annotated[
        Path | None, typer.Option(help="Use the configuration in this file instead of the stack's own.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for all that it makes; default: build/rehearsal/<stack>.")
    ] = None,
) -> None:
    """Run a stack on this machine: no cluster is created, and its Jobs run as local processes on the CPU.

    Exits with 0 where every Job succeeded, 1 where one failed, 2 for wrong settings, 130 when interrupted.
    """
    # Logs and pipes have no width; 80 columns would cut tables for nothing.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    errors = Console(stderr=True, highlight=False)
    folder = output or ROOT / "build" / "rehearsal" / stack
    try:
        configuration = session.configure(stack, ROOT, config_file, all_pipelines=all_pipelines)
        options = Options(stack, ROOT, folder.resolve(), config_file, fresh, disrupt, quiet)
        code = Session(declare, configuration, options, console).run().exit_code
    except SettingsError as error:
        show_problems(error, errors)
        code = WRONG_SETTINGS
    except ConfigError as error:
        errors.print(f"[red]error:[/] {escape(printable_lines(str(error)))}", soft_wrap=True)
        code = WRONG_SETTINGS
    except (BusyError, FolderError, EvaluationError) as error:
        errors.print(f"[red]error:[/] {escape(printable_lines(str(error)))}", soft_wrap=True)
        code = FAILED
    except Exception as error:
        # Its text may quote a value of the stack file, as a traceback may.
        place = where(error, ROOT) or "Python"
        errors.print(f"[red]error:[/] the rehearsal failed with {type(error).__name__} in {escape(place)}")
        code = FAILED
    except KeyboardInterrupt:
        # Before the Jobs or after them; while they run, the session handles it.
        code = INTERRUPTED
    raise typer.Exit(code)


def show_problems(error: SettingsError, console: Console) -> None:
    """Every problem with its key, value, reason and fix."""
    count = len(error.problems)
    console.print(
        f"[red]error:[/] {count} problem{'s' if count != 1 else ''} in the stack's settings; nothing was run"
    )
    for problem in error.problems:
        console.print(f"\n  [bold]{escape(problem.key)}[/]: {escape(problem.shown)}", soft_wrap=True)
        console.print(f"    why: {escape(problem.reason)}", soft_wrap=True)
        console.print(f"    fix: {escape(problem.fix)}", soft_wrap=True)


if __name__ == "__main__":
    # Typer's own tracebacks print the values of variables, and there are secrets among them.
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    app(prog_name="python -m offline.rehearsal")
