"""The fake as a process, and what it is configured by."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slipway.offline.rehearsal.machine.processes import free_ports

ROOT = Path(__file__).resolve().parents[5]
MODULE = "slipway.offline.rehearsal.fakes.tensorflow_serving"
PATIENCE = 300.0
"""Seconds: TensorFlow takes its time on a machine that has other work."""


def configuration(models: Mapping[str, Path], versions: str = "", labels: Mapping[str, int] | None = None) -> str:
    named = "".join(
        f'version_labels {{ key: "{label}" value: {version} }} ' for label, version in (labels or {}).items()
    )
    policy = f"model_version_policy {{ {versions} }}" if versions else ""
    configs = "".join(
        f'config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" {policy} {named}}}\n'
        for name, path in models.items()
    )
    return f"model_config_list {{\n{configs}}}\n"


class Server:
    """A fake that runs. ``log`` is what it has written so far."""

    def __init__(self, *flags: str) -> None:
        self.rest, self.rpc = free_ports(2)
        ports = [f"--port={self.rpc}", f"--rest_api_port={self.rest}"]
        command = [sys.executable, "-m", MODULE, *ports]
        self.process = subprocess.Popen(
            [*command, "--file_system_poll_wait_seconds=0.1", "--model_config_file_poll_wait_seconds=0.1", *flags],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))
            if line.startswith("Exporting HTTP/REST API"):
                self._ready.set()
        self._ready.set()

    def ready(self) -> Server:
        assert self._ready.wait(PATIENCE), "\n".join(self.log)
        assert self.process.poll() is None, "\n".join(self.log)
        return self

    def ended(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def end(self) -> None:
        self.process.terminate()
        self.ended()

    def get(self, path: str) -> tuple[int, Any]:
        return self._ask(urllib.request.Request(f"http://127.0.0.1:{self.rest}{path}"))

    def post(self, path: str, body: object) -> tuple[int, Any]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask(
            urllib.request.Request(f"http://127.0.0.1:{self.rest}{path}", data=content, method="POST")
        )

    def text(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}{path}", timeout=PATIENCE) as answer:
            return answer.read().decode()

    @staticmethod
    def _ask(request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            content = error.read()
            return error.code, json.loads(content) if content else None

    def states(self, model: str) -> dict[int, str]:
        code, status = self.get(f"/v1/models/{model}")
        assert code == 200
        return {int(version["version"]): version["state"] for version in status["model_version_status"]}

    @property
    def notes(self) -> list[str]:
        """What the fake says of itself, without what TensorFlow writes on some processors."""
        return [line for line in self.log if line.startswith("fake: ")]

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is so; fail with the log where it never is."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, "\n".join(self.log)
            time.sleep(0.02)
