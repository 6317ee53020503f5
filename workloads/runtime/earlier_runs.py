"""Results of items that earlier runs of the step left beside this one: equal work is copied, and not done again.

Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workloads.runtime import item_attempts
from workloads.runtime.items import ITEMS, Record, read_record
from workloads.runtime.store import NotWholeError, digest_of, load_manifest, read_file, store_errors

_LOOKED_AT = 8
"""Of how many earlier runs, the newest first, results are taken: each has what it took from those before."""

_KEYS = ("item", "path", "work", "manifest", "attempts", "seconds")


class EarlierRuns:
    """The runs beside `output`. They are looked at when the first result is asked for."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._listed: dict[str, tuple[Path, Record]] | None = None
        self._unlisted: list[Path] = []

    def find(self, item: str, work: str) -> tuple[Path, Record] | None:
        """The directory of a result of this work, and its record; None where there is none."""
        if self._listed is None:
            self._listed = {}
            for run in _newest_first(self._output):
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
                    shutil.copyfile(source / name, target / name)
                except (FileNotFoundError, IsADirectoryError):
                    raise NotWholeError(source, f"{name} is missing") from None
                if digest_of(target / name) != entry:
                    raise NotWholeError(source, f"{name} was altered: its SHA-256 is not the manifest's")
    except NotWholeError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    item_attempts.publish(target, manifest)


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


def _newest_first(output: Path) -> list[Path]:
    def age(run: Path) -> tuple[float, str]:
        for path in (run / ITEMS, run):
            with contextlib.suppress(OSError):
                return -path.stat().st_mtime, run.name
        return 0.0, run.name

    with store_errors(output.parent):
        runs = list(_folders_beside(output))
    return sorted(runs, key=age)[:_LOOKED_AT]


def _folders_beside(output: Path) -> Iterator[Path]:
    for entry in os.scandir(output.parent):
        if entry.is_dir() and entry.name != output.name:
            yield Path(entry.path)
