from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from slipway.workloads.runtime.devices import VARIABLE
from slipway.workloads.runtime.exits import BAD_INPUT, INTERRUPTED, MODEL_REFUSED, STORE_TROUBLE, USAGE
from slipway.workloads.runtime.store import MANIFEST, TEMPORARY_SUFFIX, check, whole
from tests.support.loaded import Loaded
from tests.workloads.steps import (
    MNIST_FILES,
    ROOT,
    command,
    environment,
    only_error,
    run,
    start,
    start_loaded,
    without_tensorflow,
)
from workloads.mnist.training import learning_rate, parse_learning_rates

EPOCH = re.compile(
    r"Epoch (\d+)/(\d+) - loss [\d.]+ - accuracy [\d.]+ - validation accuracy [\d.]+ - "
    r"learning rate \S+ - [\d,]+ images/s"
)
RATES = [1e-3] * 3 + [1e-4] * 4 + [1e-5] * 5


def metrics(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def learned(folder: Path) -> list[dict[str, float]]:
    """The history without what depends on the machine's speed."""
    return [
        {name: value for name, value in epoch.items() if name != "images_per_second"}
        for epoch in metrics(folder)["history"]
    ]


def wait_for_epoch(process: Loaded, epoch: int) -> str:
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(f"Epoch {epoch}/"):
            return "".join(lines)
    raise AssertionError("the training ended before: " + "".join(lines))


def test_rates_are_read_and_wrong_ones_refused() -> None:
    rates = parse_learning_rates("3:1e-4,0:1e-3,7:1e-5")
    assert [learning_rate(rates, epoch) for epoch in range(12)] == RATES
    for text in ("", "1e-3", "1:1e-3", "0:x", "0:0", "0:-1", "0:nan", "0:2", "0:1e-3,0:1e-4", "0:1e-3,-1:1e-4"):
        with pytest.raises(ValueError, match=r"EPOCH:RATE|epoch 0"):
            parse_learning_rates(text)


@pytest.mark.slow
def test_a_training_says_each_epoch_once_and_ends_as_promised(training: tuple[Path, str]) -> None:
    _, output = training
    lines = output.splitlines()

    epochs = [match for line in lines if (match := EPOCH.fullmatch(line))]
    assert [(int(match[1]), int(match[2])) for match in epochs] == [(number, 12) for number in range(1, 13)]
    assert sum(line.startswith("Epoch ") for line in lines) == 12
    assert lines[-1] == "Training finished. Model saved"


@pytest.mark.slow
def test_the_result_is_whole_and_complete(training: tuple[Path, str], data: Path) -> None:
    folder, _ = training
    result = metrics(folder)

    manifest = check(folder)
    assert {"mnist.keras", "metrics.json", "saved_model/saved_model.pb"} <= set(manifest.files)
    assert manifest.inputs == {"data": check(data).digest}
    assert [epoch["learning_rate"] for epoch in result["history"]] == pytest.approx(RATES)
    assert result["test"]["accuracy"] == pytest.approx(result["history"][-1]["val_accuracy"])
    assert result["test"]["accuracy"] >= 0.9
    assert result["peak_memory_bytes"] > 100e6
    assert result["seconds_to_first_step"] > 0
    assert result["images_per_second"] > 0
    assert set(result["versions"]) == {"python", "tensorflow", "keras"}
    assert len(list((folder / "checkpoints").glob("epoch-*.keras"))) == 3
    for part in ("train", "validation"):
        events = list((folder / "logs" / part).glob("events.out.tfevents.*"))
        assert len(events) == 1
        assert events[0].read_bytes().count(b"epoch_accuracy") == 12
        assert (b"conv2d" in events[0].read_bytes()) == (part == "train")


@pytest.mark.slow
def test_running_a_finished_training_again_does_nothing(
    training: tuple[Path, str], data: Path, tmp_path: Path
) -> None:
    folder, _ = training
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    output = run("mnist.train", "--data", data, "--output", folder, **without_tensorflow(tmp_path))

    assert output.splitlines()[0].startswith("Nothing to do")
    assert output.splitlines()[-1] == "Training finished. Model saved"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.slow
def test_a_finished_model_below_the_asked_accuracy_is_refused(training: tuple[Path, str], data: Path) -> None:
    output = run("mnist.train", "--data", data, "--output", training[0], "--min-accuracy", 1, code=MODEL_REFUSED)
    assert "1.0 is asked for" in only_error(output)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("truncate", "train.npz has 1000 bytes"),
        ("remove", "test.npz is missing"),
        ("manifest", "it has no manifest.json"),
    ],
)
def test_data_that_is_not_whole_is_refused(data: Path, tmp_path: Path, damage: str, words: str) -> None:
    copy = Path(shutil.copytree(data, tmp_path / "data"))
    if damage == "truncate":
        (copy / "train.npz").write_bytes((copy / "train.npz").read_bytes()[:1000])
    elif damage == "remove":
        (copy / "test.npz").unlink()
    else:
        (copy / MANIFEST).unlink()

    output = run("mnist.train", "--data", copy, "--output", tmp_path / "model", code=BAD_INPUT)

    assert words in only_error(output)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epochs", "0"),
        ("--batch-size", "0"),
        ("--min-accuracy", "1.1"),
        ("--seed", "-1"),
        ("--augment", "-1"),
        ("--augment", "101"),
        ("--learning-rates", "1:1e-3"),
    ],
)
def test_wrong_arguments_are_usage_errors(data: Path, tmp_path: Path, arguments: tuple[str, str]) -> None:
    output = run("mnist.train", "--data", data, "--output", tmp_path, *arguments, code=USAGE)
    assert arguments[0] in output


@pytest.mark.slow
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
    assert not (out / MANIFEST).exists()

    output = run("mnist.train", "--data", data, "--output", out, loaded=True)

    resumed = re.search(r"Resuming after epoch (\d+) from", output)
    assert resumed
    assert int(resumed[1]) >= epoch
    assert f"Epoch {resumed[1]}/" not in output
    assert learned(out) == learned(training[0])
    assert metrics(out)["test"] == metrics(training[0])["test"]
    assert output.splitlines()[-1] == "Training finished. Model saved"


@pytest.mark.slow
def test_killed_again_and_again_a_training_still_ends(data: Path, tmp_path: Path) -> None:
    """Killed at moments that no epoch chooses: in the import, in a step, while a checkpoint is written."""
    out = tmp_path / "model"
    arguments = ("--data", data, "--output", out, "--epochs", 6, "--min-accuracy", 0.5)
    for begin, seconds in ((start, 1.0), (start_loaded, 0.8), (start_loaded, 1.3), (start_loaded, 2.0)):
        process = begin("mnist.train", *arguments)
        time.sleep(seconds)
        process.kill()
        process.wait()

    run("mnist.train", *arguments, loaded=True)

    assert whole(out) == (True, "")
    assert len(metrics(out)["history"]) == 6


@pytest.mark.slow
def test_sigterm_stops_a_training_that_can_be_resumed(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    process = start_loaded("mnist.train", "--data", data, "--output", out, "--epochs", "4000")
    wait_for_epoch(process, 2)

    process.send_signal(signal.SIGTERM)

    # Most of its 4,000 epochs are left, which take longer.
    output, _ = process.communicate(timeout=20)
    assert process.returncode == INTERRUPTED
    assert "stopped by SIGTERM: the same command resumes from the newest checkpoint" in only_error(output)
    assert not (out / MANIFEST).exists()
    rest = run("mnist.train", "--data", data, "--output", out, "--epochs", 4, loaded=True)
    assert "Resuming after epoch" in rest


@pytest.mark.slow
def test_two_trainings_at_the_same_time_leave_one_whole_result(
    training: tuple[Path, str], data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    arguments = ("--data", data, "--output", out, "--epochs", 4, "--min-accuracy", 0.5)
    processes = [start_loaded("mnist.train", *arguments) for _ in range(2)]
    outputs = [process.communicate(timeout=240)[0] for process in processes]

    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
        assert output.splitlines()[-1] == "Training finished. Model saved"
    assert whole(out) == (True, "")
    assert learned(out) == learned(training[0])[:4]
    assert not list(out.rglob(f"*{TEMPORARY_SUFFIX}"))


@pytest.mark.slow
def test_damaged_and_foreign_checkpoints_are_passed_over_by_name(
    training: tuple[Path, str], data: Path, tmp_path: Path
) -> None:
    folder = training[0]
    out = tmp_path / "model"
    shutil.copytree(folder / "checkpoints", out / "checkpoints")
    tenth, eleventh, twelfth = sorted((out / "checkpoints").iterdir())
    twelfth.write_bytes(twelfth.read_bytes()[:-1])
    content = bytearray(eleventh.read_bytes())
    content[len(content) // 2] ^= 1
    eleventh.write_bytes(content)
    (out / "checkpoints" / "epoch-0013-0123456789abcdef.keras").write_bytes(b"")
    (out / "checkpoints" / "epoch-0012-fedcba9876543210.keras").mkdir()

    output = run("mnist.train", "--data", data, "--output", out, loaded=True)

    assert "epoch-0013-0123456789abcdef.keras skipped: it is past the 12 epochs asked for" in output
    assert f"{twelfth.name} skipped: truncated or altered" in output
    assert f"{eleventh.name} skipped: truncated or altered" in output
    assert f"Resuming after epoch 10 from {tenth.name}" in output
    assert learned(out) == learned(folder)

    other = run("mnist.train", "--data", data, "--output", out, "--seed", 1, "--epochs", 1, "--min-accuracy", 0,
                loaded=True)  # fmt: skip
    assert "Doing it again" in other
    assert (
        "skipped: other data, seed, batch size, learning rates or augmentation" in other
        or "past the 1 epochs" in other
    )
    assert "Epoch 1/1 " in other


@pytest.mark.slow
def test_a_refused_model_is_not_published(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    arguments = ("--data", data, "--output", out, "--epochs", 1, "--min-accuracy", 0.999)

    first = run("mnist.train", *arguments, code=MODEL_REFUSED, loaded=True)
    again = run("mnist.train", *arguments, code=MODEL_REFUSED, loaded=True)

    for output in (first, again):
        assert "0.999 is asked for; nothing is published" in only_error(output)
        assert str(out / "checkpoints") in only_error(output)
        assert "Model saved" not in output
    assert "Epoch 1/1 " not in again, "what was trained should not be trained again"
    assert sorted(path.name for path in out.iterdir()) == ["checkpoints", "logs"]
    run("mnist.train", *arguments[:-1], 0.1, loaded=True)
    assert whole(out)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "words"), [("size=1m", "is full"), ("size=1m,ro", "mounted read-only")])
def test_a_store_that_takes_no_checkpoint_is_one_error(
    data: Path, tmp_path: Path, options: str, words: str
) -> None:
    mount = f"mount -t tmpfs -o {options} tmpfs {tmp_path}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small file system in a namespace of its own")
    train = command("mnist.train", "--data", data, "--output", tmp_path / "model")

    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *train],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == STORE_TROUBLE
    assert words in only_error(result.stderr)


@pytest.mark.slow
def test_a_diverging_training_is_refused(data: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(data, tmp_path / "data"))
    output = run(
        "mnist.train", "--data", copy, "--output", tmp_path / "model", "--epochs", 2, "--learning-rates", "0:1",
        code=MODEL_REFUSED, loaded=True,
    )  # fmt: skip
    assert "Model saved" not in output
    only_error(output)


@pytest.mark.slow
def test_a_longer_training_continues_a_shorter_one(data: Path, tmp_path: Path, training: tuple[Path, str]) -> None:
    out = tmp_path / "model"
    run("mnist.train", "--data", data, "--output", out, "--epochs", 5, "--min-accuracy", 0.5, loaded=True)

    output = run("mnist.train", "--data", data, "--output", out, loaded=True)

    assert "Resuming after epoch 5" in output
    assert learned(out) == learned(training[0])


@pytest.mark.slow
def test_replicas_train_together_and_the_saved_model_is_what_was_measured(data: Path, tmp_path: Path) -> None:
    """Two virtual accelerators: both get a share of each batch, and one process with one device reads the same."""
    out = tmp_path / "model"
    output = run(
        "mnist.train", "--data", data, "--output", out, "--batch-size", 32, "--epochs", 4, loaded=True,
        **{VARIABLE: "nvidia-tesla-t4:2"},
    )  # fmt: skip
    result = metrics(out)

    assert "2 replica(s), 1,438 images, 22 steps of 64 images per epoch" in output
    assert result["replicas"] == 2
    assert result["virtual_devices"]
    assert result["devices"] == "2 x nvidia-tesla-t4"
    assert result["test"]["accuracy"] >= 0.9
    code = (
        "import sys, numpy as np, keras\n"
        "model, test = keras.models.load_model(sys.argv[1]), np.load(sys.argv[2])\n"
        "model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=['accuracy'])\n"
        "print(*model.evaluate(test['images'][..., None], test['labels'], verbose=0))"
    )
    (tmp_path / "measure.py").write_text(code)
    words = ["measure.py", str(out / "mnist.keras"), str(data / "test.npz")]
    measured = Loaded(words, tmp_path, environment())
    said, _ = measured.communicate(240)
    assert measured.returncode == 0, said
    loss, accuracy = map(float, said.split()[-2:])
    assert accuracy == pytest.approx(result["test"]["accuracy"], abs=1e-6)
    assert loss == pytest.approx(result["test"]["loss"], rel=1e-3)


@pytest.mark.slow
def test_too_few_images_for_the_replicas_are_refused(tmp_path: Path) -> None:
    from slipway.workloads.runtime.store import publish
    from workloads.mnist.batches import save

    (tmp_path / "staged").mkdir()
    few = np.zeros((3, 28, 28), np.uint8), np.zeros(3, np.uint8)
    for name in ("train.npz", "test.npz"):
        save(tmp_path / "staged" / name, few)
    publish(tmp_path / "staged", tmp_path / "data", step="x", inputs={}, settings={}, summary={})

    output = run(
        "mnist.train",
        "--data",
        tmp_path / "data",
        "--output",
        tmp_path / "model",
        code=BAD_INPUT,
        loaded=True,
        **{VARIABLE: "t4:8"},
    )

    assert "too few for 8 replicas" in only_error(output)


@pytest.mark.slow
@pytest.mark.skipif(not MNIST_FILES, reason="SLIPWAY_MNIST_DIR names no folder with MNIST's files")
def test_real_mnist_is_learned(tmp_path: Path) -> None:
    run("mnist.prepare", "--dataset", "idx", "--source", MNIST_FILES, "--output", tmp_path / "data")

    run("mnist.train", "--data", tmp_path / "data", "--output", tmp_path / "model", "--min-accuracy", 0.97,
        loaded=True)  # fmt: skip

    output = run(
        "mnist.predict", "--model", tmp_path / "model", "--images", tmp_path / "data" / "images",
        "--output", tmp_path / "predictions", loaded=True,
    )  # fmt: skip
    assert len(re.findall(r"The image \S+ is the number \d with a [\d.]+ percent confidence\.", output)) == 10
    predictions = json.loads((tmp_path / "predictions" / "predictions.json").read_text())
    assert predictions["accuracy"] >= 0.9


@pytest.mark.slow
def test_the_fused_optimizer_takes_the_steps_of_keras_adam() -> None:
    """Also when it goes on from a state that Keras' Adam made, and with a rate that changes."""
    import keras
    import tensorflow as tf

    from workloads.mnist.model import FusedAdam

    start = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    ours, theirs = tf.Variable(start), tf.Variable(start)
    fused, plain = FusedAdam(0.1), keras.optimizers.Adam(0.1)
    for step in range(30):
        gradient = tf.constant(np.random.default_rng(step).normal(size=(2, 3)).astype(np.float32))
        for optimizer, variable in ((fused, ours), (plain, theirs)):
            optimizer.learning_rate = 0.1 if step < 15 else 0.01
            optimizer.apply([gradient], [variable])

    assert np.abs(ours.numpy() - start).max() > 0.1
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6)
    continued = FusedAdam(0.01)
    continued.build([ours])
    for mine, other in zip(continued.variables, plain.variables, strict=True):
        mine.assign(other.value)
    for optimizer, variable in ((continued, ours), (plain, theirs)):
        optimizer.apply([tf.ones((2, 3))], [variable])
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6)
