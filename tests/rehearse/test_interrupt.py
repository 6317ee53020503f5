"""However a rehearsal ends, nothing of it goes on, and the next one takes up where it was."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from slipway.rehearse.state import Phase
from tests.rehearse import toy
from tests.support.rehearsing import Running, all_end, phases, pipeline_folder, resumed_after, stack_file


def start(folder: Path, program: str, epoch: int, *words: str) -> tuple[Running, list[psutil.Process]]:
    """A rehearsal whose training has come to that epoch, and the processes below it."""
    rehearsal = Running("-m", "tests.rehearse.toy", str(folder), program, *words)
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


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_step_with_places_without_an_error(tmp_path: Path) -> None:
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: print('here', flush=True)"
    image = f"registry.example.com/python@sha256:{'0' * 64}"
    steps = {"train": {"run": ["python", "train.py", "{output}"], "image": image}}
    made = pipeline_folder(tmp_path / "toy", {"train.py": program}, steps=steps)

    def change(config: dict[str, Any]) -> None:
        node = {"cpu": "2", "memory": "4Gi", "nodes": 1}
        pools = {name: {"selector": {"a": name}, **node} for name in ("cpu", "one", "two")}
        config["slipway:clusters"]["local"]["pools"] = pools
        config["slipway:store"] |= {"access_mode": "ReadWriteMany", "storage_class": "nfs"}

    placed = {"places": ["one", "two"], "cpu": "500m", "memory": "256Mi", "ephemeral_storage": "1Gi"}
    pipelines = {"toy": {"uses": made, "steps": {"train": placed}}}
    file = stack_file(tmp_path / "stack.yaml", change=change, pipelines=pipelines)
    words = ("-s", "local", "--config-file", str(file), "--output", str(tmp_path / "out"))
    rehearsal = Running("-m", "slipway", "rehearse", *words)
    log = tmp_path / "out" / "logs" / "toy-train.log"
    rehearsal.until(lambda: log.exists() and "here" in log.read_text(encoding="utf-8"))
    below = rehearsal.children()
    rehearsal.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        rehearsal.process.wait(timeout=1)
    rehearsal.process.send_signal(signal.SIGINT)
    output = rehearsal.end(130, seconds=10)
    assert all_end(below)
    assert "Error" not in output
    assert "Traceback" not in output


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone ends a process with its parent")
def test_killed_with_its_reaper_a_rehearsal_leaves_no_pod_and_the_next_ends_the_rest(tmp_path: Path) -> None:
    rehearsal, below = start(tmp_path, "training", 1)
    [reaper] = rehearsal.children("reaper.py")
    [pod] = [
        process for process in rehearsal.children("starting after") if process.ppid() == rehearsal.process.pid
    ]
    reaper.kill()
    rehearsal.kill()
    assert all_end([pod])
    outcome, printed = toy.rehearse(toy.training, tmp_path)
    assert set(phases(outcome).values()) == {Phase.SUCCEEDED}, printed
    assert all_end(below)
