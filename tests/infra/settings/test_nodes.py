"""Steps on several nodes: what their pools cannot give is refused, with figures, before anything is created."""

from pathlib import Path
from typing import Any

import pytest

from slipway.infra.settings.loading import load
from tests.infra.pipelines.sums import stack, written
from tests.support.refusals import problems, the_problem
from tests.support.stack_values import changed

TRAIN = "slipway:pipelines.sums.steps.train"
ON_T4 = {"steps.train": {"pool": "train", "gpus": 1}}
T4 = "clusters__dev__pools__train"
AUTOPILOT = {
    "mode": "autopilot",
    "zones": None,
    "pools": {"cpu": {"most_pods": 4}, "l4": {"accelerator": "nvidia-l4", "gpus": 1}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "sums")


def test_a_step_runs_on_as_many_nodes_as_its_pool_has(folder: Path) -> None:
    assert load(stack(folder))
    assert load(stack(folder, {**ON_T4}, **{f"{T4}__nodes": {"total_min": 0, "total_max": 2}}))


def test_more_nodes_than_the_pool_can_have_are_refused(folder: Path) -> None:
    problem = the_problem(stack(folder, {"steps.train.nodes": 5}))
    assert (problem.key, problem.value) == (f"{TRAIN}.nodes", 5)
    assert "`cpu`" in problem.reason
    assert all(name in problem.fix for name in ("`slipway:clusters.dev.pools.cpu.nodes`", "`nodes: 2`"))


def test_another_pool_that_has_as_many_nodes_is_named(folder: Path) -> None:
    wide = {"machine_type": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "gpus": 1, "nodes": {"count": 2}}
    problem = the_problem(stack(folder, ON_T4, clusters__dev__pools__wide=wide))
    # A count is per zone, and the cluster has two of them.
    assert all(name in problem.fix for name in ("`wide`", "`nodes: 1`"))
    assert "`cpu`" not in problem.fix


@pytest.mark.parametrize(
    ("limits", "most"),
    [({"count": 1}, 2), ({"min": 0, "max": 2}, 4), ({"total_min": 0, "total_max": 3}, 3), ({}, 2)],
)
def test_nodes_are_counted_over_all_zones(folder: Path, limits: dict[str, int], most: int) -> None:
    pool = {f"{T4}__nodes": limits}
    assert load(stack(folder, {**ON_T4, "steps.train.nodes": most}, **pool))
    problem = the_problem(stack(folder, {**ON_T4, "steps.train.nodes": most + 1}, **pool))
    assert f"{most} nodes" in problem.reason


def test_all_gpus_of_a_node_are_asked_for(folder: Path) -> None:
    wide = {
        f"{T4}__gpus": 4,
        f"{T4}__nodes": {"total_min": 0, "total_max": 2},
        f"{T4}__machine_type": "n1-standard-16",
    }
    problem = the_problem(stack(folder, ON_T4, **wide))
    assert (problem.key, problem.value) == (f"{TRAIN}.gpus", 1)
    assert "6 GPUs" in problem.reason
    assert "`gpus: 4`" in problem.fix
    # The same where nothing is written: what to write is said.
    missing = the_problem(stack(folder, {"steps.train": {"pool": "train"}}, **wide))
    assert (missing.key, missing.fix) == (f"{TRAIN}.gpus", problem.fix)
    assert load(stack(folder, {"steps.train": {"pool": "train", "gpus": 4}}, **wide))
    # On one node a step takes what it needs.
    assert load(stack(folder, {"steps.train": {"pool": "train", "gpus": 1, "nodes": 1}}, **wide))


def test_divided_gpus_are_refused(folder: Path) -> None:
    shared = {f"{T4}__gpu_sharing": {"clients": 2}, f"{T4}__nodes": {"count": 2}}
    problem = the_problem(stack(folder, ON_T4, **shared))
    assert problem.key == f"{folder}/pipeline.yaml: steps.train.nodes"
    assert all(name in problem.fix for name in ("`predict`", f"`{TRAIN}.nodes`"))


def test_pods_wait_for_less_than_the_time_limit(folder: Path) -> None:
    problem = the_problem(stack(folder, {"steps.train": {"pool": "cpu", "time_limit": "10m"}}))
    assert (problem.key, problem.value) == (f"{TRAIN}.wait", "10m")
    assert load(stack(folder, {"steps.train": {"pool": "cpu", "time_limit": "10m", "wait": "5m"}}))
    assert load(stack(folder, {"steps.train": {"pool": "cpu", "time_limit": "10m", "nodes": 1}}))


def test_on_autopilot_pods_are_counted(folder: Path) -> None:
    values = changed(stack(folder), {f"clusters.dev.{key}": value for key, value in AUTOPILOT.items()})
    assert load(values)
    problem = the_problem(changed(values, {"pipelines.sums.steps.train": {"pool": "l4", "gpus": 1}}))
    assert "`slipway:clusters.dev.pools.l4.most_pods`" in problem.fix


def test_each_pool_of_a_matrix_is_held_to_it(folder: Path) -> None:
    spread = {"steps.train": {"matrix": {"pool": ["train", "predict"]}, "gpus": 1}}
    refusals = problems(stack(folder, spread, **{f"{T4}__nodes": {"total_min": 0, "total_max": 2}}))
    assert [problem.key for problem in refusals] == [f"{TRAIN}.matrix.pool[1]"]
    assert "`nodes: 2`" in refusals[0].reason


def test_everything_wrong_with_nodes_is_said_at_once(folder: Path) -> None:
    wrong = {"steps.train": {"pool": "train", "gpus": 2, "nodes": 3, "wait": "3h"}}
    assert {problem.key for problem in problems(stack(folder, wrong))} == {
        f"{TRAIN}.{key}" for key in ("nodes", "gpus", "wait")
    }


def test_roles_need_so_many_nodes_at_least(tmp_path: Path) -> None:
    roles = {"count": 4, "roles": {"chief": 1, "ps": 1, "worker": 2}}
    folder = written(tmp_path / "sums", {"steps.train.nodes": roles})
    wide: dict[str, Any] = {"clusters__dev__pools__cpu__nodes": {"count": 4}}
    assert load(stack(folder, {"steps.train.nodes": 3}, **wide))
    problem = the_problem(stack(folder, {"steps.train.nodes": 2}, **wide))
    assert problem.key == f"{TRAIN}.nodes"
    assert all(role in problem.reason for role in ("`chief: 1`", "`ps: 1`", "`worker: 2`"))
    assert "`nodes: 3`" in problem.fix


def test_the_service_of_a_step_has_a_name_of_its_own(tmp_path: Path) -> None:
    first, second = written(tmp_path / "sums"), written(tmp_path / "other")
    values = stack(first)
    section = values["pipelines"].pop("sums")
    problem = the_problem(changed(values, {"pipelines": {"7sums": section}}))
    assert problem.key == "slipway:pipelines.7sums"
    assert "`7sums-train`" in problem.reason
    assert load(changed(values, {"pipelines": {"a": section, "b": {**section, "uses": str(second)}}}))
