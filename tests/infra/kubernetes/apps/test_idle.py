"""Apps that are looked at whether anybody uses them: what a stack declares for it."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from slipway.infra.kubernetes.labels import IDLE_ANNOTATION
from slipway.infra.review.stack import Resource, Stack
from slipway.infra.settings.loading import lay_over
from slipway.offline.evaluated.idle_apps import watched_apps
from slipway.workloads.runtime.apps import idle as look
from tests.support.checkout import ROOT
from tests.support.previewing import previewed

pytestmark = pytest.mark.slow


@cache
def stack(overlay: str = "{}") -> Stack:
    """Serves from a GPU, with these changes of its apps."""
    file = yaml.safe_load((ROOT / "stacks" / "Pulumi.aws-serving.yaml").read_text())["config"]
    gpu = {"pool": "t4", "gpus": 1, "replicas": 1}
    apps = lay_over(
        {"mnist": {"steps": {"train": {"nodes": 1}}, "apps": {"serving": gpu}}},
        {"mnist": {"apps": json.loads(overlay)}},
    )
    return previewed("aws-serving", {"pipelines": lay_over(file["slipway:pipelines"], apps)})


def only(given: Stack, kind: str, name: str) -> Resource | None:
    return next(
        (
            resource
            for resource in given.resources.values()
            if resource.type.endswith(f":{kind}") and resource.metadata.get("name") == name
        ),
        None,
    )


def properties(given: Stack, kind: str, name: str = "mnist-serving-idle") -> Mapping[str, Any]:
    resource = only(given, kind, name)
    assert resource is not None, f"{kind} {name}"
    return resource.properties


def container(given: Stack, app: str) -> Mapping[str, Any]:
    return properties(given, "Deployment", f"mnist-{app}")["spec"]["template"]["spec"]["containers"][0]


STOPPED = '{"serving": {"idle": {"after": "2h", "then": "stop"}}}'


def test_a_server_that_may_be_stopped_stays_stopped_and_is_asked_for_its_predictions() -> None:
    given = stack(STOPPED)
    assert "replicas" not in properties(given, "Deployment", "mnist-serving")["spec"]
    pod = properties(given, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    words = [*pod["containers"][0]["command"], *pod["containers"][0]["args"]]
    assert words[2] == look.__name__
    flags = dict(zip(words[3::2], words[4::2], strict=True))
    assert flags["--app"] == "mnist-serving:8501"
    assert (flags["--after"], flags["--then"], flags["--scale"]) == ("7200", "stop", "mnist-serving")
    assert (flags["--path"], flags["--counter"]) == (
        "/monitoring/prometheus/metrics",
        ":tensorflow:serving:request_latency_count",
    )
    assert "an hour" in flags["--holds"]
    rules = properties(given, "Role")["rules"]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in rules] == [
        (["deployments/scale"], ["mnist-serving"], ["patch"]),
        (["configmaps"], ["mnist-serving-idle"], ["get", "patch"]),
    ]
    assert only(given, "Service", "mnist-serving-idle") is None, "one pod is asked by the app's own"
    (app,) = [app for app in watched_apps(given) if app.app == "mnist.serving"]
    assert (app.start, app.notes) == ("scale deployment/mnist-serving --replicas=1", "mnist-serving-idle")


def test_pods_of_others_stay_as_they_are_and_the_page_knows_how_its_server_starts() -> None:
    plain, warned, stopped = stack(), stack('{"serving": {"idle": {}}}'), stack(STOPPED)
    for app in ("serving", "tensorboard"):
        assert container(plain, app) == container(warned, app) == container(stopped, app)
    assert container(plain, "page") == container(warned, "page")
    told = {entry["name"]: entry.get("value") for entry in container(stopped, "page")["env"]}
    start = "kubectl --namespace slipway scale deployment/mnist-serving --replicas=1"
    assert told["SERVING_START"] == start
    assert properties(warned, "Deployment", "mnist-serving")["spec"]["replicas"] == 1
    (rule,) = properties(warned, "Role")["rules"]
    assert rule["resources"] == ["configmaps"]


def test_each_of_several_pods_is_asked() -> None:
    given = stack('{"page": {"replicas": 2, "idle": {"then": "stop"}, "autoscale": {"most": 4}}}')
    words = properties(given, "CronJob", "mnist-page-idle")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    args = words["containers"][0]["args"]
    assert args[args.index("--app") + 1] == "mnist-page-idle:9464"
    assert args[args.index("--replicas") + 1] == "2"
    service = properties(given, "Service", "mnist-page-idle")["spec"]
    page = properties(given, "Deployment", "mnist-page")["spec"]
    assert (service["clusterIP"], service["selector"]) == ("None", page["selector"]["matchLabels"])
    (rule,) = properties(given, "NetworkPolicy", "mnist-page-idle")["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [9464]
    assert IDLE_ANNOTATION in properties(given, "CronJob", "mnist-page-idle")["metadata"]["annotations"]
