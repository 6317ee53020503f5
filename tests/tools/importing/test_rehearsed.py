"""What `make import` writes runs: trainings of public write-ups, with small programs in place of theirs."""

import json
import textwrap
from pathlib import Path

import pytest

from slipway.offline.rehearsal.machine import boxes
from slipway.tools.importing.conversion import convert
from slipway.tools.importing.folder import draft
from slipway.tools.importing.manifest import read
from tests.support.rehearsing import SMALL, rehearse_file, several_nodes, stack_file
from tests.support.tree import write_tree
from tests.workloads.wheels import write_wheel

pytestmark = pytest.mark.slow

TF_JOB = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: dist}
spec:
  tfReplicaSpecs:
    Chief: &role
      replicas: 1
      template: &template
        spec:
          containers:
            - name: tensorflow
              image: example.org/mnist:1
              command: [python, /opt/model.py, --export=/model/export]
              workingDir: /opt
              volumeMounts: [{name: model, mountPath: /model}]
          volumes: [{name: model, persistentVolumeClaim: {claimName: models}}]
    Worker: *role
    PS: *role
    Evaluator:
      replicas: 1
      template:
        spec:
          containers: [{name: tensorflow, image: "example.org/mnist:1", command: [python, watch.py]}]
"""

MODEL = """
import json, os, pathlib, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
export = pathlib.Path(sys.argv[1].partition("=")[2])
export.mkdir(parents=True, exist_ok=True)
(export / f"{task['type']}-{task['index']}.json").write_text(json.dumps({"rank": os.environ["RANK"]}))
if task["type"] == "ps":
    time.sleep(600)
# Once the chief has ended, the parameter server is stopped, wherever it is.
while task["type"] == "chief" and not (export / "ps-0.json").exists():
    time.sleep(0.1)
"""

VOLCANO = f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: fit}}
spec:
  plugins: {{env: [], svc: []}}
  tasks:
    - name: worker
      replicas: 2
      template:
        spec:
          containers:
            - name: main
              image: example.org/x@sha256:{"d" * 64}
              command: [python, sum.py, --to=fit-worker-0.fit]
"""

SUM = """
import os, pathlib, socket, sys, time
index, port = int(os.environ["VC_TASK_INDEX"]), int(os.environ["MASTER_PORT"])
host = sys.argv[1].partition("=")[2]
if index == 0:
    with socket.create_server((host, port)) as server:
        connection, _ = server.accept()
        print("got", connection.recv(9).decode())
else:
    while True:
        try:
            connection = socket.create_connection((host, port))
            break
        except OSError:
            time.sleep(0.05)
    connection.sendall(b"41")
"""

BUCKET = """
apiVersion: batch/v1
kind: Job
metadata: {name: mnist}
spec:
  template:
    spec:
      containers:
        - name: tensorflow
          image: tensorflow/tensorflow:latest-gpu
          command: [/bin/bash, -c, --]
          args: ["cd /data/example; pip install -r requirements.txt; python PROGRAM"]
          volumeMounts: [{name: bucket, mountPath: /data, readOnly: false}]
      volumes:
        - name: bucket
          csi: {driver: gcsfuse.csi.storage.gke.io, volumeAttributes: {bucketName: photos}}
"""

IN_BUCKET = {
    "example/requirements.txt": "--no-index --find-links /data/example/wheels\nshout\nsix==9.0",
    "example/train.py": """
import pathlib, shout, six, sys
assert (shout.WORD, six.WORD) == ("loud", "newer than the image's")
pathlib.Path('/data/example/model').write_text('trained')
""",
    "example/predict.py": "import pathlib; print(pathlib.Path('/data/given/model').read_text(), 'predicted')",
    "given/model": "given",
}


def imported(folder: Path, name: str, manifest: str, **programs: str) -> dict[str, object]:
    """Imports ``manifest`` with the programs beside it; returns the pipeline's section of a stack file."""
    source = folder / "manifests" / name
    write_tree(
        source, {"job.yaml": textwrap.dedent(manifest), **{f"{key}.py": text for key, text in programs.items()}}
    )
    training = read(source / "job.yaml")
    files = draft(training, convert(training), f"{name}-by-tests", None).files
    assert not isinstance(files, str)
    write_tree(folder / name, files)
    return {"uses": str(folder / name), "steps": {"train": SMALL}}


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    pipelines = {
        "roles": imported(folder, "roles", TF_JOB, model=MODEL, watch="import time; time.sleep(600)"),
        "volcano": imported(folder, "volcano", VOLCANO, sum=SUM),
    }
    if boxes.available():
        wheels = write_tree(folder / "bucket", IN_BUCKET) / "example" / "wheels"
        wheels.mkdir()
        write_wheel(wheels, "shout", "1.0", {"shout.py": b"WORD = 'loud'"}, ["Requires-Dist: six"])
        write_wheel(wheels, "six", "9.0", {"six.py": b'WORD = "newer than the image\'s"'})
        pipelines["fuse-train"] = imported(folder, "fuse-train", BUCKET.replace("PROGRAM", "train.py"))
        pipelines["fuse-infer"] = imported(folder, "fuse-infer", BUCKET.replace("PROGRAM", "predict.py"))
    rehearsal = {"store_files": {"photos": str(folder / "bucket")}} if boxes.available() else {}
    file = stack_file(folder / "stack.yaml", change=several_nodes(6), pipelines=pipelines, rehearsal=rehearsal)
    outcome, text = rehearse_file(folder / "out", file)
    assert outcome.exit_code == 0, text
    return folder / "out"


def log_of(rehearsed: Path, pipeline: str) -> str:
    return (rehearsed / "logs" / f"{pipeline}-train.log").read_text(encoding="utf-8")


def test_each_role_of_a_training_runs_its_program_and_those_without_an_end_are_stopped(rehearsed: Path) -> None:
    exports = (rehearsed / "store/roles/train").glob("*/export/*.json")
    ranks = {path.stem: json.loads(path.read_text(encoding="utf-8"))["rank"] for path in exports}
    assert ranks == {"chief-0": "0", "worker-0": "1", "ps-0": "2"}


def test_pods_find_the_first_one_by_what_was_its_host_name(rehearsed: Path) -> None:
    assert "got 41" in log_of(rehearsed, "volcano")


@pytest.mark.skipif(not boxes.available(), reason="this machine lets no user make mounts")
def test_programs_in_a_bucket_work_in_it_at_their_own_path(rehearsed: Path) -> None:
    assert (rehearsed / "store/photos/example/model").read_text(encoding="utf-8") == "trained"
    assert "given predicted" in log_of(rehearsed, "fuse-infer")
