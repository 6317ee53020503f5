"""At which of its places a step runs next."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.runtime.schedule.places.policy import (
    DROP,
    GO,
    PROBE,
    STOP,
    WAIT,
    Decision,
    Look,
    Place,
    Rules,
    State,
    decide,
    paid,
)

MINUTE, HOUR = 60.0, 3600.0
SPOT, FLEX, BOUGHT = (
    Place("spot", 3.0, sure=False),
    Place("flex", 3.0, sure=False),
    Place("bought", 10.0, sure=True),
)
RULES = Rules([SPOT, FLEX, BOUGHT], 15 * MINUTE)
TIMED = replace(RULES, deadline=10 * HOUR, work=8 * HOUR)


class Step:
    """A step on its way, which is looked at from minute to minute."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.state, self.now = rules, State.begin(rules, 1000.0), 1000.0
        self.checkpoint = 0.0

    def look(self, minutes: float = 0, *, saves: bool = False, **seen: Any) -> Decision:
        """What is decided after some more minutes."""
        self.now += minutes * MINUTE
        if saves:
            self.checkpoint = self.now
        look = Look(self.now, checkpoint=self.checkpoint, **seen)
        return decide(self.rules, self.state, look)

    def runs(self, minutes: int, **seen: Any) -> Decision:
        """The step computes that long, with a checkpoint every 15 minutes; the last decision."""
        decision = self.look(nodes=True, runs=True, **seen)
        for minute in range(1, minutes + 1):
            if decision.what != STOP:
                decision = self.look(1, saves=minute % 15 == 0, nodes=True, runs=True, **seen)
        return decision


def test_order_goes_round_by_time() -> None:
    step = Step(RULES)

    assert step.look().what == WAIT
    assert step.look(14).what == WAIT
    ways = [step.look(15) for _ in range(4)]

    assert [(way.what, way.place) for way in ways] == [(GO, 1), (GO, 2), (GO, 0), (GO, 1)]
    assert {way.reason for way in ways} == {"no-nodes"}


def test_a_stockout_is_not_waited_for_unless_the_next_place_costs_more() -> None:
    step = Step(RULES)

    assert step.look(2, stockout="no capacity").place == 1
    decision = step.look(2, stockout="no capacity")

    assert (decision.what, decision.place, decision.reason) == (WAIT, 1, "stockout")
    assert "no capacity" in decision.sentence
    assert "bought" in decision.sentence
    assert step.look(13, stockout="no capacity").place == 2


def test_time_in_a_queue_is_not_time_for_nodes() -> None:
    step = Step(replace(RULES, next_after=5 * MINUTE))
    assert step.look(4, queue="no quota").what == WAIT
    assert "no quota" in step.look(0, queue="no quota").sentence
    # It was let run: only now it asks for nodes.
    assert step.look(4).what == WAIT
    assert step.look(1).what == GO
    assert step.look(6, queue="no quota").what == GO


@pytest.mark.parametrize("next_after", [1, 15])
def test_a_place_without_nodes_and_without_a_word_is_left_after_next_after(next_after: int) -> None:
    step = Step(replace(RULES, next_after=next_after * MINUTE))

    assert [step.look(next_after - 0.5).what, step.look(0.5).what] == [WAIT, GO]


def test_a_place_without_a_probe_is_not_gone_back_to() -> None:
    for place, what in ((FLEX, PROBE), (replace(FLEX, probe=False), WAIT)):
        step = Step(Rules([place, BOUGHT], 15 * MINUTE))
        assert step.look(15).place == 1
        assert step.look(1, nodes=True, runs=True).what == what


def test_a_place_with_a_stockout_is_not_asked_again_at_once() -> None:
    step = Step(replace(RULES, places=[SPOT, FLEX]))

    assert step.look(2, stockout="no").place == 1
    assert step.look(2, stockout="no").what == WAIT
    assert step.look(3, stockout="no").place == 0


def test_lost_nodes_are_asked_for_where_they_were() -> None:
    step = Step(RULES)
    step.look(15)
    step.runs(20)

    assert step.look(1).what == WAIT
    assert step.look(14).place == 1
    assert step.look(1).place == 0


def test_it_goes_back_at_a_checkpoint() -> None:
    step = Step(replace(RULES, work=8 * HOUR))
    step.look(15)
    step.look(15)

    decision = step.look(10, nodes=True, runs=True)
    assert (decision.what, decision.place, decision.probed) == (PROBE, 2, 0)
    step.look(1, nodes=True, runs=True, saves=True)
    assert step.look(5, nodes=True, runs=True, probe_nodes=True).what == WAIT
    decision = step.look(9, nodes=True, runs=True, probe_nodes=True, saves=True)

    assert (decision.what, decision.place, decision.reason) == (GO, 0, "return")
    assert step.look(nodes=True).what == WAIT


def test_earlier_places_are_probed_in_turn() -> None:
    step = Step(RULES)
    step.look(15)
    step.look(15)

    probed = [step.look(5, nodes=True, runs=True, probe_stockout="no").probed for _ in range(4)]

    assert probed == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "rules",
    [
        replace(RULES, returns=False),
        replace(RULES, work=0.5 * HOUR),
        replace(RULES, places=[replace(SPOT, price=10.0), replace(FLEX, price=10.0), BOUGHT]),
    ],
    ids=["it never does", "little is left", "it costs as much"],
)
def test_it_does_not_go_back(rules: Rules) -> None:
    step = Step(rules)
    step.look(15)
    step.look(15)

    decision = step.runs(16, probe_nodes=True)

    assert (decision.place, decision.probed) == (2, -1)


def test_where_prices_are_not_known_the_order_decides() -> None:
    step = Step(Rules([Place("own", None, sure=True), Place("other", None, sure=True)], 15 * MINUTE))
    assert step.look(15).place == 1

    assert step.runs(1).probed == 0
    assert step.look(14, saves=True, nodes=True, runs=True, probe_nodes=True).place == 0


def test_with_a_deadline_sure_places_are_left_out_while_it_is_ahead() -> None:
    step = Step(TIMED)
    step.runs(4 * 60)

    assert step.look(1).what == WAIT
    assert [step.look(15).place for _ in range(3)] == [1, 0, 1]
    while (decision := step.look(15)).place != 2:
        assert step.now < 1000 + 10 * HOUR
    assert decision.reason == "behind"


def test_a_sure_place_that_is_preferred_is_not_left_out() -> None:
    step = Step(replace(TIMED, places=[replace(BOUGHT, price=1.0), SPOT, BOUGHT]))

    assert step.look(15).place == 1
    assert step.look(15).place == 2


def test_once_the_time_bears_no_more_a_sure_place_is_kept_to_the_end() -> None:
    step = Step(replace(TIMED, deadline=8 * HOUR + 40 * MINUTE))
    assert step.look().what == WAIT
    decision = step.look(5, stockout="no capacity")

    assert (decision.place, decision.reason) == (2, "deadline")
    assert step.look(10, nodes=True).probed == -1
    assert step.runs(60, probe_nodes=True).probed == -1


def test_it_leaves_for_a_sure_place_at_a_checkpoint() -> None:
    step = Step(replace(TIMED, deadline=8 * HOUR + 35 * MINUTE))

    decision = step.look(10, nodes=True, runs=True)
    assert (decision.what, decision.probed) == (PROBE, 2)
    step.look(1, nodes=True, runs=True, probe_nodes=True)
    decision = step.look(2, nodes=True, runs=True, probe_nodes=True, saves=True)

    assert (decision.what, decision.place, decision.reason) == (GO, 2, "deadline")


def test_a_sure_place_without_nodes_is_left_for_any_other() -> None:
    step = Step(replace(TIMED, deadline=8 * HOUR))

    assert [step.look(15).place for _ in range(4)] == [2, 0, 1, 2]


def test_a_probe_is_dropped_where_nodes_are_lost() -> None:
    step = Step(RULES)
    step.look(15)
    step.look(15)
    step.runs(1)

    assert step.look(1).what == DROP


def test_it_stops_at_a_checkpoint_before_it_costs_too_much() -> None:
    step = Step(replace(RULES, places=[BOUGHT], max_price=19.0))

    decision = step.runs(2 * 60 + 20)

    assert (decision.what, decision.reason) == (STOP, "max-price")
    assert paid(step.rules, step.state) <= 19
    assert step.state.done == 105 * MINUTE


def test_a_place_that_is_too_dear_for_the_rest_is_left_out() -> None:
    step = Step(replace(RULES, max_price=3.0))

    assert [step.look(15).place for _ in range(3)] == [1, 0, 1]
    assert Step(replace(RULES, max_price=0.5)).look().what == STOP


PLACES = st.lists(
    st.builds(Place, st.just("place"), st.none() | st.floats(0, 100), st.booleans()), min_size=1, max_size=4
)
SECONDS = st.floats(0, 1e6)
ALL_RULES = st.builds(
    Rules,
    PLACES,
    next_after=st.floats(1, 1e4),
    returns=st.booleans(),
    deadline=st.none() | SECONDS,
    work=st.none() | SECONDS,
    max_price=st.none() | st.floats(0, 1e3),
)
LOOKS = st.lists(
    st.tuples(
        st.floats(0, 2000),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["", "no capacity"]),
        st.sampled_from(["", "no capacity"]),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(ALL_RULES, LOOKS)
def test_whatever_is_seen_one_place_is_decided_and_survives_a_restart(
    rules: Rules, looks: list[tuple[float, bool, bool, bool, bool, str, str]]
) -> None:
    now, checkpoint, place = 1e9, 0.0, 0
    state = State.begin(rules, now)
    for seconds, nodes, runs, probe_nodes, saves, stockout, probe_stockout in looks:
        now += seconds
        checkpoint = now if saves else checkpoint
        look = Look(now, nodes, nodes and runs, probe_nodes, checkpoint, stockout, probe_stockout)
        kept = State.read(json.loads(json.dumps(state.write())), rules, now)
        assert kept == state

        decision = decide(rules, state, look)

        assert decision == decide(rules, kept, look)
        assert kept == state
        assert decision.what in (WAIT, GO, PROBE, DROP, STOP)
        assert (decision.what == GO) == (decision.place != place)
        place = decision.place
        assert 0 <= place == state.place < len(rules.places)
        assert -1 <= decision.probed < len(rules.places)
        assert decision.probed != place
        assert decision.sentence
        assert decision.reason
        assert all(math.isfinite(value) for value in [*state.spent, state.done, state.saved])
        if decision.what == STOP:
            break


def test_a_state_of_other_places_is_a_beginning() -> None:
    other = State.begin(replace(RULES, places=[SPOT]), 5.0).write()

    assert State.read(other, RULES, 7.0) == State.begin(RULES, 7.0)
    assert State.read({"unknown": 1}, RULES, 7.0) == State.begin(RULES, 7.0)
