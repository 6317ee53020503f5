"""What moves a step between its places where Kueue decides when a Job may run."""

import random

import pytest

from slipway.runtime.exits import OK
from slipway.runtime.schedule.places.admission import QUEUE_LABEL
from tests.runtime.places.kueue import QueuedWorld
from tests.runtime.places.test_mover import RULES, run_to_its_end, start


def chaos(seed: int, in_flight: float) -> QueuedWorld:
    chance = random.Random(seed)
    world = QueuedWorld(
        chance,
        RULES,
        pods_each=chance.choice([1, 1, 2]),
        refuses=chance.choice([0.0, 0.02]),
        lag=chance.choice([1.0, 3.0]),
        in_flight=in_flight,
        evicts=chance.choice([0.0, 0.003]),
        gives_up=0.3,
    )
    assert run_to_its_end(world, chance.choice([0.0, 0.005]), chance.choice([0.0, 0.01])) == OK
    assert world.wrong == []
    assert world.is_quiet
    assert len(world.published) == 1
    return world


@pytest.mark.parametrize("seed", range(6))
def test_one_place_runs_and_no_quota_is_left(seed: int) -> None:
    assert chaos(seed, in_flight=2.0).quota_left == []


@pytest.mark.parametrize("seed", range(6))
def test_an_admission_that_lands_late_starts_no_second_place(seed: int) -> None:
    chaos(seed, in_flight=90.0)


def test_a_place_without_quota_is_left_for_the_next_one() -> None:
    world = QueuedWorld(random.Random(1), RULES)
    world.capacity = dict.fromkeys(world.capacity, True)
    mover = start(world)
    while QUEUE_LABEL not in world.jobs["train-spot"].content["metadata"]["labels"]:
        mover.step()
        world.pass_time(1.0)
    # Somebody else has all of it.
    world.is_full = True
    began, said = world.now, ""
    while QUEUE_LABEL not in world.jobs["train-flex"].content["metadata"]["labels"]:
        mover.step()
        world.pass_time(1.0)
        said += world.notes["data"].get("said", "")
    assert world.now - began < 500
    assert "for spot (queue q" in said
    assert QUEUE_LABEL not in world.jobs["train-spot"].content["metadata"]["labels"]
    mover.lost = True
    mover.step()
