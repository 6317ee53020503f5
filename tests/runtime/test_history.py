"""Which results a store has: what each was made from, and what stands beside its manifest."""

from pathlib import Path

from slipway.runtime import history
from tests.support.stores import add_result

NUMBERS = [{"kind": "number", "name": "loss", "path": "metrics.json", "select": "/loss"}]


def test_results_are_the_newest_first_with_what_they_were_made_from(tmp_path: Path) -> None:
    store = tmp_path / "store"
    data = add_result(store, "shop/prepare/aaaaaaaaaa", {"data.json": [1]}, made=10)
    add_result(
        store,
        "shop/train/bbbbbbbbbb-20261122-0300",
        {"metrics.json": {"loss": 0.5}},
        made=20,
        inputs={"prepare": data},
        facts={"began": 5, "ended": 12.5},
    )
    (store / "shop/train/cccccccccc").mkdir()
    (store / "shop/train/cccccccccc/checkpoint").write_text("of a run that did not come to its end")
    newest, oldest = results = history.results(store)
    assert [result.path for result in results] == [
        "shop/train/bbbbbbbbbb-20261122-0300",
        "shop/prepare/aaaaaaaaaa",
    ]
    assert (newest.pipeline, newest.step, newest.digest) == ("shop", "train", "bbbbbbbbbb")
    assert (newest.mark, oldest.mark) == ("20261122-0300", "")
    assert (newest.seconds, oldest.seconds) == (7.5, None)
    assert history.inputs(newest, results) == {"prepare": oldest}
    assert history.numbers(store, newest, NUMBERS) == {"loss": 0.5}
    assert history.numbers(store, oldest, NUMBERS) == {}


def test_what_is_damaged_or_no_result_is_left_out(tmp_path: Path) -> None:
    store = tmp_path / "store"
    add_result(store, "shop/train/aaaaaaaaaa", {"model": 1}, facts={"commit": "abc"})
    (store / ".history/shop/train/aaaaaaaaaa.json").write_text("{")
    add_result(store, "shop/train/by-hand", {"model": 1})
    add_result(store, "shop/train/bbbbbbbbbb", {"model": 1})
    (store / "shop/train/bbbbbbbbbb/manifest.json").write_text("{")
    (result,) = history.results(store)
    assert (result.path, dict(result.facts)) == ("shop/train/aaaaaaaaaa", {})
