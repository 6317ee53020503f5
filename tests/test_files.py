"""Files that are written whole or not at all."""

import os
import time
from pathlib import Path

import pytest

from slipway.files import STALE_AFTER, check, write


def test_a_file_is_replaced_with_the_folders_above_it(tmp_path: Path) -> None:
    target = tmp_path / "new" / "page.md"
    write(target, "first")
    write(target, "second")
    assert target.read_text("utf-8") == "second"
    assert [path.name for path in target.parent.iterdir()] == ["page.md"]


def test_an_error_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "page.md"
    write(target, "first")
    with pytest.raises(UnicodeEncodeError):
        write(target, "second \ud800")
    assert target.read_text("utf-8") == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_a_check_refuses_what_cannot_be_written_and_writes_nothing(tmp_path: Path) -> None:
    check(tmp_path / "new" / "page.md")
    assert [*(tmp_path / "new").iterdir()] == []
    with pytest.raises(IsADirectoryError):
        check(tmp_path / "new")
    write(tmp_path / "page.md", "first")
    with pytest.raises(FileExistsError):
        check(tmp_path / "page.md" / "below.md")
    check(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text("utf-8") == "first"


def test_what_a_killed_writer_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    left, young, other = (tmp_path / name for name in (".state.json.partial", ".page.md.partial", ".notes"))
    for path in (left, young, other):
        path.touch()
    for path in (left, other):
        old = time.time() - 2 * STALE_AFTER
        os.utime(path, (old, old))
    write(tmp_path / "report.html", "whole")
    assert sorted(each.name for each in tmp_path.iterdir()) == [".notes", ".page.md.partial", "report.html"]
