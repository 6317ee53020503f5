"""The real program, rehearsed for real: ten digits are read, nothing is done twice, and what breaks is said."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.checkout import ROOT
from tests.support.rehearsing import stack_file

# The tests of the first rehearsal have no marker: it is the one that `make test` runs.
pytestmark = pytest.mark.timeout(300)


PREDICTIONS = "results/mnist-predict/predictions.json"


def rehearse(stack: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slipway", "rehearse", "-s", stack, "--output", str(folder), *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)


def with_changes(folder: Path, change: Callable[[dict[str, Any]], object]) -> list[str]:
    """Arguments that rehearse gcp-dev with the settings of its pipelines changed, repeating less than it does."""

    def change_all(config: dict[str, Any]) -> None:
        pipelines = config["slipway:pipelines"]
        pipelines["mnist"]["epochs"] = 2
        pipelines["resnet"].update(precisions="fp32", warm_up=1, batches=2)
        pipelines["resnet"]["steps"]["measure"]["matrix"]["pool"] = ["predict"]
        change(pipelines)

    return ["--config-file", str(stack_file(folder / "changed.yaml", "gcp-dev", change_all))]


def table(output: str) -> dict[str, str]:
    """Result by Job, from the table at the end."""
    rows = output.split("\nJob ", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return {row.split()[0]: re.split(r" s +| {3,}", row.strip())[-1] for row in rows}


class Rehearsed(NamedTuple):
    """A folder in which a stack was rehearsed, what that printed, what its program exported, and its settings, as
    the arguments of that rehearsal."""

    folder: Path
    output: str
    exported: dict[str, Any]
    settings: list[str]


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    """That of gcp-dev, which was asked for the benchmark of one GPU, too."""
    parent = tmp_path_factory.mktemp("gcp-dev")
    folder = parent / "out"
    settings = with_changes(parent, lambda _: None)
    done = rehearse("gcp-dev", folder, "--benchmark", *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    exported = json.loads((folder / "outputs.json").read_text(encoding="utf-8"))
    return Rehearsed(folder, done.stdout, exported, settings)


def test_ten_digits_are_predicted(rehearsed: Rehearsed) -> None:
    folder, output, outputs, _ = rehearsed
    content = json.loads((folder / PREDICTIONS).read_text(encoding="utf-8"))
    assert len(content["images"]) == 10
    assert sorted(image["label"] for image in content["images"]) == list(range(10))
    assert sum(image["digit"] == image["label"] for image in content["images"]) >= 9
    assert set(table(output).values()) == {"succeeded"}
    assert re.search(r"Predictions, (9|10) of 10 right", output)
    assert outputs["mnist"]["accuracy"] >= 0.9
    assert len(outputs["mnist"]["predictions"]) == 10
    assert outputs["kubeconfig"] == "[secret]"
    assert (folder / "results/mnist-predict/contact_sheet.png").read_bytes().startswith(b"\x89PNG")
    assert "Training finished. Model saved" in (folder / "logs" / "mnist-train.log").read_text(encoding="utf-8")


def test_a_benchmark_that_is_asked_for_measures_after_the_predictions(rehearsed: Rehearsed) -> None:
    folder, output, outputs, _ = rehearsed
    assert_measured_on_a_cpu(*outputs["resnet"]["measurements"])
    _, shown, charted = output.split("ResNet-50 training throughput")
    assert re.match(r" \(pool predict \(nvidia-h100-80gb\)\)\n.*\nCPU, with small steps +0 +fp32 +[\d.]+ ", shown)
    assert re.search(r"CPU, with small steps +1 +0 +fp32 +[\d.]+ +[\d.]+ +[\d.]+", charted)
    assert output.index("mnist-predict: succeeded") < output.index("resnet-measure-predict: running")
    (chart,) = folder.glob("store/resnet/chart/*/throughput.png")
    assert chart.read_bytes().startswith(b"\x89PNG")


def assert_measured_on_a_cpu(row: dict[str, Any]) -> None:
    """The row has a speed and says that it is none of a GPU."""
    assert row["images_per_second"] > 0
    assert (row["device"], row["gpus"], row["precision"]) == ("CPU, with small steps", 0, "fp32")


def test_the_gpu_steps_ran_on_their_pools(rehearsed: Rehearsed) -> None:
    folder, output, *_ = rehearsed
    assert re.search(r"mnist-train +train \(nvidia-tesla-t4\)", output)
    assert re.search(r"mnist-predict +predict \(nvidia-h100-80gb\)", output)
    log = (folder / "logs" / "mnist-predict.log").read_text(encoding="utf-8")
    assert "1 x nvidia-h100-80gb" in log


@pytest.mark.slow
def test_a_second_run_runs_no_job_and_leaves_out_a_benchmark_that_it_is_not_asked_for(
    rehearsed: Rehearsed,
) -> None:
    done = rehearse("gcp-dev", rehearsed.folder, *rehearsed.settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"left out: resnet[^;]*;[^;]*BENCHMARK=1", done.stdout)
    assert not any(name.startswith("resnet") for name in table(done.stdout))
    assert "mnist-predict" in table(done.stdout)
    assert set(table(done.stdout).values()) == {"unchanged"}
    assert f"0 Jobs run, {len(table(done.stdout))} unchanged" in done.stdout
    assert "10 right" in done.stdout


@pytest.mark.slow
def test_a_benchmark_on_one_more_gpu_runs_there_alone_and_is_shown_with_the_first(
    rehearsed: Rehearsed, tmp_path: Path
) -> None:
    (first,) = rehearsed.folder.glob("store/resnet/measure-predict/*/results.json")
    measured = first.read_bytes()
    both = with_changes(
        tmp_path, lambda pipelines: pipelines["resnet"]["steps"]["measure"]["matrix"]["pool"].insert(0, "train")
    )
    done = rehearse("gcp-dev", rehearsed.folder, "--benchmark", *both)
    assert done.returncode == 0, done.stdout + done.stderr
    assert table(done.stdout)["resnet-measure-train"] == "succeeded"
    assert first.read_bytes() == measured
    outputs = json.loads((rehearsed.folder / "outputs.json").read_text(encoding="utf-8"))
    rows = outputs["resnet"]["throughput"]
    assert set(rows) == {"measure-train", "measure-predict"}
    for (row,) in rows.values():
        assert_measured_on_a_cpu(row)


@pytest.mark.slow
def test_damaged_results_come_back(rehearsed: Rehearsed) -> None:
    folder, settings = rehearsed.folder, rehearsed.settings
    (model,) = folder.glob("store/mnist/train/*/saved_model/saved_model.pb")
    (manifest,) = folder.glob("store/mnist/predict/*/manifest.json")
    model.write_bytes(model.read_bytes()[:9])
    manifest.unlink()
    done = rehearse("gcp-dev", folder, *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"runs again: mnist/train/", done.stdout)
    # A bucket is also looked at by the program itself, as `pulumi up` does.
    assert re.search(r"no longer has manifest.json in mnist/predict/", done.stdout)
    assert table(done.stdout)["mnist-prepare"] == "unchanged"
    assert len(json.loads((folder / PREDICTIONS).read_text(encoding="utf-8"))["images"]) == 10
    assert set(table(rehearse("gcp-dev", folder, *settings).stdout).values()) == {"unchanged"}


@pytest.mark.slow
def test_more_memory_for_one_step_runs_that_step_alone_and_it_finds_its_work_done(
    rehearsed: Rehearsed, tmp_path: Path
) -> None:
    folder = rehearsed.folder
    more = with_changes(tmp_path, lambda pipelines: pipelines["mnist"]["steps"]["predict"].update(memory="9Gi"))
    done = rehearse("gcp-dev", folder, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    results = table(done.stdout)
    assert results.pop("mnist-predict") == "succeeded"
    assert "mnist-train" in results
    assert results["mnist-train"] == results["mnist-prepare"] == "unchanged"
    assert "Nothing to do" in (folder / "logs" / "mnist-predict.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_model_that_is_refused_stops_what_comes_after(rehearsed: Rehearsed, tmp_path: Path) -> None:
    strict = with_changes(tmp_path, lambda pipelines: pipelines["mnist"].update(min_accuracy=1.0, epochs=1))
    done = rehearse("gcp-dev", rehearsed.folder, *strict)
    assert done.returncode == 1
    results = table(done.stdout)
    assert results["mnist-prepare"] == "unchanged"
    assert results["mnist-train"] == "failed, exit code 3"
    assert results["mnist-predict"] == "not run"
    assert "1.0 is asked for" in done.stdout
    assert re.search(r"Not run, for they need what failed: .*mnist-predict", done.stdout)
