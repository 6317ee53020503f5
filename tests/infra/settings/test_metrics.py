"""What a stack file may not say of metrics."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.schema.problems import SettingsError
from infra.settings.loading import load
from tests.infra.settings.test_references import PLATFORM, TEAM
from tests.support.refusals import Case, named, the_problem
from tests.support.stack_values import EXISTING, GCP, changed

PROMETHEUS = "metrics.prometheus"

CASES: list[Case] = [
    ({"metrics": {"usage": False, "collect": False}}, "metrics", "nothing is measured", "remove the section"),
    ({"metrics": {"interval": "1s"}}, "metrics.interval", "not between 5 s and 120 s", "`30s`"),
    ({"metrics": {"interval": "4m"}}, "metrics.interval", "the dashboards draw no line", "`30s`"),
    ({"metrics": {"usage": False, "port": 9999}}, "metrics.port", "`usage` is false", "remove it"),
    ({"metrics": {"port": 80}}, "metrics.port", "", ""),
    ({"metrics": {"collect": False, "interval": "30s"}}, "metrics.interval", "`collect` is false", "remove it"),
    ({"metrics": {"collect": False, "prometheus": {}}}, PROMETHEUS, "`collect` is false", "remove it"),
    ({"metrics": {"prometheus": {}}}, PROMETHEUS, "the cloud itself collects", "remove it"),
    ({"metrics": {"gpus": {"chart": "/nowhere.tgz"}}}, "metrics.gpus.chart", "cannot be read", "fetch it again"),
    (
        {"metrics": {"gpus": {"version": "4.0.0"}}},
        "metrics.gpus.version",
        "a chart of your own",
        "name its `chart`",
    ),
    (
        {"metrics": {"gpus": {"install": False, "chart": "https://example.com/c.tgz"}}},
        "metrics.gpus.chart",
        "does not install it",
        "remove it",
    ),
    ({"metrics": {"idle": {"share": 0}}}, "metrics.idle.share", "", ""),
]

ELSEWHERE: list[Case] = [
    (
        {"metrics": {"prometheus": {"namespace": "slipway"}}},
        f"{PROMETHEUS}.namespace",
        "the namespace of the Jobs",
        "",
    ),
    ({"metrics": {"prometheus": {"namespace": "Bad_Name"}}}, f"{PROMETHEUS}.namespace", "", ""),
    (
        {"metrics": {"prometheus": {"labels": {"release": "mine"}}}},
        f"{PROMETHEUS}.labels",
        "is there already",
        "`install: false`",
    ),
    (
        {"metrics": {"prometheus": {"install": False, "retention": "3d"}}},
        f"{PROMETHEUS}.retention",
        "does not install it",
        "`install: true`",
    ),
    (
        {"metrics": {"prometheus": {"install": False, "pod_labels": {}}}},
        f"{PROMETHEUS}.pod_labels",
        "every pod of the namespace would be let in",
        "name a label",
    ),
    ({"metrics": {"prometheus": {"chart": "/nowhere.tgz"}}}, f"{PROMETHEUS}.chart", "cannot be read", "fetch it"),
    (
        {"clusters.here.openshift": True, "metrics": {}},
        PROMETHEUS,
        "cluster `here` is OpenShift: it has a Prometheus of its own",
        "`namespace: openshift-user-workload-monitoring`",
    ),
    (
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
        "no pod that is root",
        "GPU Operator",
    ),
    (
        {"clusters.here.access": "namespace", "metrics": {}},
        PROMETHEUS,
        "has `access: namespace`",
        "`install: false`",
    ),
]


@pytest.mark.parametrize(("changes", "key", "reason", "fix"), named(CASES))
def test_what_could_not_work_is_refused_by_its_key(
    changes: Mapping[str, Any], key: str, reason: str, fix: str
) -> None:
    problem = the_problem(changed(GCP, changes))

    assert problem.key == f"slipway:{key}"
    assert reason in problem.reason
    assert fix in problem.fix


@pytest.mark.parametrize(("changes", "key", "reason", "fix"), named(ELSEWHERE))
def test_where_the_cloud_collects_nothing_prometheus_has_to_fit(
    changes: Mapping[str, Any], key: str, reason: str, fix: str
) -> None:
    problem = the_problem(changed(EXISTING, changes))

    assert problem.key == f"slipway:{key}"
    assert reason in problem.reason
    assert fix in problem.fix


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"usage": False},
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
    found = load(changed(TEAM, {"metrics": {"collect": False}}), resolve).metrics
    assert found is not None
    assert found.usage


def test_prometheus_is_given_a_volume_where_a_cloud_makes_none_by_itself() -> None:
    assert not load(EXISTING).request.has_services
    assert load(changed(EXISTING, {"metrics": {}})).request.has_services
    assert not load(changed(EXISTING, {"metrics": {"prometheus": {"install": False}}})).request.has_services
