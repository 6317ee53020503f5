"""The options of make's targets reach the preview's command line, and its exit code reaches whoever asks."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.command.app import VERBS
from tests.support.checkout import ROOT, copy_checkout

FAKE = """#!{python}
import json, pathlib, sys
pathlib.Path({calls!r}).write_text(json.dumps(sys.argv[1:]))
sys.exit(int(pathlib.Path({exits!r}).read_text()))
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("make") / "slipway")


class Preview:
    """Runs make with a stand-in for Python, which keeps the words that it was called with."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self._checkout, self._bin = checkout, folder / "bin"
        self._calls, self._exits = folder / "calls", folder / "exits"
        self._bin.mkdir()
        for name in ("python", "uv"):
            program = self._bin / name
            text = FAKE.format(python=sys.executable, calls=str(self._calls), exits=str(self._exits))
            program.write_text(text, encoding="utf-8")
            program.chmod(0o755)

    @property
    def called(self) -> bool:
        """Whether Python was called."""
        return self._calls.exists()

    def forget(self) -> None:
        """Forgets that Python was called."""
        self._calls.unlink()

    def run(self, *words: str, exits: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        self._exits.write_text(str(exits), encoding="utf-8")
        command = ["make", f"BIN={self._bin}", *words]
        env = {**os.environ, **environment}
        return subprocess.run(command, cwd=self._checkout, check=False, capture_output=True, text=True, env=env)

    def make(self, *words: str, exits: int = 0, **environment: str) -> tuple[int, list[str], str]:
        """make's own exit code, the words after ``python``, and what it left in build/preview/status."""
        done = self.run(*words, exits=exits, **environment)
        left = self._checkout / "build" / "preview" / "status"
        status = left.read_text(encoding="utf-8").strip() if left.exists() else ""
        return done.returncode, json.loads(self._calls.read_text(encoding="utf-8")), status


@pytest.fixture
def preview(checkout: Path, tmp_path: Path) -> Preview:
    return Preview(checkout, tmp_path)


PREVIEW = ("BASE=origin/main", "FORMAT=markdown", "FAIL_ON=warning", "OUTPUT=a file.md")
PREVIEWED = "--base origin/main --format markdown --output 'a file.md' --fail-on warning"
NEW = "-m slipway new --example=mnist"


@pytest.mark.parametrize(
    ("words", "called"),
    [
        (["preview"], "-m slipway preview"),
        (
            ["preview", "STACK=gcp-dev,a", *PREVIEW],
            f"-m slipway preview --stack gcp-dev --stack a {PREVIEWED}",
        ),
        (["preview", "STACK=gcp-dev a"], "-m slipway preview --stack gcp-dev --stack a"),
        (
            ["check", "STACK=gcp-dev", "FAIL_ON=warning"],
            "-m slipway check --stack gcp-dev --fail-on warning",
        ),
        (["doctor"], "-m slipway doctor"),
        (
            ["doctor", "STACK=gcp-dev,local", "FORMAT=json"],
            "-m slipway doctor --stack gcp-dev --stack local --format json",
        ),
        (["rehearse"], "-m slipway rehearse --stack gcp-dev"),
        (["rehearse", "STACK=a", "BENCHMARK=1"], "-m slipway rehearse --stack a --benchmark"),
        (["rehearse", "FRESH=1"], "-m slipway rehearse --stack gcp-dev --fresh"),
        (
            ["new", "STACK=team-a", "CLOUD=gcp", "REGION=europe-west4", "GPU=nvidia-l4", "USES=~/it"],
            f"{NEW} --stack=team-a --cloud=gcp --uses=~/it --region=europe-west4 --gpu=nvidia-l4",
        ),
        (["new", "PIPELINE=churn"], f"{NEW} --pipeline=churn"),
        (["explain", "KEY=steps.run", "FORMAT=json"], "-m slipway explain steps.run --format json"),
        (["watch"], "-m slipway watch"),
        (
            ["watch", "STACK=gcp-dev", "ONCE=1", "KUBECONFIG_FILE=a b", "KUBE_CONTEXT=$(id)"],
            "-m slipway watch --stack=gcp-dev --once '--kubeconfig=a b' '--context=$(id)'",
        ),
        (
            ["logs", "STACK=gcp-dev", "STEP=--help; id", "FOLLOW=1", "ATTEMPTS=1"],
            "-m slipway logs --stack=gcp-dev '--step=--help; id' --follow --attempts",
        ),
        (["shell", "STACK=gcp-dev", "STEP=train"], "-m slipway shell train --stack=gcp-dev"),
        (["open", "STACK=gcp-dev", "APP=page"], "-m slipway open page --stack=gcp-dev"),
        (
            ["show", "STACK=local", "predictions", "t4-fp32"],
            "-m slipway show --stack local predictions t4-fp32",
        ),
    ],
)
def test_what_stands_behind_a_target_is_handed_on(preview: Preview, words: list[str], called: str) -> None:
    assert preview.make(*words)[:2] == (0, shlex.split(called))


def test_every_target_and_every_variable_of_a_recipe_is_known() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    lists = {name: set(words.split()) for name, words in re.findall(r"(?m)^(TARGETS|OPTIONS) := (.*)$", text)}
    assert set(re.findall(r"(?m)^([a-z-]+):(?!=)", text)) == lists["TARGETS"]
    assert set(re.findall(r"\$\$\{?([A-Z_]+)", text)) == lists["OPTIONS"]


def test_every_verb_has_a_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(VERBS) <= set(re.findall(r"(?m)^([a-z-]+):(?!=)", text))


SWITCHES = {
    "FRESH": ("rehearse", "--fresh"),
    "BENCHMARK": ("demo", "--benchmark"),
    "FOLLOW": ("logs", "--follow"),
    "ATTEMPTS": ("logs", "--attempts"),
    "ONCE": ("watch", "--once"),
    "REHEARSAL": ("show", "--rehearsal"),
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_is_on_by_one_true_and_yes_alone(preview: Preview, switch: str) -> None:
    target, option = SWITCHES[switch]
    for value in ("1", "true", "yes"):
        assert option in preview.make(target, f"{switch}={value}")[1]
    for value in ("0", "false", "no", ""):
        assert option not in preview.make(target, f"{switch}={value}")[1]
    preview.forget()
    for value in ("maybe", "2", "1 1", "Yes!", "$(shell touch here)", "off"):
        assert preview.run(target, f"{switch}={value}").returncode == 2
    assert not preview.called


@pytest.mark.parametrize("name", [*SWITCHES, "NAME"])
def test_what_deletes_and_a_name_are_read_from_the_command_line_alone(preview: Preview, name: str) -> None:
    target, option = SWITCHES.get(name, ("import", "--name=1"))
    taken = option in preview.make(target, **{name: "1"})[1]
    assert taken == (name not in {"FRESH", "FORCE", "NAME"})
    assert option in preview.make(target, f"{name}=1", **{name: "0"})[1]


HOSTILE = [
    'it\'s; touch here `id` "$HOME"',
    "$(shell touch here)",
    "${shell touch here}",
    "$$(touch here)",
    "two\nlines; touch here",
    "a\\",
    "#x",
    "--help",
    "*",
]


@pytest.mark.parametrize("place", ["command line", "environment", "MAKEFLAGS"])
@pytest.mark.parametrize("value", HOSTILE)
def test_an_option_is_one_literal_word_wherever_it_is_from(
    preview: Preview, checkout: Path, value: str, place: str
) -> None:
    if place == "command line":
        _, words, _ = preview.make("preview", f"BASE={value}", f"STACK={value.replace(' ', '')}")
    elif place == "environment":
        _, words, _ = preview.make("preview", BASE=value, STACK=value.replace(" ", ""))
    else:
        # As make itself hands on what stands on its command line.
        escaped = value.replace("$", "$$").replace("\\", "\\\\").replace(" ", "\\ ").replace("\n", "\\\n")
        _, words, _ = preview.make("preview", MAKEFLAGS=f" -- BASE={escaped}")
    assert words[-2:] == ["--base", value]
    if place != "MAKEFLAGS":
        assert words[3:5] == ["--stack", value.replace(" ", "")]
    assert not (checkout / "here").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rehearse", "stack=local"], "there is no variable `stack`; did you mean `STACK`?; known here: STACK "),
        (["preview", "base=$(shell touch here)"], "there is no variable `base`"),
        (["rehearse", "local"], "there is no target `local`, but a stack: make rehearse STACK=local"),
        (["rehearse", "nonsense"], "there is no target `nonsense`"),
        (["nonsense"], "there is no target `nonsense`"),
        (["preveiw"], "there is no target `preveiw`; did you mean `preview`?"),
        (["reherse"], "did you mean `rehearse`?"),
        (["preview", "STAKC=local"], "there is no variable `STAKC`; did you mean `STACK`?"),
    ],
)
def test_a_mistyped_word_is_told_before_anything_is_done(
    preview: Preview, checkout: Path, words: list[str], says: str
) -> None:
    done = preview.run(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert not preview.called
    assert not (checkout / "here").exists()


@pytest.mark.parametrize("target", ["preview", "check", "doctor"])
@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_exit_code_is_left_where_make_cannot_change_it(preview: Preview, target: str, code: int) -> None:
    made, _, status = preview.make(target, exits=code)
    assert target == "doctor" or status == str(code)
    assert bool(made) == bool(code)


def test_a_run_that_is_cut_short_leaves_no_code_of_an_earlier_one(preview: Preview, checkout: Path) -> None:
    preview.make("preview", exits=1)
    killer = checkout.parent / "killer" / "python"
    killer.parent.mkdir()
    killer.write_text("#!/bin/sh\nkill -9 $PPID\n", encoding="utf-8")
    killer.chmod(0o755)
    command = ["make", f"BIN={killer.parent}", "-o", f"{killer.parent}/uv", "preview"]
    subprocess.run(command, cwd=checkout, check=False, capture_output=True)
    assert not (checkout / "build" / "preview" / "status").exists()


INSTALLING = """#!{python}
import pathlib, shutil, sys
if sys.argv[1:3] == ["-m", "venv"]:
    folder = pathlib.Path(sys.argv[3]) / "bin"
    folder.mkdir(parents=True)
    shutil.copy(__file__, folder / "python")
if sys.argv[1:3] == ["-m", "pip"]:
    options = sys.argv[4:]
    requirements = pathlib.Path(options[options.index("-r") + 1]).read_text()
    print("--require-hashes" in options, requirements)
"""


def test_what_installs_the_rest_is_held_to_its_hashes_too(checkout: Path, tmp_path: Path) -> None:
    program, venv = tmp_path / "python", tmp_path / "venv"
    program.write_text(INSTALLING.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    command = ["make", "--no-print-directory", f"VENV={venv}", f"PYTHON={program}", f"{venv}/bin/uv"]
    done = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
    hashed, uv, *hashes = done.stdout.split()
    assert hashed == "True"
    assert uv.startswith("uv==")
    assert len(hashes) > 2
    assert all(word == "\\" or word.startswith("--hash=sha256:") for word in hashes)


def install(checkout: Path, folder: Path, stamp: str, *, uv: str) -> subprocess.CompletedProcess[str]:
    """What make says while it installs by the shell script ``uv`` into ``folder``."""
    scripts = {
        "uv": f'echo "$@" >{folder}/called; {uv}',
        "python": f'test "$2" = slipway.command.progress && exec {sys.executable} "$@"; '
        f'echo "$PYTHONDONTWRITEBYTECODE$@" >>{folder}/compiled; exit 1',
    }
    (folder / "bin").mkdir()
    for name, script in scripts.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
    command = ["make", "--no-print-directory", f"VENV={folder}", f"{folder}/{stamp}"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=checkout, check=False, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("stamp", [".runtime", ".dev"])
def test_an_installation_says_its_size_and_lists_no_packages(checkout: Path, tmp_path: Path, stamp: str) -> None:
    done = install(checkout, tmp_path, stamp, uv='for n in $(seq 190); do echo " + package==$n" >&2; done')
    assert done.returncode == 0
    assert "GB" in done.stdout
    assert "package==" not in done.stdout + done.stderr
    assert len(done.stdout.splitlines() + done.stderr.splitlines()) == 3
    assert "--require-hashes" in (tmp_path / "called").read_text(encoding="utf-8")
    compiled = (tmp_path / "compiled").read_text(encoding="utf-8")
    assert "\n-c import slipway.rehearse" in f"\n{compiled}", "importing without bytecode takes seconds each time"
    assert (tmp_path / stamp).exists()


def test_an_installation_that_fails_shows_all_that_was_said(checkout: Path, tmp_path: Path) -> None:
    done = install(checkout, tmp_path, ".runtime", uv="echo no such package >&2; echo hint: spelling; exit 1")
    assert done.returncode == 2
    assert {"no such package", "hint: spelling"} <= set(done.stderr.splitlines())
    assert not (tmp_path / ".runtime").exists()


def test_the_lock_file_of_a_pipeline_is_compiled_of_its_packages(preview: Preview, checkout: Path) -> None:
    folder = checkout / "workloads" / "churn"
    assert "workloads/churn/requirements.in" in preview.run("lock", "PIPELINE=churn").stderr
    assert not preview.called
    folder.mkdir()
    (folder / "requirements.in").write_text("flask\n", encoding="utf-8")

    code, words, _ = preview.make("lock", "PIPELINE=churn")

    assert code == 0
    assert words[:2] == ["pip", "compile"]
    assert words[-3:] == ["workloads/churn/requirements.in", "-o", "workloads/churn/requirements.txt"]


def test_the_lock_files_of_the_project_are_compiled_without_a_pipeline(preview: Preview) -> None:
    assert preview.make("lock")[1][-1] == "requirements-docs.txt"
