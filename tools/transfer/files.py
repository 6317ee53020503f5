"""Files of a store and of this machine, and which of them are to be copied."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.tools.transfer import in_pod

_SHOWN = 10
"""Files that an error names."""


class TransferError(Exception):
    """What keeps files from being copied. The text says why, and what to do about it."""


@dataclass(frozen=True)
class File:
    """A file by its size in bytes, its time in whole seconds since the epoch, and its MD5 digest if known.

    ``place`` is where it is on this machine; its digest can then be computed. An object of a bucket is
    ``uploaded``: it has the time of that, and large ones have no digest. ``version`` is another one whenever the
    file is written, and empty where only its time says so.
    """

    size: int
    time: int
    md5: str = ""
    place: Path | None = None
    uploaded: bool = False
    version: str = ""

    def digest(self) -> str:
        """The MD5 digest in hex; empty where it is not known."""
        if self.md5 or self.place is None:
            return self.md5
        with self.place.open("rb") as stream:
            return hashlib.file_digest(stream, "md5").hexdigest()


def local_files(place: Path) -> dict[str, File]:
    """The files of this machine below a folder by their path from there, or one by an empty path."""
    listing: dict[str, File] = {}
    for name, path in in_pod.files(place):
        state = path.stat()
        listing[name] = File(state.st_size, int(state.st_mtime), place=path)
    return listing


def to_copy(source: Mapping[str, File], target: Mapping[str, File], *, force: bool, again: str) -> list[str]:
    """The names of files that the target lacks, and with ``force`` of those that are others there.

    ``again`` is the command that overwrites. Raises TransferError where others are there without ``force``.
    """
    missing = [name for name in source if name not in target]
    different = sorted(name for name in source if name in target and not _same(source[name], target[name]))
    if different and not force:
        more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        names = ", ".join(name or "the file" for name in different[:_SHOWN])
        raise TransferError(
            f"{len(different)} files are there with another content: {names}{more}. Nothing was copied; to "
            f"overwrite them: {again}"
        )
    return [*missing, *different]


def _same(one: File, other: File) -> bool:
    if one.size != other.size:
        return False
    if one.time == other.time:
        return True
    digests = [file.digest() for file in (one, other)]
    if (one.uploaded or other.uploaded) and "" in digests:
        # As the tools of the clouds decide it: a copy is younger than what it is of.
        return other.time >= one.time
    return digests[0] == digests[1] and bool(digests[0])
