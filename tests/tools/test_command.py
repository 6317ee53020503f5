"""The command `slipway`: its verbs, its help, where it may be called, and the stack that goes without a name."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipway.infra import commands
from slipway.tools.command import HISTORY, VERBS, app, load
from tests.support.checkout import ROOT
from tests.support.project import PROJECT_FILE, STACK
from tests.support.tree import write_tree

PIPELINE = "description: Counts.\nsteps: {count: {description: Counts., run: 'bash -c \"echo > {output}/x\"'}}\n"
FILES = {
    "Pulumi.yaml": PROJECT_FILE,
    "stacks/Pulumi.dev.yaml": STACK,
    "workloads/lines/pipeline.yaml": PIPELINE,
}


def slipway(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slipway", *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_verb_is_a_command_of_its_module_with_examples() -> None:
    for name, verb in {**VERBS, "history": HISTORY}.items():
        assert callable(getattr(importlib.import_module(verb.module), verb.function)), name
        assert verb.examples
        assert all(example.split()[0] == name for example in verb.examples if verb is not HISTORY)
        assert load(name, verb).params is not None


def test_the_page_and_the_makefile_have_every_verb() -> None:
    rows = re.findall(r"^\| (`[a-z].*?) \|", (ROOT / "docs/commands.md").read_text("utf-8"), re.MULTILINE)
    assert [verb for row in rows for verb in re.findall(r"`([a-z-]+)`", row)] == [*VERBS]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert [verb for verb in VERBS if not re.search(rf"^{verb}:", makefile, re.MULTILINE)] == []


def test_its_help_imports_no_verb() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    assert all(verb in done.stdout for verb in VERBS)
    code = "import sys; from slipway.tools import command; print([m for m in sys.modules if 'pulumi' in m])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_outside_of_a_project_it_says_so(tmp_path: Path) -> None:
    done = slipway(tmp_path, "rehearse")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "Pulumi.yaml" in done.stderr


@pytest.mark.slow
def test_the_only_stack_goes_without_its_name_and_messages_name_the_command(tmp_path: Path) -> None:
    project = write_tree(tmp_path, FILES)
    done = slipway(project / "workloads", "rehearse")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "build" / "rehearsal" / "dev" / "report.html").is_file()
    shown = slipway(project, "show", "runs", "nothing/there", "--rehearsal")
    assert "lines/count" in shown.stderr
    write_tree(project, {"stacks/Pulumi.prod.yaml": STACK})
    two = slipway(project, "rehearse")
    assert two.returncode == 2
    assert "dev, prod" in two.stderr
    assert "slipway show runs --stack local" in slipway(project, "show", "runs").stderr


@pytest.mark.parametrize(
    ("project", "expected"),
    [
        (
            None,
            [
                "make put STACK=a FROM='b c' FORCE=1",
                "make import MANIFEST=x.yaml",
                "make show STACK=a predictions",
            ],
        ),
        (
            Path("/elsewhere"),
            [
                "slipway put --stack a --from 'b c' --force",
                "slipway import x.yaml",
                "slipway show predictions --stack a",
            ],
        ),
    ],
)
def test_a_command_is_named_as_it_is_typed_there(
    monkeypatch: pytest.MonkeyPatch, project: Path | None, expected: list[str]
) -> None:
    monkeypatch.setattr(commands, "PROJECT", project or commands.LIBRARY)
    assert [
        commands.command("put", **{"stack": "a", "from": "b c", "force": True}),
        commands.command("import", manifest="x.yaml"),
        commands.command("show", "predictions", stack="a"),
    ] == expected
