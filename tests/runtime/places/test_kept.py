"""What is kept of a step on its way, where the places of the stack file are others by then."""

import pytest

from slipway.runtime.schedule.places.jobs import PlannedPlace
from slipway.runtime.schedule.places.kept import restore, written
from slipway.runtime.schedule.places.policy import Place, Rules, State, paid

NOW = 5000.0


def places(*pools: str, digest: str = "a1") -> list[PlannedPlace]:
    prices = {"spot": 1.0, "flex": 2.0, "bought": 4.0, "new": None}
    return [PlannedPlace(pool, f"train-{digest}-{pool}", "", 1, pool == "bought", prices[pool]) for pool in pools]


def rules(of: list[PlannedPlace]) -> Rules:
    return Rules([Place(place.pool, place.price, place.sure) for place in of], 900.0)


BEFORE = places("spot", "flex", "bought")
STATE = State(
    1000.0,
    place=1,
    since=3000.0,
    computes=3500.0,
    counted=4000.0,
    tried=[-1.0] * 3,
    spent=[3600.0, 1800.0, 0.0],
    way=[[0, 1000.0, 0.0]],
)


@pytest.mark.parametrize(
    "pools", [("spot", "flex", "bought"), ("bought", "flex", "spot"), ("new", "flex", "spot")]
)
def test_it_goes_on_at_its_place_with_deadline_and_money(pools: tuple[str, ...]) -> None:
    after = places(*pools)
    state = restore(written(STATE, BEFORE), after, rules(after), NOW)
    assert after[state.place].pool == "flex"
    assert (state.began, state.since, state.computes) == (STATE.began, STATE.since, STATE.computes)
    assert paid(rules(after), state) == paid(rules(BEFORE), STATE) == 2.0
    # It is kept and read again as any other.
    assert restore(written(state, after), after, rules(after), NOW) == state


def test_what_a_place_cost_that_is_gone_counts_and_the_first_one_is_tried() -> None:
    after = places("bought", "spot")
    state = restore(written(STATE, BEFORE), after, rules(after), NOW)
    assert (state.place, state.since, state.computes) == (0, NOW, 0.0)
    assert state.began == STATE.began
    assert paid(rules(after), state) == 2.0


def test_another_run_begins_anew() -> None:
    after = places("spot", "flex", "bought", digest="b2")
    assert restore(written(STATE, BEFORE), after, rules(after), NOW) == State.begin(rules(after), NOW)
    assert restore({}, BEFORE, rules(BEFORE), NOW) == State.begin(rules(BEFORE), NOW)
