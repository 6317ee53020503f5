"""The program as the Pulumi CLI starts it: settings in, outputs out, and one error for all that is wrong."""

import json
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest

from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.infra.kubernetes.shipping.sizes import MOST_CODE
from slipway.infra.program import declare
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.infra.stack.configuration import configured
from tests.support.checkout import ROOT
from tests.support.recording import Recording, record
from tests.support.stack_values import GCP

CONFIG: dict[str, Any] = {
    "slipway:clusters": {
        "here": {
            "cloud": "existing",
            "kubeconfig": "/nowhere",
            "pools": {"cpu": {"selector": {"a": "b"}, "cpu": "4", "memory": "16Gi", "ephemeral_storage": "40Gi"}},
        }
    },
    "slipway:store": {"kind": "pvc"},
    "slipway:pipelines": {
        "mnist": {
            "steps": {
                "prepare": {"pool": "cpu"},
                "train": {"pool": "cpu"},
                "predict": {"pool": "cpu"},
            }
        }
    },
}


def changed(**values: Any) -> dict[str, Any]:
    return {**CONFIG, **{f"slipway:{key}": value for key, value in values.items()}}


def run(config: Mapping[str, Any] = CONFIG, *, preview: bool = False, root: Path = ROOT) -> Recording:
    settings = load({key.removeprefix("slipway:"): value for key, value in CONFIG.items()})
    return record(lambda: declare(root), config, preview=preview, emulators=[ExistingEmulator(settings.request)])


@pytest.mark.parametrize("preview", [True, False])
def test_it_returns_what_it_declared(preview: bool) -> None:
    recording = run(preview=preview)
    declared = recording.result
    assert set(declared.platforms) == set(declared.workspaces) == {"here"}
    steps = {"mnist-prepare", "mnist-train", "mnist-predict"}
    assert set(declared.jobs) == {"store-gate-here", "packages-mnist", *steps}
    names = {resource.inputs["metadata"]["name"] for resource in recording.of("kubernetes:batch/v1:Job")}
    assert {job.run.job_name for job in declared.jobs.values()} == names


def test_its_outputs_tell_how_to_reach_the_cluster_and_keep_the_kubeconfig_secret() -> None:
    recording = run()
    assert recording.exports["connect"] == {"here": "kubectl --kubeconfig /nowhere cluster-info"}
    assert recording.secret_exports == {"kubeconfig"}
    assert {"predictions", "accuracy", "runs", "training"} <= set(recording.exports["mnist"])


@pytest.mark.parametrize(
    ("secrets", "in_place"), [({"slipway:secrets": {"a": "[secret]"}}, {"true"}), ({}, {None})]
)
def test_clusters_change_secrets_in_place_where_the_stack_has_any(
    secrets: dict[str, Any], in_place: set[str | None]
) -> None:
    providers = run({**CONFIG, **secrets}).of("pulumi:providers:kubernetes")

    assert {provider.inputs.get("enableSecretMutable") for provider in providers} == in_place


def test_a_stack_without_pipelines_is_clusters_only() -> None:
    recording = run(changed(pipelines={}))
    assert recording.of("kubernetes:batch/v1:Job") == []
    assert len(recording.of("kubernetes:core/v1:Namespace")) == 1
    assert set(recording.exports) == {"store", "connect", "kubeconfig"}


def test_the_namespace_and_the_service_account_are_settings() -> None:
    recording = run(changed(namespace="digits", service_account="reader"))
    (job, *_) = recording.of("kubernetes:batch/v1:Job")
    assert job.inputs["metadata"]["namespace"] == "digits"
    assert job.inputs["spec"]["template"]["spec"]["serviceAccountName"] == "reader"


def test_every_key_of_the_project_is_read_as_the_cli_hands_it_over() -> None:
    config = {"protect": "true", "namespace": "123", "clusters": {"a": [1, {"b": None}]}, "unknown": "[half"}
    raw = {f"slipway:{key}": value for key, value in config.items()}
    recording = record(configured, {**raw, "gcp:project": "p", "other:namespace": "x"}, preview=True)
    assert recording.result == config


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(SettingsError, match="slipway:clutsers"):
        run(changed(clutsers={}))


def wrong(uses: str = "mnist") -> dict[str, Any]:
    """A stack with something wrong in every place that is checked."""
    pipelines = json.loads(json.dumps(CONFIG["slipway:pipelines"]))
    pipelines["mnist"]["uses"] = uses
    pipelines["mnist"]["steps"]["train"]["cpu"] = "many"
    return changed(pipelines=pipelines, unknown="x")


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A copy of MNIST's folder in which training is too big to ship, and prediction lacks its program."""
    folder = tmp_path / "mnist"
    shutil.copytree(ROOT / "workloads/mnist", folder, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "train.py").open("a", encoding="utf-8") as stream:
        stream.write("#" * MOST_CODE)
    (folder / "predict.py").unlink()
    return folder


def test_all_that_is_wrong_is_said_at_once_and_nothing_is_declared(big: Path) -> None:
    keys: set[str] = set()
    declared: list[str] = []

    def program() -> None:
        try:
            declare(ROOT)
        except SettingsError as error:
            keys.update(problem.key for problem in error.problems)

    recording = record(program, wrong(str(big)), preview=True)
    declared = [resource.name for resource in recording.resources]
    assert {
        "slipway:unknown",
        "slipway:pipelines.mnist.steps.train.cpu",
        f"{big}/pipeline.yaml: steps.train.run",
        f"{big}/pipeline.yaml: steps.predict.run",
    } <= keys
    assert declared == []


def test_a_missing_google_project_is_said_with_what_else_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    config = {**{f"slipway:{key}": value for key, value in GCP.items()}, "slipway:namespace": "Not A Name"}
    with pytest.raises(SettingsError) as error:
        record(declare, config, preview=True)
    assert {"gcp:project", "slipway:namespace"} == {problem.key for problem in error.value.problems}


@pytest.mark.parametrize("pipelines", [None, [], "x", {"mnist": None}, {"mnist": {"predict": "x"}}])
def test_settings_of_any_shape_are_refused_with_their_key(pipelines: Any) -> None:
    if pipelines == {"mnist": None}:
        assert run(changed(pipelines=pipelines)).exports
        return
    with pytest.raises(SettingsError, match="slipway:pipelines"):
        run(changed(pipelines=pipelines))


@pytest.fixture
def _own_signals() -> Any:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_own_signals")
def test_the_cli_gets_the_problems_in_the_error_that_it_prints_without_a_traceback() -> None:
    def program() -> None:
        runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__")

    with pytest.raises(pulumi.RunError) as error:
        record(program, wrong(), preview=True)
    assert "slipway:unknown" in str(error.value)
    assert "fix:" in str(error.value)


@pytest.mark.usefixtures("_own_signals")
def test_the_cli_starts_the_whole_program() -> None:
    def program() -> None:
        runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__")

    assert len(record(program, CONFIG, preview=True).of("kubernetes:batch/v1:Job")) == 5


@pytest.mark.slow
def test_a_cloud_that_a_stack_does_not_use_is_not_imported() -> None:
    """Google's SDK alone takes longer than all the rest of a preview."""
    code = (
        "import sys, slipway.infra.program, slipway.infra.clouds.existing; "
        "print([m for m in sys.modules if 'pulumi_gcp' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
