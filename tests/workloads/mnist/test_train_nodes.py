"""One training in several processes, with real collectives on the loopback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import TYPE_CHECKING

import numpy as np
import pytest

from slipway.workloads.runtime.devices import VARIABLE as VIRTUAL
from slipway.workloads.runtime.exits import INTERRUPTED, MODEL_REFUSED, USAGE, StepError
from slipway.workloads.runtime.nodes import collectives
from slipway.workloads.runtime.store import MANIFEST, whole
from tests.support.once import made_once
from tests.support.stand_in_job import StandInJob
from tests.workloads.processes import Together, addresses
from tests.workloads.steps import only_error, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = ("--global-batch-size", 64)


@pytest.fixture(scope="module")
def alone(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three epochs in one process, by Keras' own loop."""
    return made_once(
        tmp_path_factory,
        "alone",
        lambda folder: run("mnist.train", "--data", data, "--output", folder, "--epochs", 3, *BATCH, loaded=True),
    )[0]


def curve(folder: Path) -> list[float]:
    """Losses and accuracies of all epochs and of the test."""
    result = json.loads((folder / "metrics.json").read_text())
    names = ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate")
    return [*(epoch[name] for epoch in result["history"] for name in names), *result["test"].values()]


@pytest.mark.slow
def test_four_processes_learn_what_one_does_and_the_first_alone_writes(
    alone: Path, data: Path, tmp_path: Path, started: list[Together]
) -> None:
    out = tmp_path / "model"
    started.append(Together("mnist.train", [out] * 4, "--data", data, "--epochs", 3, *BATCH))

    codes, logs = started[0].end()

    assert codes == [0] * 4, logs
    assert curve(out) == pytest.approx(curve(alone), rel=1e-4)
    assert whole(out) == (True, "")
    assert "4 replica(s), 1,438 images, 22 steps of 64 images per epoch" in logs[0]
    assert [log.count("\nEpoch ") for log in logs] == [3, 0, 0, 0]
    assert all("Process 0 has published the model, whole" in log for log in logs[1:])
    assert all(log.splitlines()[-1] == "Training finished. Model saved" for log in logs)
    assert len(list((out / "checkpoints").iterdir())) == 3
    for part in ("train", "validation"):
        events = list((out / "logs" / part).iterdir())
        assert [event.read_bytes().count(b"epoch_accuracy") for event in events] == [3]
        assert (b"conv2d" in events[0].read_bytes()) == (part == "train")
    output = run("mnist.predict", "--model", out, "--images", data / "images", "--output", tmp_path / "read",
                 loaded=True)  # fmt: skip
    assert output.count("is the number") == 10

    started.append(Together("mnist.train", [out] * 2, "--data", data, "--epochs", 3, *BATCH))
    codes, logs = started[1].end()
    assert codes == [0, 0]
    assert all(log.startswith("Nothing to do") for log in logs)


@pytest.mark.slow
def test_processes_go_on_from_the_checkpoint_of_one_even_where_the_others_do_not_see_it(
    alone: Path, data: Path, tmp_path: Path, started: list[Together]
) -> None:
    """A mounted bucket shows a file late: here never. Two virtual GPUs of each node make four replicas."""
    out, blind = tmp_path / "model", tmp_path / "blind"
    shutil.copytree(alone / "checkpoints", out / "checkpoints")
    max((out / "checkpoints").iterdir()).unlink()
    arguments = ("--epochs", 3, "--batch-size", 16)
    started.append(
        Together("mnist.train", [out, blind], "--data", data, *arguments, **{VIRTUAL: "nvidia-tesla-t4:2"})
    )

    codes, logs = started[0].end()

    assert codes == [0, 0], logs
    assert "4 replica(s), 1,438 images, 22 steps of 64 images" in logs[0]
    assert "Resuming after epoch 2 from epoch-0002" in logs[0]
    assert "Resuming after epoch 2, as process 0 says" in logs[1]
    assert "not seen here yet" in logs[1]
    assert not blind.exists()
    assert curve(out) == pytest.approx(curve(alone), rel=1e-4)
    result = json.loads((out / "metrics.json").read_text())
    assert (result["devices"], result["nodes"], result["replicas"]) == ("2 nodes with 2 x nvidia-tesla-t4", 2, 4)
    assert result["virtual_devices"]

    # And the other way round: one process goes on from what several wrote.
    output = run("mnist.train", "--data", data, "--output", out, "--epochs", 4, *BATCH, loaded=True)
    assert "Resuming after epoch 3 from epoch-0003" in output


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_when_one_is_killed_the_other_ends_with_one_line_and_all_can_start_again(
    killed: int, data: Path, tmp_path: Path, started: list[Together]
) -> None:
    out = tmp_path / "model"
    started.append(Together("mnist.train", [out] * 2, "--data", data, "--epochs", 4000, *BATCH))
    started[0].wait_for(0, "Epoch 2/")

    started[0].processes[killed].kill()

    codes, logs = started[0].end()
    other = 1 - killed
    assert codes[killed] == -signal.SIGKILL
    assert codes[other] == collectives.OTHER_ENDED
    assert "another of the 2 processes ended, or cannot be reached" in only_error(logs[other])
    assert not (out / MANIFEST).exists()
    started.append(Together("mnist.train", [out] * 2, "--data", data, "--epochs", 4000, *BATCH))
    started[1].wait_for(0, "Resuming after epoch ")


@pytest.mark.slow
def test_sigterm_ends_a_process_that_waits_for_another_in_a_collective(
    data: Path, tmp_path: Path, started: list[Together]
) -> None:
    started.append(Together("mnist.train", [tmp_path / "model"] * 2, "--data", data, "--epochs", 4000, *BATCH))
    started[0].wait_for(0, "Epoch 2/")
    first, second = started[0].processes
    second.send_signal(signal.SIGSTOP)

    first.terminate()

    output, _ = first.communicate(timeout=10)
    assert first.returncode == INTERRUPTED
    assert "stopped by SIGTERM: the same command resumes" in only_error(output)


@pytest.mark.slow
def test_a_model_that_is_refused_is_refused_by_all(data: Path, tmp_path: Path, started: list[Together]) -> None:
    out = tmp_path / "model"
    started.append(
        Together("mnist.train", [out] * 2, "--data", data, "--epochs", 1, "--min-accuracy", 0.999, *BATCH)
    )
    codes, logs = started[0].end()
    assert codes == [MODEL_REFUSED] * 2
    assert all("0.999 is asked for; nothing is published" in only_error(log) for log in logs)
    assert not (out / MANIFEST).exists()


@pytest.mark.slow
def test_a_batch_that_the_replicas_cannot_share_is_refused(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    output = run(
        "mnist.train", "--data", data, "--output", out, "--global-batch-size", 63, code=USAGE, loaded=True,
        **{VIRTUAL: "t4:2"},
    )  # fmt: skip
    assert "--global-batch-size 63 cannot be divided among 2 replicas" in only_error(output)


@pytest.mark.slow
def test_the_shares_of_a_batch_are_the_whole_batch_and_no_image_twice() -> None:
    import numpy as np

    from workloads.mnist.batches import batches

    images = np.arange(50, dtype=np.uint8)[:, None, None] * np.ones((1, 28, 28), np.uint8)
    train = images, np.arange(50, dtype=np.uint8)
    together = [labels.tolist() for _, labels in batches(train, 5, range(2), 12).as_numpy_iterator()]
    shares = [
        [labels.tolist() for _, labels in batches(train, 5, range(2), 12, shares=4, mine=mine).as_numpy_iterator()]
        for mine in (range(2), range(2, 3), range(3, 4))
    ]

    assert len(together) == 8
    assert [len(share) for share in shares] == [16, 8, 8]
    first = [shares[0][2 * step] + shares[0][2 * step + 1] for step in range(8)]
    assert [a + b + c for a, b, c in zip(first, *shares[1:], strict=True)] == together


def group_of(cluster: object, kind: str = "worker", index: int = 0) -> collectives.Group | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            collectives.VARIABLE, json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
        )
        return collectives.group()


def test_one_process_is_no_group_and_a_chief_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(collectives.VARIABLE, raising=False)
    assert collectives.group() is None
    assert group_of({"worker": ["a:1"]}) is None
    assert group_of({}) is None
    assert group_of({"worker": ["a:1", "b:1"], "chief": ["c:1"]}, index=1) == collectives.Group(
        ("c:1", "a:1", "b:1"), 2
    )


@pytest.mark.parametrize(
    ("cluster", "kind", "words"),
    [
        ({"worker": ["a:1"], "ps": ["b:1"]}, "worker", "has the role 'ps'"),
        ({"worker": ["a:1", "b:1"]}, "evaluator", "has the role 'evaluator'"),
        ({"worker": ["a:1", "b:1"]}, "chief", "not what TensorFlow reads"),
        (7, "worker", "not what TensorFlow reads"),
    ],
)
def test_a_group_that_cannot_train_so_is_refused(cluster: object, kind: str, words: str) -> None:
    with pytest.raises(StepError, match=words) as caught:
        group_of(cluster, kind)
    assert caught.value.code == USAGE


@pytest.mark.parametrize("rank", [0, 1])
def test_nobody_waits_for_ever(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    among = addresses(2)
    with pytest.raises(StepError, match=r"waited|did not answer") as caught:
        collectives.meet(collectives.Group(tuple(among), rank), 0.3)
    assert caught.value.code == collectives.OTHERS_MISSING


def test_who_comes_and_goes_or_says_something_else_is_not_one_of_them() -> None:
    among = addresses(3)
    code = "import sys; from slipway.workloads.runtime.nodes.collectives import Group, meet; meet(Group(tuple(sys.argv[2:]), int(sys.argv[1])), 60)"  # noqa: E501
    first = subprocess.Popen([sys.executable, "-c", code, "0", *among], stderr=subprocess.PIPE)
    host, _, port = among[0].rpartition(":")
    for words in (b"PRI * HTTP/2.0\r\n\r\n", b"slipway collectives 1 of 3\n"):
        while True:
            try:
                with socket.create_connection((host, int(port)), timeout=60) as connection:
                    connection.sendall(words)
                    break
            except ConnectionRefusedError:
                assert first.poll() is None
    # The third comes after both have gone: before, the second might still have been there when all are counted.
    with socket.create_connection((host, int(port)), timeout=60) as third:
        third.sendall(b"slipway collectives 2 of 3\n")
        third.settimeout(1)
        with pytest.raises(TimeoutError):
            third.recv(100)
        assert first.poll() is None
        collectives.meet(collectives.Group(tuple(among), 1), 60)
        third.settimeout(60)
        assert third.recv(100)
    assert first.wait(60) == 0


def test_none_leaves_while_another_reads_the_end_of_a_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    port, read = Queue[float](), Event()

    def of_first(rank: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if rank:
            return np.array([port.get(timeout=60)])
        port.put(values[0])
        assert read.wait(60)
        return values

    monkeypatch.setattr(collectives, "of_first", of_first)
    among = tuple(addresses(2))
    first, second = (
        Thread(target=collectives.part, args=(rank, collectives.Group(among, rank)), daemon=True)
        for rank in (0, 1)
    )
    first.start()
    second.start()
    second.join(0.5)
    assert second.is_alive()
    read.set()
    first.join(60)
    second.join(60)
    assert not first.is_alive()
    assert not second.is_alive()


def test_who_waits_for_the_first_in_vain_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (gone,) = (int(address.rpartition(":")[2]) for address in addresses(1))
    monkeypatch.setattr(collectives, "of_first", lambda *_: np.array([float(gone)]))
    monkeypatch.setattr(collectives, "PARTING", 0.3)
    with pytest.raises(StepError, match="process 0") as caught:
        collectives.part(object(), collectives.Group(tuple(addresses(2)), 1))
    assert caught.value.code == collectives.OTHER_ENDED


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_launcher_starts_all_again_when_one_is_killed_and_the_model_is_the_same(
    training: tuple[Path, str], data: Path, tmp_path: Path
) -> None:
    """The one that writes."""
    out = tmp_path / "model"
    words = [sys.executable, "-m", "workloads.mnist.train", "--data", data, "--output", out, *BATCH]
    flags = ["--step", "mnist.train", "--wait", 120, "--shared", out, "--checkpoints", '{"grace": 20}']
    job = StandInJob(tmp_path / "job", 2, flags, words)
    try:
        job.start_all()
        while not list(out.glob("checkpoints*/*/0/manifest.json")):
            assert job.failed is None, job.logs()
            job.look_after()
        for process in job.programs(0):
            os.kill(process, signal.SIGKILL)
        job.run(400)
    finally:
        left = job.left_behind() if job.is_over else []
        job.kill()

    assert job.failed is None, job.logs()
    assert not left
    assert "Generation 2: " in job.text(0)
    assert job.text(0).count("Resuming after epoch ") == 1
    assert whole(out) == (True, "")
    assert not list(out.glob("checkpoints*"))
    assert curve(out) == pytest.approx(curve(training[0]), rel=1e-3)
