"""What moves a step between its places, with everything lost that can be lost, at any moment."""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import pytest

from slipway.runtime.exits import BUDGET_SPENT, GPU_IDLE, OK
from slipway.runtime.kubernetes_api import Api
from slipway.runtime.schedule.places import jobs, move
from slipway.runtime.schedule.places.orders import FENCE, TTL
from slipway.runtime.schedule.run import JOB_FAILED, NO_API, Cluster
from slipway.runtime.usage.limits import Reached
from tests.runtime.places.world import JOBS, Actor, World

RULES = {"directory": "d", "time_limit": 14_400.0, "next_after": 120.0}
FINAL = (OK, JOB_FAILED, BUDGET_SPENT, GPU_IDLE, move.TOO_LATE, move.TOO_DEAR)
BUDGET = "the nodes of this run cost $40.02, until they are gone, and `slipway:budget.run` is $40.00"
IDLE = "its GPU held 12 min idle, below 5 %, $1.10"
LONGEST = 40_000
"""Turns after which a run counts as endless."""


def start(world: World) -> Actor:
    name = f"mnist-train-{len(world.movers)}"
    world.movers[name] = world.mover_uid
    return Actor(world, name)


def run_to_its_end(world: World, loses: float = 0.0, zombies: float = 0.0) -> int:
    """The exit code of the mover's Job. Pods are lost at a request with the likelihood ``loses``, and with
    ``zombies`` one is replaced while it still runs.
    """
    chance, actors, began = world.chance, [start(world)], None
    for _ in range(LONGEST):
        state = json.loads(world.notes["data"].get("state", "{}"))
        if state and "ended" not in world.notes["data"]:
            began = began or state["began"]
            assert state["began"] == began, "the time of the first try is kept"
        ready = [actor for actor in actors if actor.ready_at <= world.now]
        if not ready:
            world.pass_time(max(1.0, min(actor.ready_at for actor in actors) - world.now))
            continue
        actor = chance.choice(ready)
        actor.lost = actor.lost or chance.random() < (loses if actor is actors[-1] else 5 * loses + 0.01)
        actor.step()
        world.pass_time(chance.random())
        if actor.is_over:
            if actor.error is not None and actor.code is None:
                raise actor.error
            actors.remove(actor)
            seen = chance.random() >= 10 * loses
            if actor.code in FINAL and seen and (not actors or actor.name == list(world.movers)[-1]):
                for other in actors:
                    other.lost = True
                    other.step()
                return actor.code
            if not actors:
                actors.append(start(world))
        elif chance.random() < zombies:
            actors.append(start(world))
            if chance.random() < 0.5:
                actor.ready_at = world.now + chance.random() * 300
    raise AssertionError(f"no end: {world.notes}, {world.jobs}, {world.pods}")


def test_a_step_goes_to_a_place_with_nodes_and_ends() -> None:
    world = World(random.Random(1), RULES)
    assert run_to_its_end(world) == OK
    assert len(world.published) == 1
    assert world.wrong == []
    assert world.is_quiet
    # `pulumi up` shows warnings of the Job that it waits for.
    about = {(event["type"], event["involvedObject"]["uid"]) for event in world.events}
    assert about == {("Warning", uid) for uid in world.movers.values()}


def test_rules_that_change_meanwhile_hold_at_once() -> None:
    world = World(random.Random(4), RULES, work=100_000.0)
    mover = start(world)
    while not any(pod.runs_since for pod in world.pods.values()):
        mover.step()
        world.pass_time(3.0)
    world.rules = {**RULES, "time_limit": 60.0}
    while not mover.is_over:
        mover.step()
        world.pass_time(3.0)
    assert mover.code == move.TOO_LATE
    assert world.is_quiet


@pytest.mark.parametrize(
    ("words", "code"), [(BUDGET, BUDGET_SPENT), (IDLE, GPU_IDLE), ("no such file", JOB_FAILED)]
)
def test_a_limit_that_ends_the_step_at_a_place_ends_it_at_all(words: str, code: int) -> None:
    world = World(random.Random(7), RULES, fails=True, words=words)
    assert run_to_its_end(world) == code
    assert words in json.loads(world.notes["data"]["ended"])["why"]
    assert sum(job.has_ended for job in world.jobs.values()) == 1
    assert world.is_quiet


def test_no_place_is_asked_for_nodes_once_the_budget_is_spent() -> None:
    requests: list[str] = []
    world = World(random.Random(8), RULES)
    world.reached = lambda pool: requests.append(pool) or Reached.parse(BUDGET)
    assert run_to_its_end(world) == BUDGET_SPENT
    assert requests == ["spot"]
    assert all(job.content["spec"]["suspend"] for job in world.jobs.values())
    # Raised, the next update goes on; and the place after the first one is looked at, too.
    world.update()
    world.reached, world.flips = requests.append, {"spot": (0.0, 1.0)}
    assert run_to_its_end(world) == OK
    assert len(dict.fromkeys(requests)) > 1


@pytest.mark.parametrize(("run", "spent"), [(10.0, True), (13.0, False)])
def test_what_the_nodes_of_a_place_would_cost_counts_before_they_are_asked_for(
    tmp_path: Path, run: float, spent: bool
) -> None:
    price = {"dollars": 36.0, "kept": 60.0, "by_pod": False}
    limits = {"stack": "dev", "run": run, "runs": ["ml/train/0123456789"], "prices": {"ml.train": {"spot": price}}}

    class Limits(Cluster):
        def config_map(self, name: str) -> dict[str, Any]:
            assert name == "limits"
            return {"data": {"limits.json": json.dumps(limits)}}

    # $9.60 until now, and two nodes for at least 90 s and the minute that they are kept.
    record = {"step": "ml.train", "pod": "a", "began": "2026-11-26T15:00:00+00:00", "seconds": 900.0}
    folder = tmp_path / ".usage" / "ml" / "train" / "0123456789"
    folder.mkdir(parents=True)
    (folder / "0.json").write_text(json.dumps({**record, "boot": "b", "ended": "itself"}))
    world = World(random.Random(1), {**RULES, "directory": "ml/train/0123456789", "step": "ml.train"}, pods_each=2)
    options = argparse.Namespace(store=tmp_path, limits="limits")
    reached = move.limit_at(Limits(Api("", tmp_path), "ml"), options, world.plan)("spot")
    assert (reached is not None) is spent


@pytest.mark.parametrize("seed", range(3))
def test_a_place_that_is_no_more_is_left_before_another_one_runs(seed: int) -> None:
    world = World(random.Random(seed), RULES)
    mover = start(world)
    while not (running := [pod for pod in world.pods.values() if pod.runs_since]):
        mover.step()
        world.pass_time(3.0)
    # The next update has other places. It deletes the Job only when the new mover has ended.
    mover.lost = True
    mover.step()
    world.dropped = {running[0].pool}
    world.mover_uid = "next"
    assert run_to_its_end(world, loses=0.005) == OK
    assert world.wrong == []
    assert world.is_quiet
    assert len(world.published) == 1


def test_a_place_in_a_cluster_that_is_no_more_ends_before_another_one_runs() -> None:
    world = World(random.Random(6), RULES)
    world.notes["data"][jobs.ORDERED] = json.dumps({"epoch": 5, "busy": ["train-far"]})
    began, mover = world.now, start(world)
    while not mover.releases:
        mover.step()
        world.pass_time(1.0)
    # Its pods cannot be seen from here. They end so long after the last order.
    assert world.now - began >= TTL + FENCE
    mover.lost = True
    mover.step()
    assert run_to_its_end(world) == OK
    assert world.wrong == []
    assert not json.loads(world.notes["data"].get(jobs.ORDERED, "{}")).get("busy")


@pytest.mark.parametrize("clears", [False, True])
def test_a_step_that_was_too_late_goes_on_with_an_update_however_much_later(clears: bool) -> None:
    world = World(random.Random(5), {**RULES, "time_limit": 600.0}, work=900.0, limits=True, clears=clears)
    assert run_to_its_end(world) == move.TOO_LATE
    assert world.saved > 0
    world.pass_time(15_000.0)
    world.rules = RULES
    world.update()
    assert run_to_its_end(world) == OK
    assert world.wrong == []


def test_a_mover_that_was_replaced_lets_nothing_run_even_late() -> None:
    world = World(random.Random(2), RULES)
    world.capacity = dict.fromkeys(world.capacity, False)
    late = start(world)
    while not late.releases:
        late.step()
        world.pass_time(1.0)
    mover = start(world)
    while not any(pod.pool == "flex" for pod in world.pods.values()):
        world.capacity = dict.fromkeys(world.capacity, False)
        mover.step()
        world.pass_time(3.0)
    before = world.live
    late.step()
    while not late.is_over:
        late.step()
    assert late.code == NO_API
    assert world.live == before
    mover.lost = True
    mover.step()


def test_a_job_controller_that_is_slow_starts_no_second_place() -> None:
    for seed in range(5):
        world = World(random.Random(seed), RULES, lag=400.0)
        assert run_to_its_end(world) == OK
        assert world.wrong == []


@pytest.mark.parametrize(
    ("rules", "code"),
    [({"max_price": 0.01}, move.TOO_DEAR), ({"time_limit": 300.0}, move.TOO_LATE), ({}, JOB_FAILED)],
)
def test_a_pod_of_a_mover_that_has_ended_ends_alike_and_the_next_mover_begins_anew(
    rules: dict[str, Any], code: int
) -> None:
    world = World(random.Random(3), {**RULES, **rules}, fails=code == JOB_FAILED)
    assert run_to_its_end(world) == code
    before, way = world.live, json.loads(world.notes["data"]["last"])
    assert way["began"] > 0
    assert run_to_its_end(world) == code
    assert world.live == before
    assert json.loads(world.notes["data"]["last"]) == way
    world.fails, world.rules = False, RULES
    world.update()
    assert run_to_its_end(world) == OK
    assert json.loads(world.notes["data"]["last"])["began"] > way["began"]
    assert world.wrong == []


def test_a_step_that_was_stopped_goes_on_with_the_time_that_it_had_left() -> None:
    world = World(random.Random(5), {**RULES, "time_limit": 4000.0})
    mover = start(world)
    while not world.saved:
        mover.step()
        world.pass_time(3.0)
    first = json.loads(world.notes["data"]["state"])
    # As `slipway stop` does it.
    for job in world.jobs:
        content = {"metadata": {"annotations": {jobs.HOLDER_ANNOTATION: jobs.STOPPED}}, "spec": {"suspend": True}}
        world.answer("PATCH", f"{JOBS}/{job}", content)
    while not mover.is_over:
        mover.step()
        world.pass_time(1.0)
    assert mover.code == NO_API
    world.pass_time(5000.0)
    assert world.is_quiet
    for _ in range(2):
        # The pod that goes on with it, and one in its place.
        mover = start(world)
        while not any(pod.runs_since for pod in world.pods.values()):
            mover.step()
            world.pass_time(1.0)
        began = json.loads(world.notes["data"]["state"])["began"]
        assert 4500 < began - first["began"] < 5500
        mover.lost = True
        mover.step()
    assert world.wrong == []


def chaos(seed: int) -> None:
    chance = random.Random(seed)
    timed = {"deadline": 3000.0, "work": 600.0} if chance.random() < 0.5 else {}
    dear = {"max_price": chance.choice([0.2, 1.0])} if chance.random() < 0.2 else {}
    late = {"time_limit": 600.0} if chance.random() < 0.2 else {}
    world = World(
        chance,
        {**RULES, **timed, **dear, **late},
        fails=chance.random() < 0.2,
        pods_each=chance.choice([1, 1, 3]),
        refuses=chance.choice([0.0, 0.02]),
        lag=chance.choice([1.0, 5.0, 20.0]),
    )
    code = JOB_FAILED
    loses, zombies = chance.choice([0.0, 0.005, 0.05]), chance.choice([0.0, 0.005, 0.02])
    for _ in range(12):
        code = run_to_its_end(world, loses, zombies)
        assert world.wrong == []
        assert world.is_quiet
        said: dict[str, Any] = json.loads(world.notes["data"]["ended"])
        assert said["code"] == code
        assert said["why"]
        if code == OK:
            break
        # The cause is mended, and the next `up` begins anew.
        world.fails, world.rules = False, {**RULES, **timed}
        world.update()
    assert code == OK
    assert len(world.published) == 1
    # So does one that only changed how it moves: nothing runs again.
    world.update()
    assert run_to_its_end(world) == OK
    assert len(world.published) == 1
    assert world.wrong == []


@pytest.mark.parametrize("seed", range(12))
def test_nothing_runs_at_two_places_and_nothing_is_left(seed: int) -> None:
    chaos(seed)


@pytest.mark.long
def test_nothing_runs_at_two_places_over_many_seeds() -> None:
    for seed in range(100, 300):
        chaos(seed)
