"""Services of a stack's pipelines: where they run, and what they are called."""

from pathlib import Path
from typing import Any

import pytest

from slipway.infra.settings.loading import load
from tests.infra.pipelines.days import SECTION, stack, written
from tests.support.refusals import FREE_NETWORK, SECOND, problems, the_problem
from tests.support.stack_values import changed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "days")


def two_clusters(folder: Path, changes: dict[str, Any]) -> dict[str, Any]:
    return changed(stack(folder, changes), {"clusters.far": {**SECOND, "network": FREE_NETWORK}})


def test_a_service_on_another_cluster_than_its_steps_is_refused(folder: Path) -> None:
    problem = the_problem(two_clusters(folder, {"services.queue.pool": "other"}))
    assert problem.key == "slipway:pipelines.days.services.queue.pool"
    assert all(name in problem.reason for name in ("`far`", "`days`", "`dev`"))
    assert "`cpu`" in problem.fix


def test_steps_that_do_not_connect_may_run_on_another_cluster(folder: Path) -> None:
    assert load(two_clusters(folder, {"steps.prepare.pool": "other"}))
    moved = {"steps.days.pool": "other", "services": {name: {"pool": "other"} for name in SECTION["services"]}}
    assert load(two_clusters(folder, moved))
    static = {"steps.days": {"pool": "cpu", "assignment": "static"}, "services.queue.pool": "other"}
    assert load(two_clusters(folder, static)), "nobody connects to the queue, so that it is not there"


def test_each_variant_of_a_step_reaches_its_services(folder: Path) -> None:
    spread = {"steps.days": {"matrix": {"pool": ["cpu", "other"]}}}
    refusals = problems(two_clusters(folder, spread))
    keys = [f"slipway:pipelines.days.services.{name}.pool" for name in ("queue", "feature-cache")]
    assert [problem.key for problem in refusals] == keys
    assert all("`days-other`" in problem.reason for problem in refusals)


def test_the_name_of_a_pipeline_with_services_begins_with_a_letter(folder: Path) -> None:
    values = stack(folder)
    values["pipelines"]["7days"] = values["pipelines"].pop("days")
    problem = the_problem(values)
    assert problem.key == "slipway:pipelines.7days"
    assert "`7days-queue`" in problem.reason


def test_two_services_of_one_name_are_refused(tmp_path: Path) -> None:
    services = {"a": "b-c", "a-b": "c"}
    sections: dict[str, Any] = {}
    for pipeline, service in services.items():
        content = {
            "description": "Works on files.",
            "services": {service: {"kind": "valkey"}},
            "steps": {f"{pipeline}-step": {"run": ["python", "prepare.py"], "connects": [service]}},
        }
        folder = written(tmp_path / pipeline, content)
        places = {"steps": {f"{pipeline}-step": {"pool": "cpu"}}, "services": {service: {"pool": "cpu"}}}
        sections[pipeline] = {"uses": str(folder), **places}
    problem = the_problem({**stack(tmp_path), "pipelines": sections})
    assert problem.key == "slipway:pipelines.a-b"
    assert all(name in problem.reason for name in ("`a-b-c`", "`b-c`", "`a`"))
