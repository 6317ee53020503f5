"""Apps that read the best of several results, or those of the newest good run."""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.existing.platforms import Emulator
from slipway.infra.clouds.registry import reviews
from slipway.infra.program import declare
from slipway.infra.review.contract import reviewed
from slipway.infra.review.stack import Stack
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.policies.check import check
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record

PIPELINE = """
description: Trains three, and shows one.
parameters:
  rate: {type: number, default: 0.1}
steps:
  prepare:
    run: [python, prepare.py, "{output}"]
  train:
    run: [python, train.py, "{prepare}", "{output}", "{rate}"]
    matrix: {rate: [0.1, 0.2]}
    best: {by: score}
    results:
      score: {number: "numbers.json#/score"}
  judge:
    run: [python, judge.py, "{train}", "{output}"]
apps:
  ask:
    kind: program
    run: [python, ask.py, --port, "{port}", --model, "{train}/model"]
    port: 8080
    environment: {DATA: "{prepare}/data"}
  look:
    kind: program
    run: [python, ask.py, "{port}", "{judge}"]
    port: 8080
  curves: {kind: tensorboard}
  server: {kind: tensorflow-serving, model: it, step: judge, requests: "{prepare}/held.npz"}
"""
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
JOB = "kubernetes:batch/v1:Job"
CRON_JOB = "kubernetes:batch/v1:CronJob"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
ON_CPU = {"pool": "cpu"}
NIGHTLY = {"cron": "0 3 * * *"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    for name in ("prepare", "train", "judge", "ask"):
        (tmp_path / f"{name}.py").write_text("")
    return tmp_path


def values(folder: Path, apps: Mapping[str, Any], **section: Any) -> dict[str, Any]:
    steps = dict.fromkeys(("prepare", "train", "judge"), ON_CPU)
    pool = {"selector": {"a": "b"}, "cpu": "8", "memory": "32Gi", "ephemeral_storage": "40Gi"}
    return {
        "clusters": {"here": {"cloud": "existing", "kubeconfig": "/nowhere", "pools": {"cpu": pool}}},
        "store": {"kind": "pvc"},
        "pipelines": {"tried": {"uses": str(folder), "steps": steps, "apps": dict(apps), **section}},
    }


def run(folder: Path, apps: Mapping[str, Any], **section: Any) -> Recording:
    given = values(folder, apps, **section)
    emulators = [Emulator(load(given).request)]
    configuration = {f"slipway:{key}": value for key, value in given.items()}
    return record(lambda: declare(ROOT), configuration, preview=False, emulators=emulators)


def template(recording: Recording, name: str) -> Mapping[str, Any]:
    return recording.one(DEPLOYMENT, name).inputs["spec"]["template"]


def words(recording: Recording, name: str) -> list[str]:
    (container,) = template(recording, name)["spec"]["containers"]
    return [*container["command"], *container["args"]]


def policies(recording: Recording) -> list[tuple[str, str]]:
    stack = reviewed(Stack("test", recording.evaluation.resources), reviews())
    findings, _ = check(stack, {}, date(2026, 11, 23))
    return [(finding.policy, finding.name) for finding in findings]


def refused(folder: Path, apps: Mapping[str, Any]) -> dict[str, str]:
    with pytest.raises(SettingsError) as error:
        load(values(folder, apps))
    return {problem.key: problem.reason for problem in error.value.problems}


def test_an_app_that_reads_the_last_update_beside_a_schedule_is_told_of(folder: Path) -> None:
    result = policies(run(folder, {"ask": ON_CPU, "curves": ON_CPU}, schedule=NIGHTLY))
    assert ("app-behind-schedule", "tried-ask (Deployment)") in result
    assert [name for policy, name in result if policy == "app-behind-schedule"] == ["tried-ask (Deployment)"]


def test_one_that_follows_is_not_and_neither_is_one_without_a_schedule(folder: Path) -> None:
    for apps, section in (({"ask": {**ON_CPU, "follow": "newest"}}, {"schedule": NIGHTLY}), ({"ask": ON_CPU}, {})):
        assert "app-behind-schedule" not in {policy for policy, _ in policies(run(folder, apps, **section))}


def test_a_run_is_noted_last_by_update_and_clock(folder: Path) -> None:
    recording = run(folder, {"look": {**ON_CPU, "follow": "newest"}}, schedule=NIGHTLY)
    custom = [resource for resource in recording.of(JOB) if resource.name.startswith("tried-")]
    newest = next(entry for entry in custom if entry.name == "tried-newest")
    before = {resource.urn for resource in custom if resource.name != "tried-newest"}
    assert before <= set(recording.waits_for(newest))
    planned = json.loads(recording.one(CONFIG_MAP, "tried-schedule-jobs").inputs["data"]["jobs.json"])
    last = next(entry for entry in planned if entry["name"] == "tried-newest")
    assert set(last["after"]) == {entry["name"] for entry in planned if entry["name"] != "tried-newest"}
    assert newest.urn in recording.waits_for(recording.one(DEPLOYMENT, "tried-look"))


def test_one_that_follows_names_no_result_so_that_its_pods_outlive_a_night(folder: Path) -> None:
    recording = run(folder, {"look": {**ON_CPU, "follow": "newest", "replicas": 3}})
    result = template(recording, "tried-look")
    assert "/store/tried/judge/" not in json.dumps(result)
    assert "slipway/inputs" not in result["metadata"]["annotations"]
    started = words(recording, "tried-look")
    assert started[:3] == ["python3", "-m", "slipway.runtime.apps.inputs"]
    assert started[started.index("--follow") + 1] == "/store/tried/newest/runs.json"
    assert started[started.index("--input") + 1] == "judge=judge"
    assert started[started.index("--") + 1 :] == ["python", "ask.py", "8080", "/tmp/results/judge"]
    (mount,) = [
        volume_mount
        for volume_mount in result["spec"]["containers"][0]["volumeMounts"]
        if volume_mount["mountPath"] == "/store"
    ]
    assert mount["readOnly"] is True


def test_a_run_can_be_named_to_go_back_to_it(folder: Path) -> None:
    started = words(run(folder, {"look": {**ON_CPU, "follow": "20261122-0300"}}), "tried-look")
    assert started[started.index("--run") + 1] == "20261122-0300"


def test_an_app_reads_the_best_of_a_sweep(folder: Path) -> None:
    recording = run(folder, {"ask": ON_CPU})
    started = words(recording, "tried-ask")
    assert started[started.index("--best") + 1] == "train=max:numbers.json#/score:train-0-1,train-0-2"
    assert started[-1] == "/tmp/results/train/model"
    environment = template(recording, "tried-ask")["spec"]["containers"][0]["env"]
    assert {"name": "DATA", "value": "/tmp/results/prepare/data"} in environment
    # When one of them runs again, so does the app.
    inputs = json.loads(template(recording, "tried-ask")["metadata"]["annotations"]["slipway/inputs"])
    assert inputs.keys() == {"prepare", "train-0-1", "train-0-2"}


def test_what_reads_no_result_has_nothing_to_follow(folder: Path) -> None:
    key = "slipway:pipelines.tried.apps.curves.follow"
    assert "refers to no step's result" in refused(folder, {"curves": {**ON_CPU, "follow": "newest"}})[key]


@pytest.mark.parametrize("value", ["latest", "2026-11-22", "", "20261122-0300x"])
def test_what_is_no_run_is_refused(folder: Path, value: str) -> None:
    key = "slipway:pipelines.tried.apps.look.follow"
    assert "not the name of a run" in refused(folder, {"look": {**ON_CPU, "follow": value}})[key]


def test_a_server_gets_a_version_each_night(folder: Path) -> None:
    recording = run(folder, {"server": ON_CPU}, schedule=NIGHTLY)
    planned = json.loads(recording.one(CONFIG_MAP, "tried-schedule-jobs").inputs["data"]["jobs.json"])
    judge = next(entry["path"] for entry in planned if entry["name"] == "tried-judge")
    publishes = next(entry for entry in planned if entry["name"] == "tried-server-publish")
    assert "tried-judge" in publishes["after"]
    # The runner puts the night's directory in its place.
    assert f"/store/{judge}/saved_model" in json.dumps(publishes["manifest"])


@pytest.mark.parametrize(
    ("notify", "key"),
    [
        ({}, "pipelines.tried.schedule.notify"),
        ({"url": "https://a.example.org", "secret": "hook"}, "pipelines.tried.schedule.notify"),
        ({"url": "http://chat.example.org/x"}, "pipelines.tried.schedule.notify.url"),
        ({"url": "https://chat.example.org/x?key=hidden"}, "pipelines.tried.schedule.notify.url"),
        ({"secret": "hook"}, "secrets.hook"),
    ],
)
def test_an_address_that_cannot_be_told_is_refused(folder: Path, notify: dict[str, str], key: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(values(folder, {}, schedule={**NIGHTLY, "notify": notify}))
    assert [problem.key for problem in error.value.problems] == [f"slipway:{key}"]
