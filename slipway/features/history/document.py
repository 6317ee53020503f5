"""`slipway show runs` and `compare` with `--format json`, as data."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from slipway.evaluated.model import Model
from slipway.features.history.comparison import History, compare, pairs, parameters
from slipway.features.history.listing import runs_of, unfinished_of
from slipway.features.history.results import Result
from slipway.infra.review.stack import text

FORMAT = 1


class Run(Model):
    """A result of a step. ``run`` is its directory below the store, ``commit`` and ``update`` null where unknown.

    ``dollars`` are list prices of the nodes for as long as its pods ran. ``paid`` are the seconds of its GPU nodes
    by what they were paid for, null where that is not known: `program` is the useful part. ``paid_dollars`` is
    their list price.
    """

    run: str
    pipeline: str
    step: str
    made: datetime
    commit: str | None
    changed: bool
    update: str | None
    pool: str | None
    parameters: Mapping[str, str]
    numbers: Mapping[str, float]
    seconds: float | None
    dollars: float | None
    paid: Mapping[str, float] | None
    paid_dollars: float | None


class Unfinished(Model):
    """A run of a step without a result, since a limit of the stack ended it.

    ``kind`` is that of the limit: ``run`` or ``month`` of the budget, or ``idle``. ``dollars`` were spent, and
    ``limit`` may be.
    """

    run: str
    ended: datetime
    kind: str
    dollars: float | None
    limit: float | None
    says: str
    fix: str


class Runs(Model):
    """The results that a store has, and the runs that a limit ended before they had one, the newest first."""

    format: Literal[1] = FORMAT
    stack: str
    runs: list[Run]
    unfinished: list[Unfinished]


class Difference(Model):
    """One thing that two results differ in, or a number that both have, as people read it."""

    what: str
    one: str
    other: str
    change: str


class Pair(Model):
    """Two results of a step."""

    one: Run
    other: Run
    differences: list[Difference]


class Comparison(Model):
    """What two runs differ in, by the steps that both have."""

    format: Literal[1] = FORMAT
    stack: str
    steps: list[Pair]


def runs(stack: str, history: History, only: str = "") -> Runs:
    """The runs, or those of the pipeline or step ``only``. Raises HistoryError where there is none."""
    results = [_run(history, result) for result in runs_of(history, only)]
    ended = [
        Unfinished(
            run=run.path,
            ended=datetime.fromtimestamp(run.at, UTC),
            kind=run.reached.kind,
            dollars=run.reached.dollars,
            limit=run.reached.limit,
            says=run.reached.says,
            fix=run.reached.fix,
        )
        for run in unfinished_of(history, only)
    ]
    return Runs(stack=stack, runs=results, unfinished=ended)


def comparison(stack: str, history: History, first: str, second: str) -> Comparison:
    """What the two differ in. Raises HistoryError."""
    steps = [
        Pair(
            one=_run(history, one),
            other=_run(history, other),
            differences=[
                Difference.model_validate(difference, from_attributes=True)
                for difference in compare(history, one, other)
            ],
        )
        for one, other in pairs(history, first, second)
    ]
    return Comparison(stack=stack, steps=steps)


def _run(history: History, result: Result) -> Run:
    update, paid = result.facts.get("update"), history.paid.get(result.path)
    return Run(
        run=result.path,
        pipeline=result.pipeline,
        step=result.step,
        made=datetime.fromtimestamp(result.made, UTC),
        commit=text(result.facts.get("commit")) or None,
        changed=bool(result.facts.get("changed")),
        update=None if update is None else str(update),
        pool=result.pool or None,
        parameters=parameters(result),
        numbers=history.numbers(result),
        seconds=result.seconds,
        dollars=result.dollars,
        paid={cause: round(seconds, 1) for cause, seconds in paid.seconds.items()} if paid else None,
        paid_dollars=paid.dollars if paid else None,
    )
