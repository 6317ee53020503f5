"""What `make import` writes runs: trainings of public write-ups, with small programs in place of theirs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from slipway.features.importing.folder import draft
from slipway.features.importing.manifest import read
from slipway.rehearse.machine import boxes
from tests.support.rehearsing import SMALL, rehearse_file, several_nodes, stack_file
from tests.support.tree import write_tree
from tests.support.wheels import write_wheel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not boxes.available(), reason="this machine lets no user make mounts"),
]

BUCKET = """
apiVersion: batch/v1
kind: Job
metadata: {name: mnist-job}
spec:
  template:
    metadata: {name: mnist, annotations: {gke-gcsfuse/volumes: "true"}}
    spec:
      nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-t4}
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      containers:
        - name: tensorflow
          image: tensorflow/tensorflow:latest-gpu
          command: [/bin/bash, -c, --]
          args: ["cd /data/example; pip install -r requirements.txt; python PROGRAM"]
          resources: {limits: {cpu: 1, memory: 3Gi}}
          volumeMounts: [{name: bucket, mountPath: /data, readOnly: false}]
      serviceAccountName: $K8S_SA_NAME
      volumes:
        - name: bucket
          csi: {driver: gcsfuse.csi.storage.gke.io, readOnly: false, volumeAttributes: {bucketName: $BUCKET_NAME}}
      restartPolicy: Never
"""

IN_BUCKET = {
    "example/requirements.txt": "--no-index --find-links /data/example/wheels\nshout\nsix==9.0",
    "example/train.py": """
import pathlib, shout, six
assert (shout.WORD, six.WORD) == ("loud", "newer than the image's")
pathlib.Path('/data/example/model').write_text('trained')
""",
    "example/predict.py": "import pathlib; print(pathlib.Path('/data/given/model').read_text(), 'predicted')",
    "given/model": "given",
}

ROLES = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: dist}
spec:
  tfReplicaSpecs:
    Chief: &role
      template: &template
        spec:
          containers:
            - name: tensorflow
              image: tensorflow/tensorflow:latest
              command: [python, model.py, --export=/model/export]
              env: [{name: TOLD, value: "by the manifest"}]
              volumeMounts: [{name: model, mountPath: /model}, {name: texts, mountPath: /texts}]
          volumes:
            - {name: model, persistentVolumeClaim: {claimName: models}}
            - {name: texts, configMap: {name: texts}}
    Worker: *role
    PS: *role
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: texts}, data: {a.txt: "by a ConfigMap"}}
"""

MODEL = """
import json, os, pathlib, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
export = pathlib.Path(sys.argv[1].partition("=")[2])
export.mkdir(parents=True, exist_ok=True)
told = [os.environ["TOLD"], pathlib.Path("/texts/a.txt").read_text(), os.environ.get("RANK")]
(export / f"{task['type']}-{task['index']}.json").write_text(json.dumps(told))
if task["type"] == "ps":
    time.sleep(600)
# Once the chief has ended, the parameter server is stopped, wherever it is.
while task["type"] == "chief" and not (export / "ps-0.json").exists():
    time.sleep(0.1)
"""


def imported(folder: Path, name: str, manifest: str, **programs: str) -> dict[str, Any]:
    """Imports ``manifest`` with its programs; returns the pipeline's section of a stack file."""
    source = write_tree(folder / "manifests" / name, {"job.yaml": manifest, **programs})
    code = write_tree(folder / "code" / name, programs) if programs else None
    files = cast("Mapping[str, str]", draft(read(source / "job.yaml"), f"{name}-by-tests", code).files)
    write_tree(folder / name, files)
    steps = yaml.safe_load(files["pipeline.yaml"])["steps"]
    return {"uses": str(folder / name), "steps": dict.fromkeys(steps, SMALL)}


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    wheels = write_tree(folder / "bucket", IN_BUCKET) / "example" / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "shout", "1.0", {"shout.py": b"WORD = 'loud'"}, ["Requires-Dist: six"])
    write_wheel(wheels, "six", "9.0", {"six.py": b'WORD = "newer than the image\'s"'})
    pipelines = {
        "roles": imported(folder, "roles", ROLES, **{"model.py": MODEL}),
        "train": imported(folder, "train", BUCKET.replace("PROGRAM", "train.py")),
        "predict": imported(folder, "predict", BUCKET.replace("PROGRAM", "predict.py")),
    }
    rehearsal = {"store_files": {"BUCKET_NAME": str(folder / "bucket")}}
    file = stack_file(folder / "stack.yaml", change=several_nodes(6), pipelines=pipelines, rehearsal=rehearsal)
    outcome, text = rehearse_file(folder / "out", file)
    assert outcome.exit_code == 0, text
    return folder / "out"


def test_each_role_of_a_training_runs_as_its_manifest_says(rehearsed: Path) -> None:
    exports = (rehearsed / "store/models/export").glob("*.json")
    told = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in exports}
    assert told.keys() == {"chief-0", "worker-0", "ps-0"}
    assert all(values == ["by the manifest", "by a ConfigMap", None] for values in told.values())


def test_programs_in_a_bucket_work_in_it_at_their_own_path(rehearsed: Path) -> None:
    assert (rehearsed / "store/BUCKET_NAME/example/model").read_text(encoding="utf-8") == "trained"
    assert "given predicted" in (rehearsed / "logs/predict-train.log").read_text(encoding="utf-8")
