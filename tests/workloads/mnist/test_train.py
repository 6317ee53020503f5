"""The training: what it writes, that it resumes, that it is the same on one node and on several."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.loaded import Loaded
from tests.support.once import made_once
from tests.support.steps import MNIST_FILES, ROOT, environment, run, start, start_loaded
from tests.support.together import Together

# Each imports TensorFlow.
pytestmark = pytest.mark.slow

EPOCH = re.compile(
    r"Epoch (\d+)/(\d+) - loss [\d.]+ - accuracy [\d.]+ - validation accuracy [\d.]+ - "
    r"learning rate \S+ - [\d,]+ images/s"
)
RATES = [1e-3] * 3 + [1e-4] * 4 + [1e-5] * 5
FAILED, REFUSED = 1, 3


def metrics(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def learned(folder: Path) -> list[dict[str, float]]:
    """The history without what depends on the machine's speed."""
    return [
        {name: value for name, value in epoch.items() if name != "images_per_second"}
        for epoch in metrics(folder)["history"]
    ]


def curve(folder: Path) -> list[float]:
    return [*(value for epoch in learned(folder) for value in epoch.values()), *metrics(folder)["test"].values()]


def wait_for_epoch(process: Loaded, epoch: int) -> None:
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(f"Epoch {epoch}/"):
            return
    raise AssertionError("the training ended before: " + "".join(lines))


def test_a_training_says_each_epoch_and_leaves_all_that_later_steps_read(training: tuple[Path, str]) -> None:
    folder, output = training
    epochs = [match for line in output.splitlines() if (match := EPOCH.fullmatch(line))]
    assert [(int(match[1]), int(match[2])) for match in epochs] == [(number, 12) for number in range(1, 13)]
    assert output.splitlines()[-1] == "Training finished. Model saved"
    result = metrics(folder)
    assert [epoch["learning_rate"] for epoch in result["history"]] == pytest.approx(RATES)
    assert result["test"]["accuracy"] == pytest.approx(result["history"][-1]["val_accuracy"])
    assert result["test"]["accuracy"] >= 0.9
    assert result["images_per_second"] > 0
    assert {"mnist.keras", "saved_model", "logs", "checkpoint.npz"} <= {path.name for path in folder.iterdir()}
    for part in ("train", "validation"):
        (events,) = (folder / "logs" / part).glob("events.out.tfevents.*")
        assert events.read_bytes().count(b"epoch_accuracy") == 12
        assert (b"conv2d" in events.read_bytes()) == (part == "train"), "the graph of the model"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epochs", "0"),
        ("--batch-size", "0"),
        ("--seed", "-1"),
        ("--augment", "-2"),
        *(("--learning-rates", text) for text in ("1:1e-3", "0:x", "0:0", "0:2", "0:nan", "0:1e-3,0:1e-4")),
    ],
)
def test_wrong_arguments_are_usage_errors(data: Path, tmp_path: Path, arguments: tuple[str, str]) -> None:
    output = run("mnist.train", "--data", data, "--output", tmp_path, *arguments, code=2, loaded=True)
    assert arguments[0] in output
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("epoch", [1, 11])
def test_a_killed_training_ends_as_if_it_had_not_been(
    training: tuple[Path, str], data: Path, tmp_path: Path, epoch: int
) -> None:
    """Killed without warning after an epoch; the same command then gives the same numbers, to the last bit."""
    out = tmp_path / "model"
    process = start_loaded("mnist.train", "--data", data, "--output", out)
    wait_for_epoch(process, epoch)
    process.kill()
    process.wait()
    assert not (out / "metrics.json").exists()

    output = run("mnist.train", "--data", data, "--output", out, loaded=True)

    resumed = re.search(r"Resuming after epoch (\d+)", output)
    assert resumed
    assert int(resumed[1]) >= epoch
    assert f"Epoch {resumed[1]}/" not in output
    assert learned(out) == learned(training[0])
    assert metrics(out)["test"] == metrics(training[0])["test"]


def test_killed_again_and_again_a_training_still_ends(data: Path, tmp_path: Path) -> None:
    """Killed at moments that no epoch chooses: in the import, in a step, while a checkpoint is written."""
    arguments = ("--data", data, "--output", tmp_path / "model", "--epochs", 6, "--min-accuracy", 0.5)
    for begin, seconds in ((start, 1.0), (start_loaded, 0.8), (start_loaded, 1.3), (start_loaded, 2.0)):
        process = begin("mnist.train", *arguments)
        time.sleep(seconds)
        process.kill()
        process.wait()
    run("mnist.train", *arguments, loaded=True)
    assert len(metrics(tmp_path / "model")["history"]) == 6


def test_it_writes_checkpoints_where_they_are_copied_from_and_takes_no_other_trainings(
    data: Path, tmp_path: Path
) -> None:
    kept = {"SLIPWAY_CHECKPOINT": str(tmp_path / "kept")}
    arguments = ("--data", data, "--min-accuracy", 0, "--output")
    run("mnist.train", *arguments, tmp_path / "one", "--epochs", 1, loaded=True, **kept)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["checkpoint.npz"]
    assert not (tmp_path / "one" / "checkpoint.npz").exists()

    longer = run("mnist.train", *arguments, tmp_path / "two", "--epochs", 2, loaded=True, **kept)
    assert "Resuming after epoch 1" in longer
    other = run("mnist.train", *arguments, tmp_path / "three", "--epochs", 1, "--seed", 1, loaded=True, **kept)
    assert "is that of another training" in other
    assert "Resuming" not in other


def test_a_model_that_reads_too_little_or_diverges_is_none(data: Path, tmp_path: Path) -> None:
    arguments = ("--data", data, "--output", tmp_path / "model", "--epochs", 1)
    first = run("mnist.train", *arguments, "--min-accuracy", 0.999, code=REFUSED, loaded=True)
    again = run("mnist.train", *arguments, "--min-accuracy", 0.999, code=REFUSED, loaded=True)
    assert "0.999 is asked for" in first.splitlines()[-1]
    assert "Epoch 1/1 " not in again, "what was trained is not trained again"
    assert not (tmp_path / "model" / "saved_model").exists()
    diverged = ("--data", data, "--output", tmp_path / "other", "--epochs", 2, "--learning-rates", "0:1")
    run("mnist.train", *diverged, code=REFUSED, loaded=True)
    assert not (tmp_path / "other" / "saved_model").exists()


def test_the_saved_model_is_what_was_measured(training: tuple[Path, str], data: Path, tmp_path: Path) -> None:
    """And is loaded without anything of this pipeline."""
    (tmp_path / "measure.py").write_text(
        "import sys, numpy as np, keras\n"
        "model, test = keras.models.load_model(sys.argv[1]), np.load(sys.argv[2])\n"
        "model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=['accuracy'])\n"
        "print(*model.evaluate(test['images'][..., None], test['labels'], verbose=0))"
    )
    words = ["measure.py", str(training[0] / "mnist.keras"), str(data / "test.npz")]
    measured = Loaded(words, tmp_path, environment())
    said, _ = measured.communicate(240)
    assert measured.returncode == 0, said
    loss, accuracy = map(float, said.split()[-2:])
    assert accuracy == pytest.approx(metrics(training[0])["test"]["accuracy"], abs=1e-6)
    assert loss == pytest.approx(metrics(training[0])["test"]["loss"], rel=1e-3)


@pytest.mark.skipif(not MNIST_FILES, reason="SLIPWAY_MNIST_DIR names no folder with MNIST's files")
def test_real_mnist_is_learned(tmp_path: Path) -> None:
    data, model = tmp_path / "data", tmp_path / "model"
    run("mnist.prepare", "--dataset", "idx", "--source", MNIST_FILES, "--output", data)
    run("mnist.train", "--data", data, "--output", model, "--min-accuracy", 0.97, loaded=True)
    run("mnist.predict", "--model", model, "--images", data / "images", "--output", tmp_path / "read", loaded=True)
    predictions = json.loads((tmp_path / "read" / "predictions.json").read_text())
    assert len(predictions["images"]) == 10
    assert predictions["accuracy"] >= 0.9


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three epochs on one node."""
    words = ("--data", data, "--epochs", 3, "--output")
    return made_once(tmp_path_factory, "alone", lambda folder: run("mnist.train", *words, folder, loaded=True))[0]


def test_four_nodes_learn_what_one_does_and_the_first_alone_writes(
    alone: Path, data: Path, tmp_path: Path, started: list[Together]
) -> None:
    places = [tmp_path / f"node-{rank}" for rank in range(4)]
    started.append(Together("mnist.train", places, "--data", data, "--epochs", 3))
    codes, logs = started[0].end()
    assert codes == [0] * 4, logs
    assert curve(places[0]) == pytest.approx(curve(alone), rel=1e-4)
    assert metrics(places[0])["nodes"] == metrics(places[0])["replicas"] == 4
    assert "22 steps of 64 an epoch" in logs[0]
    assert [log.count("\nEpoch ") for log in logs] == [3, 0, 0, 0]
    assert all("Training finished. Model saved" in log.splitlines() for log in logs)
    assert not [place for place in places[1:] if place.exists()]


def test_nodes_go_on_from_the_checkpoint_of_the_first_which_the_others_do_not_see(
    alone: Path, data: Path, tmp_path: Path, started: list[Together]
) -> None:
    """A mounted bucket shows a file late: here never."""
    out, blind = tmp_path / "model", tmp_path / "blind"
    run("mnist.train", "--data", data, "--output", out, "--epochs", 2, "--min-accuracy", 0.5, loaded=True)
    started.append(Together("mnist.train", [out, blind], "--data", data, "--epochs", 3))
    codes, logs = started[0].end()
    assert codes == [0, 0], logs
    assert all("Resuming after epoch 2" in log for log in logs)
    assert curve(out) == pytest.approx(curve(alone), rel=1e-4)


def test_a_node_that_is_told_to_end_does(data: Path, tmp_path: Path, started: list[Together]) -> None:
    """TensorFlow's service for preemptions would take SIGTERM and do nothing."""
    started.append(Together("mnist.train", [tmp_path / "model"] * 2, "--data", data, "--epochs", 4000))
    started[0].wait_for(0, "Epoch 1/")
    for process in started[0].processes:
        process.send_signal(signal.SIGTERM)
    codes, _ = started[0].end()
    assert -signal.SIGTERM in codes
    assert 0 not in codes


def test_batches_and_images_that_cannot_be_shared_are_refused(
    data: Path, tmp_path: Path, started: list[Together]
) -> None:
    words = ("--data", data, "--batch-size", 65)
    started.append(Together("mnist.train", [tmp_path / "model"] * 2, *words))
    codes, logs = started[0].end()
    assert codes == [FAILED] * 2
    assert all("--batch-size 65 cannot be divided among 2" in log for log in logs)
    few = Path(shutil.copytree(data, tmp_path / "few"))
    with np.load(data / "train.npz") as whole:
        np.savez(few / "train.npz", images=whole["images"][:8], labels=whole["labels"][:8])
    output = run("mnist.train", "--data", few, "--output", tmp_path / "out", code=FAILED, loaded=True)
    assert "8 training images are fewer than the 64 of one step" in output


def test_two_gpus_of_a_node_learn_what_one_does(alone: Path, data: Path, tmp_path: Path) -> None:
    """Two logical CPUs stand in for them."""
    (tmp_path / "two.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT / 'workloads/mnist')!r})\n"
        "import tensorflow as tf\n"
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)\n"
        "import train\n"
        "add = tf.distribute.ReductionToOneDevice()\n"
        "strategy = tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'], cross_device_ops=add)\n"
        "options = train.parse()\n"
        "train.train(options, train.Node(), strategy, train.load(options.data))\n"
    )
    words = ["two.py", "--data", str(data), "--output", str(tmp_path / "model"), "--epochs", "3"]
    process = Loaded(words, tmp_path, environment())
    said, _ = process.communicate(240)
    assert process.returncode == 0, said
    assert metrics(tmp_path / "model")["replicas"] == 2
    assert curve(tmp_path / "model") == pytest.approx(curve(alone), rel=1e-4)
