"""However a rehearsal ends, nothing of it goes on, and the next one takes up where it was."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from slipway.offline.rehearsal.state import Phase
from tests.offline.rehearsal import toy
from tests.support.rehearsing import Running, all_end, phases, resumed_after


def start(folder: Path, program: str, epoch: int, *words: str) -> tuple[Running, list[psutil.Process]]:
    """A rehearsal whose training has come to that epoch, and the processes below it."""
    rehearsal = Running("-m", "tests.offline.rehearsal.toy", str(folder), program, *words)
    file = folder / "store" / "epochs"
    rehearsal.until(lambda: file.exists() and int(file.read_text() or 0) >= epoch)
    return rehearsal, rehearsal.children()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_interrupted_rehearsal_ends_its_processes_and_goes_on_later(
    tmp_path: Path, number: signal.Signals
) -> None:
    rehearsal, below = start(tmp_path, "training", 2)
    assert len(below) >= 3, "the reaper, the training and the training's own child"
    if number is signal.SIGINT:
        # A terminal sends it to all processes that it started.
        os.killpg(rehearsal.process.pid, number)
    else:
        rehearsal.process.send_signal(number)
    output = rehearsal.end(130, seconds=30)
    assert all_end(below)
    assert "interrupted; the next rehearsal takes it up again" in output
    assert "Not run, for they need what was interrupted: toy-predict" in output
    assert "Traceback" not in output

    outcome, _ = toy.rehearse(toy.training, tmp_path)
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}
    assert resumed_after(tmp_path) >= 2


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    rehearsal, below = start(tmp_path, "stubborn", 1)
    rehearsal.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        # It gives the Job time to end.
        rehearsal.process.wait(timeout=0.3)
    rehearsal.process.send_signal(signal.SIGINT)
    rehearsal.end(130, seconds=5)
    assert all_end(below)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "machines"), [(toy.training, 1), (toy.nodes, 3)])
def test_a_killed_rehearsal_leaves_no_process_and_the_next_resumes(
    tmp_path: Path, program: Callable[[], None], machines: int
) -> None:
    rehearsal, below = start(tmp_path, program.__name__, 3, str(machines))
    assert len(below) >= 1 + machines, "the reaper and the pods"
    rehearsal.kill()
    assert all_end(below)

    outcome, printed = toy.rehearse(program, tmp_path, machines=machines)
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}, printed
    if machines == 1:
        assert resumed_after(tmp_path) >= 3
