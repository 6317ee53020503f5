"""Mistakes in a ``pipeline.py``: each is one error with the file's name, wherever it comes to light."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.pipelines import python_file
from slipway.infra.pipelines.matrix import MOST_STEPS
from slipway.infra.schema.problems import Problem, SettingsError
from slipway.infra.settings.loading import load
from tests.support.stack_values import GCP, changed

DECLARATION = """\
from pydantic import Field

from slipway.infra.pipelines.contract import Nodes, Pipeline, PipelineSettings, StepDeclaration, StepSettings
from slipway.infra.pipelines.results import Number
from slipway.infra.schema.problems import Finding


class Words(PipelineSettings):
    count: int = Field(default=1, ge=1)
    run: StepSettings


def check(section):
    return []


def steps(settings):
    arguments = ["--output", "{output}"]
    results = [Number(name="words", title="Words", path="m.json")]
    return [StepDeclaration("run", "slipway.workloads.gates.store", settings.run, arguments, results=results)]


PIPELINE = Pipeline(settings=Words, steps=steps, checks=[check])
"""


def reasons(folder: Path, replaced: str, by: str) -> list[str]:
    """What is told of the pipeline with ``by`` in place of ``replaced``; all of it names the file."""
    folder.mkdir(exist_ok=True)
    assert replaced in DECLARATION
    file = folder / "pipeline.py"
    file.write_text(DECLARATION.replace(replaced, by), encoding="utf-8")
    section = {"uses": str(folder), "count": 3, "run": {"pool": "cpu"}}
    problems: Sequence[Problem] = []
    try:
        load(changed(GCP, {"pipelines": {"words": section}}))
    except SettingsError as error:
        problems = error.problems
    assert {problem.key for problem in problems} <= {str(file)}
    return [problem.reason for problem in problems]


def test_a_declaration_without_mistakes_is_read(tmp_path: Path) -> None:
    assert reasons(tmp_path, "checks", "checks") == []


@pytest.mark.parametrize(
    ("replaced", "by", "said"),
    [
        ("settings=Words", "settings='Words'", "`PIPELINE.settings` has another type"),
        ("settings=Words", "settings=StepSettings", "`PIPELINE.settings` has another type"),
        ("steps=steps", "steps=[]", "`PIPELINE.steps` has another type"),
        ("checks=[check]", "checks=check", "`PIPELINE.checks` has another type"),
        ("checks=[check]", "checks=['check']", "`PIPELINE.checks[0]` has another type"),
        (
            "run: StepSettings",
            "run: StepSettings = Field(ge=1)",
            "a field or a validator of its `settings` fails: TypeError",
        ),
        ("ge=1", f"ge=1, description{'[' * 199}", "Python cannot read it: it is nested too deeply"),
        ("return []", "return section.settings.cuont", "`checks` fails in line 14: AttributeError"),
        ("return []", "return [1]", "`checks[0]` has another type"),
        (
            "return []",
            "return [Finding(['pipelines'], 1, 'wrong', 'mend it')]",
            "`checks[0].path` has another type",
        ),
        (
            '"{output}"]',
            '"{output}"] * 25_000',
            "`steps[0].arguments` has 50000 parts",
        ),
        ('path="m.json")]', 'path="m.json")] * 3000', "`steps[0].results` has 3000 parts"),
        ("return [S", "return [1 / 0, S", "`steps` fails in line 20: ZeroDivisionError"),
        ("return [S", "return ['run', S", "`steps[0]` has another type"),
        ("settings.run, ", "'cpu', ", "`steps[0].placed_by` has another type"),
        ("settings.run, ", "{'pool': 'cpu'}, ", "`steps[0].placed_by` has another type"),
        ('["--output", "{output}"]', '"--output"', "`steps[0].arguments` has another type"),
        ("results=results", "nodes=Nodes(2, wait='1m')", "`steps[0].nodes.wait` has another type"),
        (
            "results=results",
            "results=[{'kind': 'file', 'name': 'x', 'title': 'X', 'path': 'x'}]",
            "`steps[0].results[0]` has another type",
        ),
        ("{output}", "{outptu}", "step `run` refers to `outptu`"),
        ("{output}", "{output", "step `run` has a brace that belongs to no reference"),
        (
            "return [S",
            "raise ValueError('x' * 10**6); return [S",
            f"`steps` fails in line 20: ValueError: {'x' * 99}",
        ),
    ],
)
def test_a_mistake_is_one_error_that_names_the_file(tmp_path: Path, replaced: str, by: str, said: str) -> None:
    (reason,) = reasons(tmp_path / "words", replaced, by)
    assert reason.startswith(said)
    assert len(reason) < 1000


def test_thousands_of_steps_are_refused_for_their_number_and_not_all_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    check = python_file._check

    def counted(file: str, name: str, value: Any, kind: Any) -> None:
        if name == "steps":
            read.append(len(value))
        check(file, name, value, kind)

    monkeypatch.setattr(python_file, "_check", counted)
    declaration = (
        'StepDeclaration("run", "slipway.workloads.gates.store", settings.run, arguments, results=results)'
    )
    file = tmp_path / "pipeline.py"
    file.write_text(DECLARATION.replace(f"[{declaration}]", f"[{declaration}] * 2000"), encoding="utf-8")
    section = {"uses": str(tmp_path), "count": 3, "run": {"pool": "cpu"}}
    with pytest.raises(SettingsError, match=rf"2000 steps.*at most {MOST_STEPS}"):
        load(changed(GCP, {"pipelines": {"words": section}}))
    assert max(read) <= MOST_STEPS
