"""`make import` carries over what it can, and says of everything else what becomes of it."""

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.infra.exits import Exit
from slipway.infra.pipelines.file.reading import Folder
from slipway.infra.pipelines.file.reading import read as read_pipeline
from slipway.tools.importing.conversion import STEP, Imported, convert
from slipway.tools.importing.document import rules
from slipway.tools.importing.folder import draft, write_imported
from slipway.tools.importing.manifest import read
from slipway.tools.new.writing import Draft, RefusedError
from slipway.tools.reference import imports
from tests.support.checkout import ROOT

STUDY = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: resnet-t4, namespace: kubeflow}
spec:
  runPolicy: {cleanPodPolicy: None, activeDeadlineSeconds: 7200, backoffLimit: 3}
  tfReplicaSpecs:
    PS:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          nodeSelector: {gpu: t4}
          containers:
            - &program
              name: tensorflow
              image: example.org/benchmarks:latest
              command: [python, /opt/bench/train.py, --data=/data/imagenet, --out=/results/model]
              workingDir: /opt/bench
              ports: [{containerPort: 2300, name: tfjob-port}]
              resources: {limits: {cpu: 4, memory: 8Gi}}
              volumeMounts: [{name: data, mountPath: /data, readOnly: true}, {name: results, mountPath: /results}]
          volumes: &volumes
            - {name: data, persistentVolumeClaim: {claimName: imagenet}}
            - {name: results, persistentVolumeClaim: {claimName: results}}
    Worker:
      replicas: 4
      restartPolicy: ExitCode
      template:
        spec:
          nodeSelector: {gpu: t4}
          tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
          hostNetwork: true
          containers:
            - <<: *program
              env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}]
              resources: {limits: {nvidia.com/gpu: 1, memory: 16Gi}}
          volumes: *volumes
"""

BASE = """
apiVersion: kubeflow.org/v1beta2
kind: TFJob
metadata: {name: $(trainingName)}
spec:
  tfReplicaSpecs:
    ROLE:
      replicas: COUNT
      template:
        spec:
          containers:
            - name: tensorflow
              command: [/usr/bin/python, /opt/model.py, --steps=$(steps), --shell=$(HOME_OF)]
              env: [{name: steps, value: $(steps)}, {name: HOME_OF, value: "{braces}"}]
              image: training-image
              workingDir: /opt
"""

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: torch}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
        - {name: main, image: "example.org/torch@sha256:DIGEST", command: [torchrun], args: [train.py]}
""".replace("DIGEST", "a" * 64)

TORCH = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: ddp}
spec:
  nprocPerNode: "2"
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: {spec: {containers: [{name: pytorch, image: "torch@sha256:DIGEST", command: [python, main.py]}]}}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: pytorch, image: "torch@sha256:DIGEST", command: [python, work.py]}]}}
""".replace("DIGEST", "b" * 64)


def imported(folder: Path, text: str) -> Imported:
    """What the manifest ``text`` becomes."""
    path = folder / "manifest.yaml"
    path.write_text(textwrap.dedent(text))
    return convert(read(path))


def step_of(found: Imported) -> dict[str, Any]:
    return cast("dict[str, Any]", found.pipeline["steps"][STEP])


def drafted(folder: Path, text: str, name: str = "imported-by-tests", code: Path | None = None) -> Draft:
    path = folder / "manifest.yaml"
    path.write_text(textwrap.dedent(text))
    manifest = read(path)
    return draft(manifest, convert(manifest), name, code)


def written(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def test_a_training_with_parameter_servers_becomes_a_step_with_nodes(tmp_path: Path) -> None:
    found = imported(tmp_path, STUDY)
    step = step_of(found)
    assert step["nodes"] == {"count": 5, "roles": {"worker": 4, "ps": 1}, "port": 2300}
    assert step["run"] == ["python", "train.py", "--data={store}/imagenet/imagenet", "--out={output}/model"]
    assert step["resources"] == {"cpu": "4", "memory": "16Gi", "gpus": 1}
    assert step["time_limit"] == "7200s"
    assert step["secrets"] == {"TOKEN": "hub-token"}
    assert any("gpu: t4" in need for need in found.needs)
    assert any("nvidia.com/gpu:NoSchedule" in need for need in found.needs)


def test_everything_that_is_lost_is_said(tmp_path: Path) -> None:
    said = {note.at: note for note in imported(tmp_path, STUDY).notes if not note.carried}
    for place in (
        "metadata.namespace",
        "spec.runPolicy.cleanPodPolicy",
        "spec.runPolicy.backoffLimit",
        "spec.tfReplicaSpecs.PS.restartPolicy",
        "spec.tfReplicaSpecs.Worker.restartPolicy",
        "spec.tfReplicaSpecs.Worker.template.spec.hostNetwork",
        "spec.tfReplicaSpecs.Worker.template.spec.containers[0].image",
    ):
        assert said[place].text


def leaves(value: Any, at: str = "") -> list[str]:
    """The places of all scalars in ``value``."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return [leaf for key, below in pairs for leaf in leaves(below, f"{at}.{key}" if at else key)]
    return [at]


KEYS = st.sampled_from(["hostPID", "dnsPolicy", "runtimeClassName", "overhead", "setHostnameAsFQDN", "unheardOf"])


@pytest.mark.slow
@settings(deadline=None)
@given(extra=st.dictionaries(KEYS, st.one_of(st.booleans(), st.text("abc", min_size=1)), min_size=1))
def test_no_field_is_dropped_in_silence(extra: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("manifest")
    content = yaml.safe_load(STUDY)
    content["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"].update(extra)
    content["spec"].update({f"top{key}": value for key, value in extra.items()})
    said = {note.at for note in imported(folder, yaml.safe_dump(content)).notes}
    for key in extra:
        assert f"spec.tfReplicaSpecs.PS.template.spec.{key}" in said
        assert f"spec.top{key}" in said


def test_the_parts_of_a_base_are_one_training(tmp_path: Path) -> None:
    for role, count in (("Chief", "1"), ("Worker", "%workers%"), ("Ps", "%servers%")):
        (tmp_path / f"{role}.yaml").write_text(BASE.replace("ROLE", role).replace("COUNT", count))
    (tmp_path / "kustomization.yaml").write_text("kind: Kustomization\nresources: [Chief.yaml]\n")
    found = convert(read(tmp_path))
    step = step_of(found)
    assert step["nodes"]["roles"] == {"chief": 1, "worker": 1, "ps": 1}
    assert step["run"] == ["/usr/bin/python", "model.py", "--steps={steps_value}", "--shell={{braces}}"]
    assert step["environment"] == {"steps": "{steps_value}", "HOME_OF": "{{braces}}"}
    assert found.pipeline["parameters"]["steps_value"]["type"] == "string"
    assert any("replicas" in note.at and "%workers%" in str(note.value) for note in found.notes)


def test_a_role_without_pods_is_left_out_and_said(tmp_path: Path) -> None:
    text = STUDY.replace("replicas: 1", "replicas: 0").replace("replicas: 4", 'replicas: "4"')
    found = imported(tmp_path, text)
    assert step_of(found)["nodes"] == {"count": 4, "port": 2300}
    [note] = [each for each in found.notes if each.at == "spec.tfReplicaSpecs.PS"]
    assert (note.text, note.carried) == ("it has no pods", False)
    with pytest.raises(RefusedError):
        imported(tmp_path, text.replace('"4"', "0"))


def test_paths_in_the_command_of_a_shell_are_those_of_the_store(tmp_path: Path) -> None:
    shell = "[sh, -c, 'python train.py --data=\"/data\" --out /results && ls /results; ls /results2']"
    text = re.sub(r"command: .*", f"command: {shell}", STUDY).replace("/data, ", "/data, subPath: sets/a, ")
    run = step_of(imported(tmp_path, text))["run"]
    assert run[2] == 'python train.py --data="{store}/imagenet/sets/a" --out {output} && ls {output}; ls /results2'


CONFIG = """
apiVersion: batch/v1
kind: Job
metadata: {name: line}
spec:
  template:
    spec:
      containers:
        - name: train
          image: python:3
          command: [bash, -c, "cd /scripts && python train.py --config /etc/line/line.yaml -v {}"]
          envFrom: [{configMapRef: {name: line, optional: true}, prefix: LINE_}]
          env: [{name: RATE, valueFrom: {configMapKeyRef: {name: line, key: rate}}}]
          volumeMounts:
            - {name: code, mountPath: /scripts}
            - {name: line, mountPath: /etc/line/line.yaml, subPath: line.yaml}
      volumes:
        - {name: code, configMap: {name: code}}
        - {name: line, configMap: {name: line, items: [{key: settings, path: line.yaml}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: line}, data: {rate: "0.5", settings: "steps: 1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: code}, data: {train.py: "import model", model.py: ""}}
"""


def test_config_maps_are_files_and_variables_of_the_step(tmp_path: Path) -> None:
    files = cast("dict[str, str]", drafted(tmp_path, CONFIG).files)
    assert {path: text for path, text in files.items() if path != "pipeline.yaml"} == {
        "train.py": "import model", "model.py": "", "line.yaml": "steps: 1",
    }  # fmt: skip
    step = step_of(imported(tmp_path, CONFIG))
    assert step["run"][2] == "cd . && python train.py --config line.yaml -v {{}}"
    assert step["environment"] == {"LINE_rate": "0.5", "LINE_settings": "steps: 1", "RATE": "0.5"}
    assert not [note for note in imported(tmp_path, CONFIG).notes if not note.carried and "image" not in note.at]
    alone = CONFIG.split("---", maxsplit=1)[0]
    with pytest.raises(RefusedError) as refused:
        imported(tmp_path, alone)
    assert [problem.value for problem in refused.value.problems] == ["/scripts", "/etc/line/line.yaml"]
    clashing = CONFIG.replace("model.py:", "line.yaml:")
    with pytest.raises(RefusedError):
        imported(tmp_path, clashing)


def test_objects_beside_the_training_are_named(tmp_path: Path) -> None:
    beside = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n---"
    [note] = [each for each in imported(tmp_path, beside + STUDY).notes if each.value == "ConfigMap settings"]
    assert not note.carried
    assert "pipeline's folder" in note.text


def test_an_indexed_job_becomes_nodes_and_an_ordinary_one_a_pod(tmp_path: Path) -> None:
    step = step_of(imported(tmp_path, JOB))
    assert step["nodes"] == 2
    assert step["image"].startswith("example.org/torch@sha256:")
    assert step["run"] == ["torchrun", "train.py"]
    ordinary = re.sub(r"  (completions|parallelism|completionMode): .*\n", "", JOB)
    assert "nodes" not in step_of(imported(tmp_path, ordinary))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (JOB.replace("command: [torchrun], args: [train.py]", "args: [train.py]"), {"command"}),
        (JOB.replace(", command: [torchrun], args: [train.py]", ""), {"command"}),
        (TORCH.replace(", command: [python, work.py]", ""), {"command"}),
        (re.sub(r"- {name: main.*", "[]", JOB).replace("containers:\n        []", "containers: []"), {"spec"}),
        (TORCH.replace("@sha256:" + "b" * 64, ":2.8"), {"image"}),
        (TORCH.replace("b" * 64, "c" * 64, 1), {"image"}),
        (STUDY.replace("nvidia.com/gpu: 1", "google.com/tpu: 4"), {"google.com/tpu"}),
        (STUDY.replace("nvidia.com/gpu: 1", "nvidia.com/mig-1g.5gb: 1"), {"nvidia.com/mig-1g.5gb"}),
        (JOB.replace("  completionMode: Indexed\n", ""), {"completions", "parallelism"}),
        (JOB.replace("completions: 2", "completions: 100"), {"completions", "parallelism"}),
        (re.sub(r"  (completions|completionMode): .*\n", "", JOB), {"parallelism"}),
    ],
    ids=[
        "args",
        "nothing",
        "a role",
        "no container",
        "PyTorch by tag",
        "two images",
        "tpu",
        "mig",
        "not indexed",
        "rounds",
        "workers",
    ],
)
def test_what_would_run_as_something_else_is_refused(tmp_path: Path, text: str, keys: set[str]) -> None:
    with pytest.raises(RefusedError) as refused:
        imported(tmp_path, text)
    problems = refused.value.problems
    ends = {next((key for key in keys if problem.key.endswith(key)), problem.key) for problem in problems}
    assert ends == keys
    assert all(problem.reason and problem.fix for problem in problems)


def test_roles_with_commands_of_their_own_keep_them(tmp_path: Path) -> None:
    found = imported(tmp_path, TORCH)
    step = step_of(found)
    assert step["run"] == ["python", "start.py"]
    assert step["environment"]["CHIEF_WORD_1"] == "main.py"
    assert step["environment"]["WORKER_WORD_1"] == "work.py"
    assert step["nodes"]["count"] == 3
    assert found.variables == {"PET_NPROC_PER_NODE": "2"}


@pytest.mark.parametrize("text", [STUDY, JOB, TORCH, BASE.replace("ROLE", "Worker").replace("COUNT", "2")])
def test_what_is_written_is_a_pipeline_without_a_mistake(tmp_path: Path, text: str) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for name in ("train.py", "model.py", "main.py", "work.py"):
        (code / name).write_text("print('trained')\n")
    files = drafted(tmp_path, text, code=code).files
    assert not isinstance(files, str)
    target = tmp_path / "imported-by-tests"
    target.mkdir()
    written(target, files)
    assert read_pipeline(Folder(target, target.name, target.name)).problems == ()


def test_the_program_beside_the_manifest_is_taken_along_or_named(tmp_path: Path) -> None:
    assert any(line.startswith("Missing: train.py") for line in drafted(tmp_path, STUDY).said)
    (tmp_path / "train.py").write_text("print('trained')\n")
    made = drafted(tmp_path, STUDY)
    assert not isinstance(made.files, str)
    assert set(made.files) == {"pipeline.yaml", "train.py"}
    assert not any(line.startswith("Missing") for line in made.said)
    assert "# - spec.runPolicy.backoffLimit: 3" in made.files["pipeline.yaml"]


def test_programs_that_roles_start_by_name_travel_with_the_step(tmp_path: Path) -> None:
    for name in ("main.py", "work.py"):
        (tmp_path / name).write_text("print('trained')\n")
    made = drafted(tmp_path, TORCH.replace("main.py", "/opt/main.py"))
    assert not isinstance(made.files, str)
    step = yaml.safe_load(made.files["pipeline.yaml"])["steps"][STEP]
    assert step["files"] == ["main.py", "work.py"]
    assert [step["environment"][f"{role}_WORD_1"] for role in ("CHIEF", "WORKER")] == ["main.py", "work.py"]


def test_shared_memory_is_the_pods_own(tmp_path: Path) -> None:
    mount = "volumeMounts: [{name: shm, mountPath: /dev/shm}, "
    text = STUDY.replace("volumeMounts: [", mount).replace(
        "volumes: &volumes", "volumes: &volumes\n            - {name: shm, emptyDir: {}}"
    )
    text = text.replace("--out=/results/model", "--scratch=/dev/shm")
    imports = imported(tmp_path, text)
    assert step_of(imports)["run"][-1] == "--scratch=/dev/shm"
    assert any(note.value == "/dev/shm" and note.carried for note in imports.notes)


def test_a_name_of_several_lines_is_one(tmp_path: Path) -> None:
    made = drafted(tmp_path, STUDY.replace("name: resnet-t4", 'name: "resnet\\nt4: {"'))
    assert not isinstance(made.files, str)
    assert yaml.safe_load(made.files["pipeline.yaml"])["steps"].keys() == {STEP}
    assert not any("\n" in line for line in made.said)


@pytest.mark.parametrize("shell", ["sh", "/bin/bash"])
def test_programs_in_the_command_of_a_shell_are_found(tmp_path: Path, shell: str) -> None:
    (tmp_path / "model.py").write_text("print('trained')\n")
    script = "pip install x&&python /opt/model.py --out=/a/model.py; more.py; python 'more.py' && sh /run/last.sh"
    made = drafted(tmp_path, re.sub(r"command: .*", f'command: [{shell}, -ec, "{script}"]', STUDY))
    assert not isinstance(made.files, str)
    assert set(made.files) == {"pipeline.yaml", "model.py"}
    run = yaml.safe_load(made.files["pipeline.yaml"])["steps"][STEP]["run"]
    assert run[2] == script.replace("/opt/model.py", "model.py")
    assert any(line.startswith("Missing: more.py: put") for line in made.said)
    assert any(line.startswith("In the image: /run/last.sh:") for line in made.said)


def test_a_shells_command_with_an_open_quotation_is_taken_over_as_it_is(tmp_path: Path) -> None:
    text = re.sub(r"command: .*", r"""command: [sh, -c, "python 'train.py"]""", STUDY)
    assert step_of(imported(tmp_path, text))["run"][2] == "python 'train.py"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Deployment\napiVersion: apps/v1\n", "Deployment"),
        ("a: 1\n", "no kind"),
        ("kind: Job\napiVersion: batch.example.org/v1\n", "Job of batch.example.org/v1"),
        ("a: [", "YAML"),
        (STUDY + "---" + STUDY.replace("resnet-t4", "other"), "several trainings"),
        (STUDY.replace("PS:", "Driver:"), "`Driver` is no role"),
    ],
)
def test_what_is_no_training_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        imported(tmp_path, text)
    assert words in refused.value.problems[0].reason
    assert "None" not in refused.value.problems[0].reason


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        drafted(tmp_path, STUDY, name="mnist")


def test_the_page_lists_all_fields() -> None:
    assert imports.PAGE.read_text(encoding="utf-8") == imports.page()
    assert rules()[-1].at == "**"
    assert imports.PAGE.is_relative_to(ROOT / "docs")


def test_who_names_no_manifest_is_told_how_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_imported("", "", None) is Exit.REFUSED
    assert "make import MANIFEST=" in capsys.readouterr().err
