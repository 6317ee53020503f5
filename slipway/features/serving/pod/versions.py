"""The folder of a model's versions as TensorFlow Serving reads it: 1, 2, 3…, each whole or not there.

A version is filled under a hidden name and renamed. Where the store cannot rename a folder (a bucket mounted with
GCS FUSE), it is filled in place, its `version.json` last; no server looks at it before `models.config` names it.
Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.runtime.exits import BAD_INPUT, StepError
from slipway.runtime.store import (
    STALE_AFTER,
    Entry,
    StoreError,
    copy_atomically,
    digest_of,
    store_errors,
    write_atomically,
)

RECORD = "version.json"
"""The file of a version that says where it comes from; whoever finds none finds no version."""
FORMAT = 1
HIDDEN = ".slipway-"
"""What the names of folders begin with that are no versions yet."""
_ATTEMPTS = 5
_NOT_RENAMED = {errno.EMFILE, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EPERM, errno.EIO}
"""What mounts answer that cannot rename a folder. GCS FUSE says EMFILE where it holds more files than
`rename-dir-limit`, which is 0 (its docs/semantics.md, seen November 2026)."""


@dataclass(frozen=True)
class Version:
    """A published version: its number, the digest of the result that it was made of, and what was measured.

    ``files`` are its files by their path, other than `version.json`.
    """

    number: int
    source: str
    facts: Mapping[str, Any]
    files: Mapping[str, Entry]

    def encode(self) -> bytes:
        """The bytes of `version.json`."""
        content = {
            "format": FORMAT,
            "version": self.number,
            "source": self.source,
            **self.facts,
            "files": {name: vars(entry) for name, entry in self.files.items()},
        }
        return (json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def files_of(model: Path) -> dict[str, Entry]:
    """The files of a SavedModel by their path, with `/`. Raises StoreError."""
    with store_errors(model):
        names = sorted(
            path.relative_to(model).as_posix()
            for path in model.rglob("*")
            if path.is_file() and path.relative_to(model).as_posix() != RECORD
        )
        return {name: digest_of(model / name) for name in names}


def read_published(folder: Path) -> dict[int, Version]:
    """The versions in ``folder`` that have their `version.json`, by number. Raises StoreError."""
    with store_errors(folder):
        if not folder.is_dir():
            return {}
        versions = {int(path.name): _read(path) for path in folder.iterdir() if _is_number(path.name)}
    return {number: version for number, version in sorted(versions.items()) if version is not None}


def damage(folder: Path, version: Version) -> str:
    """Which file of ``version`` is not as it was published, and why; empty where all are. Raises StoreError."""
    with store_errors(folder):
        for name, entry in version.files.items():
            path = folder / str(version.number) / name
            if not path.is_file():
                return f"{name} is missing"
            if digest_of(path) != entry:
                return f"{name} was altered, or copied by half"
    return ""


def add(folder: Path, model: Path, source: str, facts: Mapping[str, Any]) -> Version:
    """Copy the SavedModel ``model`` into ``folder`` as its next version.

    Raises:
        StepError: BAD_INPUT where the copy does not have the digests of ``model``, STORE_TROUBLE.
    """
    files = files_of(model)
    with store_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        for _ in range(_ATTEMPTS):
            taken = [int(path.name) for path in folder.iterdir() if _is_number(path.name)]
            version = Version(max(taken, default=0) + 1, source, facts, files)
            if _put(folder, model, version):
                break
        else:
            raise StoreError(f"{folder}: others took every one of {_ATTEMPTS} numbers")
    if why := damage(folder, version):
        raise StepError(BAD_INPUT, f"{folder / str(version.number)} did not become what {model} is: {why}")
    return version


def _put(folder: Path, model: Path, version: Version) -> bool:
    """Whether ``version`` is in place; False where another publisher took its number."""
    target = folder / str(version.number)
    hidden = folder / f"{HIDDEN}{version.number}-{secrets.token_hex(4)}"
    try:
        _fill(hidden, model, version)
        hidden.rename(target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        if error.errno not in _NOT_RENAMED:
            raise
        # Whoever shares the number writes other bytes: `damage` then finds out which of the two is not whole.
        _fill(target, model, version)
        return True
    else:
        return True
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _fill(target: Path, model: Path, version: Version) -> None:
    for name in version.files:
        copy_atomically(model / name, target / name)
    write_atomically(target / RECORD, version.encode())


def _sweep(folder: Path) -> None:
    """Delete what killed publishers left under hidden names, sparing what is younger than STALE_AFTER."""
    for path in folder.glob(f"{HIDDEN}*"):
        with contextlib.suppress(OSError):
            if path.is_dir() and time.time() - path.stat().st_mtime > STALE_AFTER:
                shutil.rmtree(path)


def _read(path: Path) -> Version | None:
    try:
        content = json.loads((path / RECORD).read_bytes())
        if content.pop("format") != FORMAT or content.pop("version") != int(path.name):
            return None
        files = {
            str(name): Entry(int(entry["size"]), str(entry["sha256"])) for name, entry in content["files"].items()
        }
        return Version(
            int(path.name),
            str(content["source"]),
            {name: value for name, value in content.items() if name not in ("source", "files")},
            files,
        )
    except (FileNotFoundError, NotADirectoryError, KeyError, TypeError, AttributeError, ValueError):
        return None


def _is_number(name: str) -> bool:
    """Whether TensorFlow Serving would take a folder of this name for a version."""
    return name.isascii() and name.isdigit()
