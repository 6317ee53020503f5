"""The declaration: what its steps run, and what a stack file can make of them."""

from typing import Any

import pytest

from slipway.infra.pipelines.contract import StepDeclaration
from slipway.infra.pipelines.discovery import declared_steps, pipeline
from slipway.infra.settings.loading import load
from tests.support.stack_values import GCP, changed

STEPS = {name: {"pool": "cpu"} for name in ("prepare", "days", "evaluate")}


def declared(section: dict[str, Any]) -> dict[str, StepDeclaration]:
    section = {"services": {"queue": {"pool": "cpu"}}, **section, "steps": {**STEPS, **section.get("steps", {})}}
    settings = load(changed(GCP, {"pipelines.fraud": section})).pipelines["fraud"]
    return {step.name: step for step in declared_steps("fraud", settings)}


def test_days_are_learnt_in_order_from_a_queue() -> None:
    assert not pipeline("fraud").problems
    days = declared({})["days"]
    (items,) = days.parts
    assert (items.mode, items.queue, days.pods) == ("ordered", "queue", 1)


def test_days_can_be_learnt_side_by_side_and_averaged_by_settings_alone() -> None:
    parallel = {"pool": "cpu", "mode": "parallel", "workers": 4}
    steps = declared({"combine": "average", "steps": {"days": parallel}})
    (items,) = steps["days"].parts
    assert (items.mode, items.pods) == ("parallel", 4)
    arguments = steps["evaluate"].arguments
    assert arguments[arguments.index("--combine") + 1] == "average"


@pytest.mark.parametrize("key", ["until", "test_day"])
def test_another_last_day_changes_what_is_prepared(key: str) -> None:
    assert declared({key: "2018-04-04"})["prepare"].arguments != declared({})["prepare"].arguments
    assert declared({key: "2018-04-04"})["days"].arguments == declared({})["days"].arguments
