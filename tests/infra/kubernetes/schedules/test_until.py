"""What ends what runs once the last day of a stack is over: what it is, what it may do, and what comes back."""

from datetime import date, timedelta
from functools import cache
from itertools import pairwise
from typing import Any

import pulumi
import pytest

from slipway.infra import pulumi_cli
from slipway.infra.kubernetes.schedules.until import DAYS, schedule
from slipway.infra.review.stack import Resource, Stack
from slipway.infra.schema.cron import times_a_month
from slipway.infra.schema.names import UNREAD
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings import until
from slipway.infra.settings.loading import load
from slipway.infra.stack import running_work
from slipway.infra.stack.configuration import checked
from slipway.offline.policies.until import reminder
from tests.support.checkout import ROOT
from tests.support.previewing import previewed
from tests.support.refusals import Refusal, wrong
from tests.support.stack_values import EXISTING, changed

DAY = "2099-12-24"
AUTOSCALED = {"pipelines.mnist.apps.serving.autoscale": {"most": 4, "cpu": 60}}
SERVING, BATCH = "gcp-serving", "onprem-batch"


@cache
def stack(name: str, day: str | None = DAY) -> Stack:
    changes = AUTOSCALED if name == SERVING else {}
    return previewed(name, {**changes, "until": day} if day else changes)


def objects(given: Stack) -> dict[str, Resource]:
    """The objects that are scaled to no pod, or suspended, by kind and name."""
    return {
        f"{resource.type.rpartition(':')[2]} {resource.properties['metadata']['name']}": resource
        for resource in given.resources.values()
        if resource.type in {"kubernetes:apps/v1:Deployment", "kubernetes:apps/v1:StatefulSet"}
        or (resource.type == "kubernetes:batch/v1:CronJob" and not resource.name.endswith("-until"))
    }


def declared(given: Stack, type_: str) -> Any:
    (resource,) = (
        resource
        for resource in given.resources.values()
        if resource.type == type_ and resource.properties["metadata"]["name"] == "until"
    )
    return resource.properties


@pytest.mark.slow
@pytest.mark.parametrize("name", [SERVING, BATCH])
def test_everything_that_stays_is_ended_by_its_name(name: str) -> None:
    given = stack(name)
    cron_job = declared(given, "kubernetes:batch/v1:CronJob")["spec"]
    assert (cron_job["timeZone"], cron_job["schedule"]) == ("Etc/UTC", "0 */6 25,26,27 12 *")
    (container,) = cron_job["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    flags = {"Deployment": "--deployment", "StatefulSet": "--stateful-set", "CronJob": "--cron-job"}
    words = container["args"]
    told = {(flag, word) for flag, word in pairwise(words) if flag in flags.values()}
    assert told == {(flags[kind], name) for kind, name in (key.split() for key in objects(given))}
    assert words[words.index("--instance") + 1] == f"slipway.{name}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [SERVING, BATCH])
def test_it_may_scale_and_suspend_these_and_deletes_nothing(name: str) -> None:
    rules = declared(stack(name), "kubernetes:rbac.authorization.k8s.io/v1:Role")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "patch"}
    named = {resource: rule.get("resourceNames") for rule in rules for resource in rule["resources"]}
    unnamed = {resource for resource, names in named.items() if not names}
    assert unnamed <= {"jobs", "jobs/status", "workloads"}
    assert ("workloads" in unnamed) == (name == SERVING)
    assert "deployments" not in named


@pytest.mark.slow
def test_another_day_is_a_change_of_what_was_ended_and_of_no_pod() -> None:
    one, other = objects(stack(SERVING)), objects(stack(SERVING, "2100-01-31"))
    plain = objects(stack(SERVING, None))
    assert one.keys() == other.keys() == plain.keys()
    for key, resource in one.items():
        metadata = resource.properties["metadata"]
        assert metadata["annotations"]["slipway/until"] == DAY
        # Else what has ended it would own its number of pods, and the update fail.
        assert metadata["annotations"]["pulumi.com/patchForce"] == "true"
        assert metadata != other[key].properties["metadata"]
        assert resource.properties["spec"] == other[key].properties["spec"]
        if key.startswith("CronJob"):
            assert resource.properties["spec"]["suspend"] is False
        else:
            assert resource.properties["spec"]["template"] == plain[key].properties["spec"]["template"]
            # One that stops when nobody uses it is started by who wants to use it.
            assert resource.properties["spec"].get("replicas") or key == "StatefulSet mnist-notebook"
    assert "slipway/until" not in str([resource.properties["metadata"] for resource in plain.values()])


@pytest.mark.slow
def test_no_job_is_made_anew_by_a_last_day() -> None:
    def jobs(given: Stack) -> dict[str, Any]:
        return {urn: job.properties for urn, job in given.resources.items() if job.type.endswith(":Job")}

    assert jobs(stack(BATCH))
    assert jobs(stack(BATCH)) == jobs(stack(BATCH, None))


@pytest.mark.slow
def test_what_runs_steps_alone_is_ended_too() -> None:
    given = stack("aws-dev")
    assert not objects(given)
    rules = declared(given, "kubernetes:rbac.authorization.k8s.io/v1:Role")["rules"]
    assert {resource for rule in rules for resource in rule["resources"]} == {"jobs", "jobs/status", "configmaps"}


@pytest.mark.slow
def test_a_cluster_that_runs_nothing_has_nothing_that_ends_it() -> None:
    assert not [name for name in stack("gcp-platform").resources if ":CronJob::" in name]


@pytest.mark.parametrize("day", [date(2026, 12, 24), date(2026, 12, 30), date(2028, 2, 28)])
def test_it_looks_on_the_days_after_the_last_one(day: date) -> None:
    _, hours, days, months, _ = schedule(day).split()
    assert hours == "*/6"
    for number in range(1, DAYS + 1):
        after = day + timedelta(days=number)
        assert str(after.day) in days.split(",")
        assert str(after.month) in months.split(",")
    assert times_a_month(schedule(day)) < 5 * 4


@pytest.mark.parametrize(
    "refusal", [wrong("until", "Christmas"), wrong("until", "2026-12-32"), wrong("until", 24)]
)
def test_what_is_no_day_is_refused(refusal: Refusal) -> None:
    refusal.check(EXISTING)


@pytest.mark.parametrize("day", ["2026-12-24 00:00:00 +0000 UTC", "2026-12-24T00:00:00Z"])
def test_a_day_needs_no_quotes(day: str) -> None:
    # As the Pulumi CLI hands one over that has none: as the value of a key, and in a section.
    assert load(changed(EXISTING, {"until": day})).until == "2026-12-24"


def over(days: int) -> dict[str, Any]:
    return changed(EXISTING, {"until": (until.today() + timedelta(days=days)).isoformat()})


def test_an_update_is_refused_once_the_day_is_over() -> None:
    checked(over(0), ROOT)
    with pytest.raises(SettingsError) as caught:
        checked(over(-1), ROOT)
    (problem,) = caught.value.problems
    assert problem.key == "slipway:until"
    assert "pulumi destroy" in problem.fix


def test_a_limit_keeps_nobody_from_destroying_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi_cli, "starts_nothing", lambda *_: True)
    settings, _ = checked(over(-1), ROOT)
    # Whether a budget is spent is looked at with the state that this reads.
    assert running_work.guard(settings, preview=True) is None


def test_a_preview_and_a_rehearsal_go_on_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    token = UNREAD.set(True)
    try:
        checked(over(-1), ROOT)
    finally:
        UNREAD.reset(token)
    assert [line.partition(": ")[0] for line in said] == ["slipway:until"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("today", "words"),
    [
        (date(2099, 12, 9), ""),
        (date(2099, 12, 15), "in 9 days"),
        (date(2099, 12, 24), "today"),
        (date(2099, 12, 25), "is over"),
    ],
)
def test_the_reminder_names_what_ends_and_what_goes_on(
    today: date, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(until, "today", lambda: today)
    said = reminder(stack(SERVING))
    assert words in said
    assert bool(said) == bool(words)
    if words:
        assert "a month, until `pulumi destroy`" in said
        assert "$" in said
    if words.startswith("in"):
        assert "4 apps" in said
