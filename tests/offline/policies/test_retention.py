"""What is said of an update that has results of old runs deleted."""

from datetime import date
from typing import Any

import pytest

from slipway.infra.review.stack import Stack
from slipway.offline.policies.changes import Change
from slipway.offline.policies.check import check_change

ALL, MANY, FEW = None, {"runs": 30, "days": 90}, {"runs": 30, "days": 60}


def stack(retention: dict[str, int] | None) -> Stack:
    schedule: dict[str, Any] = {"cron": "0 3 * * *", **({"retention": retention} if retention else {})}
    return Stack("dev", {}, configuration={"slipway:pipelines": {"shop": {"schedule": schedule}, "site": {}}})


def reasons(before: Stack, after: Stack) -> list[str]:
    findings = check_change(Change(before, after, ()), {}, date(2026, 11, 22))[0]
    return [f"{finding.reason} {finding.harm}" for finding in findings if finding.policy == "deletes-old-runs"]


@pytest.mark.parametrize(("before", "after"), [(ALL, MANY), (MANY, FEW)], ids=["turned on", "lowered"])
def test_runs_that_stayed_and_stay_no_longer_are_a_loss(
    before: dict[str, int] | None, after: dict[str, int] | None
) -> None:
    (reason,) = reasons(stack(before), stack(after))
    assert after is not None
    assert "30" in reason
    assert str(after["days"]) in reason
    assert reason.endswith("True")
    assert reasons(stack(after), stack(before)) == []


def test_a_pipeline_that_is_new_has_no_runs_to_lose() -> None:
    assert reasons(Stack("dev", {}), stack(FEW)) == []
