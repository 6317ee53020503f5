"""Notebooks as steps: how they are started, what comes of a failed cell, and what is refused."""

import json
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.pipelines.notebook_step import PACKAGES, command_of_notebook, notebook_problem, page_of
from tests.infra.pipelines.file.test_wrong import VALID, problems
from tests.infra.pipelines.file_problems import check
from tests.support.tree import write_tree

EVIL = 'it\'s "two"  words $HOME `date`'

PYTHON = """#!/bin/sh
shift
[ -z "${PLACES:-}" ] || printf '%s\\n' "$PWD" "$PYTHONPATH" "$([ -f "$2" ] && echo readable)" >> "$PLACES"
for word in "$@"; do printf '%s\\n' "$word" >> "$CALLS"; done
echo . >> "$CALLS"
[ "$1" = nbconvert ] || exit ${FAILS:-0}
"""
"""Stands for the Python of a step: notes what it is started with."""


def run(
    tmp_path: Path, code: int, parameters: dict[str, Any], types: dict[str, str], **more: str
) -> tuple[list[list[str]], str]:
    """The command lines that the step starts, and what it prints on standard error."""
    write_tree(tmp_path, {"bin/python": PYTHON})
    (tmp_path / "bin/python").chmod(0o755)
    values = {
        "output": "/out dir",
        "trees": "7",
        "rate": "1e-05",
        "title": EVIL,
        "quick": "true",
        "prepare": "/a b",
    }
    words = [word.format_map(values) for word in command_of_notebook("a dir/train it.ipynb", parameters, types)]
    write_tree(tmp_path, {"code/a dir/train it.ipynb": "{}"})
    environment = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "CALLS": str(tmp_path / "calls"),
        "PLACES": str(tmp_path / "places"),
        "FAILS": str(code),
        **more,
    }
    place = tmp_path / "code" if "SLIPWAY_CODE" not in more else tmp_path
    ended = subprocess.run(words, env=environment, cwd=place, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    calls = (tmp_path / "calls").read_text().split(".\n")
    return [call.splitlines() for call in calls if call], ended.stderr


def test_parameters_keep_their_types_and_a_page_is_made(tmp_path: Path) -> None:
    types = {"trees": "integer", "rate": "number", "title": "string", "quick": "boolean"}
    parameters = {name: f"{{{name}}}" for name in (*types, "prepare")}
    more = {"data": "{prepare}/x", "path": "$HOME", "depth": 3, "loud": False}
    (papermill, nbconvert), _ = run(tmp_path, 0, {**parameters, **more}, types)
    flags = [*zip(papermill, papermill[1:], papermill[2:], strict=False)]
    assert papermill[:3] == ["papermill", f"{tmp_path}/code/a dir/train it.ipynb", "/out dir/train it.ipynb"]
    for flag in (
        ("-p", "trees", "7"),
        ("-p", "rate", "1e-05"),
        ("-r", "title", EVIL),
        ("-r", "prepare", "/a b"),
        ("-r", "data", "/a b/x"),
        ("-r", "path", "$HOME"),
        ("-p", "depth", "3"),
    ):
        assert flag in flags
    pairs = [*pairwise(papermill)]
    assert ("-y", "quick: true") in pairs
    assert ("-y", "loud: false") in pairs
    assert nbconvert[-1] == "/out dir/train it.ipynb"
    assert page_of("a dir/train it.ipynb").path == "train it.html"


def test_it_starts_in_its_folder_or_in_the_directory_of_the_step(tmp_path: Path) -> None:
    code = tmp_path / "code"
    run(tmp_path, 0, {}, {}, PYTHONPATH="/packages")
    run(tmp_path, 0, {}, {}, SLIPWAY_CODE=str(code), PYTHONPATH=f"{code}:/packages")
    places = (tmp_path / "places").read_text().splitlines()
    assert places[:3] == [f"{code}/a dir", f"{code}:/packages", "readable"]
    assert places[6:9] == [str(tmp_path), f"{code}:/packages", "readable"]


def test_a_failed_cell_fails_the_step_once_the_page_is_made(tmp_path: Path) -> None:
    (_, nbconvert), errors = run(tmp_path, 3, {}, {})
    assert nbconvert[0] == "nbconvert"
    assert "/out dir/train it.html" in errors


def step(**keys: Any) -> dict[str, Any]:
    return {**VALID, "steps": {**VALID["steps"], "train": keys}}


def test_what_can_be_wrong_with_a_notebook(tmp_path: Path) -> None:
    right = step(
        notebook="train.ipynb", parameters={"data": "{prepare}", "trees": "{trees}"}, matrix={"trees": [1]}
    )
    assert problems(tmp_path / "a", right) == {}
    wrong = step(notebook="train.py", parameters={"a-b": 1, "x": "{preper}"}, run=["x"], nodes=2)
    check(
        problems(tmp_path / "b", wrong),
        "steps.train.notebook steps.train.parameters.a-b steps.train.run steps.train.nodes",
        {},
    )
    unknown = step(notebook="train.ipynb", parameters={"x": "{preper}"})
    check(problems(tmp_path / "c", unknown), "", {"steps.train.parameters": ["`preper`", "{prepare}"]})
    check(problems(tmp_path / "d", step(parameters={"x": 1})), "steps.train.parameters steps.train.run", {})


@pytest.mark.parametrize(
    ("notebook", "lock", "known", "words"),
    [
        (json.dumps({"cells": []}), "".join(f"{name}==1.0 \\\n" for name in PACKAGES), True, []),
        (json.dumps({"cells": []}), None, False, []),
        (json.dumps({"cells": []}), "papermill==1.0\nipykernel==7\n", True, ["nbconvert"]),
        (json.dumps({"cells": []}), None, True, ["papermill", "requirements"]),
        ("{", None, False, ["notebook"]),
        ("[]", None, False, ["notebook"]),
        (None, None, False, ["no such file"]),
    ],
)
def test_what_runs_it_has_to_be_in_the_lock_file(
    tmp_path: Path, notebook: str | None, lock: str | None, known: bool, words: list[str]
) -> None:
    files = {"x.ipynb": notebook, "requirements.txt": lock}
    write_tree(tmp_path, {name: text for name, text in files.items() if text is not None})
    why = notebook_problem(tmp_path / "x.ipynb", tmp_path / "requirements.txt" if lock else None, known=known)
    assert [word for word in words if word not in " ".join(why or ())] == []
    assert (why is None) == (not words)
