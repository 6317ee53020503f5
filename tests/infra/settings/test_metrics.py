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

CASES: list[Any] = [
    elsewhere({"metrics": {"interval": "1s"}}, "metrics.interval", "not between 5 s and 120 s", "`30s`"),
    elsewhere({"metrics": {"interval": "4m"}}, "metrics.interval", "`30s`"),
    elsewhere({"metrics": {"usage": False, "port": 9999}}, "metrics.port", "`usage`"),
    elsewhere({"metrics": {"port": 80}}, "metrics.port"),
    elsewhere({"metrics": {"collect": False, "interval": "30s"}}, "metrics.interval", "`collect`"),
    elsewhere({"metrics": {"collect": False, "prometheus": {}}}, PROMETHEUS, "`collect`"),
    elsewhere({"metrics": {"prometheus": {}}}, PROMETHEUS),
    elsewhere({"metrics": {"gpus": {"chart": "/nowhere.tgz"}}}, "metrics.gpus.chart"),
    elsewhere({"metrics": {"gpus": {"version": "4.0.0"}}}, "metrics.gpus.version", "`chart`"),
    elsewhere(
        {"metrics": {"gpus": {"install": False, "chart": "https://example.com/c.tgz"}}}, "metrics.gpus.chart"
    ),
    elsewhere({"metrics": {"idle": {"share": 0}}}, "metrics.idle.share"),
]

ELSEWHERE: list[Any] = [
    elsewhere({"metrics": {"prometheus": {"namespace": "slipway"}}}, f"{PROMETHEUS}.namespace"),
    elsewhere({"metrics": {"prometheus": {"namespace": "Bad_Name"}}}, f"{PROMETHEUS}.namespace"),
    elsewhere(
        {"metrics": {"prometheus": {"labels": {"release": "mine"}}}}, f"{PROMETHEUS}.labels", "`install: false`"
    ),
    elsewhere(
        {"metrics": {"prometheus": {"install": False, "retention": "3d"}}},
        f"{PROMETHEUS}.retention",
        "`install: true`",
    ),
    elsewhere({"metrics": {"prometheus": {"install": False, "pod_labels": {}}}}, f"{PROMETHEUS}.pod_labels"),
    elsewhere({"metrics": {"prometheus": {"chart": "/nowhere.tgz"}}}, f"{PROMETHEUS}.chart"),
    elsewhere(
        {"clusters.here.openshift": True, "metrics": {}},
        PROMETHEUS,
        "`here`",
        "`namespace: openshift-user-workload-monitoring`",
    ),
    elsewhere(
        {
            "clusters.here.openshift": True,
            "clusters.here.pools.gpu": {
                "selector": {"kind": "gpu"},
                "cpu": "4",
                "memory": "8Gi",
                "accelerator": "nvidia-tesla-t4",
                "gpus": 1,
            },
            "metrics": {"prometheus": {"install": False}},
            "store": {"kind": "nfs", "server": "10.0.0.5", "path": "/slipway"},
        },
        "metrics.gpus",
        "GPU Operator",
    ),
    elsewhere(
        {"clusters.here.access": "namespace", "metrics": {}}, PROMETHEUS, "`access: namespace`", "`install: false`"
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
        {},
        {"usage": False},
        {"usage": False, "collect": False},
        {"collect": False},
        {"prometheus": {"install": False, "namespace": "monitoring", "labels": {"release": "mine"}}},
        {"gpus": {"install": False}, "idle": {"below": 10, "share": 50}, "interval": "15s", "dashboards": False},
        {"prometheus": {"chart": "oci://registry.example.com/stack", "version": "90.0.0", "storage": "100Gi"}},
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


def test_prometheus_is_given_a_volume_where_a_cloud_makes_none_by_itself() -> None:
    assert not load(EXISTING).request.has_services
    assert load(changed(EXISTING, {"metrics": {}})).request.has_services
    assert not load(changed(EXISTING, {"metrics": {"prometheus": {"install": False}}})).request.has_services
