"""``make doctor``: this machine, the state backend, and what is shown of it all."""

import io
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from slipway.command.doctor import examination, machine
from slipway.command.doctor.examination import Examined, document, of_file, show
from slipway.engine.evaluation.decoding import EvaluatedStack
from slipway.infra.review.facts import STACK, Observation, Probe, State, fine, unknown, wrong
from slipway.infra.review.stack import Stack
from tests.support.checkout import ROOT

PULUMI = """#!{python}
import sys
answers = {answers!r}
words = [each for each in sys.argv[1:] if each not in ("--non-interactive", "--color", "never")]
code, out, complaint = answers.get(" ".join(words), (1, "", "error: unknown command"))
print(out)
print(complaint, file=sys.stderr)
sys.exit(code)
"""

Answers = dict[str, tuple[int, str, str]]


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nobody has signed in to anything, without a Pulumi CLI."""
    for name in list(os.environ):
        if name.startswith(("PULUMI_", "AWS_", "GOOGLE_", "CLOUDSDK_", "GCLOUD_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


def install(tmp_path: Path, answers: Answers, *beside: str) -> None:
    """A `pulumi` on PATH that answers as told, and programs beside it that do nothing."""
    program = tmp_path / "bin" / "pulumi"
    program.write_text(PULUMI.format(python=sys.executable, answers=answers), encoding="utf-8")
    program.chmod(0o755)
    for name in beside:
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)


def said(observations: Sequence[Observation], state: State) -> list[tuple[str, str]]:
    return [(observation.subject, observation.mend) for observation in observations if observation.state is state]


def test_a_cli_of_another_version_or_without_python_is_told(tmp_path: Path) -> None:
    install(tmp_path, {"version": (0, "v3.200.0", "")}, "pulumi-language-python")
    first, second = machine.cli("3.260.0")
    assert [first.state, second.state] == [State.WRONG, State.FINE]
    assert "3.200.0" in first.said
    assert first.mend.endswith("--version 3.260.0")
    # Without its Python host.
    (tmp_path / "bin" / "pulumi-language-python").unlink()
    assert [one.state for one in machine.cli("3.200.0")] == [State.FINE, State.WRONG]


def test_plugins_are_held_to_the_versions_of_their_sdks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ".pulumi" / "plugins"
    for name in ("resource-gcp-v9.34.0", "resource-kubernetes-v4.32.0", "resource-random-v4.21.4"):
        (folder / name).mkdir(parents=True)
    # A download that was cut short.
    (folder / "resource-random-v4.21.4.partial").touch()
    pins = {"pulumi-gcp": "9.35.0", "pulumi-kubernetes": "4.32.0", "pulumi-random": "4.21.4"}
    observations = list(machine.plugins(["gcp", "kubernetes", "random"], pins))
    assert said(observations, State.WRONG) == [
        ("plugin gcp", "pulumi plugin install resource gcp 9.35.0"),
        ("plugin random", "pulumi plugin install resource random 4.21.4"),
    ]
    assert "9.34.0" in observations[0].said
    assert said(observations, State.FINE) == [("plugin kubernetes", "")]
    # One on PATH would take the place of the pinned one.
    install(tmp_path, {}, "pulumi-resource-kubernetes")
    assert said(list(machine.plugins(["kubernetes"], pins)), State.WRONG) == [
        ("plugin kubernetes", "export PULUMI_IGNORE_AMBIENT_PLUGINS=true")
    ]
    monkeypatch.setenv("PULUMI_IGNORE_AMBIENT_PLUGINS", "true")
    assert said(list(machine.plugins(["kubernetes"], pins)), State.WRONG) == []


def test_packages_are_held_to_the_lock_file(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text(
        "pytest==0.0.1 \\\n    --hash=sha256:00\nno-such-package==1.0 ; python_version > '3'\n"
        "other==1.0 ; sys_platform == 'plan9'\n",
        encoding="utf-8",
    )
    (found,) = machine.packages(lock)
    assert found.state is State.WRONG
    assert "not 0.0.1" in found.said
    assert "no-such-package missing" in found.said
    assert "other" not in found.said
    installer, *_ = shlex.split(found.mend)
    assert Path(installer).exists(), "the command runs where it is typed"


def test_a_project_that_pins_nothing_is_held_to_what_is_installed(tmp_path: Path) -> None:
    (found,) = machine.packages(tmp_path / "requirements.txt")
    assert found.state is State.UNKNOWN
    versions = machine.pulumi_versions(tmp_path / "requirements.txt")
    assert {"pulumi", "pulumi-kubernetes"} <= versions.keys()
    assert "pytest" not in versions


def test_without_a_login_nothing_is_said_to_be_fine() -> None:
    found = machine.check(ROOT, ["gcp-dev"])["gcp-dev"]
    assert said(found, State.WRONG) == [("state backend", "pulumi login")]
    assert said(found, State.UNKNOWN) == [("stack", "")]
    assert said(found, State.FINE) == []


def test_a_backend_of_this_machine_needs_no_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    found = machine.check(ROOT, ["gcp-dev"])["gcp-dev"]
    assert said(found, State.WRONG)[0] == ("state backend", f"mkdir -p {tmp_path}/state")
    there = tmp_path / "state" / ".pulumi" / "stacks" / "slipway"
    there.mkdir(parents=True)
    (there / "gcp-dev.json").touch()
    found = machine.check(ROOT, ["gcp-dev", "local"])
    assert said(found["gcp-dev"], State.WRONG) == [
        ("secrets of the stack", "export PULUMI_CONFIG_PASSPHRASE_FILE=<a file with the passphrase>")
    ]
    assert ("stack", f"pulumi stack init {STACK}") in said(found["local"], State.WRONG)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
    assert said(machine.check(ROOT, ["gcp-dev"])["gcp-dev"], State.WRONG) == []


def test_a_login_that_has_ended_is_told_with_the_clis_own_words(tmp_path: Path) -> None:
    (tmp_path / ".pulumi").mkdir()
    url = "https://api.pulumi.com"
    login = {"current": url, "accessTokens": {url: "pul-1"}, "accounts": {}}
    (tmp_path / ".pulumi" / "credentials.json").write_text(json.dumps(login), encoding="utf-8")
    install(tmp_path, {"whoami": (255, "", "error: [401] Unauthorized: No credentials provided or are invalid.")})
    found = machine.check(ROOT, ["gcp-dev"])["gcp-dev"]
    assert said(found, State.WRONG) == [("state backend", f"pulumi login {url}")]
    assert "[401] Unauthorized" in found[0].said
    install(
        tmp_path,
        {"whoami": (0, "me", ""), "stack ls --json": (0, json.dumps([{"name": "acme/gcp-dev"}]), "")},
    )
    found = machine.check(ROOT, ["gcp-dev"])["gcp-dev"]
    assert [each.state for each in found] == [State.FINE, State.FINE]


def test_another_stacks_outputs_are_read_through_the_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///nowhere")
    ask = "stack output --json --stack gcp-platform"
    reference = examination.Reference("dev", "gcp-platform", "dev")

    def found(code: int, out: object, complaint: str = "") -> tuple[State, str]:
        install(tmp_path, {ask: (code, json.dumps(out), complaint)})
        (one,) = examination.of_other_stack("gcp-platform", [reference], ROOT)
        return one.state, one.mend

    assert found(0, {"platform": {"clusters": {"dev": {}}}}) == (State.FINE, "")
    assert found(0, {}) == (State.WRONG, "pulumi up -s gcp-platform")
    assert found(0, {"platform": {"clusters": {"other": {}}}}) == (State.WRONG, "pulumi up -s gcp-platform")
    missing = "error: no stack named 'gcp-platform' found"
    assert found(1, {}, missing) == (State.WRONG, "pulumi stack init gcp-platform && pulumi up -s gcp-platform")
    assert found(1, {}, "error: could not reach the backend")[0] is State.UNKNOWN


def test_who_gives_no_answer_holds_up_nobody() -> None:
    never = threading.Event()

    def silent() -> list[Observation]:
        never.wait()
        return []

    def broken() -> list[Observation]:
        raise ValueError("two\nlines")

    probes = [Probe("slow", silent), Probe("broken", broken), Probe("quick", lambda: [fine("quick", "is there")])]
    answers = examination.answers(probes, 0.2)
    never.set()
    assert [each.state for (each,) in answers] == [State.UNKNOWN, State.UNKNOWN, State.FINE]
    assert answers[1][0].said == "could not be checked: ValueError: two lines"


def shown(examined: Sequence[Examined], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(examined, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100])
def test_what_stacks_have_in_common_is_said_once_and_harm_comes_first(width: int) -> None:
    common = [wrong("stack", "is not in the state backend yet", f"pulumi stack init {STACK}"), fine("CLI", "is 3")]
    examined = [
        Examined("one", [unknown("quota", "could not be read"), *common]),
        Examined("two", [*common, wrong("nodes", "are none", "kubectl get nodes", "label one")]),
    ]
    text = shown(examined, width)
    assert text.count("is not in the state backend yet") == 1
    assert "$ for s in one two; do pulumi stack init $s; done" in text
    assert text.index("All 2 stacks") < text.index("pulumi stack init") < text.index("label one")
    assert "is 3" not in text
    assert "two: 2 missing or wrong, 0 could not be checked, 1 fine" in text
    assert max(map(len, text.splitlines())) <= width
    lines = json.loads(document(examined))["stacks"][1]["observations"]
    assert [line["state"] for line in lines] == ["wrong", "fine", "wrong"]
    assert lines[0]["mend"] == "pulumi stack init two"


def test_a_secret_that_is_not_set_is_missing_before_the_first_up() -> None:
    """A preview goes on with a placeholder, and `pulumi up` refuses the stack."""
    key = "slipway:secrets.wandb-key"
    reason = "step `train` of pipeline `churn` needs it for `KEY`, and it is not set"
    unset = [{"key": key, "reason": reason, "fix": "set it"}]
    found = list(of_file(EvaluatedStack("dev", Stack("dev", {}, {}), unset=unset)))
    assert [(each.state, each.subject) for each in found] == [(State.WRONG, key)]
    assert found[0].mend == f"pulumi config set --secret --path '{key}' -s {STACK}"
    assert [each.state for each in of_file(EvaluatedStack("dev", Stack("dev", {}, {})))] == [State.FINE]


@pytest.mark.slow
def test_a_machine_without_anything_is_told_what_is_missing(tmp_path: Path) -> None:
    # The network is not asked: nobody answers at that address.
    env = {**os.environ, "NO_GCE_CHECK": "true", "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-m", "slipway", "doctor", "--format", "json"]
    command += ["--stack", "local", "--stack", "gcp-dev", "--stack", "aws-dev"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, env=env)
    assert done.returncode == 1, done.stderr
    stacks = json.loads(done.stdout)["stacks"]
    missing = {
        stack["stack"]: {one["subject"] for one in stack["observations"] if one["state"] == "wrong"}
        for stack in stacks
    }
    assert {"Pulumi CLI", "state backend", "kubeconfig ~/.kube/config"} <= missing["local"]
    assert {"gcp:project", "Google Cloud sign-in", "plugin gcp"} <= missing["gcp-dev"]
    assert {"aws:region", "AWS sign-in", "authorized networks", "plugin aws"} <= missing["aws-dev"]
    assert all(one["mend"] for stack in stacks for one in stack["observations"] if one["state"] == "wrong")


@pytest.mark.slow
def test_a_stack_file_with_a_mistake_is_told_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slipway", "doctor", "--stack", "no-such-stack"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "stack file is wrong: there is no stack 'no-such-stack'" in " ".join(done.stdout.split())
    assert "make check STACK=no-such-stack" in done.stdout
