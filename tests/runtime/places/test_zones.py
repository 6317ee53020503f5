"""A step with places whose zones have nodes at random times: no deadline that can be met is missed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.runtime.schedule.places.policy import Place
from tests.runtime.places.zones import SURE, Job, Moved, World, rules_for

HOUR = 3600.0
PLACES = [Place("a", 0.3, sure=False), Place("b", 0.3, sure=False), Place(SURE, 1.0, sure=True)]
ZONES = ["x-1a", "x-2a"]
RUNS = st.lists(st.tuples(st.booleans(), st.integers(1, 30)), min_size=1, max_size=12)


def _world(*runs: list[tuple[bool, int]], gap: int = 300) -> World:
    zones = {
        zone: [has for has, ticks in of_zone for _ in range(ticks)]
        for zone, of_zone in zip(ZONES, runs, strict=True)
    }
    return World(zones, gap)


@settings(max_examples=30, deadline=None)
@given(RUNS, RUNS, st.floats(1.0, 1.6), st.floats(1, 6), st.floats(0, 1e5), st.sampled_from([120.0, 1e9]))
def test_no_deadline_is_missed_that_can_be_met(
    first: list[tuple[bool, int]],
    second: list[tuple[bool, int]],
    factor: float,
    hours: float,
    began: float,
    stockout_after: float,
) -> None:
    world = _world(first, second)
    job = Job(hours * HOUR, hours * HOUR * factor + 600, stockout_after=stockout_after)
    rules = rules_for(job, PLACES, 900, deadline=True)

    outcome = Moved(world, job, rules, [[zone] for zone in ZONES] + [[SURE]], began).run(3 * job.deadline)

    assert outcome.seconds <= job.deadline + 1e-3


@settings(max_examples=20, deadline=None)
@given(RUNS, RUNS, st.floats(0.5, 8), st.floats(0, 1e5))
def test_no_price_is_exceeded_by_more_than_an_interval(
    first: list[tuple[bool, int]], second: list[tuple[bool, int]], most: float, began: float
) -> None:
    # Nodes that go before a pod is on them are not seen: here they stay for half an hour at least.
    world, job = _world(first, second, gap=1800), Job(12 * HOUR, 15 * HOUR)
    rules = replace(rules_for(job, PLACES, 900, deadline=False), max_price=most)

    moved = Moved(world, job, rules, [[zone] for zone in ZONES] + [[SURE]], began)
    moved.run(10 * job.deadline)

    assert moved.paid <= most + (job.interval + job.pause) / HOUR


def test_what_was_not_saved_is_lost_with_the_nodes() -> None:
    world, job = _world([(True, 12), (False, 12)], [(False, 24)]), Job(HOUR, 2 * HOUR, stockout_after=1e9)

    outcome = Moved(world, job, rules_for(job, PLACES[:1], 900, deadline=False), [ZONES[:1]], 0).run(1e6)

    # 50 minutes of the first hour compute, 45 are saved; an hour later, 10 minutes of start and the rest.
    assert outcome.seconds == 2 * HOUR + 600 + 900
    assert outcome.evictions == 1
    assert outcome.paid == pytest.approx(0.3 * (HOUR + 600 + 900) / HOUR)
