"""The page as a process, as a pod starts it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from slipway.rehearse.machine.processes import free_ports
from tests.features.page.conftest import until
from tests.support.servers.serving_stub import ServingStub

ROOT = Path(__file__).parents[3]


@contextlib.contextmanager
def process(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-m", "slipway.features.page.pod", *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def answers(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read()
    except OSError:
        return None


class Running:
    """A page on a port of this machine."""

    def __init__(self, port: int, started: subprocess.Popen[str]) -> None:
        self.port, self.process = port, started

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def healthy(self) -> bool:
        return answers(f"http://127.0.0.1:{self.port}/healthz") == b"ok\n"


@contextlib.contextmanager
def serve(serving: ServingStub, *arguments: str) -> Iterator[Running]:
    """A page in front of ``serving``, once it knows that."""
    (port,) = free_ports(1)
    known = ["--serving", serving.address, "--model", "digits", "--ink", "light", "--port", str(port)]
    with process(*known, *arguments) as started:
        page = Running(port, started)
        until(lambda: b'"ready"' in (answers(f"{page.address}/api/status") or b""))
        yield page
