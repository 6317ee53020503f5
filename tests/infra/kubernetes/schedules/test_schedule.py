"""Pipelines that run by the clock: the CronJob, what its pod may do, and the Jobs that it is handed."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from slipway.infra.kubernetes.cluster.workspace import Workspace, WorkspaceArgs
from slipway.infra.kubernetes.job import declare
from slipway.infra.kubernetes.schedules.schedule import PipelineSchedule, PipelineScheduleArgs
from slipway.infra.platform import Platform
from slipway.infra.review.stack import Resource
from slipway.runtime.schedule import run as by_the_clock
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record, secret_inputs
from tests.support.stand_in import platform, step

CRON_JOB = "kubernetes:batch/v1:CronJob"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
JOB = "kubernetes:batch/v1:Job"
SECRET = "kubernetes:core/v1:Secret"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
ADMISSION = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
ADMISSION_BINDING = f"{ADMISSION}Binding"

MODULE = "slipway.runtime.gates.store"
"""A module that is there, for steps that are not run."""


def declared(
    webhook: str | None = None,
    namespace: str = "slipway",
    cluster: Callable[[], Platform] = platform,
    name: str = "train",
) -> Recording:
    def program() -> None:
        on = cluster()
        first = step(on, name="prepare", pipeline="churn", module=MODULE, arguments=["--out", "{output}"])
        second = step(
            on,
            name=name,
            pipeline="churn",
            module=MODULE,
            arguments=["--data", "{prepare}", "--out", "{output}"],
            inputs={"prepare": first},
        )
        workspace = Workspace(on.name, WorkspaceArgs(on, namespace, "runner", False, scheduled=True))
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
    assert [(rule["resources"], sorted(rule["verbs"])) for rule in rules] == [
        (["jobs"], ["create", "get", "list"]),
        (["configmaps"], ["get"]),
    ]
    assert rules[1]["resourceNames"] == ["churn-schedule"]


def test_it_begins_only_once_the_jobs_of_the_update_are_done(recording: Recording) -> None:
    jobs = {resource.urn for resource in recording.of(JOB)}
    assert jobs <= set(recording.one(CRON_JOB).dependencies)


def test_the_jobs_are_those_that_the_update_ran_without_its_record(recording: Recording) -> None:
    custom = {resource.name: resource for resource in recording.of(JOB)}
    result = {entry["name"]: entry for entry in planned(recording)}
    assert result.keys() == custom.keys()
    assert result["churn-train"]["after"] == ["churn-prepare"]
    for name, value in result.items():
        assert value["manifest"]["spec"] == without_record(custom[name])
        assert value["path"] == custom[name].inputs["metadata"]["annotations"]["slipway/run"]


def without_record(job: Resource) -> dict[str, Any]:
    spec = json.loads(json.dumps(job.inputs["spec"]))
    for container in spec["template"]["spec"]["containers"]:
        container["env"] = [variable for variable in container["env"] if variable["name"] != "SLIPWAY_RECORD"]
    return spec


def test_its_pod_reaches_the_kubernetes_api(recording: Recording) -> None:
    limits = next(resource for resource in recording.of(POLICY) if resource.name.endswith("limit-egress"))
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
    variable = next(variable for variable in container["env"] if variable["name"] == "NOTIFY_URL")
    assert variable["valueFrom"]["secretKeyRef"]["name"] == told.one(SECRET).inputs["metadata"]["name"]
    assert "hidden" not in json.dumps([job, planned(told)])
    # Of a failed Job it says the exit code, which stands in its pod.
    assert told.one(ROLE).inputs["rules"][-1] == {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}


def test_its_account_is_held_to_the_jobs_that_it_is_handed(recording: Recording) -> None:
    policy = recording.one(ADMISSION).inputs
    assert policy["spec"]["failurePolicy"] == "Fail"
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["apiGroups"], rule["resources"], rule["operations"]) == (
        ["batch"],
        ["jobs"],
        ["CREATE", "UPDATE"],
    )
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"] == 'request.userInfo.username == "system:serviceaccount:slipway:churn-schedule"'
    assert {validation["reason"] for validation in policy["spec"]["validations"]} == {"Forbidden"}
    binding = recording.one(ADMISSION_BINDING).inputs["spec"]
    assert (binding["policyName"], binding["validationActions"]) == (policy["metadata"]["name"], ["Deny"])


def test_the_policy_has_the_pods_of_these_jobs_with_the_api_servers_defaults(recording: Recording) -> None:
    variables = {
        variable["name"]: variable["expression"]
        for variable in recording.one(ADMISSION).inputs["spec"]["variables"]
    }
    for index, job in enumerate(planned(recording)):
        assert f"{json.dumps(job['name'])}: variables.pod{index}" in variables["planned"]
        allowed = json.loads(re.sub(r"dyn\(|\)", "", variables[f"pod{index}"]))
        pod = job["manifest"]["spec"]["template"]
        assert allowed["metadata"] == pod["metadata"]
        assert allowed["spec"] == allowed["spec"] | {
            key: value for key, value in pod["spec"].items() if key not in {"containers", "volumes"}
        }
        assert allowed["spec"]["serviceAccount"] == "runner"
        (container,), (sent,) = allowed["spec"]["containers"], pod["spec"]["containers"]
        assert (container["image"], container["args"]) == (sent["image"], sent["args"])
        assert [volume["name"] for volume in allowed["spec"]["volumes"]] == [
            volume["name"] for volume in pod["spec"]["volumes"]
        ]


def test_the_policy_is_there_before_the_first_run(recording: Recording) -> None:
    needed = set(recording.one(CRON_JOB).dependencies)
    assert {recording.one(ADMISSION).urn, recording.one(ADMISSION_BINDING).urn} <= needed


def test_two_namespaces_of_a_cluster_have_policies_of_their_own(recording: Recording) -> None:
    other = declared(namespace="team")
    names = {recording_.one(ADMISSION).metadata["name"] for recording_ in (recording, other)}
    assert len(names) == 2
    assert "system:serviceaccount:team:churn-schedule" in json.dumps(other.one(ADMISSION).inputs)


@pytest.mark.parametrize(
    "without", [{"owned": False}, {"whole_cluster": False}], ids=["of a platform", "one namespace"]
)
def test_a_stack_that_has_only_a_namespace_declares_nothing_outside_it(without: dict[str, bool]) -> None:
    made = declared(cluster=lambda: replace(platform(), **without))
    assert [*made.of(ADMISSION), *made.of(ADMISSION_BINDING)] == []
    assert made.one(CRON_JOB)


def test_names_of_jobs_end_in_the_time_of_their_run_however_long_they_are() -> None:
    made = declared(name="s" * 60)
    read = by_the_clock.read({"data": {"jobs.json": json.dumps(planned(made))}})
    owner = {"metadata": {"name": "clock", "uid": "1"}}
    names = [by_the_clock.scheduled(entry, read, "20261122-0300", owner)["metadata"]["name"] for entry in read]
    assert len(set(names)) == 2
    assert all(len(name) <= 63 and name.endswith("-20261122-0300") for name in names)
    known = next(
        variable["expression"]
        for variable in made.one(ADMISSION).inputs["spec"]["variables"]
        if variable["name"] == "known"
    )
    assert all(json.dumps(name.removesuffix("-20261122-0300")) in known for name in names)
