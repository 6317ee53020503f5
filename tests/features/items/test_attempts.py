"""Copies of items that a run takes over from the runs before it."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from slipway.features.items.pod.attempts import copy_file


@pytest.mark.parametrize("content", [b"", b"x" * (3 << 20)])
def test_a_copy_stays_as_it_is_when_its_source_changes(tmp_path: Path, content: bytes) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(content)
    target.write_bytes(b"longer than the source was" * (1 << 18))
    copy_file(source, target)
    with source.open("r+b") as stream:
        stream.write(b"altered")
    assert target.read_bytes() == content


def test_a_copy_is_whole_where_sharing_blocks_ends_half_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ioctl(target: int, _: int, source: int) -> None:
        os.pwrite(target, os.pread(source, 5, 0), 0)
        raise OSError(errno.EIO, "it ends half-way")

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    (tmp_path / "source").write_bytes(b"0123456789")
    copy_file(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"0123456789"


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        copy_file(tmp_path / "pipe", tmp_path / "target")
