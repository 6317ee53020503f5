"""A pipeline that is only put there: a folder below ``workloads`` in a copy of the repository."""

import json
from pathlib import Path
from typing import Any

import pytest

from slipway.command.reference import shipped
from slipway.command.verbs.previews import Format
from slipway.evaluated.model import Preview
from slipway.infra.exits import Exit
from slipway.infra.review.contract import Severity
from slipway.preview.build import exit_code
from tests.support.checkout import ROOT, copy_checkout
from tests.support.clone_previews import preview_clone, said
from tests.support.clones import git, python
from tests.support.rehearsing import stack_file
from tests.support.tree import write_tree

DECLARED = """
description: Count the lines of a file.
parameters:
  file: {type: string, description: The file's path in the store.}
steps:
  count:
    description: Counts the lines.
    run: [python, count.py, --file, "{store}/{file}", --output, "{output}"]
    results: {lines: {number: lines.json#/lines, format: integer, title: Lines}}
"""

PROGRAM = '''"""Count the lines of a file."""

import argparse
import json
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--file", type=Path, required=True)
parser.add_argument("--output", type=Path, required=True)
options = parser.parse_args()
count = len(options.file.read_text().splitlines())
options.output.mkdir(exist_ok=True)
(options.output / "lines.json").write_text(json.dumps({"lines": count}))
print(f"{count} lines")
'''

SECTIONS: dict[str, Any] = {
    "lines": {"file": "uploads/words.txt", "steps": {"count": {"pool": "cpu", "memory": "256Mi"}}},
    "again": {"uses": "lines", "file": "uploads/more.txt", "steps": {"count": {"pool": "cpu", "memory": "256Mi"}}},
}


def write_stack(root: Path, pipelines: dict[str, Any]) -> None:
    """The stack ``local`` with these pipelines in place of its own."""
    files = {"uploads/words.txt": "words.txt", "uploads/more.txt": "more.txt"}
    file = root / "stacks" / "Pulumi.local.yaml"
    stack_file(file, pipelines=pipelines, rehearsal={"store_files": files})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy; its one commit is without the pipeline."""
    copy = copy_checkout(tmp_path_factory.mktemp("clone") / "slipway")
    git(copy, "init", "-q")
    git(copy, "add", ".")
    git(copy, "commit", "-q", "-m", "before")
    files = {"workloads/lines/pipeline.yaml": DECLARED, "workloads/lines/count.py": PROGRAM}
    write_tree(copy, {**files, "words.txt": "one\ntwo\nthree\n", "more.txt": "four\n" * 4})
    write_stack(copy, SECTIONS)
    return copy


CHECK = """
import json, sys
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.engine.stack_config import load_stack
from pathlib import Path
raw = dict(load_stack("local", Path.cwd()).values)
raw = {key.removeprefix("slipway:"): value for key, value in raw.items() if key.startswith("slipway:")}
raw["pipelines"] = json.loads(sys.argv[1])
raw.pop("rehearsal")
try:
    load(raw)
except SettingsError as error:
    print(json.dumps([[problem.key, problem.reason, problem.fix] for problem in error.problems]))
else:
    print("[]")
"""


def problems(root: Path, sections: dict[str, Any]) -> dict[str, str]:
    """The problems of the stack with these pipelines: reasons and fixes by key."""
    texts: dict[str, str] = {}
    for key, reason, fix in json.loads(python(root, "-c", CHECK, json.dumps(sections))):
        name = key.removeprefix("slipway:pipelines").removeprefix(".")
        texts[name] = "\n".join(filter(None, [texts.get(name), reason, fix]))
    return texts


@pytest.mark.slow
def test_everything_wrong_in_its_section_is_said_at_once(root: Path) -> None:
    assert problems(root, SECTIONS) == {}
    wrong = {
        "lines": {"fil": "x", "steps": {"count": {"pool": "cqu", "memory": "lots", "cpu": "64"}}},
        "again": {"uses": "line", "steps": {"count": {"pool": "cpu", "gpus": 1}}},
        "linse": SECTIONS["lines"],
        "Again!": {**SECTIONS["again"]},
        "store": {**SECTIONS["again"]},
    }
    texts = problems(root, wrong)
    expected = {
        "lines.fil": ["there is no such key", "did you mean `file`?"],
        "lines.steps.count.pool": ["did you mean `cpu`?"],
        "lines.steps.count.memory": ["not a size"],
        "again.uses": ["did you mean `lines`?"],
        "again.file": ["required, and not there", "add it: The file's path in the store."],
        "again.steps.count.gpus": ["has no GPUs"],
        "linse": ["did you mean `lines`?", "`uses: lines`"],
        '["Again!"]': ["not a Kubernetes name"],
        "store": ["an output of the stack itself"],
    }
    assert set(texts) == set(expected)
    assert {key: [word for word in words if word not in texts[key]] for key, words in expected.items()} == {
        key: [] for key in expected
    }


@pytest.mark.slow
def test_a_stack_without_it_says_nothing_of_it(root: Path) -> None:
    code = (
        "import sys; from slipway.infra.settings.loading import load;"
        "print([name for name in sys.modules if name.startswith('workloads.')])"
    )
    assert python(root, "-c", code) == "[]\n"


@pytest.mark.slow
def test_it_is_rehearsed_twice_under_two_names(root: Path) -> None:
    said = python(root, "-m", "slipway", "rehearse", "--stack", "local")
    assert "lines-count" in said
    assert "again-count" in said
    folder = root / "build" / "rehearsal" / "local"
    outputs = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))
    assert set(outputs) == {"again", "lines", "store", "show", "connect", "kubeconfig"}
    assert outputs["lines"]["lines"] == "make show STACK=local lines.lines"
    assert set(outputs["show"]) == {"lines.lines", "again.lines"}
    counted = {
        name: json.loads((folder / "store" / entry["path"]).read_text(encoding="utf-8"))["lines"]
        for name, entry in outputs["show"].items()
    }
    assert counted == {"lines.lines": 3, "again.lines": 4}
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "lines-count" in report
    assert "<small>Lines</small>" in report


WORDS = """
description: Count the words of a file.
parameters:
  file: {type: string, description: The file's path in the store.}
  shortest: {type: integer, default: 1, minimum: 1, maximum: 9}
steps:
  count:
    run: [python, count.py, "{store}/{file}", "{shortest}", "{output}"]
    resources: {cpu: 500m, memory: 256Mi}
    matrix: {shortest: [1, 3]}
    best: {by: words}
    results: {words: words.json#/words}
  show:
    run: [python, show.py, "{count}", "{output}"]
"""
PLACED = {"count": {"pool": "cpu"}, "show": {"pool": "cpu", "memory": "256Mi"}}


def write_words(folder: Path) -> Path:
    """A pipeline in a folder, declared in YAML."""
    return write_tree(folder, {"pipeline.yaml": WORDS, "count.py": "import sys\n", "show.py": "import sys\n"})


@pytest.fixture(scope="module")
def words(root: Path) -> Path:
    """The copy with such a pipeline in it, and another beside it."""
    write_words(root / "workloads" / "words")
    write_words(root.parent / "elsewhere")
    return root


@pytest.mark.slow
def test_pipelines_are_explained_and_their_mistakes_in_the_list(words: Path) -> None:
    lines, counted, matrix = (
        json.loads(python(words, "-m", "slipway", "explain", f"pipelines.{path}", "--format", "json"))[
            "explained"
        ][0]
        for path in ("lines", "words", "words.steps.count.matrix")
    )
    assert [entry["description"] for entry in (lines, counted)] == [
        "Count the lines of a file.",
        "Count the words of a file.",
    ]
    keys = {key["key"]: (key["value"], key["default"], key["required"]) for key in counted["keys"]}
    assert keys["file"] == ("text", "", True)
    assert keys["shortest"] == ("whole number, 1 to 9", "1", False)
    assert "shortest" in {key["key"] for key in matrix["keys"]}
    wrong = {
        "words": {"shortest": 10, "steps": {"count": {"pool": "cqu", "matrix": {"shortest": [0]}}, "show": {}}},
        "other": {"uses": "../elsewere", "steps": PLACED},
        "more": {"uses": "../elsewhere", "file": "x", "steps": {**PLACED, "shwo": {"pool": "cpu"}}},
    }
    texts = problems(words, wrong)
    expected = {
        "words.file": "add it: The file's path in the store.",
        "words.shortest": "above 9",
        "words.steps.count.pool": "did you mean `cpu`?",
        "words.steps.count.matrix.shortest[0]": "below 1",
        "words.steps.show.pool": "required, and not there",
        "other.uses": f"there is no `pipeline.yaml` in {words.parent}/elsewere",
        "more.steps.shwo": "did you mean `show`?",
    }
    assert set(texts) == set(expected)
    assert {key: texts[key] for key, said in expected.items() if said not in texts[key]} == {}


@pytest.mark.slow
def test_a_preview_says_that_it_is_added_and_which_of_its_jobs_a_change_runs_again(root: Path) -> None:
    added = said(preview_clone(root, "local", base="HEAD"))
    assert "+ again-count  Job, lines-count  Job  runs  on pool cpu: it is new" in added
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "added")
    write_stack(root, {**SECTIONS, "again": {**SECTIONS["again"], "file": "uploads/words.txt"}})
    changed = said(preview_clone(root, "local", base="HEAD"))
    assert "again-count  Job  runs" in changed
    assert "lines-count" not in changed


@pytest.mark.slow
def test_declarations_are_read_without_pulumi_and_tensorflow() -> None:
    code = (
        "import sys; from slipway.infra.pipelines.discovery import pipeline;"
        f"print([pipeline(name).settings.__name__ for name in {shipped.pipelines()}]);"
        "print([name for name in sys.modules if name.partition('.')[0] in {'pulumi', 'tensorflow', 'keras'}])"
    )
    said = [
        str([name.capitalize() for name in shipped.pipelines()]),
        "[]",
    ]
    assert python(ROOT, "-c", code).splitlines() == said


@pytest.mark.slow
def test_a_preview_of_one_in_yaml_follows_its_scripts_and_its_matrix(words: Path) -> None:
    section = {"file": "uploads/words.txt", "steps": PLACED}
    sections = {"words": section, "more": {**section, "uses": "../elsewhere"}}
    write_stack(words, sections)
    git(words, "add", ".")
    git(words, "commit", "-q", "-m", "words")
    assert "Job  runs" not in said(preview_clone(words, "local", base="HEAD"))
    for folder in (words / "workloads" / "words", words.parent / "elsewhere"):
        (folder / "show.py").write_text("import os\n", encoding="utf-8")
    preview = preview_clone(words, "local", base="HEAD")
    changed = said(preview)
    assert "words-show  Job  runs" in changed
    assert "count" not in changed
    assert "more-show  Job" not in changed
    assert "not-comparable" in changed, "of a folder outside of the repository there is one revision"
    (stack,) = preview.stacks
    assert stack.changes is not None
    assert stack.changes.unknown == ["more"]
    unknown = [finding for finding in stack.findings if finding.policy == "not-comparable"]
    assert [(finding.name, finding.severity, finding.harm) for finding in unknown] == [
        ("slipway:pipelines.more", Severity.WARNING, False)
    ]
    assert exit_code(preview, Severity.WARNING) == Exit.FAILED
    count = {"pool": "cpu", "matrix": {"shortest": [1, 3, 5]}}
    write_stack(words, {**sections, "more": {**sections["more"], "steps": {**PLACED, "count": count}}})
    added = said(preview_clone(words, "local", base="HEAD"))
    assert "+ more-count-5  Job  runs" in added
    assert "more-show  Job  runs" in added
    assert "more-count-1" not in added


@pytest.mark.slow
def test_a_stack_is_not_the_same_where_files_outside_of_the_repository_may_have_changed(words: Path) -> None:
    section = {"file": "uploads/words.txt", "steps": PLACED}
    linked = words / "workloads" / "linked"
    linked.symlink_to(words.parent / "elsewhere")
    write_stack(words, {"more": {**section, "uses": "../elsewhere"}, "linked": section})
    git(words, "add", ".")
    git(words, "commit", "-q", "-m", "outside")
    (words.parent / "elsewhere" / "show.py").write_text("import sys\n", encoding="utf-8")
    # A process of its own: which files are outside is judged by the folder of the project that runs.
    file = words.parent / "preview.json"
    text = python(words, "-m", "slipway", "preview", "-s", "local", "--base", "HEAD", "--json", str(file))
    assert "No changes in" not in text
    assert "unknown of linked, more" in " ".join(text.split())
    preview = Preview.model_validate_json(file.read_text(encoding="utf-8"))
    assert "not-comparable" in said(preview, Format.MARKDOWN)
    linked.unlink()


def test_a_folder_that_a_clone_does_not_have_is_one_error_that_says_so(words: Path) -> None:
    texts = problems(words, {"more": {"uses": "../not-cloned", "steps": PLACED}})
    assert "outside of the repository" in texts["more.uses"]
