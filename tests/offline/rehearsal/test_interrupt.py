"""However a rehearsal ends, nothing of it goes on, and the next one takes up where it was."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from offline.rehearsal.records import Phase
from tests.offline.rehearsal.toy import ROOT, rehearse, training


def start(folder: Path, program: str = "training") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.offline.rehearsal.toy", str(folder), program]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_epoch(folder: Path, epoch: int) -> None:
    file = folder / "store" / "epochs"
    deadline = time.monotonic() + 30
    while not file.exists() or int(file.read_text() or 0) < epoch:
        assert time.monotonic() < deadline, "the training did not get that far"
        time.sleep(0.05)


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=10)
    return not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


def resumed_after(folder: Path) -> int:
    log = (folder / "logs" / "toy-train.log").read_text()
    return int(log.rsplit("starting after ", 1)[1].split()[0])


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_interrupted_rehearsal_ends_its_processes_and_goes_on_later(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = start(tmp_path)
    wait_for_epoch(tmp_path, 2)
    children = descendants(process)
    assert len(children) >= 3, "the reaper, the training and the training's own child"
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert gone(children)
    assert "interrupted; the next rehearsal takes it up again" in output
    assert "Not run, for they need what was interrupted: toy-predict" in output
    assert "Traceback" not in output

    outcome, _ = rehearse(training, tmp_path)
    assert {record.phase for record in outcome.records} == {Phase.SUCCEEDED}
    assert resumed_after(tmp_path) >= 2


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_reaches_the_whole_group_and_still_saves(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.offline.rehearsal.toy", str(tmp_path), "training"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    wait_for_epoch(tmp_path, 1)
    children = descendants(process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert gone(children)
    assert (tmp_path / "state.json").exists()


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    process = start(tmp_path, "stubborn")
    wait_for_epoch(tmp_path, 1)
    children = descendants(process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None, "it gives the Job time to end"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=5) == 130
    assert gone(children)


@pytest.mark.slow
def test_a_killed_rehearsal_leaves_no_process_and_the_next_resumes(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_epoch(tmp_path, 3)
    children = descendants(process)
    process.kill()
    process.wait()
    assert gone(children)

    outcome, _ = rehearse(training, tmp_path)
    assert {record.phase for record in outcome.records} == {Phase.SUCCEEDED}
    assert resumed_after(tmp_path) >= 3
