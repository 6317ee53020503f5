"""The history of a stack: `slipway show runs` and `compare`."""

import contextlib
import sys
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from slipway.infra.exits import Exit, report_error
from slipway.infra.features import Verb

if TYPE_CHECKING:
    from slipway.features.history.comparison import History

RUNS, COMPARE = "runs", "compare"

SHOWS = {
    RUNS: Verb(__name__, "show", "List the runs that the store of a stack has.", ("show --stack dev runs",)),
    COMPARE: Verb(__name__, "show", "Say how two of them differ.", ("show --stack dev compare 1a2b 3c4d",)),
}

WIDTH = 200
"""Columns of output that does not go to a terminal: a run has many."""


def show(words: Sequence[str], stack: str, *, rehearsal: bool, as_json: bool = False) -> Exit:
    """Shows what the ``words`` name: of the store of the stack, or of its rehearsals on this machine."""
    from slipway.features.history.comparison import HistoryError
    from slipway.features.history.listing import print_comparison, print_runs
    from slipway.infra.terminal import new_console
    from slipway.runtime.exits import StepError

    console = new_console(WIDTH)
    what, *names = words
    if (what, len(names)) not in {(RUNS, 0), (RUNS, 1), (COMPARE, 2)}:
        report_error(f"write `{RUNS}`, `{RUNS} PIPELINE/STEP`, or `{COMPARE} RUN1 RUN2`")
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


def _document(what: str, stack: str, history: "History", names: Sequence[str]) -> str:
    from slipway.evaluated.model import document
    from slipway.features.history import document as documents

    if what == RUNS:
        return document(documents.runs(stack, history, *names))
    return document(documents.comparison(stack, history, *names))


@contextlib.contextmanager
def _history(stack: str, *, rehearsal: bool) -> "Generator[History]":
    from slipway.features.history.live import history_of, rehearsed
    from slipway.infra.places import PROJECT

    if rehearsal:
        yield rehearsed(PROJECT / "build" / "rehearsal" / stack, stack, PROJECT)
        return
    with history_of(stack, PROJECT) as history:
        yield history
