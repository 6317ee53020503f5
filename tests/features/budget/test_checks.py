"""What a stack file may not say of its budget, and of idle GPUs."""

from typing import Any

import pytest

from slipway.features.budget.feature import Budget, section_of
from slipway.infra.settings.loading import load
from tests.support.refusals import Refusal, elsewhere, wrong
from tests.support.stack_values import EXISTING, GCP, changed

TRAIN = "pipelines.mnist.steps.train.idle"

CASES: list[Any] = [
    wrong("budget", {}),
    wrong("budget.run", -1),
    wrong("budget.run", 0, "`mnist`"),
    wrong("budget.month", 0, "`mnist`"),
    elsewhere({"budget": {"run": 40}, "metrics": {"usage": False}}, "budget", "`slipway:metrics.usage`"),
    elsewhere({TRAIN: {}, "metrics": {"usage": False}}, TRAIN, "`slipway:metrics.usage`"),
    elsewhere({TRAIN: {"after": "30s"}}, f"{TRAIN}.after", "`10m`"),
    elsewhere({TRAIN: {"then": "end"}}, f"{TRAIN}.then"),
    elsewhere({"pipelines.mnist.steps.prepare.idle": {}}, "pipelines.mnist.steps.prepare.idle", "no GPUs"),
]


@pytest.mark.parametrize("refusal", CASES)
def test_a_limit_that_could_not_hold_is_refused_by_its_key(refusal: Refusal) -> None:
    refusal.check(GCP)


@pytest.mark.parametrize("refusal", [elsewhere({"budget": {"month": 900}}, "budget", "`time_limit`")])
def test_where_no_node_has_a_price_there_is_no_budget(refusal: Refusal) -> None:
    refusal.check(EXISTING)


def test_a_budget_and_idle_gpus_are_read() -> None:
    settings = load(changed(GCP, {"budget": {"run": 40, "month": 900}, TRAIN: {"after": "12m", "then": "stop"}}))
    assert section_of(settings) == Budget(run=40, month=900)
    assert section_of(load(changed(GCP, {"budget": {"run": 0}, "pipelines": {}})))
