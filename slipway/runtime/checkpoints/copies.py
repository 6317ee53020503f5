"""Copies of checkpoints in the store: each in a folder of its own, a part for each pod that writes one.

    checkpoints.slipway-partial/<attempt>-<key>/<part>/files/<name>/…
    checkpoints.slipway-partial/<attempt>-<key>/<part>/manifest.json

The manifest of a part comes last, and a checkpoint is whole when all its parts have one. The folder lies in the
step's directory in the store, under a name that belongs to no result: it is kept, found from another place and
deleted with it. Standard library only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.runtime.checkpoints.captures import Capture
from slipway.runtime.store import (
    MANIFEST,
    STALE_AFTER,
    TEMPORARY_SUFFIX,
    Entry,
    Manifest,
    NotWholeError,
    load_manifest,
    write_atomically,
)

FOLDER = f"checkpoints{TEMPORARY_SUFFIX}"
"""The folder of a step's directory, or of an item's, with the copies."""
FILES = "files"
DAMAGED = "damaged"
"""The file in the folder of a checkpoint that a pod could not restore."""

KEPT = 2
"""Whole checkpoints that stay: the newest, and the one before, should the newest be damaged in the store."""

ABANDONED = 60.0
"""Seconds after which what another attempt has begun to copy, and has not gone on with, is deleted."""

CHUNK = 1 << 20
"""Bytes that are in memory at once."""

_MISSING = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds to wait, one after the other, for what another pod has written and this mount does not show yet."""


class StoppedError(Exception):
    """The copy was told to stop."""


class Pace:
    """How fast files are copied: at most `limit` bytes a second, 0: any. `step` is called between pieces."""

    def __init__(self, limit: float = 0.0, step: Callable[[], None] = lambda: None) -> None:
        self._limit = limit
        self._step = step
        self._stopped = False
        self._ahead = time.monotonic()

    def hurry(self) -> None:
        """Drop the limit: nobody is disturbed any more."""
        self._limit = 0.0

    def stop(self) -> None:
        """End the copy at its next piece."""
        self._stopped = True

    def wait(self, size: int) -> None:
        """Called after each piece of `size` bytes. Raises StoppedError."""
        self._step()
        if self._limit:
            now = time.monotonic()
            self._ahead = max(self._ahead, now - 1.0) + size / self._limit
            while self._limit and not self._stopped and self._ahead > time.monotonic():
                time.sleep(min(0.1, max(0.0, self._ahead - time.monotonic())))
        if self._stopped:
            raise StoppedError


def copy_file(source: Path, target: Path, pace: Pace) -> Entry:
    """Copy a file piece by piece; its size and SHA-256 as it was read. Raises OSError, StoppedError."""
    digest = hashlib.sha256()
    size = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as reading, target.open("wb") as writing:
        while piece := reading.read(CHUNK):
            pace.wait(len(piece))
            writing.write(piece)
            digest.update(piece)
            size += len(piece)
        writing.flush()
        os.fsync(writing.fileno())
    return Entry(size, digest.hexdigest())


@dataclass(frozen=True)
class Copy:
    """A whole checkpoint in the store. `parts` are the manifests by the number of the pod that wrote each."""

    folder: Path
    parts: Mapping[int, Manifest]

    @property
    def name(self) -> str:
        """The name that the program gave it."""
        return str(self.parts[0].summary["name"])

    @property
    def written(self) -> int:
        """When its first part was captured, in ms since the epoch, and after each earlier one."""
        return int(self.parts[0].summary["written"])

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(entry.size for manifest in self.parts.values() for entry in manifest.files.values())


class Copies:
    """The copies in `folder` of checkpoints of `work`, whose parts `count` pods write, this one the part `part`.

    `attempt` names who copies: all pods of a step on several nodes have the same one until they start again.
    """

    def __init__(self, folder: Path, work: Manifest, *, part: int = 0, count: int = 1, attempt: str = "") -> None:
        self.folder = folder
        self._work = work
        self._part = part
        self._count = count
        self._attempt = attempt or secrets.token_hex(4)
        self._last = 0

    def begin(self, attempt: str) -> None:
        """Copy as another attempt from now on."""
        self._attempt = attempt

    def place_of(self, key: str) -> Path:
        """The folder of the checkpoint that has this key in the attempt."""
        digest = hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()[:12]
        return self.folder / f"{self._attempt}-{digest}"

    def is_begun(self, key: str) -> bool:
        """Whether the first pod has begun to copy its part. Raises OSError."""
        return (self.place_of(key) / "0").is_dir()

    def write(self, captured: Capture, key: str, pace: Pace, settled: Callable[[], None] = lambda: None) -> None:
        """Copy the part of this pod; its manifest comes last, after `settled`, and where all is as captured.

        What was copied of it is deleted where that fails.

        Raises:
            ChangedError: a file changed meanwhile. OSError, StoppedError.
        """
        place = self.place_of(key) / str(self._part)
        try:
            files: dict[str, Entry] = {}
            place.mkdir(parents=True, exist_ok=True)
            for name, path in captured.files.items():
                files[f"{FILES}/{name}"] = copy_file(path, place / FILES / name, pace)
            settled()
            captured.verify()
            self._last = max(time.time_ns() // 1_000_000, self._last + 1)
            of_part = {
                "name": captured.name,
                "written": self._last,
                "part": self._part,
                "parts": self._count,
                "attempt": self._attempt,
            }
            manifest = dataclasses.replace(self._work, files=files, summary=of_part)
            write_atomically(place / MANIFEST, manifest.encode())
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(place)
                place.parent.rmdir()
            raise

    def whole(self) -> list[Copy]:
        """The whole checkpoints of the same work, the newest first. Raises OSError."""
        copies = [copy for place in self._places() if (copy := self._read(place)) is not None]
        # A clock may have gone back with another node: none is taken for older than those that were there before.
        self._last = max([self._last, *(copy.written for copy in copies)])
        return sorted(copies, key=lambda copy: (copy.written, copy.folder.name), reverse=True)

    def prune(self) -> None:
        """Delete all but the newest whole ones, and what attempts have left that ended before.

        Call it when one has become whole. Raises OSError.
        """
        whole = self.whole()
        kept = {copy.folder for copy in whole[:KEPT]}
        for place in self._places():
            if place not in kept and (place in {copy.folder for copy in whole} or self._is_abandoned(place)):
                _remove(place)

    def forget(self, key: str) -> None:
        """Delete what was copied of the checkpoint that has this key in the attempt. Raises OSError."""
        _remove(self.place_of(key))

    def restore(
        self, into: Path, say: Callable[[str], None], chosen: str = "", pace: Pace | None = None
    ) -> Copy | None:
        """Copy the newest whole checkpoint into the folder `into`, under its name; None where there is none.

        One whose files are not those of its manifests is passed over, which is said. With `chosen`, the name of
        its folder in the store, it has to be that one.

        Raises:
            NotWholeError: the chosen one is not whole. OSError.
        """
        if chosen:
            copy = self._wait_for(chosen)
            try:
                return self._fetch(copy, into, pace or Pace())
            except NotWholeError:
                # Or the pods would choose it again.
                with contextlib.suppress(OSError):
                    (copy.folder / DAMAGED).touch()
                raise
        for copy in self.whole():
            try:
                return self._fetch(copy, into, pace or Pace())
            except NotWholeError as error:
                say(f"Checkpoint {copy.name} is passed over: {error.reason}")
        return None

    def foreign(self) -> list[str]:
        """The names of checkpoints that are whole and of other work: of other inputs, or another command line."""
        return [copy.name for place in self._places() if (copy := self._read(place, other_work=True)) is not None]

    def _fetch(self, copy: Copy, into: Path, pace: Pace) -> Copy:
        """All files of a checkpoint, each checked by its digest. A file that several pods wrote is this one's."""
        staged = into / f".{copy.folder.name}.restored"
        shutil.rmtree(staged, ignore_errors=True)
        try:
            others = [part for part in sorted(copy.parts) if part != self._part]
            for part in (*([self._part] if self._part in copy.parts else []), *others):
                place = copy.folder / str(part)
                for name, entry in copy.parts[part].files.items():
                    target = staged / name.partition("/")[2]
                    if target.exists():
                        continue
                    try:
                        read = copy_file(place / name, target, pace)
                    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                        raise NotWholeError(place, f"{name} is missing") from None
                    if read != entry:
                        raise NotWholeError(place, f"{name} was altered: its SHA-256 is not the manifest's")
            for path in staged.iterdir():
                path.replace(into / path.name)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return copy

    def _wait_for(self, chosen: str) -> Copy:
        for pause in (*_MISSING, None):
            copy = self._read(self.folder / chosen)
            if copy is not None:
                return copy
            if pause is not None:
                time.sleep(pause)
        raise NotWholeError(self.folder / chosen, "not all of its parts are here")

    def _places(self) -> list[Path]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as listed:
            return [Path(item.path) for item in listed if item.is_dir()]
        return []

    def _read(self, place: Path, *, other_work: bool = False) -> Copy | None:
        """The checkpoint in `place`; None where it is not whole, or is of other work."""
        if (place / DAMAGED).exists():
            return None
        parts: dict[int, Manifest] = {}
        attempt: Any = None
        count = 1
        while len(parts) < count:
            try:
                manifest = load_manifest(place / str(len(parts)))
                summary = manifest.summary
                of_part = (str(summary["name"]), summary["attempt"], int(summary["parts"]))
                int(summary["written"])
            except (NotWholeError, KeyError, TypeError, ValueError):
                return None
            attempt = attempt or of_part
            if of_part != attempt or manifest.same_work(self._work) == other_work:
                return None
            count = of_part[2]
            parts[len(parts)] = manifest
        return Copy(place, parts)

    def _is_abandoned(self, place: Path) -> bool:
        """Whether it was begun, and nobody goes on with it. A bucket shows a file when all of it is there."""
        patience = STALE_AFTER if place.name.startswith(f"{self._attempt}-") else ABANDONED
        return time.time() - max([0.0, *_changes(place)]) > patience


def _changes(place: Path) -> Iterable[float]:
    for folder, _, files in os.walk(place):
        for name in files:
            with contextlib.suppress(OSError):
                yield (Path(folder) / name).stat().st_mtime


def _remove(place: Path) -> None:
    """Delete a checkpoint or a part, its manifests first: what lacks files is never taken for whole."""
    for manifest in (place / MANIFEST, *place.glob(f"*/{MANIFEST}")):
        with contextlib.suppress(FileNotFoundError):
            manifest.unlink()
    shutil.rmtree(place, ignore_errors=True)
