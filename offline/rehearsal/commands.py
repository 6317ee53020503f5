"""What the commands `rehearse` and `demo` share: where they print, and how they say what is wrong."""

import gc
import sys
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape

from infra.program import ROOT
from infra.schema.printable import printable_lines
from infra.schema.problems import SettingsError
from offline.engine.monitor import EvaluationError
from offline.engine.stack_config import ConfigError
from offline.evaluation.failures import where
from offline.rehearsal.outcome import FAILED, INTERRUPTED, WRONG_SETTINGS
from offline.rehearsal.state import BusyError, FolderError

COLLECTIONS = (200_000, 50, 100)
"""New objects until a collection of garbage, and collections of one generation until one of the next."""


def console_for() -> Console:
    """Where a command prints."""
    # Logs and pipes have no width; 80 columns would cut tables for nothing.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def exit_code(run: Callable[[], int]) -> int:
    """The exit code of ``run``, or of what it raises, which is said on standard error."""
    errors = Console(stderr=True, highlight=False)
    # What is imported and declared from here on is in use until the end. Looking for garbage in it, as Python does
    # every 700 objects and once more at the end, is two fifths of a rehearsal that finds nothing to do.
    gc.set_threshold(*COLLECTIONS)
    try:
        return run()
    except SettingsError as error:
        show_problems(error, errors)
        return WRONG_SETTINGS
    except ConfigError as error:
        errors.print(f"[red]error:[/] {escape(printable_lines(str(error)))}", soft_wrap=True)
        return WRONG_SETTINGS
    except (BusyError, FolderError, EvaluationError) as error:
        errors.print(f"[red]error:[/] {escape(printable_lines(str(error)))}", soft_wrap=True)
        return FAILED
    except Exception as error:
        # Its text may quote a value of the stack file, as a traceback may.
        place = where(error, ROOT) or "Python"
        errors.print(f"[red]error:[/] the rehearsal failed with {type(error).__name__} in {escape(place)}")
        return FAILED
    except KeyboardInterrupt:
        # Before the Jobs or after them; while they run, the session handles it.
        return INTERRUPTED
    finally:
        gc.freeze()


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
