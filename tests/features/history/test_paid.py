"""What nodes were paid for, from the records of pods."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slipway.features.history.comparison import History, compare
from slipway.features.history.document import runs
from slipway.features.history.listing import print_runs
from slipway.features.history.paid import Paid, paid_for
from slipway.features.history.results import Result
from slipway.runtime.store import Manifest

BOOTED = 1_795_708_000.0


def pod(began: float, seconds: float, boot: str = "a", booted: float = 0.0, **parts: float) -> dict[str, Any]:
    """A record of a pod; times are seconds after the first node booted."""
    return {
        "boot": boot,
        "node_booted": BOOTED + booted,
        "began": datetime.fromtimestamp(BOOTED + began, UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        "parts": {"program": seconds, **parts},
    }


def result(step: str, *pods: dict[str, Any], kept: float | None = 60, **facts: Any) -> Result:
    known = facts if kept is None else {**facts, "kept": kept}
    return Result(f"mnist/{step}/{'0' * 10}", 0.0, Manifest(step, {}), known, pods)


def of(results: list[Result]) -> Mapping[str, Mapping[str, float]]:
    return {path.split("/")[1]: paid.seconds for path, paid in paid_for(results).items()}


def test_steps_on_one_node_share_its_life() -> None:
    train = result("train", pod(700, 1000, program=950, inputs=50, gate=20))
    predict = result("predict", pod(1730, 100))

    assert of([predict, train]) == {
        "train": {"start": 680, "gate": 20, "inputs": 50, "program": 950, "kept": 30},
        "predict": {"program": 100, "kept": 60},
    }
    (ratio,) = {paid_for([train])[train.path].ratio}
    assert ratio == pytest.approx((680 + 20 + 1000 + 60) / 950)


def test_pods_at_once_on_a_node_count_once_and_several_nodes_each() -> None:
    train = result("train", pod(100, 400), pod(200, 400), pod(90, 300, "b", 30))

    assert of([train]) == {"train": {"start": 100 + 60, "program": 500 + 300, "kept": 120}}


def test_a_step_with_places_pays_for_each_node_what_its_pool_costs() -> None:
    evicted = {**pod(100, 500, "a"), "pool": "spot"}
    train = {**pod(750, 1000, "b", 700, loading=40, program=960), "pool": "far", "before": [evicted]}
    pools = {"spot": {"rate": 3.6, "kept": 60.0}, "far": {"rate": 7.2, "kept": 600.0}}
    moved = result("train", train, kept=None, pools=pools)

    assert of([moved]) == {"train": {"start": 150, "loading": 40, "program": 1460, "kept": 660}}
    assert paid_for([moved])[moved.path].dollars == pytest.approx((660 + 2 * 1650) / 1000)
    assert (moved.pool, moved.dollars) == ("far", 2.5)
    unknown = result("train", train, kept=None, pools={"spot": pools["spot"]})
    assert (of([unknown])["train"]["program"], unknown.dollars) == (500, None), "one of its nodes is not known"


def test_pods_before_it_count_on_their_nodes() -> None:
    evicted = pod(100, 50, "a")
    train = result("train", {**pod(310, 200, "b", 200), "before": [evicted]})

    assert of([train]) == {"train": {"start": 100 + 110, "program": 250, "kept": 120}}


@pytest.mark.parametrize(
    "record",
    [
        {"began": "2026-11-26T15:56:24+00:00", "seconds": 20.0, "done": True},
        {**pod(10, 20), "boot": "virtual:gpu-0"},
        {**pod(10, 20), "boot": "pod:mnist-train"},
        {**pod(10, 20), "began": "yesterday"},
        {**pod(10, 20), "parts": None},
        {**pod(10, 20), "node_booted": "long ago"},
    ],
)
def test_old_records_damaged_ones_and_those_of_rehearsals_are_left_out(record: dict[str, Any]) -> None:
    assert paid_for([result("train", record)]) == {}


def test_a_node_that_does_not_come_and_go_is_not_counted() -> None:
    assert paid_for([result("train", pod(7000, 10), kept=None)]) == {}


def test_runs_and_their_comparison_show_it(tmp_path: Path) -> None:
    one = Result("mnist/train/aaaaaaaaaa", 2.0, Manifest("t", {}), {"kept": 60, "rate": 3.6}, [pod(700, 1000)])
    two = Result("mnist/train/bbbbbbbbbb", 1.0, Manifest("t", {}), {}, [])
    history = History(tmp_path, [one, two], tmp_path, {})
    console = Console(width=80, record=True)
    print_runs(console, history)

    assert "1.76" in console.export_text()
    shown = {difference.what: difference for difference in compare(history, one, two)}
    assert (shown["paid ÷ useful"].one, shown["paid ÷ useful"].other) == ("1.76", "unknown")
    assert (shown["paid"].one, shown["paid"].other, shown["paid for start"].one) == ("$1.76", "unknown", "700 s")
    assert [(run.paid, run.paid_dollars) for run in runs("dev", history).runs] == [
        ({"start": 700.0, "program": 1000.0, "kept": 60.0}, pytest.approx(1.76)),
        (None, None),
    ]
    assert Paid({"kept": 60.0}).ratio is None
