"""Apps of a pipeline in Python: from its declaration to what a stack declares and says of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.clouds.existing.emulator import Emulator as ExistingEmulator
from infra.program import declare
from infra.settings.loading import load
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record

PIPELINE = '''
from pydantic import Field

from infra.pipelines.apps import AppDeclaration, AppSettings, KeptAppSettings, Metrics
from infra.pipelines.contract import Pipeline, PipelineSettings, StepDeclaration, StepSettings
from infra.pipelines.pods import Command, Probe
from infra.schema.base import Model

IMAGE = "example/page@sha256:" + "1" * 64


class Steps(Model):
    """Steps."""

    train: StepSettings = Field(description="Trains.")
    check: StepSettings = Field(description="Checks.")


class Apps(Model):
    """Apps."""

    page: AppSettings | None = Field(default=None, description="The page.")
    model: AppSettings | None = Field(default=None, description="The model.")
    notes: KeptAppSettings | None = Field(default=None, description="Notes.")


class Settings(PipelineSettings):
    """Tries apps."""

    steps: Steps = Field(description="Where each step runs.")
    apps: Apps = Field(default_factory=Apps, description="Where each app runs.")


def steps(settings: Settings) -> list[StepDeclaration]:
    return [
        StepDeclaration("train", "workloads.mnist.train", settings.steps.train, ["--output", "{output}"]),
        StepDeclaration(
            "check", "workloads.mnist.train", settings.steps.check, ["{train}"], inputs={"train": "train"}
        ),
    ]


def apps(settings: Settings) -> list[AppDeclaration]:
    found = []
    if settings.apps.page:
        found.append(
            AppDeclaration(
                "page", "Page", settings.apps.page, 8080, ["python3", "page.py", "--port", "{port}"],
                command=Command(%(code)r), image=IMAGE, connects=["model"] if settings.apps.model else [],
                environment={"GREETING": "$(HOME) {{you}}"}, secrets={"KEY": "key"}, path="/draw", after=["check"],
                probe=Probe("/healthz"),
            )
        )
    if settings.apps.model:
        found.append(
            AppDeclaration(
                "model", "Model", settings.apps.model, 8501, ["serve", "--from", "{trained}", "{pipeline}/models"],
                image=IMAGE, inputs={"trained": "train"}, ports={"grpc": 8500}, people=False,
            )
        )
    if settings.apps.notes:
        found.append(
            AppDeclaration(
                "notes", "Notes", settings.apps.notes, 8888, ["notes", "--dir", "{data}", "--token={token}"],
                image=IMAGE, token=True, keeps_data=True,
            )
        )
    return found


PIPELINE = Pipeline(settings=Settings, steps=steps, apps=apps)
'''

DEPLOYMENT = "kubernetes:apps/v1:Deployment"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
SERVICE = "kubernetes:core/v1:Service"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
ON_CPU = {"pool": "cpu"}
STEPS = {"train": ON_CPU, "check": ON_CPU}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "page"
    code.mkdir()
    (code / "page.py").write_text("import words\n")
    (code / "words.py").write_text("")
    (tmp_path / "pipeline.py").write_text(PIPELINE % {"code": str(code)})
    return tmp_path


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
    (found,) = [each for each in recording.of(kind) if each.inputs["metadata"]["name"] == name]
    return found.inputs


def test_a_stack_that_names_no_app_has_none(folder: Path) -> None:
    recording = run(folder, {})
    assert recording.of(DEPLOYMENT) == []
    assert "apps" not in recording.exports["tried"]


def test_an_app_is_a_deployment_behind_a_service(folder: Path) -> None:
    recording = run(folder, {"page": {"pool": "cpu", "cpu": "200m", "memory": "256Mi"}, "model": ON_CPU})
    page = named(recording, DEPLOYMENT, "tried-page")["spec"]
    (container,) = page["template"]["spec"]["containers"]
    assert container["command"] + container["args"] == ["python3", "page.py", "--port", "8080"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["MODEL_ADDRESS"] == "tried-model:8501"
    assert environment["MODEL_GRPC_ADDRESS"] == "tried-model:8500"
    assert environment["GREETING"] == "$$(HOME) {you}"
    service = named(recording, SERVICE, "tried-page")
    assert json.loads(service["metadata"]["annotations"]["slipway/people"]) == {"title": "Page", "path": "/draw"}
    assert recording.exports["tried"]["apps"] == {
        "page": "kubectl --kubeconfig /nowhere --namespace slipway port-forward service/tried-page 8080:8080"
    }
