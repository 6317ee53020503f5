"""Measuring ResNet-50 on a CPU, with small steps, and the chart of what was measured."""

from __future__ import annotations

import csv
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.once import made_once
from tests.support.steps import ROOT, run
from tests.support.together import Together

# Each imports TensorFlow, or draws.
pytestmark = pytest.mark.slow

FAILED, USAGE = 1, 2
WORDS = ("--image-size", 32, "--batches", 2)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> str:
        return run("resnet.measure", *WORDS, "--precisions", "fp32,bf16", "--output", folder, loaded=True)

    return made_once(tmp_path_factory, "resnet", make)[0]


def results(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def test_a_cpu_takes_small_steps_and_says_so(measured: Path) -> None:
    fp32, bf16 = results(measured)
    assert [one["precision"] for one in (fp32, bf16)] == ["fp32", "bf16"]
    for one in (fp32, bf16):
        assert one["reduced"]
        assert "small steps" in one["device"]
        assert (one["gpus"], one["nodes"], one["image_size"], one["batches"]) == (0, 1, 32, 2)
        assert one["images_per_second"] == one["per_gpu"] > 0
        assert one["uncertainty"] >= 0
        assert one["steps_without_update"] == 0
        assert one["loss"]["last"] != one["loss"]["first"], "it learns"
        assert set(one["step_seconds"]) == {"p50", "p90", "p99"}


def test_two_nodes_train_one_network_and_the_first_writes(tmp_path: Path, started: list[Together]) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    started.append(Together("resnet.measure", places, *WORDS, "--precisions", "fp32"))
    codes, logs = started[0].end()
    assert codes == [0, 0], logs
    (result,) = results(places[0])
    assert result["nodes"] == 2
    assert result["per_gpu"] == pytest.approx(result["images_per_second"] / 2)
    assert not places[1].exists()


def test_images_of_the_store_are_read(tmp_path: Path) -> None:
    import tensorflow as tf

    folder = tmp_path / "store" / "imagenet"
    folder.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "train-00000-of-00001")) as writer:
        for number in range(12):
            pixels = np.random.default_rng(number).integers(0, 256, (64, 80, 3), np.uint8)
            jpeg = tf.io.encode_jpeg(pixels).numpy()
            features = {
                "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number + 1])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    words = (*WORDS, "--store", tmp_path / "store", "--data")
    run("resnet.measure", *words, "imagenet", "--output", tmp_path / "out", loaded=True)
    assert results(tmp_path / "out")[0]["data"] == "stored"
    output = run("resnet.measure", *words, "nothing", "--output", tmp_path / "no", code=FAILED, loaded=True)
    assert "nothing: there is no file train-*-of-*" in output
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("arguments", [("--precisions", "fp32,fp8"), ("--batches", "0"), ("--image-size", "8")])
def test_wrong_arguments_are_usage_errors(tmp_path: Path, arguments: tuple[str, str]) -> None:
    output = run("resnet.measure", *arguments, "--output", tmp_path / "out", code=USAGE, loaded=True)
    assert arguments[0] in output


def test_the_fused_optimizer_takes_the_steps_of_keras_sgd() -> None:
    import keras
    import tensorflow as tf

    training = runpy.run_path(str(ROOT / "workloads/resnet/training.py"))
    start = np.linspace(-1, 1, 6, dtype=np.float32)
    ours, theirs = tf.Variable(start), tf.Variable(start)
    pairs = ((training["FusedSGD"](0.1, momentum=0.9), ours), (keras.optimizers.SGD(0.1, momentum=0.9), theirs))
    for step in range(10):
        gradient = tf.constant(np.random.default_rng(step).normal(size=6).astype(np.float32))
        for optimizer, variable in pairs:
            optimizer.apply([gradient], [variable])
    assert np.abs(ours.numpy() - start).max() > 0.1
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


def written(folder: Path, base: dict[str, Any], **changes: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps([{**base, **changes}]))
    (folder / "manifest.json").write_text("{}")
    return folder


def test_the_chart_has_the_newest_of_each_and_what_lies_beside(measured: Path, tmp_path: Path) -> None:
    base = {**results(measured)[0], "device": "Tesla T4", "reduced": False, "gpus": 1}
    store, fast = tmp_path / "store" / "resnet", {"images_per_second": 900.0, "per_gpu": 225.0}
    one = {"images_per_second": 250.0, "per_gpu": 250.0}
    written(store / "measure-t4" / "0a1b", base, finished="2026-11-01T00:00:00Z", **one)
    written(store / "measure-t4" / "0c1d", base, finished="2026-11-02T00:00:00Z", **{**one, "per_gpu": 300.0})
    several = written(tmp_path / "now", base, nodes=4, gpus=4, finished="2026-11-03T00:00:00Z", **fast)
    unfinished = written(store / "measure-t4" / "0e1f", base, finished="2026-11-09T00:00:00Z", per_gpu=1.0)
    (unfinished / "manifest.json").unlink()

    output = run("resnet.chart", several, measured, "--beside", store, "--output", tmp_path / "out")

    drawn = {(one["device"], one["nodes"], one["precision"]): one for one in results(tmp_path / "out")}
    assert [key[:2] for key in drawn] == [("Tesla T4", 1), ("Tesla T4", 4), *[("CPU, with small steps", 1)] * 2]
    assert drawn["Tesla T4", 1, "fp32"]["per_gpu"] == 300.0, "the newest that is whole"
    assert drawn["Tesla T4", 4, "fp32"]["efficiency"] == pytest.approx(225 / 300)
    assert output.count("images/s") == 4
    with (tmp_path / "out" / "results.csv").open() as stream:
        assert len([*csv.DictReader(stream)]) == 4
    assert Image.open(tmp_path / "out" / "throughput.png").size[0] > 600
