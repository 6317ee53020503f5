"""`make import` takes over what is a step with nodes and the folders that it mounts; the rest is refused."""

import os
import runpy
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from slipway.infra.pipelines.file.reading import Folder
from slipway.infra.pipelines.file.reading import read as read_pipeline
from slipway.tools.importing.conversion import STARTER, STEP, Imported, convert
from slipway.tools.importing.folder import draft
from slipway.tools.importing.manifest import read
from slipway.tools.importing.variables import SET
from slipway.tools.new.writing import RefusedError
from slipway.workloads.runtime.nodes import work
from slipway.workloads.runtime.nodes.group import Address

DIGEST = "sha256:" + "c" * 64

IMAGE = f"example.org/train@{DIGEST}"

POD = f"""{{spec: {{containers: [{{name: NAME, image: "{IMAGE}", command: [python, train.py]}}]}}}}"""


def roles(kind: str, key: str, container: str, **counts: int) -> str:
    """A training of kubeflow.org with these roles."""
    pod = POD.replace("NAME", container)
    pods = ", ".join(f"{role}: {{replicas: {count}, template: {pod}}}" for role, count in counts.items())
    return f"{{apiVersion: kubeflow.org/v1, kind: {kind}, metadata: {{name: fit}}, spec: {{{key}: {{{pods}}}}}}}"


JAX = roles("JAXJob", "jaxReplicaSpecs", "jax", Worker=2)
XGBOOST = roles("XGBoostJob", "xgbReplicaSpecs", "xgboost", Master=1, Worker=2)
PADDLE = roles("PaddleJob", "paddleReplicaSpecs", "paddle", Worker=2)

JOB_SET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: torch}}
spec:
  replicatedJobs:
    - name: workers
      template:
        spec:
          parallelism: 4
          completions: 4
          backoffLimit: 0
          template:
            spec:
              containers:
                - name: pytorch
                  image: example.org/torch@{DIGEST}
                  env:
                    - {{name: MASTER_ADDR, value: torch-workers-0-0.torch}}
                    - {{name: MASTER_PORT, value: "3389"}}
                    - {{name: NODE, valueFrom: {{fieldRef: {{fieldPath:
                        "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}}}}
                  command: [bash, -c, 'run.sh --rank=$NODE --url=tcp://torch-workers-0-0.torch:3389']
"""

CRON_JOB = f"""
apiVersion: batch/v1
kind: CronJob
metadata: {{name: nightly}}
spec:
  schedule: "0 3 * * *"
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  jobTemplate: {{spec: {{activeDeadlineSeconds: 600, backoffLimit: 2, template: {POD.replace("NAME", "main")}}}}}
"""

VOLCANO = f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: fit}}
spec:
  minAvailable: 3
  plugins: {{env: [], svc: []}}
  volumes: [{{mountPath: /model, volumeClaimName: models}}]
  tasks:
    - {{name: master, replicas: 1, template: {POD.replace("NAME", "main")}}}
    - {{name: worker, replicas: 2, template: {POD.replace("NAME", "main")}}}
"""

RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: fit}
spec:
  mlPolicy: {numNodes: 1, POLICY: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {containers: [{name: node, image: "example.org/runtime:1"}]}}}
"""

TRAIN_JOB = f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: many}}
spec:
  runtimeRef: {{name: fit}}
  trainer:
    numNodes: 3
    image: example.org/train@{DIGEST}
    command: [python, train.py]
    env: [{{name: STEPS, value: "9"}}]
    resourcesPerNode: {{requests: {{cpu: 2}}, limits: {{nvidia.com/gpu: 1}}}}
---
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
          args: ["cd /data/mnist; pip install -r requirements.txt; python PROGRAM"]
          resources: {limits: {nvidia.com/gpu: 1, cpu: 1, memory: 3Gi}}
          volumeMounts: [{name: bucket, mountPath: /data, readOnly: false}]
      volumes:
        - name: bucket
          csi: {driver: gcsfuse.csi.storage.gke.io, volumeAttributes: {bucketName: $BUCKET_NAME}}
"""
"""As the tutorial for GPUs on GKE has it, once for the training and once for predictions."""

QUEUE = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: fileserver}
spec: {csi: {driver: filestore.csi.storage.gke.io, volumeAttributes: {ip: 10.0.0.2, volume: share1}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: fileserver-claim}
spec: {volumeName: fileserver}
---
apiVersion: v1
kind: Pod
metadata: {name: redis-leader}
---
apiVersion: batch/v1
kind: Job
metadata: {name: workload}
spec:
  parallelism: 1
  template:
    spec:
      containers:
        - name: workload
          image: example.org/batch-ml-workload
          COMMAND
          volumeMounts: [{mountPath: /mnt/fileserver, name: files}]
      volumes: [{name: files, persistentVolumeClaim: {claimName: fileserver-claim, readOnly: false}}]
"""
"""As the batch tutorial of GKE has it: workers that take days from a queue in Redis, and files of Filestore."""


IN_JOB_SET = "spec.replicatedJobs[0].template.spec"

CONTAINER = "template.spec.containers[0]"


def with_trainer(more: str) -> str:
    """A TrainJob and its runtime with one more field."""
    return TRAIN_JOB.replace("  trainer:", f"  {more}\n  trainer:") + RUNTIME.replace("POLICY", "jax")


def imported(folder: Path, text: str) -> Imported:
    path = folder / "manifest.yaml"
    path.write_text(textwrap.dedent(text))
    return convert(read(path))


def step_of(result: Imported) -> dict[str, Any]:
    return cast("dict[str, Any]", result.pipeline["steps"][STEP])


def refusals(folder: Path, text: str) -> list[str]:
    """The keys of all problems, each of which has its reason and a fix."""
    with pytest.raises(RefusedError) as refused:
        imported(folder, text)
    assert all(problem.reason and problem.fix for problem in refused.value.problems)
    return [problem.key for problem in refused.value.problems]


def started(
    folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, told: Mapping[str, str]
) -> tuple[list[str], Mapping[str, str]]:
    """The words that `STARTER` starts in a pod that is told ``told``, and what they find in their environment."""
    path = folder / "manifest.yaml"
    path.write_text(textwrap.dedent(text))
    manifest = read(path)
    result = convert(manifest)
    files = draft(manifest, result, "imported-by-tests", None).files
    assert not isinstance(files, str)
    (folder / STARTER).write_text(files[STARTER])
    step = step_of(result)
    programs: list[list[str]] = []

    def start(_file: str, words: list[str]) -> None:
        programs.append(words)

    environment = {**os.environ, **step.get("environment", {}), **told}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(os, "execvp", start)
    monkeypatch.setattr(sys, "argv", step["run"][1:])
    runpy.run_path(str(folder / STARTER))
    return programs[0], environment


def test_what_a_step_tells_its_program_is_known() -> None:
    assert work.variables(0, [Address("127.0.0.1", 2222)], ["worker"], 0, 1).keys() == SET


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (JAX, 2),
        (XGBOOST, 3),
        (PADDLE, 2),
        (JOB_SET, 4),
        (CRON_JOB, None),
        (VOLCANO, {"count": 3, "roles": {"chief": 1, "worker": 2}}),
        (TRAIN_JOB + RUNTIME.replace("POLICY", "torch"), 3),
        (TRAIN_JOB + RUNTIME.replace("POLICY", "jax"), 3),
        (TRAIN_JOB.replace("numNodes: 3\n", "numProcPerNode: 1\n") + RUNTIME.replace("POLICY", "xgboost"), None),
        (BUCKET.replace("PROGRAM", "train.py"), None),
        (
            QUEUE.replace(
                "COMMAND", "command: [python, worker.py, --shards=/mnt/fileserver/days, /mnt/fileserver/x]"
            ),
            None,
        ),
    ],
    ids=[
        "jax",
        "xgboost",
        "paddle",
        "jobset",
        "cron",
        "volcano",
        "torch",
        "jax v2",
        "xgboost v2",
        "bucket",
        "queue",
    ],
)
def test_kinds_that_are_a_step_become_one_without_a_mistake(tmp_path: Path, text: str, nodes: object) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(text)
    (tmp_path / "train.py").write_text("print('trained')\n")
    (tmp_path / "worker.py").write_text("print('worked')\n")
    manifest = read(path)
    result = convert(manifest)
    assert step_of(result).get("nodes") == nodes
    files = draft(manifest, result, "imported-by-tests", None).files
    assert not isinstance(files, str)
    target = tmp_path / "imported-by-tests"
    target.mkdir()
    for name, content in files.items():
        (target / name).write_text(content)
    assert read_pipeline(Folder(target, target.name, target.name)).problems == ()


def test_a_program_finds_what_its_controller_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = work.variables(1, [Address("10.0.0.1", 6666), Address("10.0.0.2", 6666)], ["worker"] * 2, 0, 1)
    text = JAX.replace("train.py", "train.py, --at=$(COORDINATOR_ADDRESS)")
    words, environment = started(tmp_path, text, monkeypatch, told)
    assert words == ["python", "train.py", "--at=10.0.0.1"]
    assert [environment[name] for name in ("COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID")] == [
        "6666",
        "2",
        "1",
    ]


def test_the_host_of_the_first_pod_is_the_address_of_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = work.variables(2, [Address(f"10.0.0.{i}", 2222) for i in range(4)], ["worker"] * 4, 0, 1)
    assert "MASTER_ADDR" not in step_of(imported(tmp_path, JOB_SET)).get("environment", {})
    words, environment = started(tmp_path, JOB_SET, monkeypatch, told)
    assert words[2] == "run.sh --rank=$NODE --url=tcp://10.0.0.0:3389"
    assert (environment["NODE"], environment["MASTER_ADDR"]) == ("2", "10.0.0.0")


@pytest.mark.parametrize("part", ["$(hostname | cut -d- -f4-)", "${HOSTNAME##*-}", "`hostname|cut -d- -f2`"])
def test_a_part_of_the_host_name_is_no_rank(part: str, tmp_path: Path) -> None:
    assert refusals(tmp_path, JOB_SET.replace("$NODE", part)) == [f"{IN_JOB_SET}.{CONTAINER}"]
    whole = imported(tmp_path, JOB_SET.replace("run.sh", "echo $(hostname) $HOSTNAME; run.sh"))
    assert "$(hostname) $HOSTNAME" in step_of(whole)["run"][-1]


def test_variables_that_nothing_sets_are_said(tmp_path: Path) -> None:
    lost = [str(note.value) for note in imported(tmp_path, XGBOOST).notes if not note.carried]
    assert any("WORKER_ADDRS" in value for value in lost)


def test_a_single_pod_is_rank_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = roles("JAXJob", "jaxReplicaSpecs", "jax", Worker=1)
    _, environment = started(tmp_path, text, monkeypatch, {})
    assert (environment["PROCESS_ID"], environment["NUM_PROCESSES"]) == ("0", "1")


def test_the_endpoint_of_an_elastic_training_is_set_where_a_command_names_it(tmp_path: Path) -> None:
    torch = roles("PyTorchJob", "pytorchReplicaSpecs", "pytorch", Worker=2)
    assert not imported(tmp_path, torch).variables
    named = imported(tmp_path, torch.replace("train.py", "'--endpoint=$(PET_RDZV_ENDPOINT)', train.py"))
    assert named.variables == {"PET_RDZV_ENDPOINT": "$(MASTER_ADDR):$(MASTER_PORT)"}
    assert not named.pipeline.get("parameters")
    assert (
        imported(tmp_path, torch.replace("train.py", "--rdzv_backend=c10d, train.py")).variables == named.variables
    )


def test_the_index_of_a_job_is_the_rank(tmp_path: Path) -> None:
    job_set = JOB_SET.replace("--rank=$NODE", "--rank=$(JOB_COMPLETION_INDEX)")
    result = imported(tmp_path, job_set)
    assert result.variables["JOB_COMPLETION_INDEX"] == "$(RANK)"
    assert not result.pipeline.get("parameters")


def test_a_program_beside_the_manifest_that_asks_the_api_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import jax\njax.distributed.initialize()\n")
    path = tmp_path / "manifest.yaml"
    path.write_text(JAX)
    manifest = read(path)
    files = draft(manifest, convert(manifest), "imported-by-tests", None).files
    assert not isinstance(files, str)
    assert "cluster_detection_method" in files["pipeline.yaml"]


def test_a_program_that_asks_the_api_is_warned_of(tmp_path: Path) -> None:
    text = JAX.replace("train.py", '-c, "import jax; jax.distributed.initialize()"')
    assert any(
        "cluster_detection_method" in note.text for note in imported(tmp_path, text).notes if not note.carried
    )


def test_a_schedule_is_what_the_stack_file_needs(tmp_path: Path) -> None:
    result = imported(tmp_path, CRON_JOB)
    assert step_of(result)["time_limit"] == "600s"
    [note] = [note for note in result.notes if note.at == "spec.schedule"]
    assert 'schedule: {cron: "0 3 * * *", time_zone: Europe/Berlin}' in note.text
    lost = {note.at for note in result.notes if not note.carried}
    assert {"spec.concurrencyPolicy", "spec.jobTemplate.spec.backoffLimit"} <= lost


def test_a_train_job_says_what_its_runtime_leaves_open(tmp_path: Path) -> None:
    step = step_of(imported(tmp_path, TRAIN_JOB + RUNTIME.replace("POLICY", "jax")))
    assert step["image"].endswith(DIGEST)
    assert step["resources"] == {"cpu": "2", "gpus": 1}
    assert step["environment"]["STEPS"] == "9"


def test_a_policy_that_stands_alone_is_said_by_its_own_rule(tmp_path: Path) -> None:
    text = JAX.replace("spec: {jax", "spec: {runPolicy: {cleanPodPolicy: None}, jax")
    [note] = [note for note in imported(tmp_path, text).notes if note.at == "spec.runPolicy.cleanPodPolicy"]
    assert "logs" in note.text


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{apiVersion: kubeflow.org/v2beta1, kind: MPIJob}", "MANIFEST"),
        ("{apiVersion: ray.io/v1, kind: RayJob}", "MANIFEST"),
        ("{apiVersion: argoproj.io/v1alpha1, kind: Workflow}", "MANIFEST"),
        ("{apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication}", "MANIFEST"),
        (TRAIN_JOB, "MANIFEST"),
        (TRAIN_JOB + RUNTIME.replace("POLICY", "mpi"), "MANIFEST"),
        (with_trainer("runtimePatches: [{manager: me}]"), "spec.runtimePatches"),
        (with_trainer("initializer: {dataset: {}}"), "spec.initializer"),
        (JOB_SET.replace("- name: workers", "- name: workers\n      replicas: 2"), "MANIFEST"),
        (JOB_SET.replace("completions: 4", "completions: 9"), f"{IN_JOB_SET}.completions"),
        (JOB_SET.replace("//torch-workers-0-0", "//torch-workers-0-3"), f"{IN_JOB_SET}.{CONTAINER}"),
        (JOB_SET.replace(f"@{DIGEST}", ":1"), f"{IN_JOB_SET}.{CONTAINER}.image"),
        (VOLCANO.replace("env: []", "mpi: []"), "MANIFEST"),
        (VOLCANO.replace("name: master", "name: driver"), "MANIFEST"),
        (VOLCANO.replace("train.py", "/etc/volcano/worker.host", 1), f"spec.tasks[0].{CONTAINER}.command"),
        (roles("PaddleJob", "paddleReplicaSpecs", "paddle", Master=1, Worker=1), "spec.paddleReplicaSpecs.Master"),
        (QUEUE.replace("COMMAND", ""), f"spec.{CONTAINER}.command"),
        (
            BUCKET.replace("PROGRAM", "train.py").replace("gpu: 1", "gpu: ", 1),
            f"spec.{CONTAINER}.resources.limits.nvidia.com/gpu",
        ),
        (BUCKET.replace("csi: {driver", "configMap: {name: x}  # {"), f"spec.{CONTAINER}.volumeMounts[0]"),
    ],
)
def test_what_is_no_step_is_refused_with_what_to_do(tmp_path: Path, text: str, key: str) -> None:
    assert key in refusals(tmp_path, text)


def test_what_envsubst_left_open_is_asked_for(tmp_path: Path) -> None:
    text = JAX.replace("train.py", 'train.py, --nodes=$NODES, "--path=${PATH}"')
    result = imported(tmp_path, text)
    assert step_of(result)["run"][-2:] == ["--nodes={NODES}", "--path=${{PATH}}"]
    assert result.pipeline["parameters"].keys() == {"NODES"}
    gpus = JAX.replace("command:", "resources: {limits: {nvidia.com/gpu: $GPUS, cpu: null}}, command:")
    [key] = refusals(tmp_path, gpus)
    assert key.endswith("resources.limits.nvidia.com/gpu")


def test_programs_of_a_command_in_several_lines_are_found(tmp_path: Path) -> None:
    script = "wget https://example.org/main.py; torchrun \\\n --nodes=2 \\\n train.py"
    text = JAX.replace("[python, train.py]", f'[bash, -c, "{script}"]')
    assert imported(tmp_path, text).programs == ["train.py"]


@pytest.mark.parametrize("program", ["train.py", "predict.py"])
def test_a_bucket_in_which_a_program_works_is_a_folder_of_the_store(tmp_path: Path, program: str) -> None:
    text = BUCKET.replace("PROGRAM", program)
    result = imported(tmp_path, text)
    step = step_of(result)
    assert step["mounts"] == {"/data": {"folder": "{store}/BUCKET_NAME", "write": True}}
    assert step["run"][-1] == f"cd /data/mnist; pip install -r requirements.txt; python {program}"
    assert result.programs == []
    read_only = imported(tmp_path, text.replace("readOnly: false", "readOnly: true").replace("/data/mnist", "/x"))
    assert step_of(read_only)["mounts"] == {"/data": "{store}/BUCKET_NAME"}


def test_folders_that_the_command_names_are_references(tmp_path: Path) -> None:
    text = BUCKET.replace(
        "cd /data/mnist; pip install -r requirements.txt; python PROGRAM", "python x.py > /data/a/b"
    )
    result = step_of(imported(tmp_path, text))
    assert (result["run"][-1], "mounts" in result) == ("python x.py > {output}/a/b", False)
    scratch = text.replace("csi: {driver", "emptyDir: {}  # {")
    assert step_of(imported(tmp_path, scratch))["mounts"] == {"/data": "{scratch}/bucket"}
    assert "mounts" not in step_of(imported(tmp_path, scratch.replace("/data", "/tmp/data")))
    assert refusals(tmp_path, text.replace("readOnly: false", "subPathExpr: $(POD)"))
    limited = imported(tmp_path, scratch.replace("emptyDir: {}", "emptyDir: {sizeLimit: 9Gi}"))
    assert any("9Gi" in note.text for note in limited.notes)
    closed = step_of(imported(tmp_path, scratch.replace("/data", "/root/data")))
    assert closed["run"][-1] == "python x.py > /tmp/bucket/a/b"
    below = text.replace("mountPath: /data", "mountPath: /srv}, {name: bucket, mountPath: /srv/out")
    assert refusals(tmp_path, below) == [f"spec.{CONTAINER}.volumeMounts[1]"]


def test_a_claim_is_named_after_its_volume_and_a_directory_is_kept(tmp_path: Path) -> None:
    command = "command: [python, worker.py]\n          workingDir: /mnt/fileserver/jobs"
    step = step_of(imported(tmp_path, QUEUE.replace("COMMAND", command)))
    assert step["directory"] == "{output}/jobs"
    mixed = step_of(
        imported(tmp_path, QUEUE.replace("COMMAND", command.replace("worker.py", "/mnt/fileserver/w")))
    )
    assert mixed["directory"] == "/mnt/fileserver/jobs"
    assert mixed["mounts"] == {"/mnt/fileserver": {"folder": "{store}/share1", "write": True}}


def test_a_bucket_by_its_address_is_said_to_be_out_of_reach(tmp_path: Path) -> None:
    text = JAX.replace("train.py", "/opt/model.py, --dir=s3://mine/mnist, --out=s3://mine/export")
    [note] = [note for note in imported(tmp_path, text).notes if note.value == "s3://mine"]
    assert not note.carried
    assert "{store}" in note.text


def test_a_folder_of_a_bucket_that_is_only_read_is_one_of_the_store(tmp_path: Path) -> None:
    volume = "spec: {accessModes: [ReadOnlyMany], mountOptions: [region eu-west-1, prefix sets/v3/], "
    text = QUEUE.replace("COMMAND", "command: [python, worker.py]").replace("spec: {csi", f"{volume}csi", 1)
    assert step_of(imported(tmp_path, text))["mounts"] == {"/mnt/fileserver": "{store}/share1/sets/v3"}
