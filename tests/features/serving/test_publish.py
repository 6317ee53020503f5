"""What publishing leaves for servers, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from slipway.features.serving.pod import publish, versions
from slipway.runtime import store
from slipway.runtime.exits import BAD_INPUT, MODEL_REFUSED, StepError
from tests.support.steps import only_error, start

pytestmark = pytest.mark.slow


class Folder:
    """The folder of a model's versions, and what publishes into it."""

    def __init__(self, folder: Path) -> None:
        # TensorFlow, which takes seconds to import.
        from tests.features.serving.models import requests

        self.folder = folder
        self.versions = folder / "versions"
        self.requests = requests(folder / "requests.npz")

    def publish(self, model: Path, *more: object) -> dict[str, object]:
        publish.main([*map(str, self.arguments(model)), *map(str, more)])
        return json.loads((self.folder / "report" / publish.REPORT).read_text(encoding="utf-8"))

    def arguments(self, model: Path) -> list[object]:
        return [
            *("--name", "numbers", "--model", model, "--versions", self.versions, "--requests", self.requests),
            *("--truth", "right", "--min-accuracy", "0.9", "--output", self.folder / "report"),
        ]

    @property
    def served(self) -> list[str]:
        """The versions that servers are told to load."""
        return re.findall(r"versions: (\d+)", (self.versions / "models.config").read_text(encoding="utf-8"))

    @property
    def numbers(self) -> list[int]:
        return [*versions.read_published(self.versions)]

    def content(self) -> dict[str, bytes]:
        files = [path for path in self.versions.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.versions)): path.read_bytes() for path in files}


@pytest.fixture(autouse=True)
def _signals(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests' own process keeps its handlers.
    monkeypatch.setattr(publish, "stop_on_sigterm", lambda *_: None)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three trainings of the same model."""
    from tests.features.serving.models import save

    return [save(tmp_path_factory.mktemp("model") / "saved_model", factor) for factor in range(1, 4)]


@pytest.mark.slow
def test_the_first_version_is_served(folder: Folder, models: list[Path]) -> None:
    report = folder.publish(models[0])
    assert (report["version"], report["accuracy"], report["requests"]) == (1, 1.0, 6)
    assert folder.served == ["1"]
    assert (folder.versions / "1" / "saved_model.pb").read_bytes() == (models[0] / "saved_model.pb").read_bytes()
    record = json.loads((folder.versions / "1" / "version.json").read_text(encoding="utf-8"))
    assert record["accuracy"] == 1.0
    assert record["requests"] == 6
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record["published"])


@pytest.mark.slow
def test_the_same_training_is_the_same_version(folder: Folder, models: list[Path]) -> None:
    folder.publish(models[0])
    before = folder.content()
    folder.publish(models[0])
    assert folder.content() == before


def test_what_is_published_last_answers_and_no_version_is_deleted(folder: Folder, models: list[Path]) -> None:
    for number, model in enumerate(models[:3], start=1):
        assert folder.publish(model)["version"] == number
        assert folder.served == [str(number)]
    # The settings of an earlier training, which is not examined again.
    assert folder.publish(models[1])["version"] == 2
    assert folder.served == ["2"]
    assert folder.numbers == [1, 2, 3]
    assert not [path for path in folder.versions.iterdir() if path.name.startswith(".")]


@pytest.fixture
def result(model: Path, tmp_path: Path) -> Path:
    """The training as a step leaves it in the store, with its manifest."""
    store.publish(model, tmp_path / "result", step="mnist.train", inputs={}, settings={}, summary={})
    return tmp_path / "result"


def test_takes_the_result_of_a_step(folder: Folder, result: Path, data: Path) -> None:
    report = folder.publish(
        result,
        *("--requests", data / "test.npz", "--input", "image=images", "--truth", "labels"),
    )
    version = versions.read_published(folder.versions)[1]
    metrics = json.loads((result / "metrics.json").read_text(encoding="utf-8"))
    assert version.facts["accuracy"] == pytest.approx(metrics["test"]["accuracy"], abs=0.003)
    assert (report["version"], report["accuracy"]) == (1, version.facts["accuracy"])


def refused(folder: Folder, model: Path, *more: object, code: int = BAD_INPUT) -> str:
    """Why it is refused; the test fails where anything of what is served changed."""
    before = folder.content()
    with pytest.raises(StepError) as raised:
        folder.publish(model, *more)
    assert raised.value.code == code, raised.value
    assert folder.content() == before
    return str(raised.value)


def test_refuses_models_that_nothing_can_be_asked_of(folder: Folder, models: list[Path], tmp_path: Path) -> None:
    from tests.features.serving.models import Unsigned, save

    folder.publish(models[0])
    assert "no signature serving_default" in refused(folder, save(tmp_path / "plain", module=Unsigned()))
    assert "serving_default" in refused(folder, models[1], "--signature", "scores")
    broken = Path(shutil.copytree(models[1], tmp_path / "broken"))
    graph = (broken / "saved_model.pb").read_bytes()
    (broken / "saved_model.pb").write_bytes(graph[: len(graph) // 2])
    assert str(broken) in refused(folder, broken)
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in refused(folder, tmp_path / "empty")


def test_refuses_a_result_that_is_not_whole(folder: Folder, models: list[Path], result: Path) -> None:
    folder.publish(models[0])
    file = result / "saved_model" / "variables" / "variables.data-00000-of-00001"
    file.write_bytes(file.read_bytes()[:-1])
    assert "saved_model/variables/variables.data-00000-of-00001" in refused(folder, result)


@pytest.mark.slow
def test_refuses_wrong_answers(folder: Folder, models: list[Path], tmp_path: Path) -> None:
    from tests.features.serving.models import Means, OfTheBatch, save

    folder.publish(models[0])
    for name, model, said in (
        ("worse", -1.0, "0.0000 of 6"),
        ("infinite", float("inf"), "not finite in the answer to request 0"),
        ("means", Means(), "not one row for each"),
        ("batch", OfTheBatch(), "depend on the others"),
    ):
        folder_of_model = tmp_path / name
        wrong = save(folder_of_model, model) if isinstance(model, float) else save(folder_of_model, module=model)
        assert said in refused(folder, wrong, code=MODEL_REFUSED)


def test_refuses_what_the_command_line_names_and_is_not_there(
    folder: Folder, models: list[Path], tmp_path: Path
) -> None:
    folder.publish(models[0])
    wide = tmp_path / "wide.json"
    wide.write_text(json.dumps({"numbers": [[1, 2, 3]], "right": [1]}), encoding="utf-8")
    for option, value, said in (
        ("--truth", "labels", "numbers, right"),
        ("--input", "image=numbers", "numbers"),
        ("--requests", wide, "[1, 3]"),
    ):
        assert said in refused(folder, models[1], option, value)


def test_a_damaged_version_of_the_same_training_is_published_anew(folder: Folder, models: list[Path]) -> None:
    folder.publish(models[0])
    (folder.versions / "1" / "saved_model.pb").write_bytes(b"half")
    assert folder.publish(models[0])["version"] == 2


def test_a_folder_without_its_record_is_no_version(folder: Folder, models: list[Path]) -> None:
    shutil.copytree(models[0], folder.versions / "4")
    assert folder.publish(models[0])["version"] == 5


def test_fills_a_version_in_place_where_folders_cannot_be_renamed(
    folder: Folder, models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def of_files_alone(self: Path, target: Path) -> Path:
        if self.is_dir():
            raise OSError(24, os.strerror(24))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", of_files_alone)
    for model in models[:2]:
        folder.publish(model)
    assert folder.numbers == [1, 2]
    assert {path.name for path in folder.versions.iterdir()} == {"1", "2", "models.config", "monitoring.config"}


def test_leaves_what_servers_read_beside_it(folder: Folder, models: list[Path]) -> None:
    folder.publish(models[0], "--batch-largest", "32", "--batch-wait", "500")
    content = folder.content()
    assert b"enable: true" in content["monitoring.config"]
    batching = content["batching-32-500-100.config"].decode()
    assert "max_batch_size { value: 32 }" in batching
    assert "batch_timeout_micros { value: 500 }" in batching


def test_leftovers_of_killed_publishers_go_once_they_are_old(folder: Folder, models: list[Path]) -> None:
    for name, age in (("old", 7200), ("young", 0)):
        left = folder.versions / f".slipway-9-{name}"
        left.mkdir(parents=True)
        os.utime(left, (time.time() - age, time.time() - age))
    folder.publish(models[0])
    assert [path.name for path in folder.versions.glob(".*")] == [".slipway-9-young"]


def test_says_an_error_in_one_line(folder: Folder, tmp_path: Path) -> None:
    arguments = folder.arguments(tmp_path / "nowhere")
    process = start("slipway.features.serving.pod.publish", *arguments)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 4
    assert "there is no SavedModel" in only_error(output)
