"""What a last day has ended is not left so for good where the day is taken out."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pytest

from slipway.infra.kubernetes.cluster.workspace import CRON_JOBS, DEPLOYMENTS, LastDay
from slipway.infra.pulumi_cli import CliError
from slipway.infra.stack import ended_stack

OVER, LATER = "2020-01-01", "2099-12-24"


def state(day: str) -> Sequence[Mapping[str, Any]]:
    metadata = {"name": "shop-page", "annotations": {"slipway/until": day}}
    return [
        {"type": "kubernetes:core/v1:ConfigMap", "inputs": {"metadata": {"name": "shop-page"}}},
        {"type": "kubernetes:apps/v1:Deployment", "inputs": {"metadata": metadata}},
    ]


def check(of_state: str = OVER, *, day: str | None = None, kind: str = DEPLOYMENTS, preview: bool = False) -> None:
    last_day = LastDay(day)
    last_day.cover(kind, "shop-page")
    ended_stack.check([last_day], lambda: state(of_state), preview=preview)


def test_taking_out_a_day_that_is_over_is_refused_with_what_it_ended() -> None:
    with pytest.raises(pulumi.RunError, match=r"2020-01-01.*shop-page.*later day"):
        check()


def test_a_later_day_and_one_that_was_not_over_are_taken_as_they_are() -> None:
    check(day=LATER)
    check(LATER)
    # Another object of that name: the app itself is no longer declared.
    check(kind=CRON_JOBS)


def test_a_preview_warns_and_an_unknown_state_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    check(preview=True)
    assert "shop-page" in said[0]

    def unknown() -> Sequence[Mapping[str, Any]]:
        raise CliError("no state")

    last_day = LastDay()
    last_day.cover(DEPLOYMENTS, "shop-page")
    ended_stack.check([last_day], unknown, preview=False)
