"""Which results a store has: what each was made from, and what stands beside its manifest."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slipway.features.history import results as history
from slipway.features.history.comparison import price
from slipway.features.history.results import Result, result
from tests.support.stores import add_result

NUMBERS = [{"kind": "number", "name": "loss", "path": "metrics.json", "select": "/loss"}]


def note(store: Path, path: str, facts: str) -> None:
    (place := store / history.FACTS / f"{path}.json").parent.mkdir(parents=True)
    place.write_text(facts)


def test_results_are_the_newest_first_with_what_they_were_made_from(tmp_path: Path) -> None:
    store = tmp_path / "store"
    data = add_result(store, "shop/prepare/aaaaaaaaaa", {"data.json": [1]}, made=10)
    add_result(
        store,
        "shop/train/bbbbbbbbbb-20261122-0300",
        {"metrics.json": {"loss": 0.5}},
        made=20,
        inputs={"prepare": data},
    )
    note(store, "shop/train/bbbbbbbbbb-20261122-0300", '{"began": 5, "ended": 12.5}')
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
    add_result(store, "shop/train/aaaaaaaaaa", {"model": 1})
    note(store, "shop/train/aaaaaaaaaa", "{")
    add_result(store, "shop/train/by-hand", {"model": 1})
    add_result(store, "shop/train/bbbbbbbbbb", {"model": 1})
    (store / "shop/train/bbbbbbbbbb/manifest.json").write_text("{")
    (made,) = history.results(store)
    assert (made.path, dict(made.facts)) == ("shop/train/aaaaaaaaaa", {})


def in_store(store: Path, path: str, facts: Mapping[str, Any]) -> Result:
    """A result with these facts, of two pods on nodes, one of which took the place of another."""
    add_result(store, path, {"metrics.json": {}})
    before = {"seconds": 300.0, "gpus_asked": 1}
    for index, earlier in enumerate(([before], [])):
        file = store / ".usage" / path / f"{index}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"seconds": 1200.0, "gpus_asked": 1, "before": earlier}))
    made = result(store, path)
    assert made is not None
    return replace(made, facts=facts)


def test_the_seconds_of_all_pods_on_nodes_are_paid(tmp_path: Path) -> None:
    made = in_store(tmp_path, "shop/train/aaaaaaaaaa", {"rate": 3.6})
    assert (made.node_seconds, made.dollars) == (2700, 2.7)
    assert price(made)
    assert not price(in_store(tmp_path, "shop/train/bbbbbbbbbb", {}))


def test_nothing_was_paid_for_a_rehearsal_and_what_is_not_known_is_not_nought(tmp_path: Path) -> None:
    path = "shop/train/aaaaaaaaaa"
    priced: Mapping[str, Any] = {"rate": 3.6, "prices": "2026-11-01", "stack": "dev", "pool": "t4"}
    assert in_store(tmp_path, path, priced).dollars == 2.7
    assert in_store(tmp_path, path, {name: f"{value}" for name, value in priced.items()}).dollars == 2.7
    unpaid: list[Mapping[str, Any]] = [{**priced, "code": {}, "began": 1, "ended": 2}, {"stack": "dev"}]
    for facts in unpaid:
        assert in_store(tmp_path, path, facts).dollars is None
    add_result(tmp_path, "shop/train/bbbbbbbbbb", {"metrics.json": {}})
    made = result(tmp_path, "shop/train/bbbbbbbbbb")
    assert made is not None
    assert made.dollars is None
    assert replace(made, facts={**priced, "pods": 2, "began": 0, "ended": 1800}).dollars == 3.6
