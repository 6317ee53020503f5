"""An update whose run has spent its budget says so before it asks for a node."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pulumi
import pytest

from slipway.features.budget import declared
from slipway.features.budget.feature import Budget
from slipway.infra.kubernetes.job import StepJob
from slipway.infra.pulumi_cli import CliError

RUN, OTHER = "mnist/train/0123456789", "mnist/train/abcdef0123"
SAID = (
    "Job has failed: mnist.train was ended: the nodes of this run cost $40.02, until they are gone, and "
    "`slipway:budget.run` is $40.00; raise it, and the next update goes on; what it saved is kept (exit code 21)"
)


@dataclass
class State:
    """What the stack's state has of a run whose Job failed with these words."""

    words: str = SAID
    runs: Sequence[str] = (RUN,)
    name: str = "mnist-train-0123456789"

    def __call__(self) -> Sequence[Mapping[str, Any]]:
        limits = {"metadata": {"name": "limits"}, "data": {"limits.json": json.dumps({"runs": self.runs})}}
        return [
            {"type": "kubernetes:core/v1:ConfigMap", "inputs": limits},
            {"type": "kubernetes:batch/v1:Job", "id": f"ml/{self.name}", "initErrors": [self.words]},
        ]


def check(budget: Budget | None, state: Any, *, preview: bool = False, held: bool = False) -> None:
    run = SimpleNamespace(path=RUN, step=SimpleNamespace(uses_store=True), usage=SimpleNamespace(limited=True))
    job = cast("StepJob", SimpleNamespace(run=run, job_name="mnist-train-0123456789", held=held))
    declared.check_update(SimpleNamespace(budget=budget), {"mnist-train": job}, state, preview=preview)


@pytest.mark.parametrize("limit", [40.0, 40.02, 10.0])
def test_an_update_is_refused_while_the_budget_of_its_run_is_not_raised(limit: float) -> None:
    with pytest.raises(pulumi.RunError, match=r"40\.02"):
        check(Budget(run=limit), State())


@pytest.mark.parametrize(
    ("budget", "state"),
    [
        (Budget(run=40.03), State()),
        (None, State()),
        (Budget(month=1.0), State()),
        # Another code or another input: what the earlier result cost is no part of this run.
        (Budget(run=40.0), State(runs=(OTHER,))),
        (Budget(run=40.0), State(name="mnist-train-abcdef0123")),
        (Budget(run=40.0), State(words="Job has failed: error: no data (exit code 4)")),
        (Budget(run=40.0), State(words="its GPU held 12 min idle, below 5 %, $1.10 (exit code 22)")),
    ],
)
def test_an_update_goes_on_where_the_budget_is_raised_or_another_run_spent_it(
    budget: Budget | None, state: State
) -> None:
    check(budget, state)


def test_a_month_is_over_with_the_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(
        "the nodes of 2026-11 so far cost $900.10, until they are gone, and `slipway:budget.month` is $900.00"
    )
    for now, refused in ((1795705200.0, True), (1796083200.0, False)):
        monkeypatch.setattr(declared.time, "time", lambda now=now: now)
        if refused:
            with pytest.raises(pulumi.RunError, match=r"budget\.month"):
                check(Budget(month=900.0), state)
        else:
            check(Budget(month=900.0), state)


def test_a_preview_warns_and_what_is_not_known_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    check(Budget(run=40.0), State(), preview=True)
    assert "40.02" in said[0]
    # The cluster looks after those that `up` does not wait for.
    check(Budget(run=40.0), State(), held=True)

    def unknown() -> Sequence[Mapping[str, Any]]:
        raise CliError("no state")

    check(Budget(run=40.0), unknown)
    assert len(said) == 1
