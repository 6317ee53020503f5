"""Real collectives of TensorFlow between two processes, one of which is killed or fails."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway.features.nodes.pod.group import NEIGHBOUR_FAILED
from slipway.runtime.store import check
from tests.support.checkout import ROOT
from tests.support.stand_in_job import StandInJob

PROGRAM = ROOT / "tests" / "support" / "node_training.py"
STEPS = 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Train = Callable[[str, Path], StandInJob]


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    """Starts a training of that name by that program. Leaves no process behind."""
    jobs: list[StandInJob] = []

    def start(name: str, program: Path = PROGRAM) -> StandInJob:
        folder = tmp_path / name
        output = folder / "output"
        flags = ["--output", output, "--step", "train", "--wait", "120"]
        job = StandInJob(folder, 2, flags, [sys.executable, program, output, STEPS, 0.1])
        jobs.append(job)
        job.start_all()
        return job

    yield start
    for job in jobs:
        left = job.left_behind() if job.is_over else []
        job.kill()
        assert not left


def until(job: StandInJob, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end, job.logs()
        job.look_after()
        time.sleep(0.02)


def weights(job: StandInJob) -> bytes:
    assert job.failed is None, job.logs()
    check(job.folder / "output")
    return (job.folder / "output" / "value.json").read_bytes()


def test_a_training_whose_worker_is_killed_ends_with_the_same_weights(train: Train) -> None:
    unhurt = train("unhurt", PROGRAM)
    unhurt.run(300)
    expected = weights(unhurt)

    job = train("killed", PROGRAM)
    until(job, (job.folder / "output" / "checkpoint.npz").exists)
    for process in job.processes(1):
        os.kill(process, signal.SIGKILL)
    job.run(300)

    assert weights(job) == expected
    assert job.codes == {0: [0], 1: [-9, 0]}
    assert "Generation 2: pod 1 was lost, all programs start again" in job.text(0)
    assert f"step 0 of {STEPS}" not in job.text(0).partition("Generation 2: ")[2]


def test_the_error_of_one_worker_is_told_from_what_its_neighbour_makes_of_it(train: Train, tmp_path: Path) -> None:
    lines = PROGRAM.read_text().splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if "features, targets = _batch(done)" in line)
    lines.insert(at, '        if done == 2 and rank == 1:\n            raise ValueError("shard 7 is malformed")\n')
    program = tmp_path / "program.py"
    program.write_text("".join(lines))
    job = train("failing", program)
    job.run(300)

    assert job.codes[1] == [1]
    cause = "the program of pod 1 (127.0.0.1) failed with exit code 1: ValueError: shard 7 is malformed"
    assert f"Generation 1 ended: {cause}" in job.text(0)
    assert job.text(0).splitlines()[-1] == f"error: train: stopped: {cause} (exit code 15)"
    assert job.pods[0].wait() == NEIGHBOUR_FAILED
