"""Rates and turns, with a clock of the test's own."""

from __future__ import annotations

import asyncio
import math

import pytest

from slipway.workloads.apps.page.limits import CLIENTS, BusyError, ConcurrencyLimit, Rate, TooManyError, client_of


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_client_has_a_burst_and_then_its_rate() -> None:
    clock = Clock()
    rate = Rate(of_one=2, of_all=1000, burst=2, clock=clock)
    for _ in range(4):
        rate.take("a")
    with pytest.raises(TooManyError) as refused:
        rate.take("a")
    assert refused.value.seconds == pytest.approx(0.5)
    assert not refused.value.everyone
    rate.take("b")
    clock.now += refused.value.seconds
    rate.take("a")
    clock.now += 3600
    # However long one was away, no more than a burst is saved up.
    for _ in range(4):
        rate.take("a")
    with pytest.raises(TooManyError):
        rate.take("a")


def test_who_is_refused_takes_nothing_from_the_others() -> None:
    clock = Clock()
    rate = Rate(of_one=1, of_all=5, burst=1, clock=clock)
    rate.take("a")
    for _ in range(100):
        with pytest.raises(TooManyError):
            rate.take("a")
    for client in "bcde":
        rate.take(client)
    with pytest.raises(TooManyError) as refused:
        rate.take("f")
    assert refused.value.everyone


def test_no_more_clients_are_remembered_than_there_is_room_for() -> None:
    rate = Rate(of_one=1, of_all=math.inf, burst=1)
    for client in range(CLIENTS + 500):
        rate.take(str(client))
    assert len(rate) == CLIENTS


def test_so_many_at_a_time_and_so_many_waiting() -> None:
    async def scene() -> list[str]:
        limit = ConcurrencyLimit(parallel=2, most=1)
        leave = asyncio.Event()
        happened: list[str] = []

        async def visitor(name: str) -> None:
            try:
                async with limit.slot():
                    happened.append(f"{name} in")
                    await leave.wait()
            except BusyError:
                happened.append(f"{name} refused")

        visitors: list[asyncio.Task[None]] = []
        for name in "abcd":
            visitors.append(asyncio.create_task(visitor(name)))
            # As far as it comes.
            for _ in range(3):
                await asyncio.sleep(0)
        # Whoever gives up waiting leaves its place to others.
        visitors[2].cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert limit.waiting == 0
        leave.set()
        await asyncio.gather(*visitors, return_exceptions=True)
        await visitor("e")
        return happened

    assert asyncio.run(scene()) == ["a in", "b in", "d refused", "e in"]


@pytest.mark.parametrize(
    ("peer", "forwarded", "proxies", "client"),
    [
        ("192.0.2.1", [], 0, "192.0.2.1"),
        ("192.0.2.1", ["10.0.0.1"], 0, "192.0.2.1"),
        ("192.0.2.1", ["10.0.0.1"], 1, "10.0.0.1"),
        ("192.0.2.1", ["6.6.6.6, 10.0.0.1"], 1, "10.0.0.1"),
        ("192.0.2.1", ["6.6.6.6", "10.0.0.1,10.9.9.9"], 2, "10.0.0.1"),
        ("192.0.2.1", ["10.0.0.1"], 2, "192.0.2.1"),
        ("192.0.2.1", [], 1, "192.0.2.1"),
        ("192.0.2.1", ["<script>"], 1, "unknown"),
        ("2001:db8:1:2:3::4", [], 0, "2001:db8:1:2::/64"),
        ("192.0.2.1", ["2001:db8:1:2:ffff::1"], 1, "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", [], 0, "192.0.2.1"),
        ("", [], 0, "unknown"),
    ],
)
def test_who_asks(peer: str, forwarded: list[str], proxies: int, client: str) -> None:
    assert client_of(peer, forwarded, proxies) == client
