"""The command `slipway`: its verbs, its help, where it may be called, and the stack that goes without a name."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipway.command.app import VERBS, app
from slipway.command.verbs import names
from slipway.engine.stack_config import stack_names
from slipway.infra import commands
from slipway.infra.exits import Exit
from slipway.infra.pipelines.discovery import pipeline_names
from slipway.interrupts import INTERRUPTED
from tests.support.checkout import ROOT
from tests.support.project import PROJECT_FILE, STACK
from tests.support.tree import write_tree

PIPELINE = "description: Counts.\nsteps: {count: {description: Counts., run: 'bash -c \"echo > {output}/x\"'}}\n"
FILES = {
    "Pulumi.yaml": PROJECT_FILE,
    "__main__.py": "from slipway import run\n\nrun()\n",
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


def test_every_verb_is_a_command_with_examples_that_a_terminal_shows_whole() -> None:
    for name, verb in VERBS.items():
        help = CliRunner().invoke(app, [name, "--help"], terminal_width=80)
        assert help.exit_code == 0, name
        for example in verb.examples:
            assert example.split()[0] == name
            assert f"    slipway {example}\n" in help.stdout
        assert all(len(line) <= 80 for line in help.stdout.splitlines()), name


def test_the_page_and_the_makefile_have_every_verb() -> None:
    rows = re.findall(r"^\| (`[a-z].*?) \|", (ROOT / "docs/commands.md").read_text("utf-8"), re.MULTILINE)
    assert [verb for row in rows for verb in re.findall(r"`([a-z-]+)`", row)] == [*VERBS]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert [verb for verb in VERBS if not re.search(rf"^{verb}:", makefile, re.MULTILINE)] == []


def test_help_and_completion_import_nothing_that_a_verb_works_with() -> None:
    """A shell waits for them: Pydantic alone takes longer to import than all that they need."""
    code = (
        "import sys; from slipway.command.app import VERBS, load; [load(*verb) for verb in VERBS.items()]\n"
        "heavy = {'pulumi', 'pydantic', 'tensorflow', 'kubernetes', 'jinja2', 'asyncio'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_the_page_has_the_exit_codes() -> None:
    page = (ROOT / "docs/commands.md").read_text("utf-8").partition("## Exit codes")[2]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == [*Exit]
    assert Exit.INTERRUPTED == INTERRUPTED
    printed = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    assert all(f"{code.value} {code.meaning}" in printed for code in Exit)


def test_names_are_those_that_the_verbs_know() -> None:
    assert names.stacks() == stack_names(ROOT)
    assert names.pipelines() == [*pipeline_names()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pre", ["preview"]),
        ("rehearse --stack gcp-d", ["gcp-dev", "gcp-distributed"]),
        ("preview -s gcp-d", ["gcp-dev", "gcp-distributed"]),
        ("lock --pipeline mni", ["mnist"]),
        ("preview --format m", ["markdown"]),
    ],
)
def test_a_shell_completes_verbs_stacks_and_pipelines(words: str, expected: list[str]) -> None:
    environment = {"_SLIPWAY_COMPLETE": "complete_bash", "COMP_WORDS": f"slipway {words}"}
    environment["COMP_CWORD"] = str(len(words.split()))
    done = CliRunner().invoke(app, prog_name="slipway", env=environment)
    assert done.output.split() == expected


def test_a_verb_that_is_nearly_one_is_answered_with_it() -> None:
    done = CliRunner().invoke(app, ["preveiw"])
    assert done.exit_code == Exit.REFUSED
    assert "'preview'" in done.stderr


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["preview", "--stak", "dev"], "--stak"),
        (["doctor", "--format", "yaml"], "'yaml'"),
        (["demo", "--for", "soon"], "'soon' is not a number"),
        (["demo", "--for", "-1"], "below 0"),
        (["rehearse", "--disrupt", "train:x"], "'train:x'"),
        (["rehearse", "--disrupt", "train:after=soon"], "'train:after=soon'"),
        (["import"], "manifest"),
    ],
)
def test_wrong_words_are_reported_as_every_error_in_one_line(words: list[str], wrong: str) -> None:
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (Exit.REFUSED, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert wrong in done.stderr
    assert "Value error" not in done.stderr
    assert f"slipway {words[0]} --help" in done.stderr


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
    listed = json.loads(slipway(project, "show", "runs", "--rehearsal", "--format", "json").stdout)
    assert [(run["pipeline"], run["step"]) for run in listed["runs"]] == [("lines", "count")]
    loud = write_tree(project, {"__main__.py": f"{FILES['__main__.py']}print('said by the program')\n"})
    again = slipway(loud, "rehearse", "--format", "json")
    content = json.loads(again.stdout)
    assert (again.returncode, content["format"], content["stack"]) == (0, 1, "dev")
    assert "unchanged" in {job["phase"] for job in content["jobs"] if job["name"] == "lines-count"}
    assert "said by the program" in again.stderr
    shown = slipway(project, "show", "runs", "nothing/there", "--rehearsal")
    assert "lines/count" in shown.stderr
    write_tree(project, {"stacks/Pulumi.prod.yaml": STACK})
    two = slipway(project, "rehearse")
    assert two.returncode == 2
    assert "dev, prod" in two.stderr
    assert "slipway rehearse --stack dev" in two.stderr


@pytest.mark.parametrize(
    ("project", "expected"),
    [
        (
            None,
            [
                "make rehearse STACK=a OUTPUT='b c' FRESH=1",
                "make import MANIFEST=x.yaml",
                "make show STACK=a predictions",
                "KUBECONFIG_FILE",
                "CLOUD=gcp",
            ],
        ),
        (
            Path("/elsewhere"),
            [
                "slipway rehearse --stack a --output 'b c' --fresh",
                "slipway import x.yaml",
                "slipway show predictions --stack a",
                "--kubeconfig",
                "--cloud gcp",
            ],
        ),
    ],
)
def test_a_command_is_named_as_it_is_typed_there(
    monkeypatch: pytest.MonkeyPatch, project: Path | None, expected: list[str]
) -> None:
    monkeypatch.setattr(commands, "PROJECT", project or commands.LIBRARY)
    assert [
        commands.command("rehearse", stack="a", output="b c", fresh=True),
        commands.command("import", manifest="x.yaml"),
        commands.command("show", "predictions", stack="a"),
        commands.option("kubeconfig"),
        commands.option("cloud", "gcp"),
    ] == expected
