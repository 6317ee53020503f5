"""Apps of pipelines that `up` does not wait for: their pods wait for what they read, and Pulumi for none."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.existing.platforms import Emulator
from slipway.infra.program import declare
from slipway.infra.review.stack import Resource
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.refusals import problems
from tests.support.stack_values import EXISTING, changed

DECLARATION: dict[str, Any] = {
    "description": "Makes one result, and another from it.",
    "steps": {
        "make": {"run": ["python", "make.py", "{output}"]},
        "read": {"run": ["python", "make.py", "{make}", "{output}"]},
    },
    "apps": {
        "ask": {"kind": "program", "run": ["python", "ask.py", "{port}", "{make}"], "port": 8080},
        "late": {"kind": "program", "run": ["python", "ask.py", "{port}"], "port": 8080, "after": ["read"]},
        "front": {"kind": "program", "run": ["python", "ask.py", "{port}"], "port": 8080, "connects": ["ask"]},
        "kept": {"kind": "program", "run": ["python", "ask.py", "{port}", "{data}", "{make}"], "port": 8080},
        "board": {"kind": "tensorboard"},
    },
}
APPS = ("ask", "late", "front", "board")
ON_CPU = {"pool": "cpu", "cpu": "100m", "memory": "256Mi"}
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
WAIT_FOR = "pulumi.com/waitFor"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    (folder / "pipeline.yaml").write_text(json.dumps(DECLARATION), encoding="utf-8")
    for name in ("make.py", "ask.py"):
        (folder / name).write_text("", encoding="utf-8")
    return folder


def values(folder: Path, apps: Mapping[str, Any], runs: str = "cluster", **more: Any) -> dict[str, Any]:
    steps = {"make": ON_CPU, "read": ON_CPU}
    section = {"uses": str(folder), "runs": runs, "steps": steps, "apps": dict(apps)}
    return changed(EXISTING, {"pipelines": {"mine": section}, **more})


def declared(folder: Path, apps: Mapping[str, Any], runs: str = "cluster") -> Recording:
    given = values(folder, apps, runs)
    config = {f"slipway:{key}": value for key, value in given.items()}
    return record(lambda: declare(ROOT), config, preview=False, emulators=[Emulator(load(given).request)])


@pytest.fixture(scope="module")
def waiting(folder: Path) -> Recording:
    return declared(folder, dict.fromkeys(APPS, ON_CPU))


def pod(recording: Recording, app: str) -> dict[str, Any]:
    return recording.one(DEPLOYMENT, f"mine-{app}").inputs["spec"]["template"]["spec"]


def waiter(recording: Recording, app: str) -> dict[str, Any]:
    return next(entry for entry in pod(recording, app)["initContainers"] if entry["name"] == "waits")


def alone(resource: Resource) -> bool:
    return WAIT_FOR in (resource.inputs["metadata"].get("annotations") or {})


def test_pulumi_waits_for_none_of_them(waiting: Recording) -> None:
    for app in APPS:
        objects = [waiting.one(kind, f"mine-{app}") for kind in (DEPLOYMENT, "kubernetes:core/v1:Service")]
        assert [alone(entry) for entry in objects] == [app != "board"] * 2


def test_a_pod_waits_for_the_very_result_that_it_reads(waiting: Recording) -> None:
    words = waiter(waiting, "ask")["args"]
    program = [*pod(waiting, "ask")["containers"][0]["command"], *pod(waiting, "ask")["containers"][0]["args"]]
    assert words == ["--result", f"make={program[-1]}"]
    mounted = {entry["mountPath"]: entry.get("readOnly") for entry in waiter(waiting, "ask")["volumeMounts"]}
    assert mounted["/store"] is True


def test_for_a_step_that_only_comes_first_any_result_does(waiting: Recording) -> None:
    assert waiter(waiting, "late")["args"] == ["--any", "read=/store/mine/read"]


def test_what_connects_to_one_that_waits_waits_for_it(waiting: Recording) -> None:
    assert waiter(waiting, "front")["args"] == ["--server", "ask=mine-ask:8080"]
    assert "initContainers" not in pod(waiting, "board") or "waits" not in json.dumps(pod(waiting, "board"))


def test_the_steps_are_held_and_the_store_gate_is_not(waiting: Recording) -> None:
    jobs = {job.name: job.inputs["spec"].get("suspend") for job in waiting.of("kubernetes:batch/v1:Job")}
    assert (jobs["mine-make"], jobs["mine-read"], jobs["store-gate-here"]) == (True, True, None)


def test_one_that_follows_waits_for_a_good_run(folder: Path) -> None:
    recording = declared(folder, {"ask": {**ON_CPU, "follow": "newest"}})
    words = waiter(recording, "ask")["args"]
    assert words == ["--runs", "/store/mine/newest/runs.json", "--run", "newest"]


def test_an_update_that_waits_is_as_it_was(folder: Path, waiting: Recording) -> None:
    recording = declared(folder, dict.fromkeys(APPS, ON_CPU), "up")
    assert "slipway.runtime.apps.waiting" not in json.dumps([pod(recording, app) for app in APPS])
    assert not any(alone(entry) for entry in recording.of(DEPLOYMENT))
    inputs = [entry.one(DEPLOYMENT, "mine-ask").inputs["spec"]["template"] for entry in (recording, waiting)]
    assert inputs[0]["metadata"] == inputs[1]["metadata"]


def refused(folder: Path, apps: Mapping[str, Any], **more: Any) -> dict[str, str]:
    return {problem.key: problem.fix for problem in problems(values(folder, apps, **more))}


def test_one_that_would_be_away_while_its_steps_run_is_refused(folder: Path) -> None:
    key = "slipway:pipelines.mine.apps.kept"
    assert "`follow: newest`" in refused(folder, {"kept": ON_CPU})[key]
    load(values(folder, {"kept": {**ON_CPU, "follow": "newest"}}))
    full, one_node = {**ON_CPU, "cpu": "3"}, {"clusters.here.pools.cpu.nodes": 1}
    fixes = refused(folder, {"ask": full}, **one_node)
    assert "`follow: newest`" in fixes["slipway:pipelines.mine.apps.ask.pool"]
    load(values(folder, {"late": full}, **one_node))


def test_a_gpu_that_would_be_paid_while_it_waits_is_refused(folder: Path) -> None:
    with_gpus = {"selector": {"a": "b"}, "accelerator": "nvidia-tesla-t4", "gpus": 1, "cpu": "4", "memory": "8Gi"}
    apps = {"front": {**ON_CPU, "pool": "gpu", "gpus": 1}, "ask": ON_CPU}
    fixes = refused(folder, apps, **{"clusters.here.pools.gpu": with_gpus})
    assert "`runs: up`" in fixes["slipway:pipelines.mine.apps.front.gpus"]
