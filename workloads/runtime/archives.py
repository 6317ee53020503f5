"""Packages and libraries that an image lacks, from the store to the local disk: checked on the way, whole or not.

Standard library only.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
import tarfile
from pathlib import Path
from typing import Any, BinaryIO

from workloads.runtime.exits import BAD_INPUT, StepError
from workloads.runtime.store import (
    Entry,
    NotWholeError,
    StoreError,
    digest_of,
    explain,
    load_manifest,
    store_errors,
)

ARCHIVE = "packages.tar"
"""The one file that `workloads.runtime.environment` publishes where the image lacks packages."""

_CHUNK = 1 << 20


def pack(folder: Path, archive: Path) -> None:
    """Move every file below `folder` into a tar archive: equal bytes for equal files.

    A file is deleted as soon as it is in the archive, so that both never need their space at once.

    Raises:
        OSError: a file cannot be read, or the archive cannot be written.
    """
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size = path.stat().st_size
            member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as stream:
                tar.addfile(member, stream)
            path.unlink()


def unpack_packages(directory: Path, target: Path) -> bool:
    """Unpack what `workloads.runtime.environment` published in `directory` into `target`, an empty folder.

    False where the image lacked nothing. The archive is read once, and unpacked while it is checked.

    Raises:
        StepError: BAD_INPUT where the archive is missing, altered, or would write outside `target`, or where the
            local disk is full; StoreError.
    """
    entry = load_manifest(directory).files.get(ARCHIVE)
    if entry is None:
        return False
    archive = directory / ARCHIVE
    with store_errors(directory):
        try:
            stream = archive.open("rb")
        except (FileNotFoundError, IsADirectoryError):
            raise NotWholeError(directory, f"{ARCHIVE} is missing") from None
    with stream:
        reading = _Digesting(stream)
        try:
            with tarfile.open(fileobj=reading, mode="r|") as tar:  # type: ignore[call-overload]
                for member in tar:
                    _extract(tar, member, target)
        except (tarfile.TarError, EOFError, ValueError) as error:
            raise NotWholeError(directory, f"{ARCHIVE} cannot be unpacked: {error}") from error
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise StoreError(f"{error.filename or archive}: {explain(error)}") from error
            raise StepError(
                BAD_INPUT,
                f"the packages of {directory} need {entry.size >> 20:,} MiB, and the disk of {target} is full: "
                "raise the step's ephemeral_storage",
            ) from error
        while reading.read(_CHUNK):
            pass
    if reading.entry != entry:
        raise NotWholeError(directory, f"{ARCHIVE} was altered: its SHA-256 is not the manifest's")
    return True


def copy_libraries(directory: Path, target: Path) -> bool:
    """Copy every file that `directory` publishes into `target`, side by side; False where there is none.

    Raises:
        StepError: BAD_INPUT where one is missing or altered; StoreError.
    """
    manifest = load_manifest(directory)
    with store_errors(directory):
        for name, entry in manifest.files.items():
            copy = target / Path(name).name
            try:
                shutil.copyfile(directory / name, copy)
            except (FileNotFoundError, IsADirectoryError):
                raise NotWholeError(directory, f"{name} is missing") from None
            if digest_of(copy) != entry:
                raise NotWholeError(directory, f"{name} was altered: its SHA-256 is not the manifest's")
    return bool(manifest.files)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    parts = member.name.split("/")
    if not member.isreg() or member.name.startswith("/") or {"", ".", ".."} & set(parts):
        raise ValueError(f"{member.name!r} is not a file below the archive's folder")
    # Python asks for a filter from 3.12 on and has none before 3.9.17; what `pack` writes needs none.
    safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    tar.extract(member, target, **safe)


class _Digesting:
    """A stream that takes the digest of what is read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._size = 0

    def read(self, size: int) -> bytes:
        chunk = self._stream.read(size)
        self._digest.update(chunk)
        self._size += len(chunk)
        return chunk

    @property
    def entry(self) -> Entry:
        return Entry(self._size, self._digest.hexdigest())
