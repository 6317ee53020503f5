"""Checkpoints on the disk of a node, their copies in the store, and what is restored of them."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway.runtime.checkpoints import session
from slipway.runtime.checkpoints.captures import ChangedError, capture, entries, is_temporary
from slipway.runtime.checkpoints.copies import FILES, KEPT, Copies, Pace, StoppedError
from slipway.runtime.checkpoints.session import Checkpoints
from slipway.runtime.store import MANIFEST, Manifest

WORK = Manifest("churn.train", {}, {"prepare": "1f2e"}, {"command": ["train", "{output}"]})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "POLL", 0.01)
    monkeypatch.setattr(session, "SETTLED", 0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "local" / "files"
    folder.mkdir(parents=True)
    return folder


def put(path: Path, content: str = "weights") -> Path:
    """Write a file as a program does: under another name, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(content)
    return temporary.replace(path)


def put_folder(path: Path, files: dict[str, str]) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    for name, content in files.items():
        put(temporary / name, content)
    # Longer than the clock of a file system needs to go on.
    time.sleep(0.01)
    temporary.rename(path)


CHANGES: list[Callable[[Path], object]] = [
    lambda step: (step / "a").write_text("other"),
    lambda step: os.utime(step / "a", ns=(1, 1)),
    lambda step: (step / "c").write_text("one more"),
    lambda step: (step / "sub" / "b").unlink(),
]


def copies(tmp_path: Path, **more: object) -> Copies:
    return Copies(tmp_path / "store", WORK, **more)  # type: ignore[arg-type]


def write(copies: Copies, path: Path, pace: Pace | None = None) -> None:
    captured = capture(entries(path.parent)[path.name], path.parent.parent / "captured" / path.name)
    copies.write(captured, f"{path.name}{captured.entry.version}", pace or Pace())
    captured.release()


def restored(copies: Copies, into: Path) -> tuple[str, list[str]]:
    """What is restored, by its name and content, and what was said."""
    said: list[str] = []
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    copy = copies.restore(into, said.append)
    names = [path.name for path in into.iterdir()]
    assert names == ([copy.name] if copy else [])
    return (f"{copy.name} {(into / copy.name).read_text()}" if copy else ""), said


def whole(copies: Copies) -> list[str]:
    return [copy.name for copy in copies.whole()]


class TestCaptures:
    @pytest.mark.parametrize("name", [".hidden", "a.tmp", "a.new", "a.part", "5.orbax-checkpoint-tmp-12"])
    def test_temporary_names_are_no_checkpoints(self, folder: Path, name: str) -> None:
        (folder / name).write_text("half")
        (folder / "link").symlink_to(folder / name)
        assert is_temporary(name)
        assert entries(folder) == {}

    def test_a_replaced_and_deleted_source_stays_as_it_was_captured(self, folder: Path) -> None:
        put_folder(folder / "step", {"a": "1", "sub/b": "2"})
        captured = capture(entries(folder)["step"], folder.parent / "captured")
        shutil.rmtree(folder / "step")
        put_folder(folder / "step", {"a": "3", "sub/b": "4"})
        captured.verify()
        assert {name: path.read_text() for name, path in captured.files.items()} == {
            "step/a": "1",
            "step/sub/b": "2",
        }
        captured.release()
        assert (folder / "step" / "a").read_text() == "3"

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_change_in_place_is_no_checkpoint(self, folder: Path, change: Callable[[Path], object]) -> None:
        put_folder(folder / "step", {"a": "1", "sub/b": "2"})
        captured = capture(entries(folder)["step"], folder.parent / "captured")
        change(folder / "step")
        with pytest.raises(ChangedError):
            captured.verify()

    def test_what_was_in_deletion_when_it_was_captured_is_no_checkpoint(self, folder: Path) -> None:
        put_folder(folder / "step", {"a": "1", "sub/b": "2"})
        (folder / "step" / "sub" / "b").unlink()
        captured = capture(entries(folder)["step"], folder.parent / "captured")
        captured.verify()
        shutil.rmtree(folder / "step")
        with pytest.raises(ChangedError):
            captured.verify()

    def test_a_link_in_a_checkpoint_is_refused(self, folder: Path) -> None:
        put_folder(folder / "step", {"a": "1"})
        (folder / "step" / "latest").symlink_to("a")
        with pytest.raises(ChangedError, match="latest"):
            capture(entries(folder)["step"], folder.parent / "captured")


class TestCopies:
    def test_the_newest_is_restored_and_older_ones_are_deleted(self, tmp_path: Path, folder: Path) -> None:
        store = copies(tmp_path)
        for step in range(5):
            write(store, put(folder / "state", f"{step}"))
            store.prune()
        assert restored(copies(tmp_path), tmp_path / "again") == ("state 4", [])
        assert len(store.whole()) == KEPT

    def test_a_damaged_one_is_passed_over_for_the_one_before(self, tmp_path: Path, folder: Path) -> None:
        store = copies(tmp_path)
        write(store, put(folder / "one"))
        write(store, put(folder / "two"))
        newest = store.whole()[0]
        (newest.folder / "0" / FILES / "two").write_text("weighty")
        state, said = restored(store, tmp_path / "again")
        assert state == "one weights"
        assert "two" in said[0]
        (newest.folder / "0" / FILES / "two").unlink()
        assert restored(store, tmp_path / "again")[0] == "one weights"
        (newest.folder / "0" / MANIFEST).write_text("{")
        assert restored(store, tmp_path / "again") == ("one weights", [])

    def test_one_of_other_work_is_not_restored(self, tmp_path: Path, folder: Path) -> None:
        write(copies(tmp_path), put(folder / "one"))
        other = Copies(tmp_path / "store", dataclasses.replace(WORK, inputs={"prepare": "0000"}))
        assert restored(other, tmp_path / "again")[0] == ""
        assert other.foreign() == ["one"]

    def test_a_clock_that_went_back_does_not_make_an_older_one_the_newest(
        self, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(copies(tmp_path), put(folder / "before"))
        monkeypatch.setattr(time, "time_ns", lambda: 1)
        later = copies(tmp_path)
        assert restored(later, tmp_path / "again")[0] == "before weights"
        write(later, put(folder / "after"))
        assert whole(copies(tmp_path)) == ["after", "before"]

    def test_a_copy_that_is_stopped_or_changed_leaves_nothing(self, tmp_path: Path, folder: Path) -> None:
        store, stopped = copies(tmp_path), Pace()
        stopped.stop()
        with pytest.raises(StoppedError):
            write(store, put(folder / "one"), stopped)
        path = put(folder / "two")
        with pytest.raises(ChangedError):
            write(store, path, Pace(step=lambda: os.utime(path, ns=(1, 1))))
        assert list((tmp_path / "store").iterdir()) == []

    def test_parts_are_whole_together_or_not_at_all(self, tmp_path: Path) -> None:
        pods = [copies(tmp_path, part=rank, count=2, attempt="one") for rank in range(2)]
        captured = None
        for rank, pod in enumerate(pods):
            for step in ("step-1", "step-2"):
                path = tmp_path / f"local-{rank}" / "files" / step
                put_folder(path, {f"{rank}.shard": f"{step} of {rank}", "own": f"{rank}"})
                captured = capture(entries(path.parent)[step], tmp_path / "captured")
                if (rank, step) != (1, "step-2"):
                    pod.write(captured, step, Pace())
        for rank, pod in enumerate(pods):
            into = tmp_path / f"again-{rank}"
            into.mkdir()
            copy = pod.restore(into, print)
            assert copy is not None
            files = {path.name: path.read_text() for path in (into / "step-1").iterdir()}
            assert files == {"0.shard": "step-1 of 0", "1.shard": "step-1 of 1", "own": f"{rank}"}
        # Another attempt writes a checkpoint of the same name: its part does not complete the first one's.
        assert captured is not None
        pods[1].begin("two")
        pods[1].write(captured, "step-2", Pace())
        assert whole(pods[0]) == ["step-1"]

    def test_what_an_attempt_left_unfinished_is_deleted_when_nobody_goes_on_with_it(
        self, tmp_path: Path, folder: Path
    ) -> None:
        for attempt, age in (("dead", 3600), ("slow", 0)):
            left = tmp_path / "store" / f"{attempt}-00" / "0" / FILES / "state"
            left.parent.mkdir(parents=True)
            left.write_text("half")
            os.utime(left, (time.time() - age, time.time() - age))
        store = copies(tmp_path)
        write(store, put(folder / "state"))
        store.prune()
        names = {path.name.partition("-")[0] for path in (tmp_path / "store").iterdir()}
        assert "slow" in names
        assert "dead" not in names

    def test_a_limit_of_bandwidth_is_dropped_in_a_hurry(self, tmp_path: Path, folder: Path) -> None:
        pace = Pace(limit=1e-9)
        pace.hurry()
        write(copies(tmp_path), put(folder / "one"), pace)


class TestSession:
    @pytest.fixture
    def running(self, tmp_path: Path) -> Iterator[Checkpoints]:
        checkpoints = Checkpoints(tmp_path / "local", copies(tmp_path))
        checkpoints.restore()
        checkpoints.start()
        yield checkpoints
        checkpoints.stop()

    def test_each_renamed_entry_is_copied_beside_the_program(self, tmp_path: Path, running: Checkpoints) -> None:
        put(running.folder / "state", "1")
        wait_for(lambda: restored(copies(tmp_path), tmp_path / "again")[0] == "state 1")
        put(running.folder / "state", "2")
        wait_for(lambda: restored(copies(tmp_path), tmp_path / "again")[0] == "state 2")
        assert list((tmp_path / "local" / "captured").iterdir()) == []

    def test_what_is_still_written_to_counts_only_when_it_is_left_alone(
        self, tmp_path: Path, running: Checkpoints, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session, "SETTLED", 60.0)
        with (running.folder / "state").open("w") as file:
            file.write("half")
            file.flush()
            wait_for(lambda: any((tmp_path / "store").glob(f"*/0/{FILES}/state")))
            file.write(", and the other half")
        running.finish()
        assert restored(copies(tmp_path), tmp_path / "again")[0] == "state half, and the other half"

    def test_the_last_one_is_copied_after_the_end_whatever_every_says(self, tmp_path: Path) -> None:
        checkpoints = Checkpoints(tmp_path / "local", copies(tmp_path), every=3600, bandwidth=1e6)
        checkpoints.restore()
        checkpoints.start()
        put(checkpoints.folder / "state", "1")
        wait_for(lambda: whole(copies(tmp_path)) == ["state"])
        put(checkpoints.folder / "state", "2")
        put(checkpoints.folder / "state", "3")
        checkpoints.finish()
        assert restored(copies(tmp_path), tmp_path / "again")[0] == "state 3"
        assert checkpoints.environment["SLIPWAY_CHECKPOINT_EVERY"] == "1800"
        # What is restored is not copied again.
        again = Checkpoints(tmp_path / "local", copies(tmp_path))
        before = {copy.folder for copy in copies(tmp_path).whole()}
        again.restore()
        again.start()
        again.finish()
        assert {copy.folder for copy in copies(tmp_path).whole()} == before
        again.close()
        assert not (tmp_path / "local").exists()

    def test_a_folder_that_is_being_deleted_is_not_taken_for_a_newer_one(
        self, tmp_path: Path, running: Checkpoints
    ) -> None:
        put_folder(running.folder / "old", {"a": "1", "b": "1"})
        wait_for(lambda: whole(copies(tmp_path)) == ["old"])
        put_folder(running.folder / "new", {"a": "2", "b": "2"})
        wait_for(lambda: whole(copies(tmp_path)) == ["new", "old"])
        (running.folder / "old" / "a").unlink()
        running.finish()
        assert whole(copies(tmp_path)) == ["new", "old"]

    def test_nor_is_one_that_nobody_saw_before_its_deletion_began(self, tmp_path: Path) -> None:
        checkpoints = Checkpoints(tmp_path / "local", copies(tmp_path))
        checkpoints.restore()
        for name in ("old", "new"):
            put_folder(checkpoints.folder / name, {"a": name, "b": name})
        (checkpoints.folder / "old" / "a").unlink()
        checkpoints.start()
        checkpoints.finish()
        assert whole(copies(tmp_path)) == ["new"]

    def test_a_copy_begins_in_time_for_the_newest_to_be_no_older_than_every(self, tmp_path: Path) -> None:
        checkpoints = Checkpoints(tmp_path / "local", copies(tmp_path), every=3600)
        checkpoints.restore()
        checkpoints.start()
        # It was written long ago, and has its name from now.
        old = put(checkpoints.folder.parent / "old", "1")
        os.utime(old, (1, 1))
        old.rename(checkpoints.folder / "state")
        wait_for(lambda: checkpoints.lasted)
        put(checkpoints.folder / "state", "2")
        time.sleep(0.05)
        assert len(whole(copies(tmp_path))) == 1
        checkpoints.lasted = 3000
        wait_for(lambda: restored(copies(tmp_path), tmp_path / "again")[0] == "state 2")
        checkpoints.stop()

    def test_a_store_that_refuses_ends_nothing_and_is_tried_again(
        self, tmp_path: Path, running: Checkpoints, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "store").write_text("in the way")
        put(running.folder / "state", "1")
        shown: list[str] = []
        wait_for(lambda: shown.append(capsys.readouterr().err) or "not copied" in "".join(shown))
        (tmp_path / "store").unlink()
        running.finish()
        assert restored(copies(tmp_path), tmp_path / "again")[0] == "state 1"

    def test_the_first_pod_chooses_and_the_others_follow(self, tmp_path: Path) -> None:
        pods = [
            Checkpoints(
                tmp_path / f"local-{rank}",
                copies(tmp_path, part=rank, count=2),
                parts=True,
                follows=rank > 0,
            )
            for rank in range(2)
        ]
        for pod in pods:
            pod.restore()
            pod.start("one")
        for step in ("step-1", "step-2"):
            put(pods[1].folder / step, step)
        put(pods[0].folder / "step-1", "step-1")
        wait_for(lambda: whole(copies(tmp_path)) == ["step-1"])
        put(pods[0].folder / "step-2", "step-2")
        for pod in pods:
            pod.finish()
        assert whole(copies(tmp_path)) == ["step-2", "step-1"]
        assert pods[0].newest() == pods[1].newest()


def wait_for(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
