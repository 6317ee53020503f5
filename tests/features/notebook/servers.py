"""A JupyterLab as the app starts it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.rehearse.machine.processes import free_ports
from tests.support.steps import start

TOKEN = "a-token-of-the-tests-0123456789"


@dataclass(frozen=True)
class Lab:
    """A JupyterLab server and its folder."""

    port: int
    folder: Path
    process: subprocess.Popen[str]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(
        self, path: str, method: str = "GET", *, token: str | None = TOKEN, body: object = None, **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and content of an answer; redirections are not followed."""
        fields = {"Authorization": f"token {token}"} if token else {}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, fields, method=method)
        opener = urllib.request.build_opener(_Stay, urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def json(self, path: str, method: str = "GET", body: object = None) -> Any:
        status, _, content = self.ask(path, method, body=body)
        assert status < 300, content
        return json.loads(content) if content else None


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


@contextlib.contextmanager
def lab(folder: Path, *, idle: int = 3600, **environment: str) -> Iterator[Lab]:
    (port,) = free_ports(1)
    arguments = ("--folder", folder, "--listen", "127.0.0.1", "--port", port, "--idle", idle)
    process = start("slipway.features.notebook.pod.serve", *arguments, **{"JUPYTER_TOKEN": TOKEN, **environment})
    # What it says is read, or it would wait for a reader.
    said: list[str] = []
    assert process.stdout is not None
    reader = threading.Thread(target=said.extend, args=(process.stdout,), daemon=True)
    reader.start()
    server = Lab(port, folder, process)
    try:
        until(lambda: process.poll() is not None or _answers(server), lambda: "".join(said))
        assert process.poll() is None, "".join(said)
        yield server
    finally:
        process.terminate()
        process.wait(30)
        reader.join()


def _answers(server: Lab) -> bool:
    try:
        return server.ask("/api")[0] == 200
    except OSError:
        return False


def until(condition: Callable[[], bool], said: Callable[[], str] = str, seconds: float = 90) -> None:
    """Look until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, said()
        time.sleep(0.1)
