"""A real Valkey server on the loopback, as a service of a pipeline starts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import queue_kill_run as servers
from benchmarks.queue_kill_run import PASSWORD, NoServerError, ValkeyServer

__all__ = ["PASSWORD", "ValkeyServer", "valkey_program", "valkey_server"]


def valkey_program() -> str:
    """The server that tests start; the test is skipped where there is none."""
    try:
        return servers.valkey_program()
    except NoServerError as error:
        pytest.skip(str(error))


@pytest.fixture
def valkey_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that is running, with an append-only file; it is ended with the test."""
    valkey_program()
    server = ValkeyServer(tmp_path / "valkey")
    server.start()
    yield server
    server.kill()
