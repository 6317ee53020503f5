"""Steps with places: a suspended Job for each, what lets one of them run, and what it may do."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.clouds.gcp.emulator import Emulator
from slipway.infra.program import declare
from slipway.infra.review.stack import Resource
from slipway.infra.settings.loading import load
from slipway.workloads.runtime.exits import USAGE
from slipway.workloads.schedule.places.jobs import read_places
from slipway.workloads.schedule.places.move import TOO_DEAR, TOO_LATE, rules_of
from slipway.workloads.schedule.run import JOB_FAILED, NO_API
from tests.support.checkout import ROOT
from tests.support.recording import Recording, is_unknown, record
from tests.support.stack_values import GCP, changed

JOB = "kubernetes:batch/v1:Job"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
TRAIN = "pipelines.mnist.steps.train"
SPOT = {
    "machine_type": "n1-standard-4",
    "accelerator": "nvidia-tesla-t4",
    "gpus": 1,
    "spot": True,
    "nodes": {"total_min": 0, "total_max": 1},
}
STEP = {"gpus": 1, "cpu": "2", "memory": "8Gi"}
PLACES = {**STEP, "places": ["train-spot", "train", "predict"]}


class Noted(Emulator):
    """What the mover has noted by the time of an update."""

    noted: Mapping[str, str] = {}

    def outputs(self, token: str, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name.endswith("-notes-read"):
            return {"data": {"about": "x", **self.noted}}
        return super().outputs(token, name, inputs)


def declared(
    step: Mapping[str, Any], noted: Mapping[str, str] | None = None, *, preview: bool = False
) -> Recording:
    values = changed(GCP, {"clusters.dev.pools.train-spot": SPOT, TRAIN: dict(step)})
    config = {f"slipway:{key}": value for key, value in values.items()} | {"gcp:project": "acme-project"}
    cluster = Noted(load(values).request)
    cluster.noted = noted or {}
    return record(lambda: declare(ROOT), config, preview=preview, emulators=[cluster])


@pytest.fixture(scope="module")
def moved() -> Recording:
    return declared(PLACES)


@pytest.fixture(scope="module")
def at_one() -> Recording:
    return declared({**STEP, "pool": "train"})


def held(recording: Recording) -> dict[str, Resource]:
    """The Jobs that the mover lets run, by their Kubernetes names."""
    return {job.inputs["metadata"]["name"]: job for job in recording.of(JOB) if job.inputs["spec"].get("suspend")}


def plan(recording: Recording) -> dict[str, Any]:
    return json.loads(recording.one(CONFIG_MAP, "mnist-train-plan").inputs["data"]["plan.json"])


def run_of(recording: Recording) -> str:
    return recording.one(JOB, "mnist-train").inputs["metadata"]["annotations"]["slipway/run"]


def pod(job: Resource) -> dict[str, Any]:
    return job.inputs["spec"]["template"]


def test_each_place_has_a_suspended_job_and_each_but_the_last_a_probe(moved: Recording) -> None:
    places = read_places(plan(moved))
    assert [place.pool for place in places] == ["train-spot", "train", "predict"]
    assert [place.sure for place in places] == [False, True, False]
    assert [bool(place.probe) for place in places] == [True, True, False]
    jobs = held(moved)
    assert sorted(jobs) == sorted(name for place in places for name in (place.job, place.probe) if name)
    for job in jobs.values():
        assert job.ignore_changes == ("spec.suspend",)
        assert "pulumi.com/waitFor" in job.inputs["metadata"]["annotations"]
    assert rules_of(plan(moved)).next_after == 900


def test_it_is_one_result_wherever_it_is_made(moved: Recording) -> None:
    pods = [pod(held(moved)[place.job]) for place in read_places(plan(moved))]
    programs = [template["spec"]["containers"][0] for template in pods]
    assert len({json.dumps([program["args"], program["image"]]) for program in programs}) == 1
    assert len({json.dumps(template["spec"]["nodeSelector"], sort_keys=True) for template in pods}) == 3
    turned = declared({**STEP, "places": ["predict", "train", "train-spot"]})
    assert run_of(turned) == run_of(moved)
    assert [place.pool for place in read_places(plan(turned))] == ["predict", "train", "train-spot"]
    other_times = declared({**PLACES, "next_after": "5m", "max_price": 20})
    assert run_of(other_times) == run_of(moved)
    # Its Jobs stay as they are, and what lets them run is made anew.
    jobs, before = held(other_times), held(moved)
    assert {name: job.inputs["spec"] for name, job in jobs.items()} == {
        name: job.inputs["spec"] for name, job in before.items()
    }
    assert pod(other_times.one(JOB, "mnist-train")) != pod(moved.one(JOB, "mnist-train"))


def test_the_mover_may_change_its_jobs_and_nothing_else(moved: Recording) -> None:
    rules = moved.one(ROLE, "mnist-train-mover-role").inputs["rules"]
    changes = [rule for rule in rules if {"patch", "update", "create", "delete", "*"} & {*rule["verbs"]}]
    assert [(rule["resources"], rule["verbs"]) for rule in changes] == [
        (["jobs"], ["get", "patch"]),
        (["configmaps"], ["get", "patch"]),
    ]
    assert changes[0]["resourceNames"] == sorted(held(moved))
    assert len(changes[1]["resourceNames"]) == 1
    account = pod(moved.one(JOB, "mnist-train"))["spec"]["serviceAccountName"]
    # The program and the probe may do nothing at the API server.
    for job in held(moved).values():
        assert pod(job)["spec"].get("serviceAccountName") != account
        assert pod(job)["spec"]["automountServiceAccountToken"] is False


def test_pulumi_sees_that_a_step_failed(moved: Recording) -> None:
    spec = moved.one(JOB, "mnist-train").inputs["spec"]
    # By `BackoffLimitExceeded`: it waits on where a rule says `FailJob`.
    assert spec["backoffLimit"] == 0
    rules = spec["podFailurePolicy"]["rules"]
    assert {rule["action"] for rule in rules} == {"Ignore"}
    ignored = {code for rule in rules for code in rule.get("onExitCodes", {}).get("values", [])}
    assert NO_API in ignored
    assert not {USAGE, JOB_FAILED, TOO_LATE, TOO_DEAR} & ignored


def test_gpus_are_tested_in_the_pods_and_no_gate_asks_for_a_node(moved: Recording, at_one: Recording) -> None:
    def gates(recording: Recording) -> set[str]:
        return {job.name for job in recording.of(JOB) if "accelerator-gate" in job.name}

    assert gates(at_one) - gates(moved) == {"accelerator-gate-train"}
    for place in read_places(plan(moved)):
        before = [container["name"] for container in pod(held(moved)[place.job])["spec"]["initContainers"]]
        assert any("device" in name or "accelerator" in name for name in before), before


def test_a_pool_is_one_place_and_needs_no_mover(at_one: Recording) -> None:
    assert held(at_one) == {}
    assert [resource.name for resource in at_one.resources if "mover" in resource.name] == []
    assert [
        resource.name for resource in at_one.of(CONFIG_MAP) if resource.name.endswith(("-plan", "-notes"))
    ] == []


def test_only_the_job_that_failed_is_made_anew_and_with_it_the_mover(moved: Recording) -> None:
    failed = read_places(plan(moved))[1].job
    again = declared(PLACES, {failed: "2"})
    before, after = held(moved), held(again)
    assert before.keys() == after.keys()
    assert [name for name in before if before[name].inputs["spec"] != after[name].inputs["spec"]] == [failed]
    assert run_of(again) == run_of(moved)


def test_a_preview_knows_the_pods() -> None:
    for job in held(declared(PLACES, preview=True)).values():
        assert not is_unknown(pod(job)["metadata"].get("annotations"))
