"""``make show STACK=local runs`` and ``make show STACK=local compare RUN1 RUN2``: the history of a stack."""

import contextlib
import sys
import time
from collections.abc import Generator
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from slipway.infra.commands import command
from slipway.infra.places import PROJECT
from slipway.tools.history.comparison import History, HistoryError
from slipway.tools.history.listing import print_comparison, print_retention, print_runs
from slipway.tools.history.live import history_of, rehearsed
from slipway.workloads.runtime.exits import StepError

RUNS, COMPARE, RETENTION = "runs", "compare", "retention"


def main(
    words: Annotated[list[str], typer.Argument(help="runs [PIPELINE/STEP], compare RUN1 RUN2, or retention.")],
    stack: Annotated[str, typer.Option("--stack", "-s", help="The stack.")] = "",
    rehearsal: Annotated[bool, typer.Option(help="The runs of its rehearsals on this machine.")] = False,
) -> None:
    """List the results that the store of a stack has, say what two of them differ in, or which of them go."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    what, *names = words
    try:
        if not stack:
            raise HistoryError(f"name the stack: {command('show', what, stack='local')}")
        if (what, len(names)) not in {(RUNS, 0), (RUNS, 1), (COMPARE, 2), (RETENTION, 0)}:
            usage = (
                f"`{command('show', 'runs', stack='local')}`, `… runs PIPELINE/STEP`, `… compare RUN1 RUN2`, "
                "or `… retention`"
            )
            raise HistoryError(f"{' '.join(words)} is none of {usage}")
        if what == RETENTION and rehearsal:
            raise HistoryError("a rehearsal runs nothing by the clock, so it has no results of old runs")
        with _history(stack, rehearsal=rehearsal) as history:
            if what == RUNS:
                print_runs(console, history, *names)
            elif what == RETENTION:
                print_retention(console, history, time.time())
            else:
                print_comparison(console, history, *names)
    except (HistoryError, StepError) as error:
        Console(stderr=True, highlight=False).print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from None


@contextlib.contextmanager
def _history(stack: str, *, rehearsal: bool) -> Generator[History]:
    if rehearsal:
        yield rehearsed(PROJECT / "build" / "rehearsal" / stack, stack, PROJECT)
        return
    with history_of(stack, PROJECT) as history:
        yield history
