"""Pipelines that run by the clock: the CronJob, what its pod may do, and the Jobs that it is handed."""

import json
from typing import Any

import pytest

from infra.kubernetes.job import declare
from infra.kubernetes.schedule import PipelineSchedule, PipelineScheduleArgs
from infra.kubernetes.workspace import Workspace, WorkspaceArgs
from infra.program import ROOT
from infra.review.stack import Resource
from tests.support.recording import Recording, record, secret_inputs
from tests.support.stand_in import platform, step

CRON_JOB = "kubernetes:batch/v1:CronJob"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
JOB = "kubernetes:batch/v1:Job"
SECRET = "kubernetes:core/v1:Secret"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"

MODULE = "workloads.gates.store"
"""A module that is there, for steps that are not run."""


def declared(webhook: str | None = None) -> Recording:
    def program() -> None:
        on = platform()
        first = step(on, name="prepare", pipeline="churn", module=MODULE, arguments=["--out", "{output}"])
        second = step(
            on,
            name="train",
            pipeline="churn",
            module=MODULE,
            arguments=["--data", "{prepare}", "--out", "{output}"],
            inputs={"prepare": first},
        )
        workspace = Workspace(on.name, WorkspaceArgs(on, "slipway", "runner", False, scheduled=True))
        jobs = declare([first, second], {on.name: workspace}, ROOT)
        args = PipelineScheduleArgs(
            "churn", "0 3 * * *", "Europe/Berlin", list(jobs.values()), workspace, "image", ROOT, webhook
        )
        PipelineSchedule("churn-schedule", args)

    return record(program, {}, preview=False)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return declared()


def planned(recording: Recording) -> list[dict[str, Any]]:
    return json.loads(recording.one(CONFIG_MAP, "churn-schedule-jobs").inputs["data"]["jobs.json"])


def test_it_runs_at_its_time_and_never_twice_at_once(recording: Recording) -> None:
    spec = recording.one(CRON_JOB).inputs["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("0 3 * * *", "Europe/Berlin")
    assert spec["concurrencyPolicy"] == "Forbid"
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "churn-schedule"
    assert pod["automountServiceAccountToken"] is True


def test_its_pod_may_create_jobs_and_read_the_list_of_them(recording: Recording) -> None:
    rules = recording.one(ROLE).inputs["rules"]
    assert [(each["resources"], sorted(each["verbs"])) for each in rules] == [
        (["jobs"], ["create", "get", "list"]),
        (["configmaps"], ["get"]),
    ]
    assert rules[1]["resourceNames"] == ["churn-schedule"]


def test_it_begins_only_once_the_jobs_of_the_update_are_done(recording: Recording) -> None:
    jobs = {each.urn for each in recording.of(JOB)}
    assert jobs <= set(recording.one(CRON_JOB).dependencies)


def test_the_jobs_are_those_that_the_update_ran_without_its_record(recording: Recording) -> None:
    own = {each.name: each for each in recording.of(JOB)}
    found = {each["name"]: each for each in planned(recording)}
    assert found.keys() == own.keys()
    assert found["churn-train"]["after"] == ["churn-prepare"]
    for name, each in found.items():
        assert each["manifest"]["spec"] == without_record(own[name])
        assert each["path"] == own[name].inputs["metadata"]["annotations"]["slipway/run"]


def without_record(job: Resource) -> dict[str, Any]:
    spec = json.loads(json.dumps(job.inputs["spec"]))
    for container in spec["template"]["spec"]["containers"]:
        container["env"] = [each for each in container["env"] if each["name"] != "SLIPWAY_RECORD"]
    return spec


def test_its_pod_reaches_the_kubernetes_api(recording: Recording) -> None:
    limits = next(each for each in recording.of(POLICY) if each.name.endswith("limit-egress"))
    (expression,) = limits.inputs["spec"]["podSelector"]["matchExpressions"]
    template = recording.one(CRON_JOB).inputs["spec"]["jobTemplate"]["spec"]["template"]
    assert template["metadata"]["labels"][expression["key"]] in expression["values"]
    assert expression["operator"] == "NotIn"


def test_the_address_of_a_webhook_is_a_secret_of_the_runs_pod_alone(recording: Recording) -> None:
    assert recording.of(SECRET) == []
    told = declared("https://chat.example.org/hooks/hidden")
    assert secret_inputs(told.one(SECRET)) != set()
    job = told.one(CRON_JOB).inputs["spec"]["jobTemplate"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    variable = next(each for each in container["env"] if each["name"] == "NOTIFY_URL")
    assert variable["valueFrom"]["secretKeyRef"]["name"] == told.one(SECRET).inputs["metadata"]["name"]
    assert "hidden" not in json.dumps([job, planned(told)])
    # Of a failed Job it says the exit code, which stands in its pod.
    assert told.one(ROLE).inputs["rules"][-1] == {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
