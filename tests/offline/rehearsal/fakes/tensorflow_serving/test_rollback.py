"""Publications, rollbacks and a canary by the real step, with servers that read at different times and visitors.

The step's waits end when both servers have read what it wrote; how long these are is its caller's matter.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slipway.workloads.apps.tensorflow_serving import publish
from slipway.workloads.apps.tensorflow_serving.model_config import Served, decode
from tests.offline.rehearsal.fakes.tensorflow_serving.server import Server

pytestmark = pytest.mark.slow

MODEL = "/v1/models/numbers"
STABLE = f"{MODEL}/labels/stable"


class Stopped(Exception):  # noqa: N818
    """The step is killed while it waits."""


class Folder:
    """What is published, and by whom it is read."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # TensorFlow, which takes seconds to import.
        from tests.workloads.apps.tensorflow_serving.models import requests, save

        self.folder = folder
        self.versions = folder / "versions"
        self.file = self.versions / "models.config"
        self.models = [save(folder / f"model-{factor}" / "saved_model", factor) for factor in (1, 2, 3)]
        self.requests = requests(folder / "requests.npz")
        self.servers: list[Server] = []
        self.waits: list[Callable[[], None]] = []
        monkeypatch.setattr(publish, "time", SimpleNamespace(sleep=self.wait, monotonic=time.monotonic))
        monkeypatch.setattr(publish, "stop_on_sigterm", lambda *_: None)

    def publish(self, version: int, *more: str) -> None:
        model, report = self.models[version - 1], self.folder / "report"
        arguments = ["--name", "numbers", "--model", model, "--versions", self.versions, "--output", report]
        publish.main([*map(str, arguments), "--requests", str(self.requests), *more])
        self.read()

    def start(self, *flags: str) -> Server:
        label = "--allow_version_labels_for_unavailable_models=true"
        self.servers.append(Server(f"--model_config_file={self.file}", label, *flags).ready())
        return self.servers[-1]

    @property
    def served(self) -> Served:
        return decode(self.file.read_bytes())

    def wait(self, _: float) -> None:
        self.read()
        for wait in self.waits:
            wait()

    def read(self) -> None:
        """Wait until all servers go by the file."""
        for server in self.servers:
            server.until(lambda server=server: goes_by(server, self.served))


def goes_by(server: Server, served: Served) -> bool:
    loaded = {number for number, state in server.states("numbers").items() if state == "AVAILABLE"}
    return loaded == {*served.versions} and all(
        labelled(server, label) == number for label, number in served.labels.items()
    )


def labelled(server: Server, label: str) -> int | None:
    code, metadata = server.get(f"{MODEL}/labels/{label}/metadata")
    return int(metadata["model_spec"]["version"]) if code == 200 else None


class Visitor(threading.Thread):
    """Asks without a pause, as the page does: one server for the version that answers, another for its answer.

    ``refused`` are the requests that failed twice, and ``seen`` the versions that the first server named.
    """

    def __init__(self, servers: list[Server]) -> None:
        super().__init__(daemon=True)
        self.refused: list[Any] = []
        self.seen: list[int] = []
        self._servers = servers
        self._over = threading.Event()

    def run(self) -> None:
        pairs = itertools.cycle(itertools.product(self._servers, repeat=2))
        while not self._over.is_set():
            first, second = next(pairs)
            code, said = first.post(f"{STABLE}:predict", {"instances": [[1.0, 1.0]]})
            if code != 200:
                self.refused.append(said)
            if not any(self._asked(first, second) for _ in range(2)):
                self.refused.append("a version that a server had just named")

    def _asked(self, first: Server, second: Server) -> bool:
        version = labelled(first, "stable")
        if version is None:
            return False
        if first is self._servers[0] and self.seen[-1:] != [version]:
            self.seen.append(version)
        code, said = second.post(f"{MODEL}/versions/{version}:predict", {"instances": [[1.0, 1.0]]})
        return code == 200 and said["predictions"] == [[version, version]]

    def stop(self) -> None:
        self._over.set()
        self.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    models = Folder(tmp_path, monkeypatch)
    yield models
    for server in models.servers:
        server.end()


def test_visitors_see_no_publication_and_no_rollback_but_by_the_answer(folder: Folder) -> None:
    folder.publish(1)
    quick, late = folder.start(), folder.start("--model_config_file_poll_wait_seconds=0.5")
    visitor = Visitor([quick, late])
    visitor.start()
    folder.publish(2)
    folder.publish(3)
    folder.publish(3, "--serve", "previous")
    folder.publish(3, "--serve", "1")
    folder.publish(3, "--serve", "1", "--canary", "latest")
    assert [labelled(server, "canary") for server in (quick, late)] == [3, 3]
    folder.publish(3)
    visitor.stop()
    assert visitor.refused == []
    assert visitor.seen == [1, 2, 3, 2, 1, 3]
    assert not [line for server in (quick, late) for line in server.log if "failed to ReloadConfig" in line]


def test_a_server_that_starts_meanwhile_answers_as_those_that_are_there(folder: Folder) -> None:
    """At each state that a rollback, or one that is killed, leaves."""

    def fresh() -> None:
        server = folder.start()
        server.until(lambda: labelled(server, "stable") == folder.served.labels["stable"])
        folder.servers.pop().end()

    def killed() -> None:
        raise Stopped

    for version in (1, 2, 3):
        folder.publish(version)
    server = folder.start()
    folder.waits = [fresh]
    folder.publish(3, "--serve", "1", "--canary", "latest")
    fresh()
    folder.waits = [killed]
    with pytest.raises(Stopped):
        folder.publish(3, "--serve", "previous")
    fresh()
    folder.waits = []
    folder.publish(3, "--serve", "previous")
    assert folder.served == Served((2,), {"stable": 2})
    assert labelled(server, "stable") == 2
    assert labelled(server, "canary") is None
