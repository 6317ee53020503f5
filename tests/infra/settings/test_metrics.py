"""What a stack file may not say of metrics."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.infra.settings.test_references import PLATFORM, TEAM
from tests.support.refusals import Refusal, elsewhere
from tests.support.stack_values import EXISTING, GCP, changed

PROMETHEUS = "metrics.prometheus"
READ = {"namespace": "monitoring"}

CASES: list[Any] = [
    elsewhere({"metrics": {"interval": "1s"}}, "metrics.interval", "not between 5 s and 120 s", "`30s`"),
    elsewhere({"metrics": {"interval": "4m"}}, "metrics.interval", "`30s`"),
    elsewhere({"metrics": {"port": 80}}, "metrics.port", "9410"),
    elsewhere({"metrics": {"collect": False, "interval": "30s"}}, "metrics.interval", "`collect`"),
    elsewhere({"metrics": {"collect": False, "prometheus": READ}}, PROMETHEUS, "`collect`"),
    elsewhere({"metrics": {"prometheus": READ}}, PROMETHEUS, "collects", "remove it"),
    elsewhere({"metrics": {"gpus": {"install": False}}}, "metrics.gpus", "docs/metrics.md"),
]

ELSEWHERE: list[Any] = [
    elsewhere({"metrics": {}}, PROMETHEUS, "`here`", "`prometheus: {namespace: …}`", "`collect: false`"),
    elsewhere({"metrics": {"prometheus": {}}}, f"{PROMETHEUS}.namespace"),
    elsewhere({"metrics": {"prometheus": {"namespace": "Bad_Name"}}}, f"{PROMETHEUS}.namespace"),
    elsewhere({"metrics": {"prometheus": {**READ, "pod_labels": {}}}}, f"{PROMETHEUS}.pod_labels"),
    elsewhere(
        {"metrics": {"prometheus": {**READ, "retention": "3d"}}}, f"{PROMETHEUS}.retention", "docs/metrics.md"
    ),
]


@pytest.mark.parametrize("refusal", CASES)
def test_what_could_not_work_is_refused_by_its_key(refusal: Refusal) -> None:
    refusal.check(GCP)


@pytest.mark.parametrize("refusal", ELSEWHERE)
def test_where_the_cloud_collects_nothing_prometheus_has_to_fit(refusal: Refusal) -> None:
    refusal.check(EXISTING)


@pytest.mark.parametrize(
    "metrics",
    [
        {"usage": False, "prometheus": READ},
        {"usage": False, "collect": False},
        {"collect": False},
        {"prometheus": {**READ, "labels": {"release": "mine"}}},
        {"prometheus": READ, "interval": "15s"},
    ],
)
def test_it_is_taken(metrics: Mapping[str, Any]) -> None:
    assert load(changed(EXISTING, {"metrics": metrics})).metrics is not None


def test_a_team_measures_its_steps_and_leaves_collecting_to_the_platform() -> None:
    def resolve(_: str) -> Mapping[str, Any]:
        return {"platform": PLATFORM}

    with pytest.raises(SettingsError, match="decides what runs there") as caught:
        load(changed(TEAM, {"metrics": {}}), resolve)
    assert [problem.key for problem in caught.value.problems] == ["slipway:metrics.collect"]
    metrics = load(changed(TEAM, {"metrics": {"collect": False}}), resolve).metrics
    assert metrics is not None
    assert metrics.usage
