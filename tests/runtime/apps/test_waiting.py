"""What the pod of an app waits for: the results that it reads, a result of each step before it, and other apps."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.runtime.apps import newest, waiting
from slipway.runtime.apps.newest import GoodRun
from slipway.runtime.store import publish, staging


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "stop_on_sigterm", lambda _: None)


def make(directory: Path) -> None:
    with staging() as staged:
        (staged / "model").write_text("m", encoding="utf-8")
        publish(staged, directory, step="train", inputs={}, settings={}, summary={})


class Pauses:
    """Stands in for the pauses: each does the next of ``events``, after which something is there."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.events = [*events]

    def __call__(self, _: float) -> None:
        self.events.pop(0)()


def test_it_waits_for_that_result_and_for_no_other_of_its_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = tmp_path / "shop/train/2222"
    pauses = Pauses(lambda: make(tmp_path / "shop/train/1111"), wanted.mkdir, lambda: make(wanted))
    assert waiting.main(["--result", f"train={wanted}"], pauses) == 0
    assert not pauses.events
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Waits for ")]
    assert "the result of train" in lines[0]
    # It says again only what has changed.
    assert len(lines) == len(set(lines))


def test_any_whole_result_of_a_step_does(tmp_path: Path) -> None:
    folder = tmp_path / "shop/publish"

    def damage() -> None:
        (folder / "0000").mkdir(parents=True)
        (folder / "0000/manifest.json").write_text("{", encoding="utf-8")

    pauses = Pauses(damage, lambda: make(folder / "1111"))
    assert waiting.main(["--any", f"publish={folder}"], pauses) == 0
    assert not pauses.events


def test_it_waits_for_the_first_good_run_or_for_the_one_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "shop/newest/runs.json"
    file.parent.mkdir(parents=True)
    runs = [GoodRun(name, "2026-11-26T03:00:00Z", {"train": "shop/train/1"}) for name in ("20261126-0300", "ab")]
    assert waiting.main(["--runs", str(file)], Pauses(lambda: newest.write(file, runs[1:]))) == 0
    pauses = Pauses(lambda: newest.write(file, runs))
    assert waiting.main(["--runs", str(file), "--run", "20261126-0300"], pauses) == 0
    assert not pauses.events


def test_it_waits_until_an_app_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    opened: list[socket.socket] = []
    pauses = Pauses(lambda: opened.append(socket.create_server(("127.0.0.1", port))))
    assert waiting.main(["--server", f"serving=127.0.0.1:{port}"], pauses) == 0
    assert not pauses.events
    opened[0].close()
