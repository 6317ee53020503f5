"""What moves a step with places in a rehearsal: the Jobs of all clusters, and the way that the step took."""

import threading
import time
from pathlib import Path

import pytest

from slipway.infra.review.stack import JOB, Resource
from slipway.rehearse.capacity import Capacity, Clock, Trace
from slipway.rehearse.cluster.job_controller import JobResult
from slipway.rehearse.machine.processes import CancelledError, Stop
from slipway.rehearse.moves import NO_API, HeldJob, RehearsedJobs, Way, clusters_of, move, way_words
from slipway.runtime.exits import OK
from slipway.runtime.schedule.places.hold import Lease
from slipway.runtime.schedule.places.jobs import Ending, PlannedPlace
from slipway.runtime.schedule.places.kept import written
from slipway.runtime.schedule.places.orders import Feeds
from slipway.runtime.schedule.places.policy import Place, Rules, State
from tests.policies.samples import resource
from tests.support.rehearsing import wait_until


def test_the_way_has_the_time_at_each_place_and_the_price_of_its_nodes() -> None:
    rules = Rules([Place("spot", 1.0, False), Place("flex", None, False), Place("own", 4.0, True)], 900)
    way = [[0.0, 1000.0, 0.0], [1.0, 1900.0, 0.0], [0.0, 2800.0, 60.0], [2.0, 4600.0, 0.0]]
    state = State(1000.0, place=2, spent=[1800.0, 0.0, 3600.0], way=way)
    words = way_words(rules, state, 8200.0)
    assert "spot 15 min → flex 15 min → spot 30 min → own 60 min" in words
    assert "spot 30 min ($0.50)" in words
    assert "own 60 min ($4.00)" in words
    assert "$4.50" in words


def test_nodes_of_unknown_price_do_not_count_as_free() -> None:
    rules = Rules([Place("own", None, True)], 900)
    state = State(1000.0, spent=[1800.0], tried=[-1.0], way=[[0, 1000.0, 0.0]])
    assert "$" not in way_words(rules, state, 4600.0)


def test_the_way_is_that_which_its_mover_noted_last() -> None:
    rules = Rules([Place("spot", 1.0, False), Place("own", 4.0, True)], 900)
    places = [
        PlannedPlace(place.name, f"at-{place.name}", "", 1, place.sure, place.price) for place in rules.places
    ]
    jobs = RehearsedJobs(NO_API, "", lambda _: None, places)
    jobs.keep(written(State.begin(rules, 1000.0), places), said="")
    state = State(
        1000.0, place=1, spent=[0.0, 1800.0], tried=[-1.0, -1.0], way=[[0, 1000.0, 0.0], [1, 1900.0, 0.0]]
    )
    jobs.end(written(state, places), Ending(OK, ""))
    words = jobs.way(rules, 3700.0)
    assert "spot 15 min → own 30 min" in words
    assert "$2.00" in words


def test_a_job_that_is_taken_out_of_its_queue_has_not_failed() -> None:
    waits, ends = threading.Event(), JobResult(True, "Complete", "", 0, None)

    def run(_: HeldJob, stop: Stop) -> JobResult:
        if waits.is_set():
            return ends
        waits.set()
        while not stop.requested:
            stop.wait(0.01)
        raise CancelledError

    job, stop = HeldJob(resource("kubernetes:batch/v1:Job", "train", {}), run), Stop()
    job.release(stop)
    assert waits.wait(10)
    job.suspend(0.0)
    while job.is_alive:
        time.sleep(0.01)
    assert job.outcome is None
    job.release(stop)
    while job.is_alive:
        time.sleep(0.01)
    assert job.outcome == ""


def test_what_a_step_runs_has_ended_when_its_move_has_and_had_its_time(tmp_path: Path) -> None:
    began, stop, graces = threading.Event(), Stop(), list[float]()

    def run(_: HeldJob, own: Stop) -> JobResult:
        began.set()
        own.wait(60)
        graces.append(own.grace)
        time.sleep(0.2)
        return JobResult(False, "Interrupted", "", 1, None)

    jobs = [
        HeldJob(Resource(name, JOB, name, {}, inputs={"metadata": {"name": name}}), run)
        for name in clusters_of(PLAN)
    ]
    threading.Thread(target=lambda: (began.wait(60), stop.request("interrupted", 7.0)), daemon=True).start()
    with pytest.raises(CancelledError):
        move(PLAN, jobs, stop, Way(tmp_path, "orders", None, lambda _: None))
    assert not any(job.is_alive for job in jobs)
    assert set(graces) == {7.0}


PLAN = {
    "directory": "p/s/d",
    "time_limit": 3600,
    "next_after": 900,
    "returns": "never",
    "deadline": None,
    "work": None,
    "max_price": None,
    "places": [
        {"pool": "spot", "job": "at-spot", "probe": "probe", "pods": 1, "sure": False, "price": 1.0},
        {"pool": "own", "job": "at-own", "probe": "", "pods": 1, "sure": True, "price": 2.0, "cluster": "eu"},
    ],
}


def test_a_program_in_another_cluster_begins_by_an_order(tmp_path: Path) -> None:
    """The first place fails to be there, and the pod at the second asks in the store as in a cluster."""
    assert clusters_of(PLAN) == {"at-spot": "", "probe": "", "at-own": "eu"}
    lease = Lease(Feeds.below(tmp_path / "orders" / "eu"), "at-own", "pod")
    told: list[str] = []

    def run(held: HeldJob, stop: Stop) -> JobResult:
        if held.name == "at-own":
            held.placed = lambda: 1

            def may_run() -> bool:
                lease.look()
                return lease.is_valid

            wait_until(may_run)
            return JobResult(True, "Complete", "", 1, None)
        stop.wait(60)
        return JobResult(False, "Suspended", "", 1, None)

    jobs = [
        HeldJob(Resource(name, JOB, name, {}, inputs={"metadata": {"name": name}}), run)
        for name in clusters_of(PLAN)
    ]
    capacity = Capacity(Trace(gap_seconds=300, pools={"spot": [(0, 10)]}, speed=9000), Clock(9000))
    assert move(PLAN, jobs, Stop(), Way(tmp_path, "orders", capacity, told.append)).succeeded
    assert all(job.suspended for job in jobs)
    assert "spot" in told[-1]
    assert "own" in told[-1]
