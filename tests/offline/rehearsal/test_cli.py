"""The command line says what is wrong without a traceback, and leaves with the code for it."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from infra.schema.problems import SettingsError
from offline.rehearsal.__main__ import main
from offline.rehearsal.session import configure
from tests.offline.rehearsal.toy import ROOT
from workloads.mnist.pipeline import Mnist


def rehearsal(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offline.rehearsal", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=120)


def changed(tmp_path: Path, stack: str, **settings: object) -> Path:
    """A copy of the stack's file with these settings in it."""
    content = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text())
    content["config"].update({f"slipway:{key}": value for key, value in settings.items()})
    file = tmp_path / "Pulumi.changed.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.slow
def test_every_problem_of_the_settings_is_listed_at_once(tmp_path: Path) -> None:
    file = changed(tmp_path, "local", namespace="Not A Name", unknown=1, protect="perhaps")
    done = rehearsal("-s", "local", "--config-file", str(file), "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    for key in ("slipway:namespace", "slipway:unknown", "slipway:protect"):
        assert f"{key}: " in done.stderr, done.stderr
    assert done.stderr.count("why: ") == done.stderr.count("fix: ") >= 3
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_an_image_folder_that_is_not_there_is_listed_with_the_rest(tmp_path: Path) -> None:
    content = yaml.safe_load((ROOT / "stacks" / "Pulumi.local.yaml").read_text())
    pipelines = content["config"]["slipway:pipelines"]
    pipelines["mnist"]["predict"] = {"images": "nowhere"}
    file = changed(tmp_path, "local", namespace="Not A Name", pipelines=pipelines)
    done = rehearsal("-s", "local", "--config-file", str(file), "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    for key in ("slipway:namespace", "slipway:pipelines.mnist.predict.images"):
        assert done.stderr.count(f"{key}: ") == 1, done.stderr


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

    monkeypatch.setattr("offline.rehearsal.session.load_stack", broken)
    with pytest.raises(typer.Exit) as left:
        main("local", output=tmp_path)
    assert left.value.exit_code == 1
    told = capsys.readouterr().err
    assert "the rehearsal failed with LookupError in " in told
    assert "password" not in told


@pytest.mark.slow
def test_an_unknown_stack_is_answered_with_the_stacks_there_are(tmp_path: Path) -> None:
    done = rehearsal("-s", "nowhere", "--output", str(tmp_path))
    assert done.returncode == 2
    assert "there is no stack 'nowhere'" in done.stderr
    assert "gcp-dev, gcp-distributed, gcp-platform, gcp-prod, gcp-serving, gcp-team, local" in done.stderr


@pytest.mark.parametrize("stack", ["gcp-dev", "gcp-prod"])
def test_a_made_up_google_project_is_used_and_announced(stack: str) -> None:
    configuration = configure(stack, ROOT)
    assert configuration.values["gcp:project"] == "emulated-project"
    assert any("emulated-project" in remark for remark in configuration.remarks)


def test_the_overlay_is_laid_over_the_settings_and_announced(tmp_path: Path) -> None:
    overlay = {"pipelines": {"mnist": {"epochs": 3}}}
    configuration = configure("local", ROOT, changed(tmp_path, "local", rehearsal=overlay))
    mnist = configuration.settings.pipelines["mnist"]
    assert isinstance(mnist, Mnist)
    assert mnist.epochs == 3
    assert mnist.steps.train.pool == "cpu", "what the overlay does not name stays"
    assert any('"epochs": 3' in remark for remark in configuration.remarks)


MEASURING = ["gcp-dev", "gcp-prod", "aws-dev", "aws-prod", "onprem", "openshift"]


@pytest.mark.parametrize("stack", MEASURING)
def test_a_benchmark_is_left_out_unless_it_is_asked_for(stack: str) -> None:
    without, asked = configure(stack, ROOT), configure(stack, ROOT, all_pipelines=True)
    assert "benchmark" not in without.settings.pipelines
    assert "benchmark" not in without.values["slipway:pipelines"]
    assert [remark for remark in without.remarks if "left out: benchmark" in remark and "BENCHMARK=1" in remark]
    assert "benchmark" in asked.settings.pipelines
    assert asked.values["slipway:pipelines"]["benchmark"]["runs"]
    assert not any("left out" in remark for remark in asked.remarks)
    assert without.settings.pipelines["mnist"] == asked.settings.pipelines["mnist"]


def test_a_benchmark_that_is_left_out_is_still_checked(tmp_path: Path) -> None:
    content = yaml.safe_load((ROOT / "stacks" / "Pulumi.gcp-dev.yaml").read_text())
    pipelines = content["config"]["slipway:pipelines"]
    pipelines["benchmark"]["runs"]["t4"]["pool"] = "nowhere"
    with pytest.raises(SettingsError, match="nowhere"):
        configure("gcp-dev", ROOT, changed(tmp_path, "gcp-dev", pipelines=pipelines))


def test_a_stack_of_nothing_but_a_benchmark_is_rehearsed_whole(tmp_path: Path) -> None:
    content = yaml.safe_load((ROOT / "stacks" / "Pulumi.gcp-dev.yaml").read_text())
    pipelines = {"benchmark": content["config"]["slipway:pipelines"]["benchmark"]}
    configuration = configure("gcp-dev", ROOT, changed(tmp_path, "gcp-dev", pipelines=pipelines))
    assert "benchmark" in configuration.settings.pipelines
    assert not any("left out" in remark for remark in configuration.remarks)
