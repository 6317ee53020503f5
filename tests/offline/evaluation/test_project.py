"""A stack is what the whole program of its project declares, by the project's name: `slipway.run` and what stands
beside it."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from slipway.infra import program
from slipway.infra.schema.problems import SettingsError
from slipway.infra.schema.yaml_files import ConfigError
from slipway.offline.evaluation.__main__ import evaluate_stack
from slipway.offline.evaluation.encoding import Secrets
from slipway.offline.evaluation.worker import evaluate_or_fail
from tests.support.project import PROJECT_FILE, STACK
from tests.support.tree import write_tree

RUN = "from slipway import run\n\ndeclared = run()\n"
CLUSTERS = STACK.partition("  slipway:pipelines")[0]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(program, "PROJECT", tmp_path)
    files = {"Pulumi.yaml": PROJECT_FILE.replace("slipway", "acme", 1), "stacks/Pulumi.here.yaml": CLUSTERS}
    return write_tree(tmp_path, files)


def evaluated(project: Path, main: str) -> dict[str, Any]:
    write_tree(project, {"__main__.py": textwrap.dedent(main)})
    return evaluate_stack("here", project, Secrets(b"k"), lambda _: None)


def failure(project: Path, main: str) -> dict[str, str]:
    write_tree(project, {"__main__.py": textwrap.dedent(main)})
    return evaluate_or_fail("here", project, Secrets(b"k"), evaluate_stack)["failure"]


def test_names_are_those_of_the_project(project: Path) -> None:
    declared = evaluated(project, RUN)["resources"]
    assert {resource["urn"].split("::")[1] for resource in declared} == {"acme"}
    (namespace,) = [resource for resource in declared if resource["type"] == "kubernetes:core/v1:Namespace"]
    assert "acme" in namespace["properties"]["metadata"]["labels"]["app.kubernetes.io/instance"]


def test_what_the_program_requires_of_its_configuration_is_told_at_once(project: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        evaluated(
            project, f"import pulumi\n{RUN}config = pulumi.Config()\nconfig.require('a')\nconfig.require('b')\n"
        )
    assert [problem.key for problem in caught.value.problems] == ["acme:a", "acme:b"]


def test_a_program_that_never_calls_run_is_refused(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"slipway\.run"):
        evaluated(project, "import slipway\n")


@pytest.mark.parametrize(
    ("main", "message", "line"),
    [
        (f"{RUN}\nrun()\n", "second time", "__main__.py:5"),
        ("import not_there\n", "not_there", "__main__.py:1"),
        (f"{RUN}raise LookupError('no such subnet')\n", "no such subnet", "__main__.py:4"),
    ],
)
def test_an_error_of_the_program_says_where_it_is(project: Path, main: str, message: str, line: str) -> None:
    failed = failure(project, main)
    assert message in failed["message"]
    assert failed["where"] == line
