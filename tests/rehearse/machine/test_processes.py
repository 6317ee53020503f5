"""How processes of containers are started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.rehearse.machine import launch

CODE = """import signal
print(*(number.name for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)
        if signal.getsignal(number) == signal.SIG_IGN), signal.pthread_sigmask(signal.SIG_BLOCK, ()))"""


def _in_background() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ([sys.executable, "-c", CODE], "SIGTERM set()"),
        (["bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}"], "y 141"),
    ],
)
def test_a_program_ignores_no_signal_that_a_rehearsal_was_started_with(command: list[str], expected: str) -> None:
    with Path(os.devnull).open("w") as sink:
        settings = {"reaper": sink.fileno(), "nice": 0, "cpus": [], "binds": None, "writable": None, "box": None}
        specification = json.dumps({**settings, "parent": os.getpid()})
        ended = subprocess.run(
            [sys.executable, "-I", "-S", launch.__file__, specification, *command],
            check=True,
            capture_output=True,
            text=True,
            pass_fds=[sink.fileno()],
            preexec_fn=_in_background,
        )
    assert ended.stdout.split() == expected.split()
