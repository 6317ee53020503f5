"""Programs that start where TensorFlow is imported already, and what else takes long to import.

Importing it takes 5 s of CPU, and most programs of the tests need less for all else. So one process imports it,
and each program is a fork of that, with arguments, environment, folder and output of its own: it imports its own
modules itself, is killed alone, and ends by Python's own end. Only what an import of TensorFlow reads of the
environment is the same for all, and the seed of Python's hashes: what a program does before its imports, and that
it ends the same with other hashes, is for tests that start it by its command line.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LARGEST = 2**20
"""Bytes of a program's arguments and environment."""


class Loaded:
    """A program that was started so, with as much of `subprocess.Popen` as tests use."""

    def __init__(self, words: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
        self.args = words
        self.returncode: int | None = None
        self._ended, theirs = socket.socketpair()
        reader, writer = os.pipe()
        request = json.dumps({"words": list(words), "cwd": str(cwd), "environment": dict(environment)})
        with theirs:
            socket.send_fds(_server(), [request.encode()], [theirs.fileno(), writer])
        os.close(writer)
        self.stdout = os.fdopen(reader, encoding="utf-8")
        self._said = self._ended.makefile("r", encoding="ascii")
        self.pid = int(self._said.readline())
        self._end = threading.Thread(target=self._await, daemon=True)
        self._end.start()

    def _await(self) -> None:
        with self._ended, self._said:
            self.returncode = int(self._said.readline())

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._end.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """The rest of its output, once it has ended."""
        rest: list[str] = []
        reader = threading.Thread(target=lambda: rest.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(timeout)
        self.stdout.close()
        return rest[0], None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@functools.cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def _programs(control: socket.socket) -> dict[str, Any]:
    """What to be, in each new process; the first one stays here until nobody asks for programs."""
    while True:
        request, files, *_ = socket.recv_fds(control, LARGEST, 2)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not request:
            sys.exit()
        if os.fork():
            for file in files:
                os.close(file)
            continue
        # One process waits for the program and says how it ended.
        control.close()
        asker, output = socket.socket(fileno=files[0]), files[1]
        program = os.fork()
        if program:
            os.close(output)
            asker.sendall(f"{program}\n".encode())
            code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
            asker.sendall(f"{code}\n".encode())
            os._exit(0)
        asker.close()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        return json.loads(request)


def _become(words: Sequence[str], cwd: str, environment: Mapping[str, str]) -> None:
    """Does what `python WORDS` does."""
    import numpy as np

    for name in [module for module in sys.modules if module.partition(".")[0] in ("tests", "workloads")]:
        del sys.modules[name]
    # Each program has chances of its own, as `random` has by itself.
    np.random.seed()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if words[0] == "-m":
        sys.path[0], sys.argv = cwd, list(words[1:])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0], sys.argv = str(Path(words[0]).resolve().parent), list(words)
        runpy.run_path(words[0], run_name="__main__")


def main() -> None:
    from slipway.runtime.devices import before_import

    before_import()
    for name in ("keras", "tensorflow"):
        importlib.import_module(name)
    # It was kept from Keras, which would import all of it.
    del sys.modules["sklearn"]
    for name in ("scipy.stats", "sklearn.metrics"):
        importlib.import_module(name)
    _become(**_programs(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
