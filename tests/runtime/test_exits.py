from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slipway.runtime.exits import INTERRUPTED, INTERRUPTED_BY_KEYBOARD, STORE_TROUBLE, UNEXPECTED, StepError
from tests.support.steps import ROOT, environment

# The main thread is inside one long C call, as it is inside TensorFlow: no Python handler would run.
BUSY = """
import hashlib
from slipway.runtime.exits import run, stop_on_sigterm
def main():
    stop_on_sigterm("come back later")
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 200_000_000)
    return 0
run(main)
"""


def start_busy(prefix: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", BUSY],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_sigterm_stops_at_once_even_inside_a_long_call() -> None:
    process = start_busy([])
    began = time.monotonic()

    process.send_signal(signal.SIGTERM)

    _, message = process.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert process.returncode == INTERRUPTED
    assert message == "error: stopped by SIGTERM: come back later\n"


def test_sigterm_stops_process_one_of_a_container() -> None:
    namespace = ["unshare", "-r", "--pid", "--fork", "--kill-child"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("this machine lets nobody make a process namespace")
    process = start_busy(namespace)
    children = f"/proc/{process.pid}/task/{process.pid}/children"
    with open(children, encoding="ascii") as stream:  # noqa: PTH123
        inside = int(stream.read().split()[0])

    os.kill(inside, signal.SIGTERM)

    _, message = process.communicate(timeout=20)
    assert process.returncode == INTERRUPTED
    assert "stopped by SIGTERM" in message


CTRL_C = """
import signal, time
from slipway.runtime.exits import run
signal.signal(signal.SIGINT, signal.default_int_handler)
run(lambda: print("ready", flush=True) or time.sleep(60))
"""


def test_ctrl_c_is_one_line() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CTRL_C], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGINT)

    _, message = process.communicate(timeout=20)
    assert process.returncode == INTERRUPTED_BY_KEYBOARD
    assert message == "error: interrupted\n"


def test_an_error_that_nothing_foresaw_ends_in_a_line_with_its_exit_code() -> None:
    code = "from slipway.runtime.exits import run\nrun(lambda: {}['gone'])"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == UNEXPECTED
    assert "Traceback" in ended.stderr
    assert ended.stderr.splitlines()[-1] == "error: KeyError: 'gone' (exit code 1)"


def test_a_step_error_carries_its_exit_code() -> None:
    error = StepError(4, "the data is gone")
    assert (error.code, str(error)) == (4, "the data is gone")


@pytest.mark.parametrize(("code", "left"), [(0, True), (4, False)])
def test_a_step_leaves_its_record_once_it_has_ended_well(code: int, left: bool, tmp_path: Path) -> None:
    record = tmp_path / ".runs" / "digits" / "train" / "abc" / "2"
    step = f"from slipway.runtime.exits import run; run(lambda: {code})"
    command = [sys.executable, "-c", step]
    done = subprocess.run(command, check=False, cwd=ROOT, env={**environment(), "SLIPWAY_RECORD": str(record)})
    assert done.returncode == code
    assert record.exists() is left


def test_a_record_that_cannot_be_written_is_trouble_with_the_store(tmp_path: Path) -> None:
    (tmp_path / ".runs").write_text("in the way")
    command = [sys.executable, "-c", "from slipway.runtime.exits import run; run(lambda: 0)"]
    given = {**environment(), "SLIPWAY_RECORD": str(tmp_path / ".runs" / "1")}
    done = subprocess.run(command, check=False, cwd=ROOT, env=given, capture_output=True, text=True)
    assert done.returncode == STORE_TROUBLE
    assert done.stderr.count("\n") == 1, done.stderr
    assert "cannot be written" in done.stderr


LEAVING = """
import atexit, sys
from slipway.runtime.exits import run
atexit.register(print, "tidied up")
def main():
    print("all", end="")
    print("told", end="", file=sys.stderr)
    return 3
run(main)
"""


def test_a_step_says_all_and_ends_without_tidying_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVING], cwd=ROOT, env=environment(), check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "all", "told")
