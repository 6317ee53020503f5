"""What a rehearsal says of the way that a step with places took."""

import threading
import time

from slipway.offline.rehearsal.cluster.job_controller import JobResult
from slipway.offline.rehearsal.machine.processes import CancelledError, Stop
from slipway.offline.rehearsal.moves import NO_API, HeldJob, RehearsedJobs, way_words
from slipway.workloads.runtime.exits import OK
from slipway.workloads.schedule.places.jobs import Ending, PlannedPlace
from slipway.workloads.schedule.places.kept import written
from slipway.workloads.schedule.places.policy import Place, Rules, State
from tests.offline.policies.samples import resource


def test_the_way_has_the_time_at_each_place_and_the_price_of_its_nodes() -> None:
    rules = Rules([Place("spot", 1.0, False), Place("flex", None, False), Place("own", 4.0, True)], 900)
    way = [[0.0, 1000.0, 0.0], [1.0, 1900.0, 0.0], [0.0, 2800.0, 60.0], [2.0, 4600.0, 0.0]]
    state = State(1000.0, place=2, spent=[1800.0, 0.0, 3600.0], way=way)
    words = way_words(rules, state, 8200.0)
    assert "spot 15 min → flex 15 min → spot 30 min → own 60 min" in words
    assert "spot 30 min ($0.50)" in words
    assert "own 60 min ($4.00)" in words
    assert "$4.50" in words


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
