"""``make show runs`` and ``make show compare``: which results a store has, and what two of them differ in."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slipway.features.history.comparison import (
    History,
    HistoryError,
    commit,
    compare,
    number,
    paid_ratio,
    pairs,
    parameters,
    price,
    when,
)
from slipway.features.history.results import Result, Unfinished
from slipway.infra.commands import command

NEWEST = 10
"""Results of each step that are listed where nobody names a step."""

WORD = 40
"""Characters of a parameter that are listed."""


def runs_of(history: History, only: str = "") -> list[Result]:
    """The results, the newest first; ``only`` names a pipeline or a step. Raises HistoryError without any."""
    results = [result for result in history.results if _is_wanted(result.path, only)]
    if not results and not unfinished_of(history, only):
        steps = ", ".join(dict.fromkeys(f"{result.pipeline}/{result.step}" for result in history.results))
        raise HistoryError(
            f"the store has no result of {only!r}; it has those of {steps}"
            if steps
            else "the store has no result yet"
        )
    return results


def unfinished_of(history: History, only: str = "") -> list[Unfinished]:
    """The runs without a result that a limit of the stack ended, of that pipeline or step."""
    return [run for run in history.unfinished if _is_wanted(run.path, only)]


def _is_wanted(path: str, only: str) -> bool:
    wanted = only.replace(".", "/").strip("/")
    return f"{path}/".startswith(f"{wanted}/" if wanted else "")


def print_runs(console: Console, history: History, only: str = "") -> None:
    """A table for each step with a line for each of its results, and what has none since a limit ended it.

    Raises HistoryError where there is nothing.
    """
    results = runs_of(history, only)
    # In the order in which they were first made, as a run does.
    for step in dict.fromkeys((result.pipeline, result.step) for result in reversed(results)):
        of_step = [result for result in results if (result.pipeline, result.step) == step]
        console.print(_table(history, of_step if only else of_step[:NEWEST]))
        if len(of_step) > NEWEST and not only:
            name = "/".join(step)
            console.print(f"and {len(of_step) - NEWEST} more: {command('show', 'runs', name)}", soft_wrap=True)
    for run in unfinished_of(history, only):
        words = f"{run.path}: {run.reached.says}, {when(run.at)} UTC; {run.reached.fix}"
        console.print(Text(words, "yellow"), soft_wrap=True)


def _table(history: History, results: Sequence[Result]) -> Table:
    told = [parameters(result) for result in results]
    names = dict.fromkeys(name for values in told for name in values)
    # Those that are the same everywhere tell no run from another.
    varying = [name for name in names if len({values.get(name) for values in told}) > 1]
    rows = [
        {
            "run": result.path.rpartition("/")[2],
            "made (UTC)": when(result.made),
            "update": str(result.facts.get("update", "")),
            "commit": commit(result),
            **{name: values.get(name, "")[:WORD] for name in varying},
            **{name: number(value) for name, value in history.numbers(result).items()},
            "pool": result.pool,
            "seconds": number(result.seconds, 0),
            "price": price(result),
            "paid ÷ useful": paid_ratio(history.paid.get(result.path)),
        }
        for result, values in zip(results, told, strict=True)
    ]
    columns = [
        name for name in dict.fromkeys(name for row in rows for name in row) if any(row.get(name) for row in rows)
    ]
    table = Table(
        title=f"{results[0].pipeline}/{results[0].step}", title_justify="left", box=None, padding=(0, 2, 0, 0)
    )
    for name in columns:
        table.add_column(Text(name), no_wrap=name == "run", overflow="fold")
    for row in rows:
        table.add_row(*(Text(row.get(name, "")) for name in columns))
    return table


def print_comparison(console: Console, history: History, first: str, second: str) -> None:
    """A table for each step that both runs have. Raises HistoryError."""
    for one, other in pairs(history, first, second):
        table = Table(title=f"{one.pipeline}/{one.step}", title_justify="left", box=None, padding=(0, 2, 0, 0))
        for name in ("", *(result.path.rpartition("/")[2] for result in (one, other)), ""):
            table.add_column(Text(name), overflow="fold")
        for difference in compare(history, one, other):
            cells = (difference.what, difference.one, difference.other, difference.change)
            table.add_row(*(Text(cell) for cell in cells))
        console.print(table)
