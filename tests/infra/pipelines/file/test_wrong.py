"""Everything wrong with a ``pipeline.yaml`` is said at once, together with what is wrong in the stack file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.infra import commands
from slipway.infra.pipelines.discovery import pipeline
from slipway.infra.pipelines.images import compiling
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.infra.settings.pipelines import folders_in
from slipway.infra.stack.configuration import shipping_problems
from tests.infra.pipelines import file_problems
from tests.infra.pipelines.file_problems import check
from tests.support.checkout import ROOT
from tests.support.refusals import the_problem
from tests.support.stack_values import GCP, changed

VALID: Mapping[str, Any] = {
    "description": "Who will leave.",
    "parameters": {"trees": {"type": "integer", "default": 300, "minimum": 1}},
    "steps": {
        "prepare": {"run": ["python", "prepare.py", "{output}"]},
        "train": {
            "run": ["python", "train.py", "{prepare}", "{trees}", "{output}"],
            "results": {"accuracy": "metrics.json#/accuracy"},
        },
    },
}
PLACED = {"prepare": {"pool": "cpu"}, "train": {"pool": "cpu"}}


def problems(folder: Path, content: object, **section: Any) -> dict[str, str]:
    """What is wrong where the file has ``content``, and its section more keys."""
    folder.mkdir(exist_ok=True)
    text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    (folder / "pipeline.yaml").write_text(text, encoding="utf-8")
    stack = changed(GCP, {"pipelines.churn": {"uses": str(folder), "steps": PLACED, **section}})
    return file_problems.problems(folder, stack)


def step(**keys: Any) -> dict[str, Any]:
    """The valid file with these keys of the step `train` in place of its own."""
    return {**VALID, "steps": {**VALID["steps"], "train": {**VALID["steps"]["train"], **keys}}}


def test_a_valid_file_has_no_problems(tmp_path: Path) -> None:
    assert problems(tmp_path / "churn", VALID) == {}


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    wrong = {
        "descripton": "Who will leave.",
        "parameters": {
            "trees": {"type": "integer", "default": "many", "minimum": 5, "maximum": 1},
            "depth": {"type": "int"},
            "rate": {"type": "number", "default": 2, "maximum": 1},
            "kind": {"type": "string", "choices": ["a", "b"], "default": "c"},
            "uses": {"type": "string"},
            "prepare": {"type": "string"},
        },
        "steps": {
            "prepare": {"run": ["python", "prepare.py", "{train}", "{outptu}"], "requirments": "requirements.txt"},
            "train": {
                "run": ["python", "train.py", "{trees}", "{train}", "{", "{prepare}"],
                "after": ["prepar"],
                "image": "python:3.12",
                "secrets": {"KEY": "Wandb_Key", "9": "x", "JOB_UID": "x"},
                "environment": {"KEY": "x", "LEVEL": True, "SLIPWAY_X": "y", "POD_NAME": "z"},
                "matrix": {"tree": [1], "rate": [1], "pool": ["cpu"]},
                "resources": {"gpu": 1, "memory": "lots"},
                "results": {
                    "runs": "a.json#/b",
                    "up": "../metrics.json#/x",
                    "at": "/etc/passwd",
                    "pointer": "metrics.json#accuracy",
                    "nothing": {},
                    "two": {"number": "a.json#/b", "file": "c"},
                    "bare": {"table": "a.json#/b"},
                },
                "best": {"by": "acuracy"},
                "rehearsal": {"run": ["python", "{other}"]},
            },
            "Bad_Name": {"run": ["python x.py"]},
            "output": {"run": ["x"]},
        },
    }
    places = {**PLACED, "train": {"pool": "cqu"}, "Bad_Name": {"pool": "cpu"}, "output": {"pool": "cpu"}}
    texts = problems(tmp_path / "churn", wrong, depth=1, prepare="x", steps=places)
    keys = """
        parameters.uses parameters.prepare steps.train.run steps.train.image steps.train.secrets.9
        steps.train.environment.SLIPWAY_X steps.train.environment.POD_NAME steps.train.secrets.JOB_UID
        steps.train.resources.memory steps.train.results.runs
        steps.train.results.at.file steps.train.results.nothing steps.train.results.bare.columns
        steps.Bad_Name steps.output
    """
    names = {
        "descripton": ["`description`"],
        "parameters.trees.maximum": ["below the minimum, 5"],
        "parameters.depth.type": ["`integer`"],
        "parameters.rate.default": ["above 1, the most it can be"],
        "parameters.kind.default": ["`a`", "`b`"],
        "steps.prepare": ["`prepare`", "`train`"],
        "steps.prepare.run[3]": ["`outptu`", "`{output}`"],
        "steps.prepare.requirments": ["`requirements`"],
        "steps.train.run[3]": ["`{train}`", "`{output}`"],
        "steps.train.run[4]": ["`{{`", "`}}`"],
        "steps.train.after[0]": ["`prepare`"],
        "steps.train.secrets.KEY": ["`environment`"],
        "steps.train.environment.LEVEL": ['`"true"`'],
        "steps.train.matrix.tree": ["`trees`"],
        "steps.train.matrix.rate": ["`{rate}`", "`run`"],
        "steps.train.matrix.pool": ["steps: {train: {matrix: {pool: […]}}}"],
        "steps.train.resources.gpu": ["`gpus`"],
        "steps.train.results.up.number": ["`.`", "`..`"],
        "steps.train.results.pointer.number": ["no JSON pointer", "metrics.json#/accuracy"],
        "steps.train.results.two": ["`number`", "`file`"],
        "steps.train.best.by": ["`runs`"],
        "steps.train.rehearsal.run[1]": ["`other`"],
        "steps.Bad_Name.run": ["`[python, x.py]`"],
        "slipway:secrets": ["`train`", "`churn`", "`KEY`"],
        "slipway:secrets.x": ["`9`"],
        "stack.steps.train.pool": ["`cpu`"],
    }
    check(texts, keys, names)


@pytest.mark.parametrize(
    ("text", "key", "name"),
    [
        ("description: [", ":1", "YAML"),
        ("description: x\nsteps: {a: {run: [x]}}\nsteps: {}\n", "steps", "line 3"),
        ("- a\n", "", "`steps:`"),
        ("", "steps", "required"),
        ("description: x\nsteps: {}\n", "steps", "empty"),
        ("description: x\nsteps: {a: {run: []}}\n", "steps.a.run", "`[python, train.py]`"),
        ("description: x\nsteps:\n  a: {run: [x]}\n  a: {run: [y]}\n", "steps.a", "line 4"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, text: str, key: str, name: str) -> None:
    texts = problems(tmp_path / "churn", text)
    assert name in texts[key]
    assert not any("Traceback" in text or "pipeline.yaml:1: 1" in text for text in texts.values())


def test_what_cannot_be_read_makes_nothing_else_wrong(tmp_path: Path) -> None:
    broken = {**VALID, "parameters": [], "steps": {**VALID["steps"], "train": 3}}
    texts = problems(tmp_path / "churn", broken, trees=5)
    assert set(texts) == {"parameters", "steps.train"}


@pytest.mark.parametrize(
    ("values", "key", "name"),
    [
        ([1, 2, 1], "steps.train.matrix.trees", "`1`"),
        ([], "steps.train.matrix.trees", "empty"),
        ([0], "steps.train.matrix.trees[0]", "1"),
        (["many"], "steps.train.matrix.trees[0]", "number"),
        (list(range(1, 200)), "steps.train.matrix", "199"),
    ],
)
@pytest.mark.parametrize("where", ["file", "stack"])
def test_a_matrix_has_values_that_its_parameter_can_have(
    tmp_path: Path, values: list[Any], key: str, name: str, where: str
) -> None:
    content, places = step(matrix={"trees": values}), PLACED
    if where == "stack":
        content, places = dict(VALID), {**PLACED, "train": {"pool": "cpu", "matrix": {"trees": values}}}
        key = f"stack.{key}"
    check(problems(tmp_path / "churn", content, steps=places), "", {key: [name]})


@pytest.mark.parametrize("uses", ["./nowhere", "../nowhere/at-all", "~nobody/churn", "workloads/mnst"])
def test_a_path_without_a_pipeline_is_refused(uses: str) -> None:
    problem = the_problem(changed(GCP, {"pipelines.churn": {"uses": uses}}))
    assert problem.key == "slipway:pipelines.churn.uses"
    assert "`pipeline.yaml`" in problem.reason


def test_a_pipeline_in_python_is_refused_with_what_to_write_instead(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text("", encoding="utf-8")
    problem = the_problem(changed(GCP, {"pipelines.churn": {"uses": str(tmp_path)}}))
    assert "removed in 0.1" in problem.reason
    assert "`pipeline.yaml`" in problem.fix


def test_a_file_with_another_suffix_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "churn"
    folder.mkdir()
    (folder / "pipeline.yml").write_text(yaml.safe_dump(dict(VALID)), encoding="utf-8")
    problem = the_problem(changed(GCP, {"pipelines.churn": {"uses": str(folder), "steps": PLACED}}))
    assert problem.key == f"{folder}/pipeline.yml"
    assert "`pipeline.yaml`" in problem.reason


LOCKED = """numpy==2.0.0 \\
    --hash=sha256:0123456789abcdef
# a remark
joblib[x]==1.4 ; python_version < '4' --hash=sha256:00
"""


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        (LOCKED, None),
        (None, "there is no such file"),
        ("numpy\n", "line 1, `numpy`, is not one package at one version"),
        (f"{LOCKED}scipy>=1 --hash=sha256:00\n", "line 5, `scipy>=1`, is not one package"),
        (f"{LOCKED}\n-r other.txt\n", "line 6, `-r`, is not one package"),
        ("numpy==2.*  --hash=sha256:00\n", "is not one package at one version"),
        ("numpy==2.0.0\n", "line 1, `numpy==2.0.0`, has no hash"),
    ],
)
def test_a_lock_file_says_which_packages_are_installed(tmp_path: Path, lock: str | None, said: str | None) -> None:
    folder = tmp_path / "churn"
    content = step(requirements="lock.txt")
    assert problems(folder, content) == {}
    for name in ("prepare.py", "train.py"):
        (folder / name).write_text("", encoding="utf-8")
    if lock is not None:
        (folder / "lock.txt").write_text(lock, encoding="utf-8")
    refusals = shipping_problems({**GCP, "pipelines": {"churn": {"uses": str(folder), "steps": PLACED}}}, ROOT)
    if said is None:
        assert refusals == []
        return
    (problem,) = refusals
    assert problem.key == f"{folder}/pipeline.yaml: steps.train.requirements"
    assert said in problem.reason
    assert "uv pip compile --universal --generate-hashes" in problem.fix


def test_a_script_that_is_not_there_is_told_with_the_other_problems_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "churn"
    assert set(problems(folder, step(image="python:3"))) == {"steps.train.image"}
    refusals = shipping_problems({**GCP, "pipelines": {"churn": {"uses": str(folder), "steps": PLACED}}}, ROOT)
    assert [(problem.key, problem.value) for problem in refusals] == [
        (f"{folder}/pipeline.yaml: steps.{name}.run", f"{name}.py") for name in ("prepare", "train")
    ]


@pytest.mark.parametrize(
    ("keys", "code", "refused"),
    [
        ({}, "", ["steps.train.checkpoints"]),
        ({}, "os.environ['SLIPWAY_CHECKPOINT']", []),
        ({"environment": {"TO": "{checkpoint}"}}, "", []),
        ({"run": ["python", "train.py", "{checkpoint}", "{prepare}", "{output}"]}, "", []),
    ],
)
def test_checkpoints_of_a_program_that_cannot_find_their_folder_are_refused(
    tmp_path: Path, keys: dict[str, Any], code: str, refused: list[str]
) -> None:
    folder = tmp_path / "churn"
    assert problems(folder, step(checkpoints={}, **keys)) == {}
    (folder / "prepare.py").write_text("", encoding="utf-8")
    (folder / "train.py").write_text(code, encoding="utf-8")
    refusals = shipping_problems({**GCP, "pipelines": {"churn": {"uses": str(folder), "steps": PLACED}}}, ROOT)
    assert [problem.key.partition(": ")[2] for problem in refusals] == refused


def test_the_list_that_takes_the_place_of_a_text_can_be_pasted(tmp_path: Path) -> None:
    text = "python train.py --data={prepare} {trees} --output {output}"
    said = problems(tmp_path / "churn", step(rehearsal={"run": text}))
    fix = said["steps.train.rehearsal.run"].rpartition("write `")[2].rstrip("`")
    assert problems(tmp_path / "pasted", step(run=yaml.safe_load(fix))) == {}


@pytest.mark.parametrize(
    ("keys", "key", "name"),
    [
        ({"run": ["python", "train.py", "{stare}", "{output}"]}, "run[2]", "`parameters: {stare: …}`"),
        ({"run": ["sh", "-c", "train ${HOME} {output}"]}, "run[2]", "`${{HOME}}`"),
        ({"run": ["python ok.py"]}, "run", "`[python, ok.py]`"),
        ({"rehearsal": {"run": ["python -m ok", "{output}"]}}, "rehearsal.run", '`[python, -m, ok, "{output}"]`'),
        ({"run": ["python", "train.py", "{prepare}", "{trees}", "{output}"] * 3000}, "run", "15000"),
    ],
)
def test_a_wrong_command_is_told_what_to_write(tmp_path: Path, keys: dict[str, Any], key: str, name: str) -> None:
    check(problems(tmp_path / "churn", step(**keys)), "", {f"steps.train.{key}": [name]})


def test_what_a_step_names_and_is_not_there_is_told_at_its_key(tmp_path: Path) -> None:
    folder = tmp_path / "churn"
    content = step(files=["plugins/*.py"], rehearsal={"requirements": "small.txt"})
    content["steps"]["prepare"] = {**content["steps"]["prepare"], "code": "source"}
    assert problems(folder, content) == {}
    (folder / "train.py").write_text("", encoding="utf-8")
    refusals = shipping_problems({**GCP, "pipelines": {"churn": {"uses": str(folder), "steps": PLACED}}}, ROOT)
    assert {problem.key.partition(": ")[2]: problem.value for problem in refusals} == {
        "steps.prepare.code": f"{folder}/source",
        "steps.train.files": "plugins/*.py",
        "steps.train.rehearsal.requirements": f"{folder}/small.txt",
    }


@pytest.mark.parametrize(
    "text",
    [
        "description: x\nsteps:\n  a: {run: [sh, '{b}', '{output}']}\n  b: {run: [sh, '{a}', '{output}']}\n",
        "description: x\nsteps:\n  a: {run: [sh]}\n  a: {run: [sh]}\n",
        "description: x\nsteps:\n\ta: {run: [sh]}\n",
    ],
)
def test_nothing_that_stands_there_is_called_not_set(tmp_path: Path, text: str) -> None:
    (tmp_path / "pipeline.yaml").write_text(text, encoding="utf-8")
    (problem,) = pipeline(str(tmp_path)).problems
    assert problem.shown in {"'a'", "'pipeline.yaml'"}


def test_only_pipelines_that_run_are_judged_those_of_a_rehearsal_too(tmp_path: Path) -> None:
    folder = tmp_path / "churn"
    expected = problems(folder, step(image="python:3"))
    assert set(expected) == {"steps.train.image"}
    section = {"uses": str(folder), "steps": PLACED}
    assert folders_in({"pipelines": {"mnist": None, "other": section}}) == [str(folder)]
    with pytest.raises(SettingsError) as error:
        load(changed(GCP, {"rehearsal": {"pipelines": {"churn": section}}}))
    assert [problem.key for problem in error.value.problems] == [f"{folder}/pipeline.yaml: steps.train.image"]
    with pytest.raises(SettingsError) as error:
        load(changed(GCP, {"pipelines.churn": section, "rehearsal": {"pipelines": {"churn": {"trees": 5}}}}))
    assert [problem.key for problem in error.value.problems] == [f"{folder}/pipeline.yaml: steps.train.image"]


def test_a_step_that_runs_nowhere_is_told_what_to_write(tmp_path: Path) -> None:
    texts = problems(tmp_path / "churn", VALID, steps={"prepare": {"pool": "cpu"}})
    assert "`train: {pool: …}`" in texts["stack.steps.train"]


def test_a_pool_that_is_not_there_is_told_where_it_is_declared(tmp_path: Path) -> None:
    texts = problems(tmp_path / "churn", VALID, steps={**PLACED, "train": {"pool": "large"}})
    [cluster] = GCP["clusters"]
    assert f"`slipway:clusters.{cluster}.pools.large`" in texts["stack.steps.train.pool"]


def test_what_has_few_values_is_required_with_them(tmp_path: Path) -> None:
    texts = problems(tmp_path / "churn", {**VALID, "parameters": {"trees": {"default": 3}}})
    assert "`integer`, `number`, `string` or `boolean`" in texts["parameters.trees.type"]


def test_a_program_that_is_not_there_is_told_which_one_is_near(tmp_path: Path) -> None:
    folder = tmp_path / "churn"
    problems(folder, step(run=["python", "tarin.py", "{prepare}", "{trees}", "{output}"]))
    for name in ("prepare.py", "train.py"):
        (folder / name).write_text("", encoding="utf-8")
    [problem] = shipping_problems({**GCP, "pipelines": {"churn": {"uses": str(folder), "steps": PLACED}}}, ROOT)
    assert "`train.py`" in problem.fix


def test_a_step_that_others_read_is_told_where_to_write(tmp_path: Path) -> None:
    steps = {**VALID["steps"], "prepare": {"run": ["python", "prepare.py"]}}
    texts = problems(tmp_path / "churn", {**VALID, "steps": steps})
    assert list(texts) == ["steps.prepare.run"]
    assert "where to write what `train` reads" in texts["steps.prepare.run"]


@pytest.mark.parametrize(
    ("lock", "in_a_clone", "in_a_project"),
    [
        ("workloads/mnist/requirements.txt", "make lock PIPELINE=mnist", "slipway lock --pipeline mnist"),
        (
            "team/mnist/locked.txt",
            ".venv/bin/uv pip compile --universal --generate-hashes team/mnist/locked.in",
            "uv pip compile --universal --generate-hashes team/mnist/locked.in",
        ),
    ],
)
def test_a_missing_lock_file_is_made_by_a_command_that_is_there(
    lock: str, in_a_clone: str, in_a_project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiling(ROOT / lock, ROOT).startswith(in_a_clone)
    # Where the environment of a project is, nobody knows: its commands are on PATH.
    monkeypatch.setattr(commands, "PROJECT", tmp_path)
    assert compiling(ROOT / lock, ROOT).startswith(in_a_project)
