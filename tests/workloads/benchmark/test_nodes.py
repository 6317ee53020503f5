"""The benchmark in two processes, with real collectives on the loopback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipway.workloads.runtime.devices import VARIABLE
from tests.workloads.processes import Together
from tests.workloads.steps import run


@pytest.mark.slow
def test_two_processes_measure_together_and_the_first_publishes(tmp_path: Path, started: list[Together]) -> None:
    """Stored images, of which each reads files of its own, in the precision that scales its loss."""
    run("benchmark.images", "--output", tmp_path / "images", "--count", 130)
    arguments = ("--data", tmp_path / "images", "--precision", "fp16", "--batches", 2, "--warm-up", 1, "--gpus", 2)
    folder = tmp_path / "two-fp16" / "0123456789"
    t4 = {VARIABLE: "nvidia-tesla-t4:2"}
    started.append(Together("benchmark.resnet50", [folder] * 2, *arguments, **t4))

    codes, logs = started[0].end()

    assert codes == [0, 0], logs
    measures = json.loads((folder / "result.json").read_text())
    assert (measures["nodes"], measures["gpus"], measures["replicas"]) == (2, 4, 2)
    assert measures["device"] == "nvidia-tesla-t4"
    assert measures["reduced"]
    assert measures["images_per_second_per_gpu"] == pytest.approx(measures["images_per_second"] / 2)
    assert [log.count("Published") for log in logs] == [1, 0]
    assert all("on each of 2 device(s)" in log for log in logs)

    started.append(Together("benchmark.resnet50", [folder] * 2, *arguments, **t4))
    codes, logs = started[1].end()
    assert codes == [0, 0]
    assert all("Nothing to do" in log and "2 nodes with" in log for log in logs)


@pytest.mark.slow
def test_fewer_files_than_processes_are_shared_record_by_record(tmp_path: Path) -> None:
    import tensorflow as tf

    from workloads.benchmark.inputs import Batches, files

    run("benchmark.images", "--output", tmp_path / "images", "--count", 4)
    feed = Batches(tf.distribute.get_strategy(), [], 2, 32, 1)
    names = [str(path) for path in files(tmp_path / "images")]
    labels = [
        {int(label) for _, batch in feed._of_files(names, 2, process).take(20) for label in batch}
        for process in range(2)
    ]
    assert labels[0] | labels[1] == {0, 1, 2, 3}
    assert not labels[0] & labels[1]
