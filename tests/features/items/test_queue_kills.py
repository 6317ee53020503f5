"""Workers and the queue are killed at random, and every item has the result that it has without kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.queue_kills import MODES, WITHOUT_QUEUE, measure, plan
from tests.support.servers.valkey import valkey_program

SEED = 206


def test_a_plan_is_the_same_for_the_same_seed() -> None:
    assert plan(SEED, 100) == plan(SEED, 100)
    assert plan(SEED, 100) != plan(SEED + 1, 100)


def test_a_plan_has_as_many_events_as_it_was_asked_for() -> None:
    for kills in (1, 10, 100):
        assert sum(len(events) for events in plan(SEED, kills).values()) == kills


def test_without_a_queue_only_workers_are_killed() -> None:
    assert {event.kind for event in plan(SEED, 100)["static"]} <= set(WITHOUT_QUEUE)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost_or_reported_twice_whoever_is_killed(mode: str, tmp_path: Path) -> None:
    if mode != "static":
        valkey_program()
    events = plan(SEED, 10)[mode]
    tally = measure(mode, events, items=12, seconds=0.5, scratch=tmp_path)
    assert tally.events.total() == len(events)
    assert tally.items >= 12
    assert (tally.lost, tally.replaced, tally.different, tally.left_behind) == (0, 0, 0, 0)
