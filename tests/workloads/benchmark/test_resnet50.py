from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from slipway.workloads.runtime.devices import VARIABLE, cpu_alone
from slipway.workloads.runtime.exits import ACCELERATOR_REFUSED, BAD_INPUT, INTERRUPTED, USAGE
from slipway.workloads.runtime.store import MANIFEST, check
from tests.workloads.steps import only_error, run, start_loaded, without_tensorflow
from workloads.benchmark.inputs import digest, files
from workloads.benchmark.resnet50 import REMARK, is_displayed, speed, step_line, step_seconds, total_line

LINE = re.compile(r"(\d+)\timages/sec: ([\d.]+) \+/- [\d.]+ \(jitter = [\d.]+\)\t([\d.]+)")
T4 = {VARIABLE: "nvidia-tesla-t4:1"}
SMALL = "tests.workloads.benchmark.small"


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def test_speed_uncertainty_and_jitter_are_those_of_tf_cnn_benchmarks() -> None:
    seconds = [0.5, 0.5, 0.5, 1.0]  # 128, 128, 128 and 64 images per second

    figures = speed(64, seconds)

    assert figures.mean == pytest.approx(64 * 4 / 2.5), "images over time, not the mean of speeds"
    assert figures.uncertainty == pytest.approx(np.std([128, 128, 128, 64]) / 2)
    assert figures.jitter == 0, "one slow step moves no median"
    assert speed(10, [1, 2, 5]).jitter == pytest.approx(1.4826 * 3)  # 10, 5 and 2: off the median by 5, 0 and 3


def test_percentiles_are_of_the_steps() -> None:
    seconds = step_seconds([float(number) for number in range(101)])
    assert seconds == {"mean": 50, "minimum": 0, "p50": 50, "p90": 90, "p99": 99, "maximum": 100}


def test_the_log_reads_like_tf_cnn_benchmarks() -> None:
    assert step_line(10, speed(64, [0.5] * 10), 7.9312) == "10\timages/sec: 128.0 +/- 0.0 (jitter = 0.0)\t7.931"
    assert total_line(1234.5678) == "total images/sec: 1234.57"
    assert [step for step in range(1, 31) if is_displayed(step)] == [1, 10, 20, 30]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run on one CPU that stands in for a T4, and what it wrote."""
    folder = tmp_path_factory.mktemp("benchmark") / "t4-fp32" / "0123456789"
    return folder, run("benchmark.resnet50", "--output", folder, "--gpus", 1, **T4)


@pytest.mark.slow
def test_a_run_without_a_gpu_is_small_and_says_so(measured: tuple[Path, str]) -> None:
    folder, output = measured
    lines = output.splitlines()
    figures = result(folder)

    assert [int(match[1]) for text in lines if (match := LINE.fullmatch(text))] == [1, 10]
    assert lines[-1] == total_line(figures["images_per_second"])
    assert any(text.startswith("Reduced from 10 + 100 steps of 64 images of 224 x 224") for text in lines)
    assert figures["reduced"]
    assert "nothing about a GPU" in figures["remark"]
    assert (figures["device"], figures["gpus"], figures["virtual_devices"]) == ("nvidia-tesla-t4", 1, True)
    assert figures["batch_size_per_gpu"] < figures["asked"]["batch_size"] == 64
    assert figures["batches"] < figures["asked"]["batches"] == 100
    assert set(check(folder).files) == {"result.json"}


@pytest.mark.slow
def test_the_figures_of_a_run_fit_together(measured: tuple[Path, str]) -> None:
    figures = result(measured[0])
    images = figures["batch_size_per_gpu"] * figures["batches"]
    inside = figures["step_seconds"]["mean"] * figures["batches"]

    assert images / figures["images_per_second"] == pytest.approx(inside, rel=0.1), (
        "steps and nothing else are timed"
    )
    assert figures["images_per_second_per_gpu"] == figures["images_per_second"]
    assert inside < figures["compile_seconds"] + inside < figures["seconds"]
    assert figures["compile_seconds"] > 3 * figures["step_seconds"]["p50"], "compiling is not among the steps"
    assert figures["loss"]["last"] < figures["loss"]["first"], "it learns the one batch that it sees"
    assert figures["steps_without_update"] == 0
    assert figures["uncertainty"] > 0
    assert figures["peak_memory_bytes"] > 300e6
    assert set(figures["versions"]) == {"python", "tensorflow", "keras", "cuda", "cudnn"}


@pytest.mark.slow
def test_a_finished_run_is_not_run_again(measured: tuple[Path, str], tmp_path: Path) -> None:
    folder, output = measured
    before = (folder / "result.json").read_bytes()

    again = run("benchmark.resnet50", "--output", folder, "--gpus", 1, **T4, **without_tensorflow(tmp_path))

    assert again.splitlines()[0].startswith("Nothing to do")
    assert again.splitlines()[-3:] == output.splitlines()[-3:], "what says that it is a CPU's, too"
    assert REMARK in again
    assert (folder / "result.json").read_bytes() == before


@pytest.mark.slow
def test_stored_images_in_fp16_on_two_replicas(tmp_path: Path) -> None:
    run("benchmark.images", "--output", tmp_path / "images", "--count", 20, loaded=True)

    output = run(
        *(SMALL, "--output", tmp_path / "run", "--data", tmp_path / "images"),
        *("--precision", "fp16", "--gpus", 8, "--batch-size", 2, "--batches", 1, "--warm-up", 1),
        loaded=True,
        **{VARIABLE: "nvidia-h100-80gb:8"},
    )

    figures = result(tmp_path / "run")
    assert (figures["data"], figures["precision"], figures["gpus"], figures["replicas"]) == (
        "stored",
        "fp16",
        8,
        2,
    )
    assert figures["images_per_second_per_gpu"] == pytest.approx(figures["images_per_second"] / 2)
    logged = [match for text in output.splitlines() if (match := LINE.fullmatch(text))][-1]
    seconds = figures["step_seconds"]["mean"]
    # The log has tenths, which is much of a speed below one image per second.
    rounding = 0.051 * seconds
    assert seconds * float(logged[2]) == pytest.approx(2 * figures["batch_size_per_gpu"], abs=rounding), (
        "both replicas"
    )
    assert check(tmp_path / "run").inputs == {"data": check(tmp_path / "images").digest}
    assert output.splitlines()[-1] == total_line(figures["images_per_second"])

    shard = tmp_path / "images" / "train-00000-of-00001"
    content = bytearray(shard.read_bytes())
    content[2000] ^= 255
    shard.write_bytes(content)
    refused = run(
        *(SMALL, "--output", tmp_path / "other", "--data", tmp_path / "images", "--gpus", 0),
        code=BAD_INPUT,
        loaded=True,
    )
    assert "a record cannot be used" in only_error(refused)


@pytest.mark.slow
def test_xla_and_bf16_on_the_cpu_alone(tmp_path: Path) -> None:
    output = run(
        *(SMALL, "--output", tmp_path, "--xla", "--precision", "bf16", "--image-size", 32),
        *("--gpus", 0, "--batches", 1, "--warm-up", 1),
        loaded=True,
        **T4,
    )
    assert "stand in" not in output, "what is there of accelerators is left alone"
    figures = result(tmp_path)
    assert (figures["device"], figures["gpus"], figures["xla"], figures["precision"]) == (
        "CPU",
        0,
        True,
        "bf16",
    )


@pytest.mark.slow
def test_a_run_that_is_stopped_ends_at_once_and_publishes_nothing(tmp_path: Path) -> None:
    process = start_loaded("benchmark.resnet50", "--output", tmp_path / "run", **T4)
    for text in process.stdout:
        if text.startswith("Running warm up"):
            break
    process.send_signal(signal.SIGTERM)
    try:
        output, _ = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == INTERRUPTED
    assert "stopped by SIGTERM" in only_error(output)
    assert not (tmp_path / "run" / MANIFEST).exists()


def test_no_gpu_is_used_where_none_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    visible = {"GPU": ["a GPU"], "CPU": ["the CPU"]}
    config = SimpleNamespace(set_visible_devices=lambda devices, kind: visible.update({kind: devices}))
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))
    assert cpu_alone() == []
    assert visible == {"GPU": [], "CPU": ["the CPU"]}


@pytest.mark.slow
def test_fewer_gpus_than_asked_are_refused(tmp_path: Path) -> None:
    output = run("benchmark.resnet50", "--output", tmp_path, "--gpus", 2, code=ACCELERATOR_REFUSED, loaded=True,
                 **T4)  # fmt: skip
    assert "asked: 2 GPU(s), found: 1 x nvidia-tesla-t4" in only_error(output)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--batches", 0), "at least 1"),
        (("--warm-up", 0), "at least 1"),
        (("--image-size", 16), "at least 32"),
        (("--gpus", -1), "negative"),
        (("--seed", 2**31), "2147483647"),
        (("--precision", "int8"), "invalid choice"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: tuple[object, ...], words: str) -> None:
    assert words in run("benchmark.resnet50", "--output", tmp_path, *arguments, code=USAGE)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    output = run("benchmark.resnet50", "--output", tmp_path / "run", "--data", tmp_path, code=BAD_INPUT)
    assert "workloads.benchmark.images writes some" in only_error(output)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("stored") / "images"
    return folder, run("benchmark.images", "--output", folder, "--count", 130, "--seed", 3)


@pytest.mark.slow
def test_images_are_written_once_in_files_of_imagenets_form(images: tuple[Path, str]) -> None:
    folder, output = images
    assert "130 images" in output
    assert [path.name for path in files(folder)] == ["train-00000-of-00002", "train-00001-of-00002"]
    average = check(folder).summary["bytes"] / 130
    assert 80e3 < average < 140e3, "about what ImageNet's photos take"
    again = run("benchmark.images", "--output", folder, "--count", 130, "--seed", 3)
    assert again.startswith("Nothing to do")


@pytest.mark.slow
def test_a_damaged_folder_of_images_is_refused(images: tuple[Path, str], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(images[0], tmp_path / "images"))
    (folder / "train-00001-of-00002").write_bytes(b"short")
    output = run("benchmark.resnet50", "--output", tmp_path / "run", "--data", folder, code=BAD_INPUT)
    assert "train-00001-of-00002 is missing or has another size" in only_error(output)


@pytest.mark.slow
def test_images_of_others_are_taken_without_a_manifest(images: tuple[Path, str], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(images[0], tmp_path / "images"))
    (folder / MANIFEST).unlink()
    (folder / "validation-00000-of-00128").write_bytes(b"of no interest")
    assert [path.name for path in files(folder)] == ["train-00000-of-00002", "train-00001-of-00002"]
    before = digest(folder)
    (folder / "train-00001-of-00002").unlink()
    assert digest(folder) != before
