"""Apps of a pipeline: from its file to what a stack declares and says of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.engine.provider_outputs import computed_outputs
from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.infra.platform import DECLARED_ALONE
from slipway.infra.program import declare
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stack_values import changed
from tests.support.tree import write_tree

IMAGE = "example/page@sha256:" + "1" * 64

PIPELINE: dict[str, Any] = {
    "steps": {
        "train": {"run": ["python", "train.py", "{output}"], "code": "work"},
        "check": {"run": ["python", "train.py", "{train}", "{output}"], "code": "work"},
    },
    "apps": {
        "page": {
            "kind": "program",
            "title": "Page",
            "run": ["python3", "page.py", "--port", "{port}"],
            "port": 8080,
            "code": "page",
            "image": IMAGE,
            "environment": {"GREETING": "$(HOME) {{you}}"},
            "secrets": {"KEY": "key"},
            "path": "/draw",
            "after": ["check"],
            "probe": {"path": "/healthz"},
        },
        "model": {
            "kind": "program",
            "title": "Model",
            "run": ["serve", "--port", "{port}", "--from", "{train}", "{pipeline}/models"],
            "port": 8501,
            "ports": {"grpc": 8500},
            "people": False,
            "image": IMAGE,
        },
        "notes": {
            "kind": "program",
            "run": ["notes", "--dir", "{data}", "--port", "{port}", "--token={token}"],
            "port": 8888,
            "image": IMAGE,
        },
    },
}

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
SERVICE = "kubernetes:core/v1:Service"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
ON_CPU = {"pool": "cpu"}
STEPS = {"train": ON_CPU, "check": ON_CPU}


def write(folder: Path, declared: Mapping[str, Any] = PIPELINE) -> Path:
    return write_tree(
        folder,
        {
            "work/train.py": "",
            "page/page.py": "import words\n",
            "page/words.py": "",
            "pipeline.yaml": json.dumps(declared),
        },
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, changed(PIPELINE, {"apps.page.connects": ["model"]}))


def run(folder: Path, apps: Mapping[str, Any], **more: Any) -> Recording:
    values: dict[str, Any] = {
        "clusters": {
            "here": {
                "cloud": "existing",
                "kubeconfig": "/nowhere",
                "pools": {
                    "cpu": {"selector": {"a": "b"}, "cpu": "8", "memory": "32Gi", "ephemeral_storage": "40Gi"}
                },
            }
        },
        "store": {"kind": "pvc"},
        "secrets": {"key": "[secret]"},
        "pipelines": {"tried": {"uses": str(folder), "steps": STEPS, "apps": dict(apps)}},
        **more,
    }
    emulators = [ExistingEmulator(load(values).request)]
    configuration = {f"slipway:{key}": value for key, value in values.items()}
    return record(lambda: declare(ROOT), configuration, preview=False, emulators=emulators)


def named(recording: Recording, kind: str, name: str) -> Mapping[str, Any]:
    (result,) = [resource for resource in recording.of(kind) if resource.inputs["metadata"]["name"] == name]
    return result.inputs


def test_a_stack_that_names_no_app_has_none(folder: Path) -> None:
    recording = run(folder, {})
    assert recording.of(DEPLOYMENT) == []
    assert "apps" not in recording.exports["tried"]


def test_an_app_is_a_deployment_behind_a_service(folder: Path) -> None:
    recording = run(folder, {"page": {"pool": "cpu", "cpu": "200m", "memory": "256Mi"}, "model": ON_CPU})
    page = named(recording, DEPLOYMENT, "tried-page")["spec"]
    (container,) = page["template"]["spec"]["containers"]
    assert container["command"] + container["args"] == ["python3", "page.py", "--port", "8080"]
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert environment["MODEL_ADDRESS"] == "tried-model:8501"
    assert environment["MODEL_GRPC_ADDRESS"] == "tried-model:8500"
    assert environment["GREETING"] == "$$(HOME) {you}"
    service = named(recording, SERVICE, "tried-page")
    assert json.loads(service["metadata"]["annotations"]["slipway/people"]) == {"title": "Page", "path": "/draw"}
    assert recording.exports["tried"]["apps"] == {"page": "make open APP=tried.page STACK=test"}


def container_of(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    (result,) = inputs["spec"]["template"]["spec"]["containers"]
    return result


def test_who_may_connect_is_said_of_both_ends(folder: Path) -> None:
    recording = run(folder, {"page": ON_CPU, "model": ON_CPU})
    model = named(recording, POLICY, "tried-model")["spec"]
    ((rule,), ports) = model["ingress"], {port["port"] for port in model["ingress"][0]["ports"]}
    assert rule["from"][0]["podSelector"]["matchExpressions"] == [
        {"key": "slipway/app", "operator": "In", "values": ["page"]}
    ]
    assert ports == {8501, 8500}
    page = named(recording, POLICY, "tried-page")["spec"]
    assert page["ingress"] == []
    to_model, *others = page["egress"]
    assert to_model["to"][0]["podSelector"]["matchLabels"]["slipway/app"] == "model"
    # The page reads no store and installs nothing: name servers are all that it reaches beside.
    assert {port["port"] for rule in others for port in rule["ports"]} == {53}
    everyone = named(recording, POLICY, "limit-egress")["spec"]["podSelector"]["matchExpressions"]
    assert {"key": "slipway/app", "operator": "DoesNotExist"} in everyone


def test_an_app_reads_the_store_and_writes_nothing(folder: Path) -> None:
    recording = run(folder, {"page": ON_CPU, "model": ON_CPU})
    model = named(recording, DEPLOYMENT, "tried-model")
    (store,) = [
        volume_mount
        for volume_mount in container_of(model)["volumeMounts"]
        if volume_mount["mountPath"] == "/store"
    ]
    assert store["readOnly"] is True
    page = named(recording, DEPLOYMENT, "tried-page")
    assert "/store" not in {volume_mount["mountPath"] for volume_mount in container_of(page)["volumeMounts"]}
    for entry in (model, page):
        pod = entry["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["serviceAccountName"] == entry["metadata"]["name"]


@pytest.mark.slow
def test_pods_are_new_where_what_they_answer_is(folder: Path) -> None:
    apps = {"page": ON_CPU, "model": ON_CPU}

    def templates() -> dict[str, Any]:
        recording = run(folder, apps)
        return {
            name: named(recording, DEPLOYMENT, f"tried-{name}")["spec"]["template"] for name in ("page", "model")
        }

    before = templates()
    assert templates() == before
    (folder / "page" / "words.py").write_text("GREETING = 1\n")
    after = templates()
    assert after["model"] == before["model"]
    assert after["page"] != before["page"]


@pytest.mark.slow
def test_an_app_that_keeps_data_is_one_pod_with_a_volume_and_a_token_nobody_else_has(folder: Path) -> None:
    recording = run(folder, {"notes": {"pool": "cpu", "storage": "3Gi"}})
    (notes,) = recording.of(STATEFUL_SET)
    spec = notes.inputs["spec"]
    (claim,) = (resource for resource in recording.of(CLAIM) if resource.name.endswith("notes-data"))
    assert claim.inputs["spec"]["resources"]["requests"]["storage"] == "3Gi"
    (data,) = (volume for volume in spec["template"]["spec"]["volumes"] if volume["name"] == "data")
    assert data["persistentVolumeClaim"]["claimName"] == claim.inputs["metadata"]["name"]
    # What people keep there outlives another size: the claim is the same, and grows.
    larger = run(folder, {"notes": {"pool": "cpu", "storage": "5Gi"}})
    (grown,) = (resource for resource in larger.of(CLAIM) if resource.name == claim.name)
    assert grown.inputs["metadata"]["name"] == claim.inputs["metadata"]["name"]
    assert larger.of(STATEFUL_SET)[0].inputs == notes.inputs
    container = container_of(notes.inputs)
    assert container["args"][-1] == "--token=$(NOTES_TOKEN)"
    assert container["args"][:2] == ["--dir", "/data"]
    made = computed_outputs(recording.one("random:index/randomPassword:RandomPassword"))["result"]
    assert recording.exports["tried"]["tokens"] == {"notes": made}
    secret = named(recording, "kubernetes:core/v1:Secret", "tried-notes-token")
    assert secret["stringData"] == {"token": made}
    assert made not in json.dumps(notes.inputs)


def test_several_pods_go_one_at_a_time_and_become_more_while_they_are_busy(folder: Path) -> None:
    recording = run(folder, {"model": {"pool": "cpu", "cpu": "500m", "replicas": 2, "autoscale": {"most": 4}}})
    model = named(recording, DEPLOYMENT, "tried-model")["spec"]
    assert "replicas" not in model
    assert model["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (budget,) = recording.of("kubernetes:policy/v1:PodDisruptionBudget")
    assert budget.inputs["spec"]["maxUnavailable"] == 1
    (scaler,) = recording.of("kubernetes:autoscaling/v2:HorizontalPodAutoscaler")
    assert (scaler.inputs["spec"]["minReplicas"], scaler.inputs["spec"]["maxReplicas"]) == (2, 4)


def test_an_app_without_replicas_is_stopped_and_nobody_waits_for_it(folder: Path) -> None:
    scaled = {"pool": "cpu", "replicas": 0, "autoscale": {"most": 4}}
    recording = run(folder, {"model": scaled, "notes": {"pool": "cpu", "replicas": 0}})
    stopped = [named(recording, DEPLOYMENT, "tried-model"), recording.one(STATEFUL_SET).inputs]
    assert [declared["spec"]["replicas"] for declared in stopped] == [0, 0]
    for declared in (*stopped, named(recording, SERVICE, "tried-model"), named(recording, SERVICE, "tried-notes")):
        assert declared["metadata"]["annotations"].items() >= DECLARED_ALONE.items()
    assert recording.of("kubernetes:autoscaling/v2:HorizontalPodAutoscaler") == []
    assert "notes" in recording.exports["tried"]["tokens"]


def test_where_the_pool_has_no_room_for_one_pod_more_an_update_stops_one_first(folder: Path) -> None:
    recording = run(folder, {"model": {"pool": "cpu", "cpu": "6"}})
    model = named(recording, DEPLOYMENT, "tried-model")["spec"]
    assert model["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_file_that_an_app_lacks_is_one_clear_error(folder: Path) -> None:
    (folder / "page" / "page.py").unlink()
    with pytest.raises(SettingsError) as raised:
        run(folder, {"page": ON_CPU, "model": ON_CPU})
    (problem,) = raised.value.problems
    assert problem.value == "page.py"
    assert "there is no such file" in problem.reason


def test_there_may_be_as_many_services_as_apps_need_and_none_that_opens_the_cluster(folder: Path) -> None:
    quota = run(folder, {"page": ON_CPU, "model": ON_CPU}).one("kubernetes:core/v1:ResourceQuota")
    hard = quota.inputs["spec"]["hard"]
    assert (hard["count/services"], hard["services.loadbalancers"], hard["services.nodeports"]) == ("2", "0", "0")
