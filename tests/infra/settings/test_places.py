"""Steps with places: what keeps them from running there is refused, and nothing else is."""

import copy
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.settings.loading import load
from tests.features.search.test_file import stack as churn
from tests.infra.pipelines.days import DAYS
from tests.infra.pipelines.days import stack as days_stack
from tests.infra.pipelines.days import written as days_written
from tests.infra.pipelines.sums import stack, written
from tests.infra.settings.test_references import STEP, refused
from tests.support.refusals import FREE_NETWORK, SECOND, Case, named, problems, the_problem
from tests.support.stack_values import GCP, changed

SPOT = {
    "machine_type": "n1-standard-4",
    "accelerator": "nvidia-tesla-t4",
    "gpus": 1,
    "spot": True,
    "nodes": {"total_min": 0, "total_max": 1},
}
TRAIN = "pipelines.mnist.steps.train"
KEY = f"slipway:{TRAIN}"
PLACES = {"places": ["train-spot", "train"], "gpus": 1, "cpu": "2", "memory": "8Gi"}
FAR = {"clusters.far": {**SECOND, "network": FREE_NETWORK}, "clusters.far.pools.far-spot": SPOT}
TIMES = {"next_after": "10m", "returns": "never", "deadline": "8h", "work": "2h", "time_limit": "12h"}


def moved(changes: dict[str, Any], **step: Any) -> dict[str, Any]:
    """A stack whose training has two places, with changes to it, and to the stack by dotted path."""
    return changed(GCP, {"clusters.dev.pools.train-spot": SPOT, TRAIN: {**PLACES, **step}, **changes})


def test_a_right_file_is_taken() -> None:
    assert load(moved({}))
    assert load(moved({}, **TIMES, max_price=60))
    assert load(moved({}, places=["train-spot", {"pool": "train", "memory": "9Gi"}]))
    assert load(moved(FAR, places=["train-spot", "far-spot", "train"]))
    assert load(moved({"pipelines.mnist.runs": "cluster"}))
    # A step with one pool may have a time limit, and the other steps of the pipeline are as they were.
    assert load(moved({"pipelines.mnist.steps.predict.time_limit": "3h"}))


@pytest.mark.parametrize(
    ("step", "key", "reason", "fix"),
    named(
        [
            ({"next_after": "12h", "time_limit": "2h"}, "next_after", "2h", "`15m`"),
            ({"work": "1h"}, "work", "`deadline`", "`deadline`"),
            ({"deadline": "30m"}, "deadline", "how long", "`work:"),
            ({"deadline": "30m", "work": "30m"}, "work", "30m", "`deadline`"),
            ({"deadline": "9h", "work": "1h", "time_limit": "8h"}, "deadline", "8h", "`time_limit`"),
            ({"places": ["train"]}, "places", "single", "`pool`"),
            # A key about places that are wrong themselves is not refused for it.
            ({"places": ["train"], "max_price": 3}, "places", "single", "`pool`"),
            ({"places": [], "pool": "train", "max_price": 3}, "places", "no place", "`pool`"),
            ({"places": ["train", "train-spot", "train"]}, "places[2]", "twice", "remove"),
            ({"places": ["train", "trian-spot"]}, "places[1]", "no cluster", "`train-spot`"),
        ]
    ),
)
def test_a_wrong_section_is_refused(step: dict[str, Any], key: str, reason: str, fix: str) -> None:
    problem = the_problem(moved({}, **step))
    assert problem.key == f"{KEY}.{key}"
    assert reason in problem.reason
    assert fix in problem.fix


def test_all_mistakes_of_a_step_are_told_at_once() -> None:
    step = {"places": ["train", "trian-spot", "train"], "deadline": "30m", "work": "1h"}
    keys = {problem.key.removeprefix(f"{KEY}.") for problem in problems(moved({}, **step))}
    assert keys == {"places[1]", "places[2]", "work"}


def test_both_a_pool_and_places_are_refused() -> None:
    assert any("`pool`" in problem.fix for problem in problems(moved({}, pool="train")))


def test_keys_about_places_are_refused_where_there_are_none() -> None:
    conditions = {key: value for key, value in {**TIMES, "max_price": 60}.items() if key != "time_limit"}
    refusals = problems(changed(GCP, {TRAIN: {"pool": "train", "gpus": 1, **conditions}}))
    assert {problem.key for problem in refusals} == {f"{KEY}.{key}" for key in conditions}
    assert all("`places`" in problem.fix for problem in refusals)


STACKS: list[Case] = [
    (
        {"kueue": {"install": False, "local_queue": "default"}},
        f"{KEY}.places",
        "LocalQueue `default`",
        "LocalQueue of another name",
    ),
    (
        {"pipelines.mnist.schedule": {"cron": "0 3 * * *"}},
        "slipway:pipelines.mnist.schedule",
        "`train`",
        "`schedule`",
    ),
    (
        {**FAR, "pipelines.mnist.runs": "cluster", f"{TRAIN}.places": ["train", "far-spot"]},
        "slipway:pipelines.mnist.runs",
        "`dev` and `far`",
        "`runs: up`",
    ),
    (
        {"clusters.dev.pools.train-probe": SPOT, f"{TRAIN}.places": ["train", "train-probe"]},
        f"{KEY}.places[0]",
        "`train-probe`",
        "`train-probe`",
    ),
]


@pytest.mark.parametrize(("changes", "key", "reason", "fix"), named(STACKS))
def test_what_would_run_it_twice_or_not_at_all_is_refused(
    changes: dict[str, Any], key: str, reason: str, fix: str
) -> None:
    problem = the_problem(moved(changes))
    assert problem.key == key
    assert reason in problem.reason
    assert fix in problem.fix


SPARE_POOL = {"clusters.dev.pools.spare": {"machine_type": "e2-standard-4"}}
SPARE = {"clusters__dev__pools__spare": {"machine_type": "e2-standard-4"}}
TWO_NODES = {"total_min": 0, "total_max": 2}
WIDE = {
    "clusters__dev__pools__train__nodes": TWO_NODES,
    "clusters__dev__pools__wide": {
        **SPOT,
        "machine_type": "n1-standard-8",
        "gpus": 2,
        "nodes": TWO_NODES,
    },
}


def test_an_own_pipeline_has_places(tmp_path: Path) -> None:
    folder = written(tmp_path / "sums")
    assert load(stack(folder, {"steps.train": {"places": ["cpu", "spare"]}}, **SPARE))
    one_node = {"places": ["train", {"pool": "wide", "gpus": 2}], "gpus": 1, "nodes": 1}
    assert load(stack(folder, {"steps.train": one_node}, **WIDE))


@pytest.mark.parametrize(
    ("step", "more", "key", "reason"),
    [
        ({"places": ["cpu", "spare"], "matrix": {"pool": ["cpu", "spare"]}}, SPARE, "places", "`matrix`"),
        ({"places": ["train", {"pool": "wide", "gpus": 2}], "gpus": 1, "nodes": 2}, WIDE, "places[1]", "2 GPUs"),
        (
            {"places": ["train", {"pool": "spare", "gpus": 0}], "gpus": 1, "nodes": 1},
            SPARE,
            "places",
            "TensorFlow",
        ),
    ],
)
def test_an_own_step_that_its_places_do_not_suit_is_refused(
    tmp_path: Path, step: dict[str, Any], more: dict[str, Any], key: str, reason: str
) -> None:
    problem = the_problem(stack(written(tmp_path / "sums"), {"steps.train": step}, **more))
    assert problem.key == f"slipway:pipelines.sums.steps.train.{key}"
    assert reason in problem.reason
    assert problem.fix


def test_items_and_searches_have_one_pool() -> None:
    days = {"pipelines.fraud": {"steps": {step: {"pool": "cpu"} for step in ("prepare", "days", "evaluate")}}}
    services = {"pipelines.fraud.services": {"queue": {"pool": "cpu"}}}
    values = changed(GCP, {**days, **services, **SPARE_POOL})
    assert load(values)
    refusals = problems(changed(values, {"pipelines.fraud.steps.days": {"places": ["cpu", "spare"]}}))
    assert [(problem.key, "items" in problem.reason) for problem in refusals] == [
        ("slipway:pipelines.fraud.steps.days.places", True)
    ]


def test_a_service_is_reached_from_the_places_of_its_cluster_alone(tmp_path: Path) -> None:
    content = copy.deepcopy(DAYS)
    content["steps"]["prepare"]["connects"] = ["feature-cache"]
    folder = days_written(tmp_path / "days", content)
    spare = {**FAR, "clusters.dev.pools.spare": {"machine_type": "e2-standard-4"}}
    assert load(changed(days_stack(folder, {"steps.prepare": {"places": ["cpu", "spare"]}}), spare))
    problem = the_problem(changed(days_stack(folder, {"steps.prepare": {"places": ["cpu", "other"]}}), spare))
    assert problem.key == "slipway:pipelines.days.steps.prepare.places"
    assert "`feature-cache`" in problem.reason


def test_a_search_has_one_pool(tmp_path: Path) -> None:
    values = changed(churn(tmp_path / "churn"), SPARE_POOL)
    refusals = problems(changed(values, {"pipelines.churn.steps.tune": {"places": ["cpu", "spare"]}}))
    assert [(problem.key, "search" in problem.reason) for problem in refusals] == [
        ("slipway:pipelines.churn.steps.tune.places", True)
    ]


def test_pools_of_another_stack_are_no_places() -> None:
    problem = next(
        problem
        for problem in refused({STEP: {"places": ["cpu", "gpu"]}})
        if problem.key == f"slipway:{STEP}.places"
    )
    assert "`dev`" in problem.reason
    assert "`pool`" in problem.fix
