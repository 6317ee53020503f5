"""What a stack declares so that metrics are read, and that nothing else changes for it."""

import json
from typing import Any

import pytest

from slipway.infra.kubernetes.cluster.workspace import Measured, scrapers
from slipway.infra.kubernetes.labels import MEASURED, RUN_ANNOTATION, USAGE_ANNOTATION
from slipway.infra.review.stack import Resource, Stack
from tests.support.previewing import previewed

pytestmark = pytest.mark.slow

JOB = "kubernetes:batch/v1:Job"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
RELEASE = "kubernetes:helm.sh/v3:Release"


def stack(name: str, metrics: str | None) -> Stack:
    return previewed(name, {} if metrics is None else {"metrics": json.loads(metrics)})


def of(given: Stack, kind: str) -> dict[str, Any]:
    """Properties by object name."""
    return {
        resource.properties["metadata"]["name"]: resource.properties
        for resource in given.resources.values()
        if resource.type == kind
    }


def steps(given: Stack) -> dict[str, Resource]:
    jobs = [resource for resource in given.resources.values() if resource.type == JOB]
    return {job.name: job for job in jobs if RUN_ANNOTATION in job.metadata.get("annotations", {})}


READ = '{"prometheus": {"namespace": "monitoring", "labels": {"release": "mine"}}}'
"""A Prometheus that is there."""


@pytest.mark.parametrize(("name", "metrics"), [("gcp-dev", "{}"), ("aws-batch", READ)])
def test_measuring_a_step_changes_neither_its_run_nor_its_result(name: str, metrics: str) -> None:
    plain, measured = steps(stack(name, None)), steps(stack(name, metrics))

    assert plain.keys() == measured.keys()
    for job, before in plain.items():
        after = measured[job]
        assert after.metadata["name"] == before.metadata["name"]
        assert after.metadata["annotations"][RUN_ANNOTATION] == before.metadata["annotations"][RUN_ANNOTATION]
        old = before.properties["spec"]["template"]["spec"]["containers"][0]
        new = after.properties["spec"]["template"]["spec"]["containers"][0]
        assert (_program(new["command"]), new["args"]) == (_program(old["command"]), old["args"])


def _program(words: list[str]) -> list[str]:
    return words[words.index("--") + 1 :] if "--" in words else words


def test_gpu_steps_are_measured_unless_the_stack_file_says_no_and_others_where_it_asks_for_it() -> None:
    def measured(metrics: str | None) -> set[str]:
        jobs = steps(stack("gcp-dev", metrics)).items()
        return {name for name, job in jobs if USAGE_ANNOTATION in job.metadata["annotations"]}

    assert {"mnist-train", "mnist-predict"} <= measured(None) < measured("{}")
    assert "mnist-prepare" not in measured(None)
    assert measured('{"usage": false}') == set()
    train = steps(stack("gcp-dev", None))["mnist-train"].properties["spec"]["template"]["spec"]
    containers = [*train.get("initContainers", []), *train["containers"]]
    assert all("SLIPWAY_PARTS" in {entry["name"] for entry in container["env"]} for container in containers)
    assert "ports" not in train["containers"][0]


def test_gates_are_not_measured() -> None:
    measured = {
        resource.name
        for resource in stack("gcp-dev", "{}").resources.values()
        if resource.type == JOB and USAGE_ANNOTATION in resource.metadata.get("annotations", {})
    }

    assert measured >= {"mnist-prepare", "mnist-train", "mnist-predict"}
    assert not [name for name in measured if "-gate-" in name or name == "cuda-libraries"]


def test_on_google_cloud_its_own_collector_reads_and_nothing_is_installed() -> None:
    declared_stack = stack("gcp-dev", "{}")

    (monitor,) = of(declared_stack, "kubernetes:monitoring.googleapis.com/v1:PodMonitoring").values()
    assert monitor["spec"]["selector"]["matchLabels"][MEASURED] == "true"
    assert monitor["spec"]["endpoints"] == [{"port": "usage", "path": "/metrics", "interval": "30s"}]
    assert not [resource for resource in declared_stack.resources.values() if resource.type == RELEASE]


@pytest.mark.parametrize(
    ("name", "metrics", "namespace", "labels"),
    [
        ("gcp-dev", "{}", "gke-gmp-system", {"app.kubernetes.io/name": "collector"}),
        ("local", READ, "monitoring", {"app.kubernetes.io/name": "prometheus"}),
    ],
)
def test_the_collector_alone_reaches_the_pods_of_steps_and_their_port_alone(
    name: str, metrics: str, namespace: str, labels: dict[str, str]
) -> None:
    policy = of(stack(name, metrics), POLICY)["steps-metrics"]["spec"]

    assert policy["podSelector"]["matchLabels"][MEASURED] == "true"
    assert policy["ingress"] == [
        {
            "from": [
                {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "podSelector": {"matchLabels": labels},
                }
            ],
            "ports": [{"port": 9410, "protocol": "TCP"}],
        }
    ]


def test_a_prometheus_that_is_there_finds_the_monitors_by_its_labels() -> None:
    declared_stack = stack("local", READ)

    (monitor,) = of(declared_stack, "kubernetes:monitoring.coreos.com/v1:PodMonitor").values()
    assert monitor["metadata"]["labels"]["release"] == "mine"
    assert monitor["metadata"]["namespace"] == "slipway"
    assert not [resource for resource in declared_stack.resources.values() if resource.type == RELEASE]


def test_measured_alone_nothing_listens() -> None:
    declared_stack = stack("local", json.dumps({"collect": False}))
    container = steps(declared_stack)["mnist-train"].properties["spec"]["template"]["spec"]["containers"][0]

    assert "--port" not in container["command"]
    assert "ports" not in container
    assert not [resource for resource in declared_stack.resources.values() if "monitoring" in resource.type]


def test_where_nobody_reads_there_is_no_peer() -> None:
    assert scrapers(None) == []
    assert scrapers(Measured(None, 30)) == []
