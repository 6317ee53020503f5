"""Learning a day: from the day before, from its last epoch where it was stopped, and nothing in pickles."""

import signal
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.workloads.fraud.programs import content, run, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def weights(output: Path) -> list[np.ndarray]:
    import model

    return model.keras.models.load_model(output / "model.keras").get_weights()


def test_a_day_goes_on_from_the_day_before(prepared: Path, learnt: Path) -> None:
    first, second = (content(learnt / day / "1" / "summary.json") for day in ("2018-04-01", "2018-04-02"))
    assert first.keys() == {"transactions", "frauds"}
    assert second.keys() == first.keys() | {"average_precision_before", "roc_auc_before"}
    assert second["roc_auc_before"] > 0.6
    with np.load(learnt / "2018-04-03" / "1" / "memory.npz") as memory:
        assert memory["fraud"].sum() == sum(
            content(learnt / f"2018-04-0{day}" / "1" / "summary.json")["frauds"] for day in (1, 2, 3)
        )


def test_it_remembers_every_fraud_and_as_many_others_as_it_may(
    prepared: Path, learnt: Path, tmp_path: Path
) -> None:
    first, day = learnt / "2018-04-01" / "1", prepared / "days" / "2018-04-02.npz"
    run("train_day.py", "--day", day, "--previous", first, "--epochs", 1, "--memory", 100, "--output", tmp_path,
        loaded=True)  # fmt: skip
    with (
        np.load(tmp_path / "memory.npz") as memory,
        np.load(day) as today,
        np.load(first / "memory.npz") as before,
    ):
        assert memory["fraud"].sum() == today["fraud"].sum() + before["fraud"].sum()
        assert (~memory["fraud"]).sum() == 100
        assert memory["customer"][-1] == today["customer"][-1]


def test_a_previous_day_without_a_model_is_as_none(prepared: Path, learnt: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    day = prepared / "days" / "2018-04-01.npz"
    run("train_day.py", "--day", day, "--previous", tmp_path / "nothing", "--epochs", 3,
        "--output", tmp_path / "out", loaded=True)  # fmt: skip
    actual, expected = weights(tmp_path / "out"), weights(learnt / "2018-04-01" / "1")
    assert all((one == other).all() for one, other in zip(actual, expected, strict=True))


def test_a_killed_training_goes_on_after_its_last_epoch_and_ends_the_same(
    prepared: Path, learnt: Path, tmp_path: Path
) -> None:
    day, output = prepared / "days" / "2018-04-02.npz", tmp_path / "out"
    arguments = ("--day", day, "--previous", learnt / "2018-04-01" / "1", "--epochs", 3, "--output", output)
    process = start("train_day.py", *arguments, loaded=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Epoch 2/"):
            process.send_signal(signal.SIGKILL)
            break
    process.communicate()
    assert not (output / "model.keras").exists()
    said = run("train_day.py", *arguments, loaded=True)
    assert "Going on after epoch" in said
    assert "Epoch 1/" not in said
    assert content(output / "summary.json") == content(learnt / "2018-04-02" / "1" / "summary.json")
    actual, expected = weights(output), weights(learnt / "2018-04-02" / "1")
    assert all((one == other).all() for one, other in zip(actual, expected, strict=True))
    assert {path.name for path in output.iterdir()} == {"model.keras", "memory.npz", "summary.json"}


def test_a_day_without_frauds_is_learnt(prepared: Path, tmp_path: Path) -> None:
    with np.load(prepared / "days" / "2018-04-01.npz") as day:
        np.savez(tmp_path / "quiet.npz", **{**day, "fraud": np.zeros_like(day["fraud"])})
    run("train_day.py", "--day", tmp_path / "quiet.npz", "--epochs", 2, "--output", tmp_path / "out",
        loaded=True)  # fmt: skip
    assert all(np.isfinite(weight).all() for weight in weights(tmp_path / "out"))


def test_nothing_that_is_stored_is_a_pickle(prepared: Path, learnt: Path) -> None:
    for path in [*prepared.rglob("*.npz"), *learnt.rglob("*.npz")]:
        with np.load(path, allow_pickle=False) as arrays:
            assert all(arrays[name].dtype != object for name in arrays.files)
    for path in learnt.rglob("*.keras"):
        with zipfile.ZipFile(path) as archive:
            assert {Path(name).suffix for name in archive.namelist()} <= {".json", ".h5"}
