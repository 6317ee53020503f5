"""Rates, with a clock of the test's own."""

from __future__ import annotations

import math

import pytest
from starlette.exceptions import HTTPException

from slipway.features.page.pod.limits import CLIENTS, Rate


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(rate: Rate, client: str) -> HTTPException:
    with pytest.raises(HTTPException) as error:
        rate.take(client)
    assert error.value.status_code == 429
    return error.value


def test_a_client_has_two_seconds_at_once_and_then_its_rate() -> None:
    clock = Clock()
    rate = Rate(of_one=2, of_all=1000, clock=clock)
    for _ in range(4):
        rate.take("a")
    assert refused(rate, "a").headers == {"retry-after": "1"}
    rate.take("b")
    clock.now += 0.5
    rate.take("a")
    clock.now += 3600
    # However long one was away, no more than that is saved up.
    for _ in range(4):
        rate.take("a")
    refused(rate, "a")


def test_who_is_refused_takes_nothing_from_the_others() -> None:
    rate = Rate(of_one=0.5, of_all=2.5, clock=Clock())
    rate.take("a")
    for _ in range(100):
        assert "too fast" in refused(rate, "a").detail
    for client in "bcde":
        rate.take(client)
    assert "Too many people" in refused(rate, "f").detail


def test_no_more_clients_are_remembered_than_there_is_room_for() -> None:
    rate = Rate(of_one=1, of_all=math.inf, clock=Clock())
    for client in range(CLIENTS + 500):
        rate.take(str(client))
    assert len(rate._clients) == CLIENTS
