"""``make show``: what is read from the store of a stack that is up, through a pod that goes again."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from slipway.command.app import app
from slipway.command.show import words

ROOT = Path(__file__).parents[2]

JOB = "urn:pulumi:local::slipway::kubernetes:batch/v1:Job::mnist-predict"

READER = {
    "spec": {
        "template": {
            "metadata": {
                "labels": {
                    "app.kubernetes.io/part-of": "slipway",
                    "batch.kubernetes.io/controller-uid": "1",
                    "controller-uid": "1",
                    "job-name": "store-gate-local-1",
                },
                "annotations": {"mount": "true"},
            },
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"pool": "cpu"},
                "securityContext": {"runAsNonRoot": True},
                "containers": [
                    {
                        "name": "local",
                        "image": "example/image:1",
                        "command": ["python"],
                        "args": ["-m", "gate"],
                        "volumeMounts": [{"name": "store", "mountPath": "/store"}],
                    }
                ],
                "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": "store"}}],
            },
        }
    }
}

KUBECTL = """#!{python}
import json, os, pathlib, subprocess, sys
folder = pathlib.Path({folder!r})
words = sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
words = words[words.index("slipway") + 1 :]
if words[:2] == ["get", "job"]:
    print((folder / "job.json").read_text())
elif words[0] == "create":
    (folder / "pod.json").write_text(sys.stdin.read())
elif words[0] == "wait" and (folder / "unschedulable").exists():
    sys.exit("error: timed out waiting for the condition")
elif words[:2] == ["get", "pod"]:
    print("0/1 nodes are available: 1 Insufficient cpu.")
elif words[0] == "exec":
    command = [each.replace("/store", str(folder / "store")) for each in words[3:]]
    sys.exit(subprocess.run(command).returncode)
"""

PULUMI = """#!{python}
import pathlib
print((pathlib.Path({folder!r}) / "outputs.json").read_text())
"""


def described(path: str, **more: str) -> dict[str, str]:
    return {
        "kubectl": "kubectl --kubeconfig '/home/a b/config' --namespace slipway",
        "reader": "store-gate-local-1",
        "path": path,
        "select": "",
        "then": "",
        "job": JOB,
        **more,
    }


OUTPUTS: dict[str, Any] = {
    "mnist": {"predictions": "make show STACK=local mnist.predictions", "accuracy": 0.97},
    "store": "pvc://slipway/store",
    "show": {
        "mnist.predictions": described("mnist/predict/1/predictions.json", select="/images"),
        "mnist.curves": described("mnist/train/1/logs", then="tensorboard --logdir {copy}"),
    },
}

PREDICTIONS = {"images": [{"path": "3.png", "digit": 3, "confidence": 0.98125, "probabilities": [0.1]}]}


class Cluster:
    """A cluster whose claim is a folder; real tar reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        (self.store / "mnist/predict/1").mkdir(parents=True)
        (self.store / "mnist/train/1/logs/train").mkdir(parents=True)
        (self.store / "mnist/predict/1/predictions.json").write_text(json.dumps(PREDICTIONS))
        (self.store / "mnist/train/1/logs/train/events").write_bytes(b"\x00\x01")
        (folder / "job.json").write_text(json.dumps(READER))
        self.outputs(OUTPUTS)
        (folder / "bin").mkdir()
        for name, text in (("kubectl", KUBECTL), ("pulumi", PULUMI)):
            program = folder / "bin" / name
            program.write_text(text.format(python=sys.executable, folder=str(folder)))
            program.chmod(0o755)

    def outputs(self, outputs: Mapping[str, Any]) -> None:
        (self.folder / "outputs.json").write_text(json.dumps(outputs))

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def arguments(self, *words: str) -> list[str]:
        return ["--output", str(self.folder / "copies"), *words]

    def show(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs the command line in this process, where its imports are there already."""
        done = CliRunner().invoke(
            app, ["show", *self.arguments(*words)], env=self.environment, catch_exceptions=False
        )
        return subprocess.CompletedProcess([*words], done.exit_code, done.stdout, done.stderr)

    def calls(self) -> list[list[str]]:
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture(name="cluster")
def a_cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.slow
def test_predictions_are_a_table_and_the_pod_goes_again(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "slipway", "show", *cluster.arguments("--stack", "local", "predictions")]
    done = subprocess.run(command, check=False, cwd=ROOT, env=cluster.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "3.png" in done.stdout
    assert "0.98125" in done.stdout
    assert "probabilities" not in done.stdout
    pod = json.loads((cluster.folder / "pod.json").read_text())
    assert cluster.calls()[-1][4:7] == ["delete", "pod", pod["metadata"]["name"]]
    assert all(call[:2] == ["--kubeconfig", "/home/a b/config"] for call in cluster.calls())


def test_the_pod_is_like_those_of_the_job_but_for_what_it_does(cluster: Cluster) -> None:
    cluster.show("--stack", "local", "predictions")
    pod = json.loads((cluster.folder / "pod.json").read_text())
    spec = READER["spec"]["template"]["spec"]
    assert pod["metadata"]["labels"] == {"app.kubernetes.io/part-of": "slipway"}, "no Job counts it as its own"
    assert pod["metadata"]["annotations"] == {"mount": "true"}
    assert {key: pod["spec"][key] for key in ("nodeSelector", "securityContext", "volumes")} == {
        key: spec[key] for key in ("nodeSelector", "securityContext", "volumes")
    }
    assert pod["spec"]["containers"][0]["command"][0] == "sleep"
    assert pod["spec"]["activeDeadlineSeconds"] > 0, "the cluster ends it where nobody else does"


@pytest.mark.slow
def test_a_folder_is_copied_here_and_its_command_told(cluster: Cluster) -> None:
    for _ in range(2):
        done = cluster.show("--stack", "local", "curves")
        assert done.returncode == 0, done.stderr
    copy = cluster.folder / "copies" / "mnist/train/1/logs"
    assert (copy / "train/events").read_bytes() == b"\x00\x01"
    assert done.stdout == f"{copy}\ntensorboard --logdir {copy}\n"


@pytest.mark.slow
def test_a_result_of_several_steps_is_shown_for_each_and_read_by_one_pod(cluster: Cluster) -> None:
    names = ("train-1", "train-2")
    for number, name in enumerate(names):
        (cluster.store / "churn" / name / "1").mkdir(parents=True)
        text = json.dumps({"test": {"accuracy": number / 2}})
        (cluster.store / "churn" / name / "1" / "metrics.json").write_text(text)
        (cluster.store / "churn" / name / "1" / "model.pkl").write_text(name)
    cluster.outputs(
        {
            "churn": {key: {name: f"make show {name}" for name in names} for key in ("accuracy", "model")},
            "show": {
                **{
                    f"churn.accuracy.{name}": described(f"churn/{name}/1/metrics.json", select="/test/accuracy")
                    for name in names
                },
                **{f"churn.model.{name}": described(f"churn/{name}/1/model.pkl") for name in names},
            },
        }
    )

    shown = cluster.show("--stack", "local", "accuracy").stdout
    assert "train-1: 0" in shown
    assert "train-2: 0.5" in shown
    assert sum("create" in call for call in cluster.calls()) == 1
    assert "churn/train-2/1/model.pkl" in cluster.show("--stack", "local", "model").stdout


def test_a_home_directory_is_expanded_as_the_shell_does() -> None:
    home = str(Path.home())
    assert words("kubectl --kubeconfig ~/'my config'") == ["kubectl", "--kubeconfig", f"{home}/my config"]


def test_what_is_an_output_itself_is_shown(cluster: Cluster) -> None:
    assert cluster.show("--stack", "local", "accuracy").stdout == "0.97\n"
    assert cluster.calls() == []


def test_without_a_name_it_says_what_there_is(cluster: Cluster) -> None:
    shown = cluster.show("--stack", "local").stdout
    assert "mnist.accuracy, mnist.curves, mnist.predictions, store" in shown


def test_a_result_that_is_gone_is_said_with_the_way_to_make_it_again(cluster: Cluster) -> None:
    (cluster.store / "mnist/predict/1/predictions.json").unlink()
    done = cluster.show("--stack", "local", "predictions")
    assert done.returncode == 1
    assert "mnist/predict/1/predictions.json" in done.stderr
    assert f"pulumi up --stack local --replace {JOB}" in done.stderr
    assert cluster.calls()[-1][4:6] == ["delete", "pod"]


@pytest.mark.parametrize(
    "text", ["", '{"images"', "[]", '{"predictions": []}', pytest.param("[" * 100_000, id="nested")]
)
def test_a_result_that_is_damaged_is_said(cluster: Cluster, text: str) -> None:
    (cluster.store / "mnist/predict/1/predictions.json").write_text(text)
    done = cluster.show("--stack", "local", "predictions")
    assert done.returncode == 1
    assert "is damaged" in done.stderr
    assert f"pulumi up --stack local --replace {JOB}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "number"), [('{"images": [{"loss": NaN}]}', "nan"), ('{"images": -Infinity}', "-inf")]
)
def test_a_number_that_is_not_finite_is_named_with_its_result_and_step(
    cluster: Cluster, text: str, number: str
) -> None:
    (cluster.store / "mnist/predict/1/predictions.json").write_text(text)
    done = cluster.show("--stack", "local", "predictions")
    for word in (number, "mnist.predictions", "mnist-predict"):
        assert word in done.stdout


def test_a_pod_that_does_not_start_goes_again_and_its_reason_is_told(cluster: Cluster) -> None:
    (cluster.folder / "unschedulable").touch()
    done = cluster.show("--stack", "local", "predictions")
    assert done.returncode == 1
    assert "0/1 nodes are available: 1 Insufficient cpu." in done.stderr
    assert cluster.calls()[-1][4:6] == ["delete", "pod"]


@pytest.mark.parametrize(
    ("words", "outputs", "code", "said"),
    [
        (["--stack", "local", "prediction"], OUTPUTS, 1, "mnist.accuracy, mnist.curves, mnist.predictions, store"),
        ([], OUTPUTS, 2, "make show STACK="),
        (["--stack", "local", "predictions"], {}, 1, "`pulumi up -s local`"),
    ],
    ids=["no such name", "no stack", "never up"],
)
def test_what_cannot_be_shown_is_one_plain_error(
    cluster: Cluster, words: list[str], outputs: Mapping[str, Any], code: int, said: str
) -> None:
    cluster.outputs(outputs)
    done = cluster.show(*words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_two_pipelines_have_is_asked_for(cluster: Cluster) -> None:
    outputs = {**OUTPUTS, "again": {"accuracy": 0.5, "precision": 0.25}}
    (cluster.folder / "outputs.json").write_text(json.dumps(outputs))
    refused = cluster.show("--stack", "local", "accuracy")
    assert refused.returncode == 1
    assert "name one of again.accuracy, mnist.accuracy" in refused.stderr
    assert cluster.show("--stack", "local", "again.accuracy").stdout == "0.5\n"
    assert cluster.show("--stack", "local", "precision").stdout == "0.25\n"
