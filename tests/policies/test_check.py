"""What becomes of findings: suppressed with a reason, back once that expires, new or known, one a mistake."""

from datetime import date
from typing import Any

import pytest

from slipway.engine.stack_config import load_stack
from slipway.evaluated.model import Finding
from slipway.infra.pipelines.images import IMAGES
from slipway.infra.review.contract import Severity
from slipway.infra.review.stack import Stack
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.policies.check import check, mark_new, settings_findings, suppressions_of
from slipway.policies.jobs import LOGIN
from tests.policies.samples import container, job, pod, resource, stack
from tests.support.checkout import ROOT
from tests.support.reviewing import declared_stack
from tests.support.stack_values import EXISTING, GCP, changed, stack_config

TODAY = date(2026, 11, 21)
TWO_MOVING = tuple(job(pod(container(image="python")), name) for name in ("one", "two"))


def suppressing(policy: str, **suppression: Any) -> dict[str, Any]:
    return {"slipway:policies": {"suppress": {policy: {"reason": "it is a toy", **suppression}}}}


def checked(*resources: Any, **configuration: Any) -> tuple[list[Finding], list[Any]]:
    values = suppressing(**configuration) if configuration else {}
    return check(stack(*resources, configuration=values), suppressions_of(values), TODAY)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aws-dev", "gcp-dev", "onprem"])
def test_the_stacks_here_are_clean(name: str) -> None:
    declared = declared_stack(name)
    findings, _ = check(declared, suppressions_of(declared.configuration), TODAY)
    assert [finding.reason for finding in findings if finding.policy != "default-image-by-tag"] == []
    assert len(findings) <= sum(not digest for images in IMAGES.values() for digest in images.values()), (
        "only images that are not pinned yet"
    )


def test_a_suppression_takes_a_finding_off_the_list_and_keeps_its_reason() -> None:
    findings, suppressed = checked(*TWO_MOVING, policy="unpinned-image")
    assert findings == []
    assert [(each.finding.name, each.why) for each in suppressed] == [
        ("one (Job)", "it is a toy"),
        ("two (Job)", "it is a toy"),
    ]


def test_a_suppression_can_be_for_some_resources() -> None:
    findings, suppressed = checked(*TWO_MOVING, policy="unpinned-image", resources=["two"])
    assert [finding.name for finding in findings] == ["one (Job)"]
    assert [each.finding.name for each in suppressed] == ["two (Job)"]


@pytest.mark.parametrize(("until", "expired"), [("2026-11-20", True), ("2026-11-21", False)])
def test_a_suppression_holds_until_the_end_of_its_last_day(until: str, expired: bool) -> None:
    findings, suppressed = checked(*TWO_MOVING, policy="unpinned-image", until=until)
    assert (len(findings), len(suppressed)) == ((2, 0) if expired else (0, 2))
    assert all("expired on 2026-11-20" in finding.reason for finding in findings)
    assert all(each.until == until for each in suppressed)


def test_a_suppression_of_an_unknown_policy_is_an_error_with_the_nearest_id() -> None:
    [finding], _ = checked(job(pod()), policy="unpined-image")
    assert (finding.policy, finding.severity) == ("unknown-suppression", Severity.ERROR)
    assert finding.resource == "slipway:policies.suppress.unpined-image"
    assert finding.fix == "did you mean `unpinned-image`?"


def test_a_suppression_of_nothing_is_a_warning() -> None:
    [finding], _ = checked(job(pod()), policy="unpinned-image")
    assert (finding.policy, finding.severity) == ("unused-suppression", Severity.WARNING)
    [finding], _ = checked(*TWO_MOVING, policy="unpinned-image", resources=["one", "two", "three"])
    assert "three" in finding.reason


def test_a_stack_that_cannot_be_evaluated_is_checked_by_its_file() -> None:
    values = {"slipway:password": "hunter2", **suppressing("unpinned-image")}
    findings, _ = check(Stack("broken", {}, configuration=values), suppressions_of(values), TODAY)
    assert [finding.policy for finding in findings] == ["secret-in-plain-config"]


def test_wrong_suppressions_are_problems_of_the_settings_and_suppress_nothing() -> None:
    suppressed = {"unpinned-image": {"reason": " ", "until": "31.3.2027"}}
    wrong = changed(EXISTING, {"policies": {"suppress": suppressed}})
    with pytest.raises(SettingsError) as caught:
        load(wrong)
    assert {problem.key for problem in caught.value.problems} == {
        "slipway:policies.suppress.unpinned-image.reason",
        "slipway:policies.suppress.unpinned-image.until",
    }
    assert suppressions_of({"slipway:policies": wrong["policies"]}) == {}


@pytest.mark.parametrize("until", ["2027-03-31", "2027-03-31T00:00:00Z"])
def test_a_day_is_read_as_it_stands_and_as_the_cli_hands_it_over(until: str) -> None:
    policies = {"suppress": {"unpinned-image": {"reason": "why", "until": until}}}
    assert (
        load(changed(EXISTING, {"policies": policies})).policies.suppress["unpinned-image"].until == "2027-03-31"
    )


def test_errors_come_first_and_the_order_is_always_the_same() -> None:
    resources = [
        job(pod(container(image="b")), "b", activeDeadlineSeconds=LOGIN + 1),
        job(pod(container(image="a")), "a", activeDeadlineSeconds=LOGIN + 1),
    ]
    findings, _ = checked(*resources)
    assert [(finding.severity.value, finding.policy, finding.name) for finding in findings] == [
        ("error", "unpinned-image", "a (Job)"),
        ("error", "unpinned-image", "b (Job)"),
        ("warning", "longer-than-login", "a (Job)"),
        ("warning", "longer-than-login", "b (Job)"),
    ]
    assert checked(*reversed(resources))[0] == findings


def test_only_findings_that_the_base_lacks_are_new() -> None:
    before, _ = checked(job(pod(containers=[container(image="x")]), "one"))
    after, _ = checked(
        job(pod(containers=[container(image="y")]), "one"), job(pod(containers=[container(image="y")]), "two")
    )
    assert [(each.name, each.new) for each in mark_new(after, before)] == [
        ("one (Job)", False),
        ("two (Job)", True),
    ]


def test_a_second_finding_about_a_resource_is_new_where_there_was_one() -> None:
    def keys(*names: str) -> list[Finding]:
        pem = "-----BEGIN PRIVATE KEY-----"
        return checked(resource("kubernetes:core/v1:ConfigMap", "keys", {"data": dict.fromkeys(names, pem)}))[0]

    assert [each.new for each in mark_new(keys("a", "b"), keys("a"))] == [False, True]
    assert [each.new for each in mark_new(keys("b"), keys("a"))] == [False]


def problems_of(values: dict[str, Any]) -> list[dict[str, str]]:
    with pytest.raises(SettingsError) as caught:
        load(values)
    return [
        {"key": problem.key, "value": problem.shown, "reason": problem.reason, "fix": problem.fix}
        for problem in caught.value.problems
    ]


def test_ten_mistakes_in_a_stack_file_are_ten_findings() -> None:
    wrong = changed(
        GCP,
        {
            "namespace": "Not_A_Name",
            "protekt": True,
            "service_account": "not a name",
            "clusters.dev.pools.predict.gpus": 3,
            "clusters.dev.pools.train.accelerator": "nvidia-tesla-t5",
            "clusters.dev.pools.cpu.machine_type": "e2-standrd-4",
            "pipelines.mnist.epochs": 0,
            "pipelines.mnist.steps.prepare.cpu": "lots",
            "pipelines.mnist.steps.predict.pool": "nowhere",
            "policies": {"suppress": {"unpinned-image": {"reason": ""}}},
        },
    )
    findings = settings_findings(problems_of(wrong))
    assert len({finding.resource for finding in findings}) == len(findings) == 10
    assert {(finding.policy, finding.severity) for finding in findings} == {("settings", Severity.ERROR)}
    by_key = {finding.resource: finding for finding in findings}
    assert by_key["slipway:protekt"].fix == "did you mean `protect`?"
    assert by_key["slipway:pipelines.mnist.epochs"].reason == "0: below 1, the least it can be"


def test_no_finding_about_settings_shows_what_may_be_a_secret() -> None:
    [finding] = settings_findings(problems_of(changed(EXISTING, {"api_token": "hunter2"})))
    assert "hunter2" not in finding.model_dump_json()


def test_an_encrypted_value_is_no_secret_in_clear() -> None:
    values = load_stack("gcp-dev", ROOT).values
    sealed = {**values, "gcp:credentials": "[secret]"}
    assert check(Stack("gcp-dev", {}, configuration=sealed), {}, TODAY)[0] == []
    assert stack_config("gcp-dev", ROOT) == values


def test_a_configuration_key_can_be_suppressed_by_its_name() -> None:
    values = {"other:token": "hunter2", **suppressing("secret-in-plain-config", resources=["other:token"])}
    declared = Stack("it", {"urn": resource("test:a:B", "b", {})}, configuration=values)
    findings, suppressed = check(declared, suppressions_of(values), TODAY)
    assert findings == []
    assert [each.finding.resource for each in suppressed] == ["other:token"]


def test_only_newly_opened_access_is_harm() -> None:
    service = resource("kubernetes:core/v1:Service", "api", {"spec": {"type": "NodePort"}})
    [opened], _ = checked(service)
    assert (opened.policy, opened.harm) == ("public-service", True)
    assert [(each.new, each.harm) for each in mark_new([opened], [])] == [(True, True)]
    assert [(each.new, each.harm) for each in mark_new([opened], [opened])] == [(False, False)]
    [other], _ = checked(job(pod(container(image="python"))))
    assert not other.harm
