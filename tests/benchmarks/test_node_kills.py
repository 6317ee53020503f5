"""The kills of pods of one training: planned, done, and of no consequence for the result."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.node_kills import KINDS, Event, measure, plan, table
from slipway.workloads.runtime.nodes.group import SILENCE


def test_a_plan_is_that_of_its_seed() -> None:
    assert plan(1, 20) == plan(1, 20)
    assert plan(1, 20) != plan(2, 20)
    assert plan(1, 40)[:20] == plan(1, 20)


def test_a_plan_has_all_kinds_and_waits_longer_than_the_others_do() -> None:
    events = plan(1, 200)
    assert {event.kind for event in events} == set(KINDS)
    assert all(event.away > SILENCE for event in events)


@pytest.mark.slow
def test_kills_change_nothing(tmp_path: Path) -> None:
    events = [
        Event("pod killed", 0.3, 0.0, early=False, away=11.0),
        Event("launcher killed", 0.1, 0.9, early=True, away=11.0),
        Event("pod told to end", 0.3, 0.5, early=False, away=11.0),
    ]
    tally = measure("plain", events, 60, 0.1, tmp_path)
    assert tally.holds
    assert tally.events.total() == 3
    assert "| 0 | 0 | 0 |" in table("plain", tally)[-1]
