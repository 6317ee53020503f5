"""Attempts at an item: each writes into a directory of its own, which begins with what the one before left there.

Two that are at work on one item, because the first was only slow, cannot harm one another. Standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.features.items.pod.items import ITEMS, Record, read_record
from slipway.runtime.steps.outputs import RECORD, collect, load_record
from slipway.runtime.store import (
    MANIFEST,
    TEMPORARY_SUFFIX,
    Manifest,
    NotWholeError,
    StoreError,
    check,
    digest_of,
    load_manifest,
    read_file,
    set_aside,
    store_errors,
    write_atomically,
)

SUMMARY = "summary.json"
"""A file of a result whose plain values are shown in the list of all items."""

_NAME = re.compile(r"(\d+)-[0-9a-f]+")

_FICLONE = 0x40049409
"""The ioctl by which a file gets all blocks of another one, which both have until one is written to: `FICLONE` of
linux/fs.h on x86 and ARM, which the module `fcntl` has from Python 3.12 on. XFS and Btrfs have it, and NFS 4.2 as
CLONE (RFC 7862, 15.13); other file systems refuse it (FICLONE(2const), seen November 2026)."""


@dataclass(frozen=True)
class Earlier:
    """Attempts at one item that are in the store, the newest first."""

    directories: Sequence[Path] = ()

    def next_directory(self, folder: Path, token: str) -> Path:
        """The directory of the attempt after them, in the folder of the item."""
        number = _number(self.directories[0]) + 1 if self.directories else 1
        # The token keeps apart the attempts of two workers that see the same earlier ones.
        return folder / f"{number}-{token[:8]}"

    def whole(self, work: Manifest) -> tuple[Path, Manifest] | None:
        """One that ended well, though its worker did not live to say so."""
        for directory in self.directories:
            with contextlib.suppress(NotWholeError):
                if load_manifest(directory).same_work(work):
                    return directory, check(directory)
        return None

    def unfinished(self, work: Manifest) -> Path | None:
        """The newest one at the same work."""
        for directory in self.directories:
            begun = load_record(directory)
            if begun is not None and begun.same_work(work):
                return directory
        return None

    def counted(self, round_: str) -> int:
        """How many were begun in the round `round_` and did not end well: those that were given back count not."""
        begun = [load_record(directory) for directory in self.directories]
        return sum(1 for manifest in begun if manifest is not None and manifest.summary.get("round") == round_)

    def remove(self, kept: Path) -> None:
        """Delete what they wrote, now that `kept` is the result, as far as that is possible."""
        for directory in self.directories:
            if directory != kept:
                # First of all: `end` takes no directory for a result from which files may be missing already.
                with contextlib.suppress(OSError):
                    (directory / RECORD).unlink()
                shutil.rmtree(directory, ignore_errors=True)


def earlier_attempts(folder: Path) -> Earlier:
    """The attempts in the folder of an item, which is made where there is none."""
    with store_errors(folder):
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.is_dir():
                set_aside(folder)
                folder.mkdir()
            directories = [Path(entry.path) for entry in os.scandir(folder) if _NAME.fullmatch(entry.name)]
            return Earlier(sorted(directories, key=lambda path: (_number(path), path.name), reverse=True))
    return Earlier()


def begin(folder: Path, earlier: Earlier, work: Manifest, token: str, round_: str) -> Path:
    """A new directory for an attempt, with what an earlier one at the same work left. Raises StoreError."""
    directory = earlier.next_directory(folder, token)
    with store_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        _note(directory, dataclasses.replace(work, summary={"round": round_}))
        left = earlier.unfinished(work)
        if left is not None:
            _copy_tree(left, directory)
    return directory


def give_back(directory: Path, work: Manifest) -> None:
    """Note that an attempt was interrupted and counts no more; what it left is still gone on with."""
    with store_errors(directory):
        _note(directory, work)


def end(directory: Path, work: Manifest) -> Manifest:
    """Make what the program left in `directory` a whole result: its manifest is written last.

    Raises:
        StepError: NO_RESULT where the files still change; StoreError, also where another attempt was the result
            meanwhile, and this one was deleted.
    """
    files = collect(directory)
    with store_errors(directory):
        if not (directory / RECORD).exists():
            raise StoreError(f"{directory} was deleted by whoever ended another attempt")
    manifest = dataclasses.replace(work, files=files, summary=_plain_values(directory) if SUMMARY in files else {})
    publish(directory, manifest)
    return manifest


def publish(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of an attempt, whose files are all there."""
    with store_errors(directory):
        write_atomically(directory / MANIFEST, manifest.encode())
        with contextlib.suppress(OSError):
            (directory / RECORD).unlink()


def _note(directory: Path, begun: Manifest) -> None:
    # Nothing waits for the disk here: where this is cut off, the next attempt begins from nothing.
    (directory / RECORD).write_bytes(begun.encode())


def _number(directory: Path) -> int:
    match = _NAME.fullmatch(directory.name)
    return int(match.group(1)) if match else 0


def _copy_tree(source: Path, target: Path) -> None:
    """Copy files and links. What vanishes meanwhile was temporary: its program may still be at work."""
    for place, folders, files in os.walk(source):
        folder = target / Path(place).relative_to(source)
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in folders:
            if name not in links:
                (folder / name).mkdir(exist_ok=True)
        for name in (*files, *links):
            if name.endswith(TEMPORARY_SUFFIX) or (place == str(source) and name == MANIFEST):
                continue
            with contextlib.suppress(FileNotFoundError, shutil.SpecialFileError):
                shutil.copyfile(Path(place) / name, folder / name, follow_symlinks=False)


def _plain_values(directory: Path) -> dict[str, Any]:
    """The numbers, words, truth values and nulls at the top of `summary.json`. NaN becomes null."""
    with store_errors(directory):
        try:
            values = json.loads((directory / SUMMARY).read_bytes())
        except ValueError as error:
            print(f"warning: {directory / SUMMARY} is not JSON: {error}", flush=True)
            return {}
    plain: dict[str, Any] = {}
    for key, value in values.items() if isinstance(values, dict) else ():
        if value is None or isinstance(value, (bool, int, float, str)):
            plain[key] = None if isinstance(value, float) and not math.isfinite(value) else value
    return plain


_LOOKED_AT = 8
"""Of how many earlier runs, the newest first, results are taken: each has what it took from those before."""

_KEYS = ("item", "path", "work", "manifest", "attempts", "seconds")


class EarlierRuns:
    """The runs beside `output`, whose items are in the folder `below` of each.

    They are looked at when the first result is asked for.
    """

    def __init__(self, output: Path, below: str = "") -> None:
        self._output = output
        self._below = below
        self._listed: dict[str, tuple[Path, Record]] | None = None
        self._unlisted: list[Path] = []

    def find(self, item: str, work: str) -> tuple[Path, Record] | None:
        """The directory of a result of this work, and its record; None where there is none."""
        if self._listed is None:
            self._listed = {}
            for run in _newest_first(self._output, self._below):
                self._look_at(run, self._listed)
        if work in self._listed:
            return self._listed[work]
        for run in self._unlisted:
            record = read_record(run, item)
            if record is not None and record.work == work:
                return record.directory(run), record
        return None

    def _look_at(self, run: Path, listed: dict[str, tuple[Path, Record]]) -> None:
        with store_errors(run):
            content = read_file(run / ITEMS)
            try:
                rows = json.loads(content or b"")
            except ValueError:
                # It did not come to its end.
                self._unlisted.append(run)
                return
        for row in rows if isinstance(rows, list) else []:
            record = _record(row)
            if record is not None:
                listed.setdefault(record.work, (record.directory(run), record))


def copy(source: Path, record: Record, target: Path) -> None:
    """Copy the files of a result into a new directory, and its manifest, which stays the same.

    Raises:
        NotWholeError: a file is missing, or its SHA-256 is not that of the manifest; StoreError.
    """
    manifest = load_manifest(source)
    if manifest.digest != record.manifest:
        raise NotWholeError(source, "its manifest is another one")
    try:
        for name, entry in manifest.files.items():
            with store_errors(target):
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                try:
                    copy_file(source / name, target / name)
                except FileNotFoundError:
                    raise NotWholeError(source, f"{name} is missing") from None
                if digest_of(target / name) != entry:
                    raise NotWholeError(source, f"{name} was altered: its SHA-256 is not the manifest's")
    except NotWholeError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    publish(target, manifest)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file into one that nobody reads yet, without new blocks where the file system can share them.

    Raises:
        FileNotFoundError: `source` is no regular file. OSError.
    """
    # Opening a pipe would wait for its writer.
    if not source.is_file():
        raise FileNotFoundError(errno.ENOENT, "no regular file", str(source))
    with source.open("rb") as reading, target.open("wb") as writing:
        try:
            fcntl.ioctl(writing.fileno(), _FICLONE, reading.fileno())
        except OSError:
            shutil.copyfileobj(reading, writing, 1 << 20)


def row(record: Record) -> dict[str, Any]:
    """What the list of all items says of a result, so that it is found again."""
    values = vars(record)
    return {
        "path": f"{record.item}/{record.attempt}",
        **{key: values[key] for key in ("attempts", "seconds", "work", "manifest")},
    }


def _record(row: Any) -> Record | None:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        item, path, work, manifest, attempts, seconds = (row[key] for key in _KEYS)
        attempt = str(path).rpartition("/")[2]
        if attempt not in {"", ".", ".."} and path == f"{item}/{attempt}":
            return Record(item, attempt, work, manifest, int(attempts), float(seconds))
    return None


def _newest_first(output: Path, below: str) -> list[Path]:
    def age(run: Path) -> tuple[float, str]:
        for path in (run / ITEMS, run):
            with contextlib.suppress(OSError):
                return -path.stat().st_mtime, str(run)
        return 0.0, str(run)

    with store_errors(output.parent):
        runs = [folder / below for folder in _folders_beside(output)]
    return sorted(runs, key=age)[:_LOOKED_AT]


def _folders_beside(output: Path) -> Iterator[Path]:
    for entry in os.scandir(output.parent):
        if entry.is_dir() and entry.name != output.name:
            yield Path(entry.path)
