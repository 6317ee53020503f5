"""A step with places in a preview: one row for it and its Jobs, and others for what is deleted or granted."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from slipway.evaluated.model import Changes, Operation, Outcome
from slipway.evaluated.phrasing import count_operations
from slipway.infra.review.stack import Stack
from slipway.preview.differences import Row, compare, rows
from tests.support.previewing import previewed

pytestmark = pytest.mark.slow

ASKS: Mapping[str, Any] = {"gpus": 1, "cpu": "2", "memory": "8Gi", "time_limit": "4h"}
BOTH = ["train", "predict"]


@cache
def placed() -> Stack:
    return moved()


def moved(places: Any = BOTH, **changes: Any) -> Stack:
    step = {**ASKS, **changes, "places": places}
    return previewed("gcp-dev", {"pipelines.mnist.steps.train": step})


def row_of(changes: Changes, name: str) -> Row:
    return next(row for row in rows(changes) if (name, "Job") in row.resources)


def test_a_step_that_runs_again_is_one_row_and_the_data_has_every_change() -> None:
    trains_longer = previewed(
        "gcp-dev", {"pipelines.mnist.steps.train": {**ASKS, "places": BOTH}, "pipelines.mnist.epochs": 13}
    )
    found = compare(placed(), trains_longer)
    assert [resource for row in rows(found) for resource in row.resources] == [
        ("mnist-train", "Job"),
        ("mnist-predict", "Job"),
    ]
    assert count_operations(found) == {}
    step = next(run for run in found.runs if run.name == "mnist-train")
    assert (step.outcome, step.because) == (Outcome.RUNS, "its arguments changed")
    parts = {change.name: change.operation for change in found.resources if change.of == step.urn}
    places = ("mnist-train-at-train", "mnist-train-at-train-probe", "mnist-train-at-predict")
    assert {name: parts[name] for name in places} == dict.fromkeys(places, Operation.REPLACE)
    assert str(len(parts)) in row_of(found, "mnist-train").place
    assert not [change for change in found.resources if change.name == "mnist-predict" and change.of]


def test_a_change_at_one_place_keeps_the_result_and_names_the_place() -> None:
    found = compare(placed(), moved(["train", {"pool": "predict", "memory": "12Gi"}], max_price=20))
    assert [(run.name, run.outcome) for run in found.runs] == [("mnist-train", Outcome.RESUMES)]
    (because,) = (run.because for run in found.runs)
    assert "its memory changed at predict" in because
    assert "max_price changed from none to $20.00" in because
    assert " came" not in because, "its code is the same"
    assert [resource for row in rows(found) for resource in row.resources] == [("mnist-train", "Job")]


def test_a_place_that_goes_is_deleted_in_a_row_of_its_own() -> None:
    three = moved([*BOTH, {"pool": "cpu", "gpus": 0}], image=IMAGE)
    found = compare(three, moved(BOTH, image=IMAGE))
    gone = [row.resources for row in rows(found) if row.operation is Operation.DELETE]
    assert gone == [[("mnist-train-at-cpu", "Job"), ("mnist-train-at-predict-probe", "Job")]]
    assert row_of(found, "mnist-train").why == (
        "the accelerators of its places changed; its places were train, predict, cpu"
    )


def test_what_a_step_with_places_may_do_is_told_beside_it() -> None:
    found = compare(previewed("gcp-dev"), placed())
    told = {kind for row in rows(found) for _, kind in row.resources if row.operation is Operation.CREATE}
    assert {"Role", "RoleBinding", "ServiceAccount"} <= told
    assert [name for row in rows(found) for name, _ in row.resources].count("mnist-train-at-train") == 0


IMAGE = f"registry.example/trainer@sha256:{'0' * 64}"
