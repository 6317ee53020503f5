"""What a rehearsal says of the way that a step with places took."""

from slipway.offline.rehearsal.moves import way_words
from slipway.workloads.schedule.places.policy import Place, Rules, State


def test_the_way_has_the_time_at_each_place_and_the_price_of_its_nodes() -> None:
    rules = Rules([Place("spot", 1.0, False), Place("flex", None, False), Place("own", 4.0, True)], 900)
    way = [[0.0, 1000.0, 0.0], [1.0, 1900.0, 0.0], [0.0, 2800.0, 60.0], [2.0, 4600.0, 0.0]]
    state = State(1000.0, place=2, spent=[1800.0, 0.0, 3600.0], way=way)
    words = way_words(rules, state, 8200.0)
    assert "spot 15 min → flex 15 min → spot 30 min → own 60 min" in words
    assert "spot 30 min ($0.50)" in words
    assert "own 60 min ($4.00)" in words
    assert "$4.50" in words
