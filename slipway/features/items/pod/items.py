"""The items of a step: which there are, what decides the result of each, and how that result is recorded.

Below the step's directory each item has a directory of its own, with one directory for each attempt. `result.json`
beside these names the attempt that is the item's result, `failed.json` the reason why there is none. No directory
is ever renamed. Standard library only.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import glob
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from slipway.runtime.exits import BAD_INPUT, StepError
from slipway.runtime.store import (
    MANIFEST,
    TEMPORARY_SUFFIX,
    Manifest,
    NotWholeError,
    check,
    digest_of,
    load_manifest,
    read_file,
    remove_file,
    store_errors,
    write_atomically,
)

RESULT = "result.json"
FAILED = "failed.json"
ITEMS = "items.json"
"""The list of all items, in the directory of a step that has ended."""

_COMPRESSED = {".gz", ".bz2", ".xz", ".zst", ".zip"}
_LONGEST = 200
_SHOWN = 10
_AT_ONCE = 16
"""Files that are read at once: a mounted bucket takes some 30 ms for each, however small it is."""

_S = TypeVar("_S")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Item:
    """A file to work on. `sha256` is what its content has to be."""

    name: str
    path: Path
    sha256: str

    def damage(self) -> str:
        """What is wrong with the file; empty where it is as it was when it was listed."""
        with store_errors(self.path):
            if not self.path.is_file():
                return f"{self.path} is missing"
            altered = digest_of(self.path).sha256 != self.sha256
        return f"{self.path} was altered: its SHA-256 is not the one that was published" if altered else ""


def source_of(pattern: str, inputs: Mapping[str, Path]) -> str | None:
    """The input in whose directory the files of `pattern` lie; None where it is no input."""
    within = [name for name, place in inputs.items() if pattern.startswith(f"{place}{os.sep}")]
    return max(within, key=lambda name: len(str(inputs[name])), default=None)


def find(pattern: str, source: Path | None) -> list[Item]:
    """The items that `pattern` names, ordered by name: among the published files of the result in `source`, or,
    where it is None, among all files.

    Raises:
        StepError: BAD_INPUT, naming everything that is wrong with the files; StoreError.
    """
    if source is not None:
        files = load_manifest(source).files
        wanted = pattern[len(str(source)) :].strip("/").split("/")
        digests = {
            source / name: entry.sha256 for name, entry in files.items() if _matches(name.split("/"), wanted)
        }
    else:
        with store_errors(Path(pattern)):
            paths = [path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file()]  # noqa: PTH207
            digests = dict(zip(paths, at_once(lambda path: digest_of(path).sha256, paths)))  # noqa: B905
    items = sorted(
        (Item(_name(path), path, sha256) for path, sha256 in digests.items()), key=lambda item: item.name
    )
    _refuse(pattern, source, items)
    return items


@dataclass(frozen=True)
class Work:
    """What decides the results of all items alike: inputs by their digests, and settings."""

    step: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    ordered: bool = False

    def of(self, item: Item, previous: Record | None = None) -> Manifest:
        """A manifest without files: what decides the result of `item`. Equal work has equal digests."""
        inputs = {**self.inputs, "item": item.sha256}
        if self.ordered and previous is not None:
            inputs["previous"] = previous.manifest
        return Manifest(self.step, {}, inputs, {**self.settings, "item": item.name})


@dataclass(frozen=True)
class Record:
    """The result of an item: `attempt` is the name of the directory, `manifest` the digest of the manifest there.

    `work` is the digest of what decided it, `attempts` and `seconds` what it took.
    """

    item: str
    attempt: str
    work: str
    manifest: str
    attempts: int
    seconds: float

    def encode(self) -> str:
        """One line of JSON: equal for equal records."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    def directory(self, output: Path) -> Path:
        """Where the files of the result are."""
        return output / self.item / self.attempt


def decode(text: str | bytes) -> Record:
    """The inverse of `Record.encode`. Raises ValueError."""
    try:
        raw = json.loads(text)
        record = Record(
            str(raw["item"]),
            str(raw["attempt"]),
            str(raw["work"]),
            str(raw["manifest"]),
            int(raw["attempts"]),
            float(raw["seconds"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a part of it is missing or of another kind ({error})") from error
    if "/" in record.attempt or record.attempt in {"", ".", ".."}:
        raise ValueError("it names a directory elsewhere")
    return record


def read_record(output: Path, name: str) -> Record | None:
    """The record of the item `name` in the step's directory `output`, where there is one."""
    with store_errors(output):
        content = read_file(output / name / RESULT)
    if content is None:
        return None
    try:
        record = decode(content)
    except ValueError:
        return None
    return record if record.item == name else None


def whole_result(output: Path, record: Record, *, files: bool = True) -> Manifest | None:
    """The manifest of the result that `record` names; None where it is another one, or not all `files` are as it
    says. Raises StoreError.
    """
    directory = record.directory(output)
    try:
        manifest = check(directory) if files else load_manifest(directory)
    except NotWholeError:
        return None
    return manifest if manifest.digest == record.manifest else None


def write_record(output: Path, record: Record) -> None:
    """Record the result of an item. Raises StoreError."""
    with store_errors(output):
        write_atomically(output / record.item / RESULT, f"{record.encode()}\n".encode())
        remove_file(output / record.item / FAILED)


@dataclass(frozen=True)
class Failure:
    """Why an item has no result, after how many attempts, and in which round it was given up."""

    reason: str
    attempts: int
    round: str


def read_failure(output: Path, name: str) -> Failure | None:
    """Why the item `name` was set aside, where it was."""
    with store_errors(output):
        content = read_file(output / name / FAILED)
    if content is None:
        return None
    try:
        raw = json.loads(content)
        return Failure(str(raw["reason"]), int(raw["attempts"]), str(raw["round"]))
    except (ValueError, KeyError, TypeError):
        return None


def write_failure(output: Path, name: str, failure: Failure) -> None:
    """Record that an item was set aside. Raises StoreError."""
    with store_errors(output):
        content = json.dumps(dataclasses.asdict(failure), sort_keys=True)
        write_atomically(output / name / FAILED, f"{content}\n".encode())


def recorded(output: Path, items: Sequence[Item], work: Work) -> dict[str, Record]:
    """The items that have a result of this work in the store, in their order.

    In order, an item is looked at only as long as all before it have one: what came before it decides of its work.
    """
    if not output.is_dir():
        return {}
    records: dict[str, Record] = {}
    if work.ordered:
        previous: Record | None = None
        for item in items:
            record = read_record(output, item.name)
            if record is None or record.work != work.of(item, previous).digest:
                break
            records[item.name] = previous = record
        return records
    with store_errors(output):
        begun = {entry.name for entry in os.scandir(output)}
    some = [item for item in items if item.name in begun]
    for item, record in zip(some, at_once(lambda item: read_record(output, item.name), some)):  # noqa: B905
        if record is not None and record.work == work.of(item).digest:
            records[item.name] = record
    return records


def forget(output: Path, name: str) -> None:
    """Take back the record of an item whose files are not as they were."""
    with store_errors(output):
        remove_file(output / name / RESULT)


def at_once(function: Callable[[_S], _T], values: Iterable[_S]) -> list[_T]:
    """`function` of each value, several at a time: for files of a store that answers slowly."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, values))


def digest_of_folder(folder: Path) -> str:
    """SHA-256 over the names and contents of all files below `folder`, but hidden ones and compiled Python."""
    digest = hashlib.sha256()
    with store_errors(folder):
        for place, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
            for name in sorted(files):
                path = Path(place) / name
                if not name.startswith(".") and path.is_file():
                    digest.update(f"{path.relative_to(folder).as_posix()}\0{digest_of(path).sha256}\n".encode())
    return digest.hexdigest()


def _name(path: Path) -> str:
    """The file's name without its extension: `2018-04-01` of `2018-04-01.csv.gz`."""
    return Path(path.stem).stem if path.suffix.lower() in _COMPRESSED else path.stem


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**" and _matches(parts, wanted[1:]):
        return True
    if not parts or (parts[0].startswith(".") and not wanted[0].startswith(".")):
        return False
    if wanted[0] == "**":
        return _matches(parts[1:], wanted)
    return fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])


def _refuse(pattern: str, source: Path | None, items: Sequence[Item]) -> None:
    if not items:
        where = f"among the files of the result in {source}" if source else "there"
        names = sorted(load_manifest(source).files) if source else []
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        published = f"; it has {', '.join(names[:_SHOWN])}{more}: correct `items.files`" if names else ""
        raise StepError(BAD_INPUT, f"--items {pattern}: no file {where} has such a name{published}")
    wrong = []
    for name, count in Counter(item.name for item in items).items():
        if count > 1:
            paths = ", ".join(str(item.path) for item in items if item.name == name)
            wrong.append(f"{count} files have the name {name!r}: {paths}")
        if why := _unusable(name):
            wrong.append(f"{name!r} cannot be the name of an item: {why}")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise StepError(BAD_INPUT, f"--items {pattern}: {'; '.join(wrong[:_SHOWN])}{more}. Rename the files")


def _unusable(name: str) -> str:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if not name.isprintable() or not name.strip():
        return "it has characters that cannot be shown"
    if len(encoded) > _LONGEST:
        return f"it has {len(encoded)} bytes, and {_LONGEST} are allowed"
    if name in {ITEMS, MANIFEST} or name.startswith(".") or name.endswith(TEMPORARY_SUFFIX):
        return "the step's own files have such names"
    return ""
