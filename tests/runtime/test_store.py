from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.runtime import store
from slipway.runtime.exits import BAD_INPUT, STORE_TROUBLE
from slipway.runtime.store import (
    MANIFEST,
    TEMPORARY_SUFFIX,
    Manifest,
    NotWholeError,
    StoreError,
    check,
    decode,
    publish,
    whole,
)
from tests.support.steps import ROOT, environment, errors

NAMES = st.lists(
    st.text("abcdefgh0123456789._-é ", min_size=1, max_size=12).filter(lambda part: part not in {".", ".."}),
    min_size=1,
    max_size=3,
).map("/".join)


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def publish_files(
    scratch: Path, output: Path, files: dict[str, bytes], settings: dict[str, object] | None = None
) -> Manifest:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return publish(
        put(scratch, files), output, step="test", inputs={}, settings=settings or {}, summary={"count": len(files)}
    )


@pytest.fixture
def published(tmp_path: Path) -> Path:
    publish_files(tmp_path / "staged", tmp_path / "out", {"a.bin": b"12345", "sub/b.bin": b"67890"})
    return tmp_path / "out"


@pytest.mark.slow
@given(files=st.dictionaries(NAMES, st.binary(max_size=200), max_size=6))
@settings(max_examples=40, deadline=None)
def test_what_is_published_is_found_whole(
    files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("publish")
    taken = {name for name in files for other in files if other.startswith(name + "/")}
    kept = {name: content for name, content in files.items() if name not in taken and name != MANIFEST}

    manifest = publish_files(folder / "staged", folder / "out", kept)

    assert whole(folder / "out") == (True, "")
    assert set(manifest.files) == set(kept)
    assert {name: (folder / "out" / name).read_bytes() for name in kept} == kept
    assert decode(manifest.encode()) == manifest
    assert not list(folder.rglob(f"*{TEMPORARY_SUFFIX}"))


@given(
    content=st.binary(max_size=300)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
@settings(deadline=None)
@pytest.mark.slow
def test_a_broken_manifest_is_refused_and_nothing_else_is_raised(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode(content)


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "a/../../b", "", "a//b", "./a"])
def test_a_manifest_cannot_point_out_of_its_directory(name: str) -> None:
    manifest = {
        "format": 1,
        "step": "x",
        "inputs": {},
        "settings": {},
        "summary": {},
        "files": {name: {"size": 1, "sha256": ""}},
    }

    with pytest.raises(ValueError, match="outside"):
        decode(json.dumps(manifest).encode())


def damage_missing(folder: Path) -> None:
    (folder / "sub" / "b.bin").unlink()


def damage_truncated(folder: Path) -> None:
    (folder / "sub" / "b.bin").write_bytes(b"678")


def damage_altered(folder: Path) -> None:
    (folder / "sub" / "b.bin").write_bytes(b"67899")


def damage_directory(folder: Path) -> None:
    (folder / "sub" / "b.bin").unlink()
    (folder / "sub" / "b.bin").mkdir()


def damage_manifest(folder: Path) -> None:
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:-20])


def damage_format(folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"format": 1', '"format": 99'))


def damage_no_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def damage_gone(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_missing, "sub/b.bin is missing"),
        (damage_truncated, "sub/b.bin has 3 bytes, its manifest says 5"),
        (damage_altered, "sub/b.bin was altered"),
        (damage_directory, "sub/b.bin is missing"),
        (damage_manifest, "manifest.json cannot be read"),
        (damage_format, "format is 99"),
        (damage_no_manifest, "it has no manifest.json"),
        (damage_gone, "no such directory"),
    ],
)
def test_damage_is_found_and_named(published: Path, damage: object, reason: str) -> None:
    assert whole(published)[0]
    damage(published)  # type: ignore[operator]

    is_whole, why = whole(published)

    assert not is_whole
    assert reason in why
    with pytest.raises(NotWholeError) as caught:
        check(published)
    assert caught.value.code == BAD_INPUT
    assert str(published) in str(caught.value)


def test_a_damaged_result_is_replaced(published: Path, tmp_path: Path) -> None:
    damage_altered(published)

    publish_files(tmp_path / "again", published, {"a.bin": b"new", "sub/b.bin": b"newer"})

    assert whole(published)[0]
    assert (published / "a.bin").read_bytes() == b"new"


def test_the_first_of_two_results_of_the_same_work_stands(published: Path, tmp_path: Path) -> None:
    manifest = publish_files(tmp_path / "second", published, {"a.bin": b"other"})

    assert (published / "a.bin").read_bytes() == b"12345"
    assert manifest == check(published)


def test_a_result_of_other_settings_is_replaced(published: Path, tmp_path: Path) -> None:
    publish_files(tmp_path / "second", published, {"a.bin": b"other"}, settings={"epochs": 3})

    assert (published / "a.bin").read_bytes() == b"other"
    assert whole(published)[0]


def test_finished_only_for_the_same_inputs_and_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    staged = put(tmp_path / "staged", {"a": b"1"})
    publish(staged, out, step="s", inputs={"data": "d1"}, settings={"rate": (1, 2)}, summary={})

    assert store.finished(out, "s", {"data": "d1"}, {"rate": (1, 2)}) is not None
    assert store.finished(out, "s", {"data": "d2"}, {"rate": (1, 2)}) is None
    assert store.finished(out, "s", {"data": "d1"}, {"rate": (1, 3)}) is None
    assert store.finished(out, "other", {"data": "d1"}, {"rate": (1, 2)}) is None
    assert store.finished(tmp_path / "nothing", "s", {}, {}) is None
    assert capsys.readouterr().out.count("other inputs or settings") == 3


def test_a_publisher_that_is_interleaved_publishes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another publisher overwrites a file between this one's file and manifest, then dies."""
    out = tmp_path / "out"
    original = store.write_atomically
    disturbed = []

    def disturb(target: Path, content: bytes) -> None:
        if not disturbed:
            disturbed.append(target)
            (out / "a.bin").write_bytes(b"theirs")
        original(target, content)

    monkeypatch.setattr(store, "write_atomically", disturb)

    publish_files(tmp_path / "staged", out, {"a.bin": b"mine", "b.bin": b"mine"})

    assert disturbed
    assert whole(out)[0]
    assert (out / "a.bin").read_bytes() == b"mine"


@pytest.mark.slow
def test_a_publisher_that_never_succeeds_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    original = store.write_atomically
    monkeypatch.setattr(store, "ATTEMPTS", 2)

    def disturb(target: Path, content: bytes) -> None:
        original(target, content)
        (out / "a.bin").write_bytes(b"theirs")

    monkeypatch.setattr(store, "write_atomically", disturb)

    with pytest.raises(StoreError, match="changed under every one of 2 attempts"):
        publish_files(tmp_path / "staged", out, {"a.bin": b"mine"})


PUBLISHER = """
import sys
from pathlib import Path
from slipway.runtime.store import publish
me, out = sys.argv[1], Path(sys.argv[2])
staged = Path(sys.argv[3]) / me
for number in range(20):
    place = staged / f"part-{number:02d}"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(me.encode() * 20_000)
sys.stdin.read()
publish(staged, out, step="test", inputs={}, settings={}, summary={"by": me})
"""


@pytest.mark.slow
def test_publishers_at_the_same_time_leave_one_whole_result(tmp_path: Path) -> None:
    for turn in range(3):
        out = tmp_path / f"out-{turn}"
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PUBLISHER, str(me), str(out), str(tmp_path / "staged")],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for me in range(4)
        ]
        time.sleep(0.3)
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            process.wait(timeout=60)
            assert process.stderr is not None
            assert process.returncode == 0, process.stderr.read().decode()
        manifest = check(out)
        contents = {(out / name).read_bytes()[:1] for name in manifest.files}
        assert contents == {manifest.summary["by"].encode()}
        assert not list(out.rglob(f"*{TEMPORARY_SUFFIX}"))


def test_only_old_temporary_files_are_removed(published: Path, tmp_path: Path) -> None:
    old = published / "sub" / f".a.dead-1-aa{TEMPORARY_SUFFIX}"
    young = published / f".a.alive-1-bb{TEMPORARY_SUFFIX}"
    foreign = published / "sub" / ".hidden"
    for path in (old, young, foreign):
        path.write_bytes(b"half")
    for path in (old, foreign):
        os.utime(path, (time.time() - 7200,) * 2)

    publish_files(tmp_path / "second", published, {"a.bin": b"other"}, settings={"epochs": 3})

    assert not old.exists()
    assert young.exists()
    assert foreign.exists()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "permission denied"),
        (errno.EPERM, "permission denied"),
        (errno.EROFS, "read-only"),
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "quota"),
        (errno.ENOENT, "is the store mounted"),
        (errno.ENOTCONN, "mount is gone"),
        (errno.EIO, "input/output error"),
        (errno.EXDEV, os.strerror(errno.EXDEV)),
    ],
)
def test_store_errors_are_said_in_words(tmp_path: Path, number: int, words: str) -> None:
    with pytest.raises(StoreError, match=words) as caught, store.store_errors(tmp_path):
        raise OSError(number, os.strerror(number), str(tmp_path / "file"))
    assert caught.value.code == STORE_TROUBLE
    assert str(tmp_path / "file") in str(caught.value)


@pytest.mark.parametrize(("name", "closed"), [("data.csv", "data.csv"), ("out/new", "out")])
def test_a_file_that_this_machine_closes_is_told_without_a_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, closed: str
) -> None:
    (tmp_path / "data.csv").touch()
    (tmp_path / "out").mkdir()
    # Nothing is closed to root, as which tests may run.
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.F_OK and access(path, mode))

    with pytest.raises(StoreError) as caught, store.store_errors(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / name))

    assert str(tmp_path / closed) in str(caught.value).partition(": ")[2]
    assert "role" not in str(caught.value)


FILL = """
import sys
from pathlib import Path
from slipway.runtime.exits import run
from slipway.runtime.store import publish, staging
def main():
    with staging() as staged:
        (staged / "big").write_bytes(b"x" * 300_000)
        publish(staged, Path(sys.argv[1]) / "out", step="t", inputs={}, settings={}, summary={})
    return 0
run(main)
"""


@pytest.mark.parametrize(("options", "words"), [("size=64k", "is full"), ("size=64k,ro", "read-only")])
def test_a_full_or_read_only_store_is_one_error(tmp_path: Path, options: str, words: str) -> None:
    mount = f"mount -t tmpfs -o {options} tmpfs {tmp_path}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small file system in a namespace of its own")

    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c", FILL, str(tmp_path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == STORE_TROUBLE
    assert words in errors(result.stderr)[0]
    assert "Traceback" not in result.stderr
