"""New versions without a restart, labels, and what a wrong configuration or a broken version does.

What is expected is what TensorFlow Serving 2.21 does: model_servers/server_core.cc (`ReloadConfig`,
`UpdateModelVersionLabelMap`), core/aspired_versions_manager.cc and tensorflow.org/tfx/serving/serving_config.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway.workloads.runtime.store import write_atomically
from tests.offline.rehearsal.fakes.tensorflow_serving.server import Server, configuration

pytestmark = pytest.mark.slow

LABELS = "--allow_version_labels_for_unavailable_models=true"
IDLE = ("--rest_api_num_threads=4", "--enable_batching=true")
"""Flags that the fake does nothing with."""


class Folder:
    """A model's versions, of which each adds its own number, and the file that servers read."""

    def __init__(self, folder: Path, made: Path, file: Path | None = None) -> None:
        self.folder = folder
        self.name = folder.name
        self.folder.mkdir()
        self.file = file or folder.parent / "models.config"
        self._made = made

    def add(self, number: int) -> None:
        shutil.copytree(self._made / str(number), self.folder / f".{number}")
        (self.folder / f".{number}").rename(self.folder / str(number))

    def serve(self, *versions: int, **labels: int) -> None:
        self.write(configuration({self.name: self.folder}, _specific(versions), labels))

    def write(self, text: str) -> None:
        write_atomically(self.file, text.encode())


def _specific(versions: tuple[int, ...]) -> str:
    return f"specific {{ {' '.join(f'versions: {version}' for version in versions)} }}"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.offline.rehearsal.fakes.tensorflow_serving.models import half_plus

    folder = tmp_path_factory.mktemp("half")
    for number in (1, 2, 3):
        half_plus(folder / str(number), number)
    return folder


@pytest.fixture
def folder(tmp_path: Path, made: Path) -> Folder:
    models = Folder(tmp_path / "half", made)
    models.add(1)
    models.serve(1, stable=1)
    return models


@pytest.fixture
def start(folder: Folder) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def begin(*flags: str) -> Server:
        started.append(Server(f"--model_config_file={folder.file}", *flags))
        return started[-1]

    yield begin
    for server in started:
        server.end()


class Shared:
    """A server for several tests, each of which gives it a model of its own."""

    def __init__(self, folder: Path, made: Path) -> None:
        self._folder, self._made = folder, made
        self._file = folder / "models.config"
        self._file.touch()
        self._numbers = itertools.count(1)
        once = ("--max_num_load_retries=1", "--load_retry_interval_micros=100000")
        self.server = Server(f"--model_config_file={self._file}", LABELS, *once, *IDLE).ready()

    def model(self) -> Folder:
        """A new one in place of all others, whose version 1 is there and is `stable`."""
        folder = Folder(self._folder / f"half-{next(self._numbers)}", self._made, self._file)
        folder.add(1)
        folder.serve(1, stable=1)
        self.server.until(lambda: self.server.get(f"/v1/models/{folder.name}/labels/stable/metadata")[0] == 200)
        return folder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, made: Path) -> Iterator[Shared]:
    several = Shared(tmp_path_factory.mktemp("shared"), made)
    yield several
    several.server.end()


def answer(server: Server, which: str = "", model: str = "half") -> float | str:
    code, content = server.post(f"/v1/models/{model}{which}:predict", {"instances": [0.0]})
    return content["predictions"][0] if code == 200 else content["error"]


def test_takes_up_a_version_and_lets_the_old_one_go(shared: Shared) -> None:
    server, folder = shared.server, shared.model()
    assert answer(server, model=folder.name) == answer(server, "/labels/stable", folder.name) == 1.0
    folder.add(2)
    folder.serve(1, 2, stable=1)
    server.until(lambda: server.states(folder.name).get(2) == "AVAILABLE")
    assert answer(server, "/labels/stable", folder.name) == 1.0
    folder.serve(2, stable=2)
    server.until(lambda: answer(server, "/labels/stable", folder.name) == 2.0)
    server.until(lambda: server.states(folder.name) == {2: "AVAILABLE", 1: "END"})
    assert answer(server, model=folder.name) == 2.0
    assert (
        answer(server, "/versions/1", folder.name) == f"Servable not found for request: Specific({folder.name}, 1)"
    )
    folder.serve(1, 2, stable=2)
    server.until(lambda: server.states(folder.name)[1] == "AVAILABLE")


def test_a_label_that_moves_at_once_keeps_the_version_from_being_loaded(shared: Shared) -> None:
    server, folder = shared.server, shared.model()
    folder.add(2)
    folder.serve(2, stable=2)
    refused = (
        "PollFilesystemAndReloadConfig failed to ReloadConfig: Request to assign label to version 2 of model "
        f"{folder.name}, which is not currently available for inference"
    )
    server.until(lambda: server.log.count(refused) >= 3)
    assert server.states(folder.name) == {1: "AVAILABLE"}
    assert answer(server, model=folder.name) == 1.0


def test_an_unknown_label_may_come_with_its_version(shared: Shared) -> None:
    server, folder = shared.server, shared.model()
    folder.add(2)
    folder.serve(1, 2, stable=1, canary=2)
    server.until(lambda: answer(server, "/labels/canary", folder.name) == 2.0)
    assert answer(server, "/labels/stable", folder.name) == 1.0


def test_labels_need_the_flag_at_the_start(start: Callable[..., Server]) -> None:
    server = start()
    assert server.ended() == 255
    assert server.log[-1] == (
        "Failed to start server. Error: FAILED_PRECONDITION: Request to assign label to version 1 of model half, "
        "which is not currently available for inference"
    )


def test_a_server_that_starts_takes_any_label_and_answers_before_all_is_loaded(
    folder: Folder, start: Callable[..., Server]
) -> None:
    """As the server, whose ports open once any version answers; the metadata say when that of a label does."""
    folder.add(2)
    graph = folder.folder / "2" / "saved_model.pb"
    content = graph.read_bytes()
    graph.unlink()
    # Reading it waits until somebody writes it.
    os.mkfifo(graph)
    folder.serve(1, 2, canary=1, stable=2)
    server = start(LABELS, "--load_retry_interval_micros=100000").ready()
    label = "/v1/models/half/labels/stable/metadata"
    assert answer(server, "/labels/canary") == 1.0
    assert answer(server, "/labels/stable") == "Servable not found for request: Specific(half, 2)"
    assert server.get("/v1/models/half")[0] == 200
    assert server.get(label)[0] == 404
    with graph.open("wb"):
        graph.unlink()
        graph.write_bytes(content)
    server.until(lambda: server.get(label)[0] == 200)
    assert answer(server, "/labels/stable") == 2.0


def test_without_a_file_it_does_not_start(folder: Folder, start: Callable[..., Server]) -> None:
    folder.file.unlink()
    server = start(LABELS)
    assert server.ended() == 255
    assert server.log[-1] == f"Failed to start server. Error: NOT_FOUND: {folder.file}; No such file or directory"


def test_a_file_that_cannot_be_read_changes_nothing(shared: Shared) -> None:
    server, folder = shared.server, shared.model()
    folder.write("model_config_list { config {")
    server.until(lambda: any(line.startswith("Failed to read ModelServerConfig file") for line in server.log))
    assert answer(server, model=folder.name) == 1.0


def test_a_broken_version_leaves_the_old_one_serving(shared: Shared) -> None:
    server, folder = shared.server, shared.model()
    folder.add(2)
    pb = folder.folder / "2" / "saved_model.pb"
    pb.write_bytes(pb.read_bytes()[:40])
    folder.serve(1, 2, stable=1)
    server.until(lambda: server.states(folder.name).get(2) == "END")
    code, status = server.get(f"/v1/models/{folder.name}/versions/2")
    assert code == 200
    (state,) = status["model_version_status"]
    assert state["status"]["error_code"] == "UNKNOWN"
    assert state["status"]["error_message"]
    folder.serve(2, stable=1)
    assert answer(server, model=folder.name) == 1.0


def test_a_server_whose_only_version_is_broken_ends(folder: Folder, start: Callable[..., Server]) -> None:
    (folder.folder / "1" / "saved_model.pb").write_bytes(b"broken")
    server = start(LABELS, "--max_num_load_retries=0")
    assert server.ended() == 255
    start_of = (
        "Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available: {{name: half version: 1}"
    )
    assert server.log[-1].startswith(start_of)


def test_a_folder_without_configuration_serves_its_newest(folder: Folder) -> None:
    server = Server("--model_name=half", f"--model_base_path={folder.folder}").ready()
    try:
        folder.add(2)
        server.until(lambda: answer(server) == 2.0)
        server.until(lambda: server.states("half") == {2: "AVAILABLE", 1: "END"})
    finally:
        server.end()


def test_says_which_flags_do_nothing(shared: Shared) -> None:
    assert shared.server.notes[1] == (
        "fake: flags that it takes and does nothing with: --rest_api_num_threads=4 --enable_batching"
    )
