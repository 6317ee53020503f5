"""What is imported is what the manifest is, or refused; nothing is left out unsaid, and no secret is shown."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from slipway.command.new.writing import RefusedError
from slipway.features.importing.folder import draft, write_imported
from slipway.features.importing.manifest import Findings, data, read
from slipway.features.importing.pods import Conversion
from slipway.features.importing.program import expand
from slipway.features.nodes.pod import work
from slipway.features.nodes.pod.group import Address
from slipway.infra.exits import Exit
from tests.features.importing.exactness import differences
from tests.support.tree import write_tree

IMAGE = f"example.org/train@sha256:{'c' * 64}"

TOKEN = "hf_" + "a1B2" * 9

CASES: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8"))


def container(*command: str, **more: Any) -> dict[str, Any]:
    return {"name": "main", "image": IMAGE, "command": [*command] or ["train"], **more}


def job(main: Mapping[str, Any], pod: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A Job of this container, with more of its pod and of its spec."""
    template = {"spec": {"containers": [main], **(pod or {})}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "fit"},
        "spec": {"template": template, **spec},
    }


def objects_of(case: Mapping[str, Any]) -> list[Any]:
    """The objects of a case: with a Job, unless it has a training as one of its own."""
    parts = [case.get(key, {}) for key in ("container", "pod", "spec")]
    alone = not any(parts) and not str(case).startswith("{'objects': [{'apiVersion': 'v1'")
    jobs = [] if alone else [job({**container(), **parts[0]}, parts[1], **parts[2])]
    return [*jobs, *case.get("objects", [])]


def written(folder: Path, *objects: object) -> Path:
    path = folder / "manifest.yaml"
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return path


def imported(folder: Path, *objects: object, code: Path | None = None) -> tuple[dict[str, Any], str]:
    """The step, and all that is said."""
    made = draft(read(written(folder, *objects)), "imported-by-tests", code)
    content = yaml.safe_load(cast("Mapping[str, str]", made.files)["pipeline.yaml"])
    return content["steps"]["train"], "\n".join(made.said)


def reasons(folder: Path, *objects: object) -> set[str]:
    """The names of the reasons for which it is refused."""
    findings = Findings()
    Conversion(read(written(folder, *objects)), findings).steps(has_code=True)
    return {name for name, _ in findings.problems}


SCRIPTS = ["date +%Y%m%d > day", "ls $(ls)", "train ${N:-1} $VAR", "curl https://x.example/a%20b", "awk {print}"]

BEFORE = [
    "sh -c",
    "env A=b bash -ec",
    "timeout 9 sh -c",
    "tini -- /bin/bash -c",
    "stdbuf -oL dash -c",
    "conda run -n x zsh -c",
]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("before", BEFORE)
def test_words_that_a_shell_reads_stay_as_they_are(before: str, script: str, tmp_path: Path) -> None:
    step, _ = imported(tmp_path, job(container(*before.split(), script)))
    assert [word.format() for word in step["run"]] == [*before.split(), script]
    assert "parameters" not in step


@pytest.mark.parametrize(
    ("text", "result"),
    [
        *[("$(A)-$(A)", "1-1"), ("$$(A)_$(A)", "$(A)_1"), ("$$$$$$$(A)", "$$$1"), ("$(A$(B))", "$(A$(B))")],
        *[("$(B)$(C", "$(A)$(C"), ("$(NONE) $A ${A} $? $", "$(NONE) $A ${A} $? $"), ("f$$A", "f$A")],
        *[("--$($($($--", "--$($($($--"), ("$(foo$$A)", "$(foo$$A)"), ("%%$(EMPTY)%%", "%%%%")],
    ],
)
def test_references_are_filled_in_as_kubernetes_does(text: str, result: str) -> None:
    assert expand(text, {"A": "1", "B": "$(A)", "EMPTY": ""}) == result


def test_what_a_step_tells_its_program_is_known() -> None:
    told = work.variables(0, [Address("a", 1)], ["worker"], 0, 1).keys() - {"SLIPWAY_GENERATION"}
    assert data("told")["step"].keys() == {*told, "JOB_COMPLETION_INDEX"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES["exact"])
def test_the_pod_of_the_stack_is_that_of_the_manifest(name: str, tmp_path: Path) -> None:
    assert differences(written(tmp_path, *objects_of(CASES["exact"][name])), tmp_path / "pipeline") == {}


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: " ".join(case["reasons"]))
def test_what_would_be_something_else_is_refused(case: Mapping[str, Any], tmp_path: Path) -> None:
    assert reasons(tmp_path, *objects_of(case)) == set(case["reasons"])


def test_a_runtime_class_is_the_pools(tmp_path: Path) -> None:
    step, said = imported(tmp_path, job(container(), {"runtimeClassName": "nvidia"}))
    assert 'template.spec.runtimeClassName: `runtime_class: "nvidia"`' in said
    assert "runtime" not in str(step)


@pytest.mark.parametrize("case", CASES["kinds"], ids=lambda case: case["value"])
def test_what_is_no_training_of_one_step_is_refused(case: Mapping[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        imported(tmp_path, *case["objects"])
    [problem] = refused.value.problems
    assert str(problem.value).endswith(case["value"])
    assert problem.fix


PLACES = [
    (),
    ("spec",),
    ("spec", "template"),
    ("spec", "template", "spec"),
    ("spec", "template", "spec", "containers", 0),
]


@pytest.mark.parametrize("value", [{}, [], True, {"volcano": {}}, {"a": [{"b": 1}]}])
@pytest.mark.parametrize("place", PLACES)
def test_every_field_is_named(place: tuple[str | int, ...], value: object, tmp_path: Path) -> None:
    content: Any = job(container())
    inside = content
    for part in place:
        inside = inside[part]
    inside["unheardOf"] = value
    assert "unheardOf" in imported(tmp_path, content)[1]


@pytest.mark.parametrize("words", [["train", "--token", TOKEN], ["sh", "-c", "export API_KEY=abcdefgh; train"]])
def test_a_secret_among_the_words_is_refused_and_not_shown(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        imported(tmp_path, job(container(*words)))
    shown = str([(problem.shown, problem.reason, problem.fix) for problem in refused.value.problems])
    assert TOKEN not in shown
    assert "abcdefgh" not in shown


def test_a_secret_in_clear_becomes_one_of_the_step_and_is_shown_nowhere(tmp_path: Path) -> None:
    environment = [{"name": "HF_TOKEN", "value": TOKEN}, {"name": "PASSWORD", "value": "correct horse"}]
    content = job(container(env=environment)) | {
        "metadata": {"name": "fit", "annotations": {"last": f"x {TOKEN}"}}
    }
    made = draft(read(written(tmp_path, content)), "imported-by-tests")
    pipeline = cast("Mapping[str, str]", made.files)["pipeline.yaml"]
    assert not any(value in text for value in (TOKEN, "correct horse") for text in (pipeline, *made.said))
    secrets = yaml.safe_load(pipeline)["steps"]["train"]["secrets"]
    assert secrets == {"HF_TOKEN": "hf-token", "PASSWORD": "password"}
    environment.append({"name": "URL", "value": "x/correct horse"})
    with pytest.raises(RefusedError):
        imported(tmp_path, content)
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m"},
        "data": {"k": f"token: {TOKEN}"},
    }
    mounting = container(volumeMounts=[{"name": "v", "mountPath": "/v"}])
    pod = {"volumes": [{"name": "v", "configMap": {"name": "m"}}]}
    assert reasons(tmp_path, job(mounting, pod), config_map) == {"secret"}


MEMORY = {"medium": "Memory"}


@pytest.mark.parametrize(
    ("volume", "memory", "size"),
    [
        ({"emptyDir": {**MEMORY, "sizeLimit": "8Gi"}}, None, "8Gi"),
        ({"emptyDir": {**MEMORY, "sizeLimit": "8Gi"}}, "2Gi", "2Gi"),
        ({"emptyDir": MEMORY}, "2Gi", "2Gi"),
        ({"hostPath": {"path": "/dev/shm"}}, None, None),
    ],
)
def test_shared_memory_keeps_its_size(volume: Any, memory: str | None, size: str | None, tmp_path: Path) -> None:
    resources = {"limits": {"memory": memory} if memory else {}}
    main = container(resources=resources, volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}])
    step, _ = imported(tmp_path, job(main, {"volumes": [{"name": "shm", **volume}]}))
    assert step.get("resources", {}).get("shm") == size


LOCKED = f"numpy==2.4.0 --hash=sha256:{'d' * 64}\n"


@pytest.mark.parametrize(
    ("words", "listed", "packages"),
    [
        ("python train.py", LOCKED, ""),
        ("python train.py", "numpy\n", "numpy\n"),
        ("pip install -q -r requirements.txt && python train.py", "numpy", "numpy\n"),
        ("pip install 'numpy>=2' pandas; python train.py", None, "numpy>=2\npandas\n"),
        ("pip install --index-url https://pypi.example numpy; python train.py", None, None),
        ("pip install git+https://x.example/y; python train.py", None, None),
        ("pip install -r other.txt numpy; python train.py", None, None),
    ],
)
def test_packages_become_requirements(
    words: str, listed: str | None, packages: str | None, tmp_path: Path
) -> None:
    code = write_tree(tmp_path / "code", {"train.py": "", **({"requirements.txt": listed} if listed else {})})
    made = draft(read(written(tmp_path, job(container("sh", "-c", words)))), "imported-by-tests", code)
    files = cast("Mapping[str, str]", made.files)
    step = yaml.safe_load(files["pipeline.yaml"])["steps"]["train"]
    assert step.get("requirements") == (None if packages is None else "requirements.txt")
    assert files.get("requirements.in", "") == (packages or "")
    assert ("requirements.txt" in files) == (listed == LOCKED)


@pytest.mark.parametrize(
    ("main", "code", "said"),
    [
        (container(env=[{"name": "REDIS_HOST", "value": "redis"}]), "", "redis"),
        (container("train", "--broker=amqp://queue:5672/x"), "", "queue"),
        (container("python", "t.py"), 'q = Queue(host="valkey")', "valkey"),
        (container("train", "gs://mine/x"), "", "gs://mine"),
        (container("train", "http://files.example.org/x"), "", "files.example.org"),
        (container("train", "https://files.example.org/x"), "", ""),
        (container("train", "http://127.0.0.1:80"), "", ""),
    ],
)
def test_what_is_out_of_reach_is_said(main: dict[str, Any], code: str, said: str, tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "code", {"t.py": code})
    needs = imported(tmp_path, job(main), code=folder)[1].partition("The program needs:")[2].partition("Wrote")[0]
    assert (said in needs) if said else not needs


def test_libraries_without_their_launcher_are_said(tmp_path: Path) -> None:
    code = write_tree(tmp_path / "code", {"t.py": "import horovod.tensorflow as hvd"})
    training = json.loads(json.dumps(CASES["exact"]["parameter servers"]["objects"]).replace("/x.py", "t.py"))
    assert "Horovod" in imported(tmp_path, *training, code=code)[1]


def test_the_code_is_a_folder_of_texts_with_the_program(tmp_path: Path) -> None:
    content = job(container("python", "train.py"))
    with pytest.raises(RefusedError):
        imported(tmp_path, content)
    code = write_tree(
        tmp_path / "code", {"train.py": "", "lib/x.py": "", "manifest.yaml": yaml.safe_dump(content)}
    )
    made = draft(read(code / "manifest.yaml"), "imported-by-tests", code)
    assert set(made.files) == {"pipeline.yaml", "train.py", "lib/x.py"}
    (code / "key.txt").write_text(TOKEN)
    for folder in (code, tmp_path / "none"):
        with pytest.raises(RefusedError):
            draft(read(code / "manifest.yaml"), "imported-by-tests", folder)


def test_a_claim_that_is_mounted_twice_is_one_folder(tmp_path: Path) -> None:
    mounts = [{"name": "a", "mountPath": path} for path in ("/a", "/b")]
    pod = {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "x"}}]}
    step, _ = imported(tmp_path, job(container(volumeMounts=mounts), pod))
    assert step["mounts"]["/a"] == step["mounts"]["/b"] == {"folder": "{store}/x", "write": True}


def test_who_names_no_manifest_is_told_how_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert write_imported("", "", None) is Exit.REFUSED
    assert "make import MANIFEST=" in capsys.readouterr().err
    assert write_imported("no-such-file.yaml", "", None) is Exit.REFUSED
