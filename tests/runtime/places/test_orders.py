"""What the mover of a step believes of other clusters, and whom it hears, where a late message could mislead."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slipway.runtime.kubernetes_api import Api
from slipway.runtime.schedule.places.clusters import NOTHING, Answer, JobsOfClusters, OtherCluster, Report
from slipway.runtime.schedule.places.jobs import PlannedPlace, Seen
from slipway.runtime.schedule.places.orders import FENCE, TTL, Feeds, Order

AWAY = "train-eu"
UIDS = {AWAY: "uid"}


def test_a_job_is_left_when_its_agent_says_so_of_the_order_that_wants_it_no_more(tmp_path: Path) -> None:
    cluster, agent = OtherCluster("eu", Feeds.below(tmp_path), UIDS), Feeds.below(tmp_path).answers

    def has_left(epoch: int, number: int, uid: str) -> bool:
        agent.append("agent", Answer(epoch, number, {AWAY: Report(uid, NOTHING)}).write())
        cluster.read(40.0)
        return cluster.has_left(AWAY, 5)

    cluster.order(5, [AWAY], 0.0)
    # The agent has read that order, and not let the Job run yet.
    assert not has_left(5, 1, "uid")
    cluster.order(5, [], 30.0)
    assert not has_left(5, 1, "uid")
    assert not has_left(4, 99, "uid")
    # A Job of that name which was there before.
    assert not has_left(5, 2, "another")
    assert has_left(5, 2, "uid")


def test_a_job_that_ended_before_is_not_taken_for_the_one_of_the_plan(tmp_path: Path) -> None:
    cluster = OtherCluster("eu", Feeds.below(tmp_path), UIDS)
    complete = Seen(True, 0, 0, 0, "")
    cluster.feeds.answers.append("agent", Answer(5, 1, {AWAY: Report("another", complete)}).write())
    cluster.read(0.0)
    assert cluster.report(AWAY) is None


@dataclass
class Looked(JobsOfClusters):
    """Its cluster has one Job, of which nothing runs. A pod of the other cluster asks while that is looked at."""

    asks: Feeds = field(default_factory=lambda: Feeds.below(Path()))
    notes_kept: list[Any] = field(default_factory=list[Any])
    released: list[str] = field(default_factory=list[str])

    def look(self, name: str) -> Seen:
        del name
        self.asks.asks.append("pod", {"job": AWAY})
        return NOTHING

    def suspend(self, name: str, suspended: bool) -> None:
        assert not suspended
        self.released.append(name)

    def _note(self, data: Any) -> None:
        self.notes_kept.append(data)


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def jobs(tmp_path: Path, clock: list[float]) -> Looked:
    places = [
        PlannedPlace("own", "train-own", "", 1, sure=True, price=1.0),
        PlannedPlace("eu", AWAY, "", 1, sure=False, price=1.0, cluster="eu"),
    ]
    clusters = {"eu": OtherCluster("eu", Feeds.below(tmp_path), UIDS)}
    api = Api("http://127.0.0.1:1", tmp_path)
    made = Looked(api, "", lambda _: None, places, clusters=clusters, now=lambda: clock[0])
    made.asks = Feeds.below(tmp_path)
    return made


def test_nobody_is_heard_whose_ask_came_after_the_look_at_the_jobs(jobs: Looked, tmp_path: Path) -> None:
    """By then another pod may move the step, to which this one would give a second program."""
    orders = Feeds.below(tmp_path).orders
    jobs.settle([AWAY])
    first = Order.newest(orders)
    assert first is not None
    assert first.wanted == [AWAY]
    assert first.heard == {}
    jobs.settle([AWAY])
    second = Order.newest(orders)
    assert second is not None
    assert second.heard == {"pod": 1}


def test_a_place_elsewhere_is_busy_until_its_program_has_ended_for_certain(
    jobs: Looked, clock: list[float]
) -> None:
    jobs.settle([AWAY])
    assert "train-eu" in str(jobs.notes_kept[0])
    for clock[0] in (10.0, TTL, TTL + FENCE - 1.0):
        assert not jobs.settle(["train-own"])[AWAY].is_quiet
        assert jobs.released == []
    clock[0] = TTL + FENCE + 1.0
    assert jobs.settle(["train-own"])[AWAY].is_quiet
    assert jobs.released == ["train-own"]
    # The next pod of the mover need not wait for it.
    assert "train-eu" not in str(jobs.notes_kept[-1])
