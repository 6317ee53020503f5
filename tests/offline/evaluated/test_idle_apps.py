"""Apps that are looked at whether anybody uses them: what they cost, in an evaluated stack and in its preview."""

from dataclasses import replace
from datetime import date

import pytest

from slipway.offline.evaluated.cost import cost
from slipway.offline.evaluated.model import StackPreview
from slipway.offline.policies.services import POLICIES
from slipway.offline.preview import tables
from tests.offline.policies.cases import gpu_app

TODAY = date(2026, 11, 26)


@pytest.mark.parametrize(("then", "words"), [("stop", "stopped"), ("warn", "nothing stops it")])
def test_a_preview_says_what_an_app_costs_an_hour_and_a_month(then: str, words: str) -> None:
    found = cost(gpu_app(then, hourly=0.5), today=TODAY)
    [app] = found.idle_apps
    assert (app.app, app.pool, app.after, app.stops) == ("mnist.serving", "t4", 7200, then == "stop")
    assert (app.hourly, app.monthly) == (0.5, pytest.approx(365))
    [line] = [line for line in tables.cost_words(StackPreview(stack="it", cost=found)) if "without use" in line]
    assert all(part in line for part in ("mnist.serving", "$0.50 an hour", "$365.00 a month", "2 h", words))


def test_an_app_whose_node_stays_or_has_no_price_is_not_counted() -> None:
    stack = gpu_app("stop", hourly=0.5)
    stays = replace(stack, pools=[replace(pool, min_nodes=1) for pool in stack.pools])
    assert cost(stays, today=TODAY).idle_apps == []
    assert cost(gpu_app("stop"), today=TODAY).idle_apps == []


def test_gpus_that_are_held_without_idle_are_found_with_their_money() -> None:
    (policy,) = [policy for policy in POLICIES if policy.id == "app-gpus-without-idle"]
    (violation,) = policy.check(gpu_app(hourly=0.5))
    assert "$365 a month" in violation.reason
