"""What policies find in programs of anyone: objects and texts that Pulumi lets pass."""

from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import pytest

from slipway.engine.evaluate import evaluate
from slipway.evaluated.model import Finding
from slipway.features.foreign.policies import refusals
from slipway.infra.clouds.registry import reviews
from slipway.infra.review.contract import reviewed
from slipway.infra.review.stack import Resource, Stack
from slipway.policies.check import check
from tests.support.costing import TODAY


def found(program: Callable[[], object], *policies: str) -> list[Finding]:
    evaluation = evaluate(program, project="p", stack="s", config={}, preview=True)
    stack = reviewed(Stack("s", evaluation.resources), reviews())
    return [finding for finding in check(stack, {}, TODAY)[0] if finding.policy in policies]


def test_an_output_in_a_text_is_named_with_resource_property_and_line() -> None:
    def program() -> None:
        bucket = gcp.storage.Bucket("data", location="EU")
        gcp.storage.BucketObject("a", bucket=bucket.name, name="a", content=f"in {bucket.url}")
        gcp.storage.BucketObject("b", bucket=bucket.name, name="b", metadata={"from": "in %s" % bucket.url})  # noqa: UP031
        gcp.storage.BucketObject("c", bucket=bucket.name, name="c", content="in {}".format(bucket.url))  # noqa: UP032
        gcp.storage.BucketObject(
            "d", bucket=bucket.name, name="d", content=pulumi.Output.format("in {}", bucket.url)
        )

    findings = found(program, "output-as-text")
    assert [(item.name.partition(" ")[0], item.reason.partition(" ")[0]) for item in findings] == [
        *(("a", "content"), ("b", "metadata.from"), ("c", "content"))
    ]
    first = program.__code__.co_firstlineno + 2
    assert [item.place.rpartition(":")[2] for item in findings] == [str(first), str(first + 1), str(first + 2)]


VOLUME = {"name": "x", "emptyDir": {}}
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}


def job(pod: Mapping[str, Any] | None = None, **spec: Any) -> tuple[str, dict[str, Any]]:
    return "batch/v1:Job", {
        "metadata": {"name": "a.b"},
        "spec": {"template": {"spec": {**POD, **(pod or {})}}, **spec},
    }


def with_container(**container: Any) -> tuple[str, dict[str, Any]]:
    return job({"containers": [{"name": "main", "image": "busybox", **container}], "volumes": [VOLUME]})


def deployment(policy: str | None = None, **labels: str) -> tuple[str, dict[str, Any]]:
    template = {"metadata": {"labels": labels}, "spec": {**POD, "restartPolicy": policy}}
    return "apps/v1:Deployment", {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}}


def config_map(name: str = "a", **data: Any) -> tuple[str, dict[str, Any]]:
    return "core/v1:ConfigMap", {"metadata": {"name": name}, "data": data}


def amounts(**resources: Any) -> tuple[str, dict[str, Any]]:
    return with_container(resources=resources)


GPU = "nvidia.com/gpu"
CONTAINER = "spec.template.spec.containers[0]"
REFUSED = {
    "unknown field": (job(backOffLimit=3), "spec.backOffLimit"),
    "unknown field of a container": (with_container(imagepullPolicy="Always"), f"{CONTAINER}.imagepullPolicy"),
    "text for a number": (job(backoffLimit="3"), "spec.backoffLimit"),
    "number for a text": (with_container(env=[{"name": "A", "value": 1}]), f"{CONTAINER}.env[0].value"),
    "no template": (("batch/v1:Job", {"spec": {}}), "spec"),
    "negative": (job(backoffLimit=-1), "spec.backoffLimit"),
    "restart of a Job": (job({"restartPolicy": "Always"}), "spec.template.spec.restartPolicy"),
    "restart of a Deployment": (deployment("Never", app="a"), "spec.template.spec.restartPolicy"),
    "selector": (deployment(app="b"), "spec.selector.matchLabels"),
    "name": (config_map("My_Map"), "metadata.name"),
    "name of a Service": (
        ("core/v1:Service", {"metadata": {"name": "1st"}, "spec": {"ports": [{"port": 80}]}}),
        "metadata.name",
    ),
    "label": (("core/v1:ConfigMap", {"metadata": {"labels": {"a": "b c"}}}), "metadata.labels"),
    "key of a ConfigMap": (config_map(**{"a/b": "x"}), "data"),
    "size of a ConfigMap": (config_map(a="x" * (2**20 + 1)), "data"),
    "mount": (with_container(volumeMounts=[{"name": "y", "mountPath": "/x"}]), "spec.template.spec.volumes"),
    "same path": (
        with_container(volumeMounts=[{"name": "x", "mountPath": "/x"}, {"name": "x", "mountPath": "/x"}]),
        f"{CONTAINER}.volumeMounts",
    ),
    "same variable": (
        with_container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        f"{CONTAINER}.env",
    ),
    "two sources": (
        job({"volumes": [{"name": "x", "emptyDir": {}, "hostPath": {"path": "/x"}}]}),
        "spec.template.spec.volumes[0]",
    ),
    "request above limit": (
        amounts(limits={"cpu": "1"}, requests={"cpu": "1500m"}),
        f"{CONTAINER}.resources.requests",
    ),
    "GPU without limit": (amounts(requests={GPU: "1"}), f"{CONTAINER}.resources.limits"),
    "half a GPU": (amounts(limits={GPU: "500m"}), f"{CONTAINER}.resources"),
    "memory": (amounts(limits={"memory": "4GB"}), f"{CONTAINER}.resources"),
    "pull policy": (with_container(imagePullPolicy="Newer"), f"{CONTAINER}.imagePullPolicy"),
    "port": (with_container(ports=[{"containerPort": 70000}]), f"{CONTAINER}.ports[0]"),
    "toleration": (
        job({"tolerations": [{"key": GPU, "operator": "Exists", "value": "present"}]}),
        "spec.template.spec.tolerations[0].value",
    ),
    "indexed": (job(completionMode="Indexed"), "spec.completions"),
    "schedule": (
        ("batch/v1:CronJob", {"spec": {"schedule": "61 * * * *", "jobTemplate": {"spec": job()[1]["spec"]}}}),
        "spec.schedule",
    ),
    "claim": (
        ("core/v1:PersistentVolumeClaim", {"spec": {"accessModes": ["ReadWriteOnce"]}}),
        "spec.resources.requests.storage",
    ),
    "ports": (("core/v1:Service", {"spec": {"ports": [{"port": 80}, {"port": 81}]}}), "spec.ports"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_object_that_every_api_server_refuses_is_named_with_its_field(name: str) -> None:
    (kind, properties), place = REFUSED[name]
    type_ = f"kubernetes:{kind}"
    assert [where for where, _ in refusals(Resource("urn", type_, "it", properties))] == [place]


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        job(),
        config_map(),
        deployment(app="a"),
        amounts(limits={"cpu": 2, "memory": "1e9", GPU: 1}, requests={"cpu": "500m", GPU: 1}),
        ("monitoring.coreos.com/v1:PodMonitor", {"spec": {"anything": 1}}),
        ("serving.knative.dev/v1:Service", {"spec": {"template": {}}}),
        ("rbac.authorization.k8s.io/v1:ClusterRole", {"metadata": {"name": "system:a:b"}, "rules": []}),
    ],
)
def test_an_object_that_an_api_server_takes_is_not_named(kind: str, properties: dict[str, Any]) -> None:
    assert refusals(Resource("urn", f"kubernetes:{kind}", "it", properties)) == []


def test_what_only_an_update_knows_is_not_refused() -> None:
    def program() -> None:
        size = gcp.storage.Bucket("data", location="EU").self_link
        container = {"name": "main", "image": size, "env": [{"name": "A", "value": size}]}
        spec = {"backoffLimit": 1, "template": {"spec": {**POD, "containers": [container]}}}
        k8s.batch.v1.Job("train", metadata={"name": size}, spec=spec)

    assert found(program, "refused-by-kubernetes") == []
