"""Good runs of a pipeline: noted once they are whole, and followed by apps, with a way back."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from slipway.runtime.apps import newest
from slipway.runtime.exits import BAD_INPUT, StepError
from slipway.runtime.store import NotWholeError, publish
from tests.support.checkout import ROOT

DIGEST = "0123456789"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def result(store: Path, path: str, text: str, staged: Path) -> Path:
    staged.mkdir(exist_ok=True)
    (staged / "model").write_text(text)
    publish(staged, store / path, step="churn.train", inputs={}, settings={}, summary={})
    return store / path


@pytest.fixture
def night(store: Path, tmp_path: Path) -> Callable[..., Path]:
    def made(mark: str, text: str = "", digest: str = DIGEST) -> Path:
        """A run that trains and is noted; an empty mark stands for `pulumi up`."""
        end = f"{digest}-{mark}" if mark else digest
        trained = result(store, f"churn/train/{end}", text or mark, tmp_path / "staged")
        assert note(store, trained, f"churn/newest/{digest[::-1]}{'-' + mark if mark else ''}") == 0
        return trained

    return made


def note(store: Path, trained: Path, output: str) -> int:
    runs = store / "churn/newest/runs.json"
    newest_main = ["--output", str(store / output), "--runs", str(runs), "--step", f"train={trained}"]
    return newest.main(newest_main)


@pytest.fixture(autouse=True)
def no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "stop_on_sigterm", str)


def names(store: Path) -> list[str]:
    return [run.name for run in newest.read(store / "churn/newest/runs.json")]


def test_runs_are_noted_the_newest_first(store: Path, night: Callable[..., Path]) -> None:
    night("")
    night("20261122-0300")
    night("20261123-0300")
    assert names(store) == ["20261123-0300", "20261122-0300", DIGEST[::-1]]
    steps = newest.read(store / "churn/newest/runs.json")[0].steps
    assert steps == {"train": f"churn/train/{DIGEST}-20261123-0300"}


def test_a_run_that_is_not_whole_is_not_noted(store: Path, night: Callable[..., Path], tmp_path: Path) -> None:
    night("20261122-0300")
    cut = result(store, f"churn/train/{DIGEST}-20261123-0300", "seven", tmp_path / "staged")
    (cut / "model").write_text("sev")
    with pytest.raises(NotWholeError):
        note(store, cut, f"churn/newest/{DIGEST}-20261123-0300")
    assert names(store) == ["20261122-0300"]


def test_an_update_that_says_the_same_again_does_not_take_apps_back(
    store: Path, night: Callable[..., Path]
) -> None:
    night("")
    night("20261122-0300")
    night("")
    assert names(store)[0] == "20261122-0300"


def test_an_update_with_other_settings_is_the_newest_and_so_is_the_way_back(
    store: Path, night: Callable[..., Path]
) -> None:
    night("")
    night("20261122-0300")
    night("", digest="abcdef0123")
    assert names(store)[0] == "3210fedcba"
    night("")
    assert names(store)[0] == DIGEST[::-1]


def test_a_file_that_cannot_be_read_is_named_with_the_way_out(store: Path, night: Callable[..., Path]) -> None:
    night("20261122-0300")
    (store / "churn/newest/runs.json").write_text("[]")
    with pytest.raises(StepError, match=r"runs\.json cannot be read.*delete it") as error:
        names(store)
    assert error.value.code == BAD_INPUT


PROGRAM = """
import pathlib, sys, time
print("shows", (pathlib.Path(sys.argv[1]) / "model").read_text(), flush=True)
time.sleep(600)
"""


class App:
    """A program that follows, as a container starts it."""

    def __init__(self, store: Path, into: Path, *flags: str, run: str = "newest") -> None:
        setup = "import slipway.runtime.apps.inputs as it; it.PAUSE = 0.1; it.run(it.main)"
        command = [sys.executable, "-c", setup, "--into", str(into), "--run", run, *flags]
        command += ["--follow", str(store / "churn/newest/runs.json"), "--input", "train=train"]
        command += ["--", sys.executable, "-c", PROGRAM, str(into / "train")]
        self.process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def says(self, words: str) -> None:
        stream = self.process.stdout
        assert stream is not None
        seen: list[str] = []
        for line in stream:
            seen.append(line)
            if words in line:
                return
        raise AssertionError(f"{words!r} is not in {''.join(seen)}")


@pytest.fixture
def start(store: Path, tmp_path: Path) -> Generator[Callable[..., App]]:
    made: list[App] = []

    def started(*flags: str, run: str = "newest") -> App:
        made.append(App(store, tmp_path / "links", *flags, run=run))
        return made[-1]

    yield started
    for pod in made:
        if pod.process.poll() is None:
            pod.process.terminate()
        pod.process.wait(10)


@pytest.mark.slow
def test_an_app_ends_for_a_newer_run_and_begins_with_it(
    night: Callable[..., Path], start: Callable[..., App]
) -> None:
    night("20261122-0300", "six")
    app = start()
    app.says("shows six")
    night("20261123-0300", "seven")
    app.says("Run 20261123-0300 is good")
    assert app.process.wait(10) == 0
    start().says("shows seven")


@pytest.mark.slow
def test_an_app_stays_with_its_run_where_a_newer_one_is_gone(
    store: Path, night: Callable[..., Path], start: Callable[..., App]
) -> None:
    night("20261122-0300", "six")
    app = start()
    app.says("shows six")
    model = night("20261124-0300", "eight") / "model"
    model.unlink()
    # It may have looked before the file was gone.
    time.sleep(1)
    other = start()
    assert other.process.wait(10) == BAD_INPUT


@pytest.mark.slow
def test_an_app_goes_back_to_a_named_run_and_stays_there(
    night: Callable[..., Path], start: Callable[..., App]
) -> None:
    night("20261122-0300", "six")
    night("20261123-0300", "seven")
    app = start(run="20261122-0300")
    app.says("shows six")
    night("20261124-0300", "eight")
    time.sleep(1)
    assert app.process.poll() is None


@pytest.mark.slow
def test_a_run_that_is_not_there_is_refused_with_those_that_are(
    night: Callable[..., Path], start: Callable[..., App]
) -> None:
    night("20261122-0300", "six")
    app = start(run="20261101-0300")
    app.says("has no run 20261101-0300: it has 20261122-0300")
    assert app.process.wait(10) == BAD_INPUT


@pytest.mark.slow
def test_an_app_that_is_told_to_stop_passes_it_on(night: Callable[..., Path], start: Callable[..., App]) -> None:
    night("20261122-0300", "six")
    app = start()
    app.says("shows six")
    os.kill(app.process.pid, signal.SIGTERM)
    assert app.process.wait(10) == 128 + signal.SIGTERM


def test_the_newest_run_is_one_whole_json_object(store: Path, night: Callable[..., Path]) -> None:
    night("20261122-0300")
    content = json.loads((store / "churn/newest/runs.json").read_text())
    assert content["format"] == newest.FORMAT
    assert [run["run"] for run in content["runs"]] == ["20261122-0300"]
