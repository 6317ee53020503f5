"""Copies of inputs on the disk of a node: the program reads them, and makes of them what it makes without."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slipway.runtime.exits import BAD_INPUT
from slipway.runtime.steps import local_inputs
from slipway.runtime.steps.local_inputs import BLOCK, LocalInputs
from slipway.runtime.store import NotWholeError, check, load_manifest
from tests.support.steps import errors, run
from tests.support.stores import add_result

RUNNER = "slipway.runtime.steps.command"

SHOW = """
import os, pathlib, sys
output, *folders = map(pathlib.Path, [*sys.argv[1:], os.environ["TABLES"]])
output.joinpath("seen").write_text("\\n".join(str(folder) for folder in folders))
output.joinpath("read").write_text("".join(folder.joinpath("part/rows").read_text() for folder in folders))
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for name in ("images", "labels"):
        add_result(tmp_path, f"shop/{name}/aaaaaaaaaa", {"part/rows": [name], "index.json": {}})
    (tmp_path / "tables" / "part").mkdir(parents=True)
    (tmp_path / "tables" / "part" / "rows").write_text("nobody published it")
    return tmp_path


def place(store: Path, name: str) -> Path:
    return store / "shop" / name / "aaaaaaaaaa"


def shown(store: Path, *flags: object, code: int = 0, output: str = "out") -> str:
    """What a step printed that names two inputs and a folder of data, in `store / output`."""
    (store / "show.py").write_text(SHOW)
    images, labels = place(store, "images"), place(store, "labels")
    told = ["--input", f"images={images}", "--input", f"labels={labels}", *flags]
    words = [sys.executable, store / "show.py", store / output, images, labels]
    tables = str(store / "tables")
    return run(RUNNER, "--output", store / output, *told, "--", *words, code=code, TABLES=tables)


def test_the_program_reads_copies_and_its_result_is_the_same(store: Path) -> None:
    cache = store / "cache"
    printed = shown(store, "--cache", cache, "--cache-mib", 1, "--data", f"tables={store / 'tables'}")
    assert (store / "out" / "seen").read_text().split() == [
        str(cache / name) for name in ("images", "labels", "tables")
    ]
    assert printed.count("to the node's disk") == 3
    assert check(cache / "images").digest == load_manifest(place(store, "images")).digest
    shown(store, output="other")
    assert (store / "other" / "read").read_text() == (store / "out" / "read").read_text()
    one, other = (load_manifest(store / output) for output in ("out", "other"))
    assert one.same_work(other), "where its inputs were read decides nothing"


def test_what_has_no_room_is_read_from_the_store(store: Path) -> None:
    printed = shown(store, "--cache", store / "cache", "--cache-mib", 0)
    assert (store / "out" / "seen").read_text().split()[0] == str(place(store, "images"))
    assert len([line for line in printed.splitlines() if "read from the store" in line]) == 2


def test_an_input_that_is_not_whole_is_refused_as_without_a_cache(store: Path) -> None:
    (place(store, "labels") / "part" / "rows").write_text("[altered]")
    printed = shown(store, "--cache", store / "cache", "--cache-mib", 1, code=BAD_INPUT)
    assert "labels" in errors(printed)[-1]
    (place(store, "labels") / "part" / "rows").unlink()
    with pytest.raises(NotWholeError, match="part/rows is missing"):
        LocalInputs(store / "cache", 1 << 20).take("labels", place(store, "labels"))


def test_a_large_file_is_copied_in_parts(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_inputs, "PART", 1000)
    (store / "tables" / "large").write_bytes(bytes(range(256)) * 100)
    (store / "tables" / "empty").touch()
    copies = LocalInputs(store / "cache", 20 * BLOCK)
    copies.take_folder("tables", store / "tables")
    assert (store / "cache" / "tables" / "large").read_bytes() == bytes(range(256)) * 100
    assert (store / "cache" / "tables" / "empty").read_bytes() == b""
    assert copies.room < 20 * BLOCK - 25_600, "blocks of the disk, and not bytes"


def test_a_full_disk_leaves_the_program_the_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Behind the name of a folder there is a file: nothing can be written there, as on a disk without room.
    (store / "cache").write_text("")
    copies = LocalInputs(store / "cache", 1 << 20)
    manifest = copies.take("images", place(store, "images"))
    assert (manifest.digest, copies.places) == (load_manifest(place(store, "images")).digest, {})
    assert "images" in capsys.readouterr().err


def test_places_are_replaced_as_whole_paths() -> None:
    copies = LocalInputs(Path("/cache"), 0, {"/store/a/1": "/cache/a", "/store/a/1/b": "/cache/b"})
    moved = copies.moved("--in=/store/a/1 /store/a/1/b:/store/a/1/x '/store/a/11' x/store/a/1")
    assert moved == "--in=/cache/a /cache/b:/cache/a/x '/store/a/11' x/store/a/1"
