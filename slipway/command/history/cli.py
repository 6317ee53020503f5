"""`slipway show runs` and `compare`: the history of a stack."""

import contextlib
import sys
from collections.abc import Generator, Sequence

from slipway.command.history.comparison import History, HistoryError
from slipway.command.history.listing import print_comparison, print_runs
from slipway.command.history.live import history_of, rehearsed
from slipway.infra.commands import command
from slipway.infra.exits import Exit, report_error
from slipway.infra.places import PROJECT
from slipway.infra.terminal import new_console
from slipway.runtime.exits import StepError

WIDTH = 200
"""Columns of output that does not go to a terminal: a run has many."""

RUNS, COMPARE = "runs", "compare"


def main(words: Sequence[str], stack: str, *, rehearsal: bool, as_json: bool = False) -> Exit:
    """Shows what the ``words`` name: of the store of the stack, or of its rehearsals on this machine."""
    console = new_console(WIDTH)
    what, *names = words or [""]
    if (what, len(names)) not in {(RUNS, 0), (RUNS, 1), (COMPARE, 2)}:
        runs = command("show", "runs", stack=stack, rehearsal=rehearsal)
        usage = f"`{runs}`, `… runs PIPELINE/STEP`, or `… compare RUN1 RUN2`"
        report_error(f"{' '.join(words) or 'nothing'} is none of {usage}")
        return Exit.REFUSED
    try:
        with _history(stack, rehearsal=rehearsal) as history:
            if as_json:
                sys.stdout.write(_document(what, stack, history, names))
            elif what == RUNS:
                print_runs(console, history, *names)
            else:
                print_comparison(console, history, *names)
    except (HistoryError, StepError) as error:
        report_error(error)
        return Exit.FAILED
    return Exit.DONE


def _document(what: str, stack: str, history: History, names: Sequence[str]) -> str:
    # Tables need none of it.
    from slipway.command.history import document as documents  # noqa: PLC0415
    from slipway.evaluated.model import document  # noqa: PLC0415

    if what == RUNS:
        return document(documents.runs(stack, history, *names))
    return document(documents.comparison(stack, history, *names))


@contextlib.contextmanager
def _history(stack: str, *, rehearsal: bool) -> Generator[History]:
    if rehearsal:
        yield rehearsed(PROJECT / "build" / "rehearsal" / stack, stack, PROJECT)
        return
    with history_of(stack, PROJECT) as history:
        yield history
