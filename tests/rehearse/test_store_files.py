"""Files of this machine are in a rehearsal's store before its first Job."""

import os
from pathlib import Path
from typing import Any

import pytest

from slipway.files import FolderError
from slipway.infra.schema.problems import SettingsError
from slipway.rehearse import state
from slipway.rehearse.session import configure
from tests.support.checkout import ROOT
from tests.support.rehearsing import stack_file

IDX = {"train-images-idx3-ubyte": b"\0\0\x08\x03", "train-labels-idx1-ubyte": b"\0\0\x08\x01"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for name, content in IDX.items():
        (folder / name).write_bytes(content)
    return folder


def stack(tmp_path: Path, files: Any) -> Path:
    """The stack `local` with training data in its store, and these files for rehearsals."""

    def change(config: dict[str, Any]) -> None:
        config["slipway:pipelines"]["mnist"] |= {"dataset": "idx", "source": "store:datasets/mnist"}

    rehearsal = {"store_files": files, "pipelines": {"mnist": {"epochs": 2}}}
    return stack_file(tmp_path / "Pulumi.changed.yaml", change=change, rehearsal=rehearsal)


def test_the_overlay_names_files_beside_the_settings_that_it_lays_over(tmp_path: Path, data: Path) -> None:
    configuration = configure("local", ROOT, stack(tmp_path, {"datasets/mnist": str(data)}))
    assert configuration.settings.rehearsal.store_files == {"datasets/mnist": str(data)}
    mnist: Any = configuration.settings.pipelines["mnist"]
    assert mnist.epochs == 2
    assert "slipway:store_files" not in configuration.values


def test_a_new_store_has_the_files_and_the_next_rehearsal_copies_what_changed(tmp_path: Path, data: Path) -> None:
    files = {"datasets/mnist": str(data), "one/labels": str(data / "train-labels-idx1-ubyte")}
    store = tmp_path / "store"
    assert len(state.give(files, store, tmp_path)) == 2
    assert {path.name: path.read_bytes() for path in (store / "datasets/mnist").iterdir()} == IDX
    assert (store / "one/labels").read_bytes() == IDX["train-labels-idx1-ubyte"]
    assert state.give(files, store, tmp_path) == []
    (data / "train-images-idx3-ubyte").write_bytes(b"other")
    (remark,) = state.give(files, store, tmp_path)
    assert "(1 file)" in remark
    assert (store / "datasets/mnist/train-images-idx3-ubyte").read_bytes() == b"other"
    assert (data / "train-images-idx3-ubyte").read_bytes() == b"other", "the user's own file stays"


def test_a_folder_that_holds_the_store_is_not_copied_into_it(tmp_path: Path, data: Path) -> None:
    with pytest.raises(FolderError, match="holds the store"):
        state.give({"x": str(data.parent)}, data / "store", tmp_path)


def test_files_that_cannot_be_copied_are_refused_before_anything_runs(tmp_path: Path, data: Path) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    wrong = {
        "a": str(tmp_path / "gone"),
        "b": str(tmp_path / "empty"),
        "c": str(tmp_path / "pipe"),
        "mnist/train": str(data),
    }
    with pytest.raises(SettingsError) as error:
        configure("local", ROOT, stack(tmp_path, wrong))
    problems = {
        problem.key.removeprefix("slipway:rehearsal.store_files"): problem for problem in error.value.problems
    }
    assert set(problems) == {".a", ".b", ".c", '["mnist/train"]'}
    assert all(problem.fix for problem in problems.values())


@pytest.mark.parametrize("target", ["../x", "/etc", "a//b", "~/x"])
def test_a_path_outside_the_store_is_refused(tmp_path: Path, data: Path, target: str) -> None:
    with pytest.raises(SettingsError) as error:
        configure("local", ROOT, stack(tmp_path, {target: str(data)}))
    assert "not a path below the store's root" in error.value.problems[0].reason
