"""Pipelines that `up` does not wait for: their Jobs, what lets these run, and what it may do."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.clouds.existing.platforms import Emulator
from slipway.infra.program import declare
from slipway.infra.review.stack import Resource
from slipway.infra.settings.loading import load
from slipway.runtime.schedule import release
from tests.support.checkout import ROOT
from tests.support.recording import Recording, is_unknown, record
from tests.support.refusals import problems
from tests.support.stack_values import EXISTING, GCP, changed

JOB = "kubernetes:batch/v1:Job"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
CRON_JOB = "kubernetes:batch/v1:CronJob"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
RUNNER = "here-cluster-run"
IN_CLUSTER = {"pipelines.mnist.runs": "cluster"}


class Noted(Emulator):
    """What the runner has noted by the time of an update."""

    def __init__(self, values: Mapping[str, Any], noted: Mapping[str, str]) -> None:
        super().__init__(load(values).request)
        self.noted = dict(noted)

    def outputs(self, type_: str, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name.endswith("-attempts-read"):
            return {"data": self.noted}
        return super().outputs(type_, name, inputs)


def declared(
    changes: Mapping[str, Any], noted: Mapping[str, str] | None = None, *, preview: bool = False
) -> Recording:
    values = changed(EXISTING, changes)
    config = {f"slipway:{key}": value for key, value in values.items()}
    return record(lambda: declare(ROOT), config, preview=preview, emulators=[Noted(values, noted or {})])


@pytest.fixture(scope="module")
def in_cluster() -> Recording:
    return declared(IN_CLUSTER)


@pytest.fixture(scope="module")
def by_up() -> Recording:
    return declared({})


def jobs_of(recording: Recording) -> dict[str, Resource]:
    return {job.name: job for job in recording.of(JOB) if job.name != RUNNER}


def listed(recording: Recording) -> list[release.Planned]:
    return release.read(recording.one(CONFIG_MAP, f"{RUNNER}-jobs").inputs)


def test_the_jobs_are_those_of_an_up_but_suspended(in_cluster: Recording, by_up: Recording) -> None:
    jobs, others = jobs_of(in_cluster), jobs_of(by_up)
    assert jobs.keys() == others.keys()
    for name, job in jobs.items():
        spec = dict(job.inputs["spec"])
        assert spec.pop("suspend") is True
        assert spec == others[name].inputs["spec"]
        annotations = job.inputs["metadata"]["annotations"]
        assert annotations.get("slipway/run") == others[name].inputs["metadata"]["annotations"].get("slipway/run")
        # Neither waits for it, nor changes what lets it run, nor takes one that is there for a failed one.
        assert "pulumi.com/waitFor" in annotations
        assert "pulumi.com/replaceUnready" not in annotations
        assert job.ignore_changes == ("spec.suspend",)
        # Pulumi never takes the one for the other: it would ignore that the Job has to be suspended.
        assert job.urn != others[name].urn
        assert job.inputs["metadata"]["name"] != others[name].inputs["metadata"]["name"]
    outputs = (in_cluster.exports["mnist"]["runs"], by_up.exports["mnist"]["runs"])
    assert outputs[0] == outputs[1]


def test_the_list_has_each_job_after_those_that_it_needs(in_cluster: Recording) -> None:
    jobs = listed(in_cluster)
    names = [job.name for job in jobs]
    assert sorted(names) == sorted(job.inputs["metadata"]["name"] for job in jobs_of(in_cluster).values())
    for position, job in enumerate(jobs):
        assert set(job.after) <= set(names[:position])
    by_step = {job.step: job for job in jobs}
    assert by_step["mnist-train"].name in by_step["mnist-predict"].after
    assert by_step["store-gate-here"].name in by_step["mnist-prepare"].after


def test_the_runner_may_change_these_jobs_and_nothing_else(in_cluster: Recording) -> None:
    rules = in_cluster.one(ROLE).inputs["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "patch"}
    assert all(rule["resourceNames"] for rule in rules)
    jobs = next(rule for rule in rules if rule["resources"] == ["jobs"])
    assert jobs["resourceNames"] == sorted(job.name for job in listed(in_cluster))
    written = [rule["resourceNames"] for rule in rules if "patch" in rule["verbs"] and rule is not jobs]
    assert written == [["cluster-run-attempts"]]


def test_a_killed_runner_is_tried_again_and_a_failed_step_is_final(in_cluster: Recording) -> None:
    spec = in_cluster.one(JOB, RUNNER).inputs["spec"]
    assert spec["backoffLimit"] > 10
    ignored, final = spec["podFailurePolicy"]["rules"]
    assert ignored["action"] == "Ignore"
    assert (final["action"], final["onExitCodes"]["operator"]) == ("FailJob", "In")
    assert final["onExitCodes"]["values"] == [2, 11, 21]
    (main,) = spec["template"]["spec"]["containers"]
    assert final["onExitCodes"]["containerName"] == main["name"]


def test_a_job_that_failed_is_made_anew_and_so_is_the_runner(in_cluster: Recording) -> None:
    failed = next(job for job in listed(in_cluster) if job.step == "mnist-train")
    again = declared(IN_CLUSTER, {"about": "x", failed.name: "2", "of-another-digest": "3"})
    assert {job.name: job.attempt for job in listed(again)} == {
        job.name: 2 if job.name == failed.name else 1 for job in listed(in_cluster)
    }
    before, after = jobs_of(in_cluster), jobs_of(again)
    changed_jobs = [name for name in before if before[name].inputs["spec"] != after[name].inputs["spec"]]
    assert changed_jobs == ["mnist-train"]
    assert pod(in_cluster.one(JOB, RUNNER)) != pod(again.one(JOB, RUNNER))


def pod(job: Resource) -> Any:
    return job.inputs["spec"]["template"]


def test_a_preview_knows_the_pods() -> None:
    for job in jobs_of(declared(IN_CLUSTER, preview=True)).values():
        assert not is_unknown(pod(job)["metadata"]["annotations"])


def test_what_something_else_needs_is_waited_for() -> None:
    apps = {"pipelines.other": {**EXISTING["pipelines"]["mnist"], "uses": "mnist"}}
    recording = declared({**IN_CLUSTER, **apps})
    held = {name for name, job in jobs_of(recording).items() if job.inputs["spec"].get("suspend")}
    assert held == {"mnist-prepare", "mnist-train", "mnist-predict"}
    assert {job.step for job in listed(recording)} == held


def test_kueue_is_refused() -> None:
    refusals = problems(changed(EXISTING, {**IN_CLUSTER, "kueue": {}}))
    assert [problem.key for problem in refusals if "Kueue" in problem.reason] == ["slipway:pipelines.mnist.runs"]
    assert all("`runs: up`" in problem.fix for problem in refusals)


def test_a_run_by_the_clock_comes_after_the_one_of_the_update(in_cluster: Recording) -> None:
    recording = declared({**IN_CLUSTER, "pipelines.mnist.schedule": {"cron": "0 3 * * *"}})
    pod_ = recording.one(CRON_JOB).inputs["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    words = pod_["containers"][0]["args"]
    assert words[words.index("--behind") + 1] == "cluster-run"
    needs = {words[index + 1] for index, word in enumerate(words) if word == "--needs"}
    names = {job.step: job.name for job in listed(in_cluster)}
    assert needs == {names["store-gate-here"], names["packages-mnist"]}
    # Its Jobs are those of any schedule: created by it, and not suspended.
    planned = json.loads(recording.one(CONFIG_MAP, "mnist-schedule-jobs").inputs["data"]["jobs.json"])
    assert all("suspend" not in job["manifest"]["spec"] for job in planned)


def test_steps_on_several_clusters_are_refused() -> None:
    cluster = GCP["clusters"]["dev"] if "dev" in GCP["clusters"] else next(iter(GCP["clusters"].values()))
    first = next(iter(GCP["clusters"]))
    other = {**cluster, "pools": {"far": cluster["pools"][next(iter(cluster["pools"]))]}}
    refusals = problems(
        changed(
            GCP,
            {
                "clusters.other": other,
                "pipelines.mnist.runs": "cluster",
                "pipelines.mnist.steps.prepare.pool": "far",
            },
        )
    )
    reasons = [problem.reason for problem in refusals if problem.key == "slipway:pipelines.mnist.runs"]
    assert [f"`{first}`" in reason and "`other`" in reason for reason in reasons] == [True]


def test_a_pipeline_that_comes_after_one_that_nobody_waits_for_is_refused() -> None:
    first = next(iter(GCP["pipelines"]["mnist"]["steps"].values()))["pool"]
    resnet = {"steps": {"measure": {"gpus": 1, "matrix": {"pool": ["train"]}}, "chart": {"pool": first}}}
    refusals = problems(changed(GCP, {"pipelines.resnet": resnet, "pipelines.mnist.runs": "cluster"}))
    refusal = next(problem for problem in refusals if problem.key == "slipway:pipelines.resnet.runs")
    assert "mnist" in refusal.reason
    assert "`runs: up`" in refusal.fix
