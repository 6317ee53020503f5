"""What pods are told of the limits of their stack."""

import json
from functools import cache
from typing import Any

import pytest
import yaml

from slipway.infra.kubernetes.labels import RUN_ANNOTATION
from slipway.infra.review.stack import Resource, Stack
from slipway.infra.settings.loading import lay_over
from tests.support.checkout import ROOT
from tests.support.previewing import previewed

pytestmark = pytest.mark.slow

JOB = "kubernetes:batch/v1:Job"
CRON_JOB = "kubernetes:batch/v1:CronJob"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
ROLE = "kubernetes:rbac.authorization.k8s.io/v1:Role"


@cache
def stack(name: str, overlay: str) -> Stack:
    return previewed(name, json.loads(overlay))


def jobs(given: Stack) -> dict[str, Resource]:
    of_kind = [resource for resource in given.resources.values() if resource.type == JOB]
    return {job.name: job for job in of_kind if RUN_ANNOTATION in job.metadata.get("annotations", {})}


def content(given: Stack, cluster: str) -> dict[str, Any]:
    maps = {resource.name: resource for resource in given.resources.values() if resource.type == CONFIG_MAP}
    return json.loads(maps[f"{cluster}-limits"].properties["data"]["limits.json"])


def test_a_limit_changes_no_run_and_another_one_no_pod() -> None:
    plain, few, more = (
        stack("gcp-dev", overlay)
        for overlay in ("{}", '{"budget": {"run": 1}}', '{"budget": {"run": 2, "month": 9}}')
    )
    assert not [name for name in (resource.name for resource in plain.resources.values()) if "limits" in name]
    for name, job in jobs(plain).items():
        limited, raised = jobs(few)[name], jobs(more)[name]
        assert limited.metadata["name"] == job.metadata["name"]
        assert raised.properties["spec"] == limited.properties["spec"]
    (cluster,) = {resource.name for resource in few.resources.values() if resource.name.endswith("-limits")}
    told = content(more, cluster.removesuffix("-limits"))
    assert (told["stack"], told["run"], told["month"]) == ("gcp-dev", 2, 9)
    steps = [job for name, job in jobs(more).items() if name.startswith("mnist-")]
    runs = {job.metadata["annotations"][RUN_ANNOTATION] for job in steps}
    assert runs <= {*told["runs"]}
    assert told["prices"]["mnist.train"]["train"]["dollars"] > 0
    spec = jobs(few)["mnist-prepare"].properties["spec"]["template"]["spec"]
    assert "--limits" in spec["containers"][0]["command"]
    assert "limits" in {volume["name"] for volume in spec["volumes"]}


def test_pods_that_are_billed_have_their_own_price_and_no_node_is_kept() -> None:
    given = stack("gcp-batch", '{"budget": {"run": 40}}')
    (name,) = {resource.name for resource in given.resources.values() if resource.name.endswith("-limits")}
    prices = content(given, name.removesuffix("-limits"))["prices"]
    pods = [price for pools in prices.values() for price in pools.values()]
    assert pods
    assert all(price["by_pod"] and price["kept"] == 0 for price in pods)


def test_a_step_with_idle_gpus_knows_its_price_without_a_budget() -> None:
    file = yaml.safe_load((ROOT / "stacks" / "Pulumi.gcp-dev.yaml").read_text())["config"]
    idle = {"mnist": {"steps": {"train": {"idle": {"below": 7, "then": "stop"}}}}}
    given = stack("gcp-dev", json.dumps({"pipelines": lay_over(file["slipway:pipelines"], idle)}))
    train = jobs(given)["mnist-train"].properties["spec"]["template"]["spec"]["containers"][0]["command"]
    assert [train[train.index(flag) + 1] for flag in ("--idle-for", "--idle-then", "--idle-below")] == [
        "600",
        "stop",
        "7",
    ]
    assert "--limits" in train
    predict = jobs(given)["mnist-predict"].properties["spec"]["template"]["spec"]["containers"][0]["command"]
    assert "--limits" not in predict


@pytest.mark.parametrize(
    ("name", "section", "kind", "begins"),
    [
        ("gcp-dev", {"runs": "cluster"}, JOB, "dev-cluster-run"),
        ("gcp-dev", {"schedule": {"cron": "0 3 * * *"}}, CRON_JOB, "mnist-schedule"),
        ("gcp-anywhere", {}, JOB, "mnist-train"),
    ],
)
def test_what_lets_jobs_run_may_look_at_the_budget_and_without_one_may_not(
    name: str, section: dict[str, Any], kind: str, begins: str
) -> None:
    file = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{name}.yaml").read_text())["config"]
    pipelines = {"mnist": lay_over(file["slipway:pipelines"]["mnist"], section)}
    for budget in ({}, {"budget": {"month": 900}}):
        given = stack(name, json.dumps({"pipelines": pipelines, **budget}))
        (starter,) = (
            resource for resource in given.resources.values() if resource.type == kind and resource.name == begins
        )
        spec = starter.properties["spec"]
        spec = spec["jobTemplate"]["spec"] if kind == CRON_JOB else spec
        (container,) = spec["template"]["spec"]["containers"]
        account = spec["template"]["spec"]["serviceAccountName"]
        (role,) = (
            resource
            for resource in given.resources.values()
            if resource.type == ROLE and resource.metadata["name"] == account
        )
        may_read = [rule for rule in role.properties["rules"] if rule.get("resourceNames") == ["limits"]]
        assert ("--limits" in container["args"], len(may_read)) == ((True, 1) if budget else (False, 0))
