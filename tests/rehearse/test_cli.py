"""The command line says what is wrong without a traceback, and leaves with the code for it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.exits import Exit
from slipway.infra.schema.problems import SettingsError
from slipway.rehearse.cli import rehearse
from slipway.rehearse.session import configure
from tests.support.checkout import ROOT
from tests.support.rehearsing import stack_file


def rehearsal(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slipway", "rehearse", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)


def changed(tmp_path: Path, stack: str, **settings: object) -> Path:
    """A copy of the stack's file with these settings in it."""
    return stack_file(tmp_path / "Pulumi.changed.yaml", stack, **settings)


@pytest.mark.slow
def test_every_problem_of_the_settings_is_listed_at_once(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["slipway:pipelines"]["mnist"]["epochs"] = "many"

    wrong = {"namespace": "Not A Name", "unknown": 1, "protect": "perhaps"}
    file = stack_file(tmp_path / "Pulumi.changed.yaml", change=change, **wrong)
    done = rehearsal("-s", "local", "--config-file", str(file), "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    for key in (*wrong, "pipelines.mnist.epochs"):
        assert done.stderr.count(f"slipway:{key}: ") == 1, done.stderr
    assert done.stderr.count("why: ") == done.stderr.count("fix: ") >= 4
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_what_cannot_be_read_is_one_line_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.\x1b[31m[bold].yaml"
    file.write_text("config:\n  slipway:clusters: &a [*a]\n")
    done = rehearsal("-s", "local", "--config-file", str(file), "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert r"Pulumi.\x1b[31m[bold].yaml:2: slipway:clusters[0]: the anchor 'a' contains itself" in line


def test_an_error_of_the_program_is_told_with_its_place_and_without_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise LookupError("password-of-somebody")

    monkeypatch.setattr("slipway.rehearse.session.load_stack", broken)
    code = rehearse(
        "local", tmp_path, None, fresh=False, disrupt=None, quiet=0, all_pipelines=False, capacity=None
    )
    assert code is Exit.FAILED
    printed = capsys.readouterr().err
    assert "the rehearsal failed with LookupError in " in printed
    assert "password" not in printed


@pytest.mark.slow
def test_an_unknown_stack_is_answered_with_the_stacks_there_are(tmp_path: Path) -> None:
    done = rehearsal("-s", "missing", "--output", str(tmp_path))
    assert done.returncode == 2
    assert "there is no stack 'missing'" in done.stderr
    assert (
        "gcp-anywhere, gcp-batch, gcp-dev, gcp-distributed, gcp-platform, gcp-prod, gcp-serving, gcp-team, local"
        in done.stderr
    )


@pytest.mark.parametrize("stack", ["gcp-dev", "gcp-prod"])
def test_a_made_up_google_project_is_used_and_announced(stack: str) -> None:
    configuration = configure(stack, ROOT)
    assert configuration.values["gcp:project"] == "emulated-project"
    assert any("emulated-project" in remark for remark in configuration.remarks)


def test_the_overlay_is_laid_over_the_settings_and_announced(tmp_path: Path) -> None:
    overlay = {"pipelines": {"mnist": {"epochs": 3}}}
    configuration = configure("local", ROOT, changed(tmp_path, "local", rehearsal=overlay))
    mnist: Any = configuration.settings.pipelines["mnist"]
    assert mnist.epochs == 3
    assert mnist.steps.train.pool == "cpu", "what the overlay does not name stays"
    assert any('"epochs": 3' in remark for remark in configuration.remarks)


MEASURING = ["gcp-dev", "gcp-prod", "aws-dev", "aws-prod", "onprem", "openshift"]


@pytest.mark.parametrize("stack", MEASURING)
def test_a_benchmark_is_left_out_unless_it_is_asked_for(stack: str) -> None:
    without, whole = configure(stack, ROOT), configure(stack, ROOT, all_pipelines=True)
    assert "resnet" not in without.settings.pipelines
    assert "resnet" not in without.values["slipway:pipelines"]
    assert [remark for remark in without.remarks if "left out: resnet" in remark and "BENCHMARK=1" in remark]
    assert "resnet" in whole.settings.pipelines
    assert whole.values["slipway:pipelines"]["resnet"]["steps"]
    assert not any("left out" in remark for remark in whole.remarks)
    assert without.settings.pipelines["mnist"] == whole.settings.pipelines["mnist"]


def test_a_benchmark_that_is_left_out_is_still_checked_and_alone_it_is_rehearsed(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["slipway:pipelines"]["resnet"]["steps"]["chart"]["pool"] = "nowhere"

    with pytest.raises(SettingsError, match="nowhere"):
        configure("gcp-dev", ROOT, stack_file(tmp_path / "wrong.yaml", "gcp-dev", change))

    def alone(config: dict[str, Any]) -> None:
        del config["slipway:pipelines"]["mnist"]

    configuration = configure("gcp-dev", ROOT, stack_file(tmp_path / "alone.yaml", "gcp-dev", alone))
    assert list(configuration.settings.pipelines) == ["resnet"]
    assert not any("left out" in remark for remark in configuration.remarks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("disrupt", "words"),
    [("trian", "`train`"), ("train:3", "one pod: write `train`"), ("nothing", "`mnist-train`")],
)
def test_a_disruption_of_no_pod_of_the_stack_is_refused_before_anything_runs(
    disrupt: str, words: str, tmp_path: Path
) -> None:
    done = rehearsal("-s", "local", "--disrupt", disrupt, "--output", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--disrupt {disrupt}: " in done.stderr
    assert words in done.stderr
    assert not (tmp_path / "out").exists()
