"""What a stack declares so that metrics are read, and that nothing else changes for it."""

import json
from typing import Any

import pytest

from slipway.infra.kubernetes.cluster.workspace import Measured, scrapers
from slipway.infra.kubernetes.labels import MEASURED, RUN_ANNOTATION, USAGE_ANNOTATION
from slipway.infra.kubernetes.metrics import exporters, prometheus
from slipway.infra.review.stack import Resource, Stack
from slipway.infra.schema.quantities import cpu_millicores, mebibytes
from slipway.infra.settings.model import PROMETHEUS_PODS
from tests.support.previewing import previewed

pytestmark = pytest.mark.slow

JOB = "kubernetes:batch/v1:Job"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
RELEASE = "kubernetes:helm.sh/v3:Release"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"


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


@pytest.mark.parametrize("name", ["gcp-dev", "aws-batch"])
def test_measuring_a_step_changes_neither_its_run_nor_its_result(name: str) -> None:
    plain, measured = steps(stack(name, None)), steps(stack(name, "{}"))

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
    boards = [
        resource
        for resource in declared_stack.resources.values()
        if resource.type == "gcp:monitoring/dashboard:Dashboard"
    ]
    assert len(boards) == 3


@pytest.mark.parametrize(
    ("name", "namespace", "labels"),
    [
        ("gcp-dev", "gke-gmp-system", {"app.kubernetes.io/name": "collector"}),
        ("local", "slipway-metrics", {"app.kubernetes.io/name": "prometheus"}),
    ],
)
def test_the_collector_alone_reaches_the_pods_of_steps_and_their_port_alone(
    name: str, namespace: str, labels: dict[str, str]
) -> None:
    policy = of(stack(name, "{}"), POLICY)["steps-metrics"]["spec"]

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


def test_a_queue_is_read_by_a_pod_of_its_own_that_reaches_nothing_else() -> None:
    declared_stack = stack("aws-batch", "{}")
    (name,) = of(declared_stack, DEPLOYMENT)
    container = of(declared_stack, DEPLOYMENT)[name]["spec"]["template"]["spec"]["containers"][0]
    policies = of(declared_stack, POLICY)

    assert "@sha256:" in container["image"]
    assert any("--check-keys=slipway:*:ready" in argument for argument in container["args"])
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["key"] == "password"
    outward = policies[name]["spec"]
    assert outward["policyTypes"] == ["Ingress", "Egress"]
    assert outward["egress"][0]["ports"] == [{"port": 6379, "protocol": "TCP"}]
    assert all(entry["ports"][0]["port"] in {53, 6379} for entry in outward["egress"])
    assert policies[f"{name}-access"]["spec"]["ingress"][0]["ports"] == [{"port": 6379, "protocol": "TCP"}]
    plain, measured = (
        {
            resource.name: resource.properties["spec"]
            for resource in stack("aws-batch", said).resources.values()
            if resource.type == "kubernetes:apps/v1:StatefulSet"
        }
        for said in (None, "{}")
    )
    assert plain == measured


def test_elsewhere_prometheus_is_installed_and_looks_at_the_stacks_namespaces_alone() -> None:
    declared_stack = stack("aws-batch", "{}")
    declared = [resource.properties for resource in declared_stack.resources.values() if resource.type == RELEASE]
    releases = {release["name"]: release for release in declared}

    custom = releases["slipway-metrics"]["values"]
    (expression,) = custom["prometheus"]["prometheusSpec"]["podMonitorNamespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["slipway", "slipway-gpu-metrics", "slipway-metrics"]
    assert custom["grafana"]["rbac"] == {"namespaced": True}
    assert custom["prometheus"]["prometheusSpec"]["image"]["sha"]
    dashboard = of(declared_stack, "kubernetes:core/v1:ConfigMap")["slipway-jobs"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["namespace"] == custom["grafana"]["sidecar"]["dashboards"]["searchNamespace"]


def of_prometheus(name: str, metrics: str = "{}") -> dict[str, Any]:
    """The values of Prometheus's chart."""
    declared = [
        resource.properties for resource in stack(name, metrics).resources.values() if resource.type == RELEASE
    ]
    (result,) = [release["values"] for release in declared if release["chart"] == prometheus.CHART]
    return result


def test_on_a_cloud_without_a_default_class_prometheus_gets_a_volume() -> None:
    # No service and no app of this stack has a volume.
    declared_stack = stack("aws-dev", "{}")
    (made,) = [
        resource
        for resource in declared_stack.resources.values()
        if resource.type == "kubernetes:storage.k8s.io/v1:StorageClass"
    ]
    claim = of_prometheus("aws-dev")["prometheus"]["prometheusSpec"]["storageSpec"]["volumeClaimTemplate"]["spec"]
    (namespace,) = [
        resource for resource in declared_stack.resources.values() if resource.name == "dev-metrics-namespace"
    ]

    assert claim["storageClassName"] == made.properties["metadata"]["name"]
    # The driver goes after the volumes that it has to delete.
    assert made.urn in namespace.dependencies
    assert (
        "storageClassName"
        not in (
            of_prometheus("local")["prometheus"]["prometheusSpec"]["storageSpec"]["volumeClaimTemplate"]["spec"]
        )
    )


def test_prometheus_drops_the_oldest_before_its_volume_is_full() -> None:
    said = json.dumps({"prometheus": {"storage": "10Gi", "retention": "90d"}})
    spec = of_prometheus("local", said)["prometheus"]["prometheusSpec"]

    assert (spec["retention"], spec["retentionSize"]) == ("90d", "8704MiB")


def test_the_operator_leaves_other_namespaces_alone() -> None:
    watched = of_prometheus("local")["prometheusOperator"]["namespaces"]

    assert watched == {"releaseNamespace": True, "additional": ["slipway", "slipway-gpu-metrics"]}


def test_grafana_keeps_the_sources_that_its_image_has_and_fetches_nothing() -> None:
    settings = of_prometheus("local")["grafana"]["grafana.ini"]

    assert settings["plugins"] == {"preinstall_disabled": True}
    assert not any(settings["analytics"].values())


def test_no_token_that_never_ends_is_made() -> None:
    assert of_prometheus("local")["prometheus"]["serviceAccount"] == {"createTokenSecret": False}


def test_what_is_installed_asks_for_what_quotas_count() -> None:
    values = of_prometheus("local")
    grafana, operator = values["grafana"], values["prometheusOperator"]
    pods = (
        [values["prometheus"]["prometheusSpec"], operator["prometheusConfigReloader"]],
        [operator],
        [grafana, grafana["sidecar"], grafana["sidecar"]],
    )
    wanted = [[container_["resources"]["requests"] for container_ in pod] for pod in pods]

    assert [
        (sum(cpu_millicores(entry["cpu"]) for entry in pod), sum(mebibytes(entry["memory"]) for entry in pod))
        for pod in wanted
    ] == [(prometheus_pod.cpu, prometheus_pod.memory) for prometheus_pod in PROMETHEUS_PODS]
    assert all(container_["resources"]["limits"]["memory"] for pod in pods for container_ in pod)


def test_the_exporter_of_gpus_takes_no_job_its_node() -> None:
    releases = [
        resource.properties for resource in stack("aws-dev", "{}").resources.values() if resource.type == RELEASE
    ]
    (custom,) = [release["values"] for release in releases if release["name"] == exporters.CHART]

    assert custom["priorityClassName"] == ""
    assert custom["resources"]["requests"] == {"cpu": "0", "memory": "0"}


def test_a_prometheus_that_is_there_finds_the_monitors_by_its_labels() -> None:
    said = {"prometheus": {"install": False, "namespace": "monitoring", "labels": {"release": "mine"}}}
    declared_stack = stack("local", json.dumps(said))

    (monitor,) = of(declared_stack, "kubernetes:monitoring.coreos.com/v1:PodMonitor").values()
    assert monitor["metadata"]["labels"]["release"] == "mine"
    assert monitor["metadata"]["namespace"] == "slipway"
    assert not [resource for resource in declared_stack.resources.values() if resource.type == RELEASE]
    dashboard = of(declared_stack, "kubernetes:core/v1:ConfigMap")["slipway-jobs"]
    assert dashboard["metadata"]["namespace"] == "slipway"


def test_measured_alone_nothing_listens() -> None:
    declared_stack = stack("local", json.dumps({"collect": False}))
    container = steps(declared_stack)["mnist-train"].properties["spec"]["template"]["spec"]["containers"][0]

    assert "--port" not in container["command"]
    assert "ports" not in container
    assert not [resource for resource in declared_stack.resources.values() if "monitoring" in resource.type]


def test_the_exporter_of_gpus_runs_on_nodes_of_all_gpu_pools_without_capabilities() -> None:
    releases = [
        resource.properties for resource in stack("aws-dev", "{}").resources.values() if resource.type == RELEASE
    ]
    (custom,) = [release["values"] for release in releases if release["name"] == exporters.CHART]

    affinity = custom["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = affinity["nodeSelectorTerms"]
    assert terms
    assert all(
        exporters.OPERATED in {match_expression["key"] for match_expression in term["matchExpressions"]}
        for term in terms
    )
    assert {toleration["key"] for toleration in custom["tolerations"]} >= {"nvidia.com/gpu"}
    assert custom["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": []}
    assert "DCGM_FI_PROF" not in custom["customMetrics"]


def test_where_nobody_reads_there_is_no_peer() -> None:
    assert scrapers(None) == []
    assert scrapers(Measured(None, 30)) == []


def test_an_image_is_spelt_as_the_chart_wants_it() -> None:
    assert prometheus._image("quay.io/a/b:v1@sha256:0f") == {
        "registry": "quay.io",
        "repository": "a/b",
        "tag": "v1",
        "sha": "0f",
    }
