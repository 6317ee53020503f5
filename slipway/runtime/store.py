"""Step directories in the store: published file by file, manifest last, and checked by whoever reads them.

The store is a mounted bucket (GCS FUSE) or a volume: a directory cannot be renamed in one go there, renaming a
file may be a copy and a delete, and there are neither locks nor hard links nor a reliable O_EXCL. What holds
everywhere is that one file, written under another name and then renamed, appears whole or not at all. So a
step's result is the set of files that its `manifest.json` names, and the manifest comes last. Standard library
only. Run as `python -m slipway.runtime.store DIR...`, it says which results are not whole.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import itertools
import json
import os
import random
import re
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from slipway.runtime.exits import BAD_INPUT, OK, STORE_TROUBLE, StepError, run
from slipway.runtime.parts import INPUTS, PUBLISH, timed

FORMAT = 1
"""Version of the manifest's layout. A reader refuses another one rather than guess."""
MANIFEST = "manifest.json"
TEMPORARY_SUFFIX = ".slipway-partial"
STALE_AFTER = 3600.0
"""Seconds after which a temporary file belongs to nobody: one file takes minutes at most to copy."""
READERS = 8
"""Files that are read at once: through a mount most of the time of a read is waiting."""
ATTEMPTS = 8
"""How often a publisher tries before it gives up against others that publish into the same directory."""

_CHUNK = 1 << 20


class NotWholeError(StepError):
    """A directory that has no manifest, or not the files its manifest names. `reason` says which and why."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(BAD_INPUT, f"{directory} is not whole: {reason}")
        self.reason = reason


class StoreError(StepError):
    """The store itself fails: read-only, full, gone, or not permitted."""

    def __init__(self, message: str) -> None:
        super().__init__(STORE_TROUBLE, message)


@dataclass(frozen=True)
class Entry:
    """One published file: its size in bytes and the SHA-256 of its content in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a step published.

    `files` maps each path, relative to the directory and with `/`, to its Entry; `inputs` maps a name for each
    input to the digest of that input's manifest; `settings` holds the arguments that decide the result;
    `summary` is free-form.
    """

    step: str
    files: Mapping[str, Entry]
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The bytes of `manifest.json`: equal for equal manifests."""
        content = {
            "format": FORMAT,
            "step": self.step,
            "inputs": dict(self.inputs),
            "settings": dict(self.settings),
            "summary": dict(self.summary),
            "files": {name: vars(entry) for name, entry in self.files.items()},
        }
        return (json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of `manifest.json` in hexadecimal: names this result, files included."""
        return hashlib.sha256(self.encode()).hexdigest()

    def same_work(self, other: Manifest) -> bool:
        """Whether `other` came from the same step, inputs and settings."""
        return (
            self.step == other.step
            and dict(self.inputs) == dict(other.inputs)
            and _plain(self.settings) == _plain(other.settings)
        )


def decode(content: bytes) -> Manifest:
    """The inverse of `Manifest.encode`.

    Raises:
        ValueError: not JSON, another format version, or a file name that cannot be one or leaves the directory.
    """
    try:
        raw = json.loads(content)
        if not isinstance(raw, dict):
            raise ValueError("it is not a JSON object")
        if raw.get("format") != FORMAT:
            raise ValueError(f"its format is {raw.get('format')!r}, this code reads {FORMAT}")
        files: dict[str, Entry] = {}
        for name, entry in raw["files"].items():
            if not _inside(name):
                raise ValueError(f"it names a file outside its directory: {name!r}")
            files[name] = Entry(size=int(entry["size"]), sha256=str(entry["sha256"]))
        return Manifest(
            step=str(raw["step"]),
            files=files,
            inputs={str(key): str(value) for key, value in raw["inputs"].items()},
            settings=dict(raw["settings"]),
            summary=dict(raw["summary"]),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"a part of it is missing or of another kind ({error})") from error


def load_manifest(directory: Path) -> Manifest:
    """Read `manifest.json` without looking at the files it names.

    Raises:
        NotWholeError: there is none, or it cannot be understood.
        StoreError: the store cannot be read.
    """
    with store_errors(directory):
        content = read_file(directory / MANIFEST)
        if content is None:
            what = f"it has no {MANIFEST}" if directory.is_dir() else "there is no such directory"
            if (directory / MANIFEST).is_dir():
                what = f"its {MANIFEST} is a directory"
            raise NotWholeError(directory, f"{what}; has the step that writes it finished?")
    try:
        return decode(content)
    except ValueError as error:
        raise NotWholeError(directory, f"{MANIFEST} cannot be read: {error}") from error


@timed(INPUTS)
def check(directory: Path, only: str = "") -> Manifest:
    """The manifest of `directory`, once every file it names has been read and matches in size and SHA-256.

    `only` limits the check to names that start with it, for a step that reads a part of its input.

    Raises:
        NotWholeError: naming the first file that is missing, truncated or altered.
        StoreError: the store cannot be read.
    """
    manifest = load_manifest(directory)
    with store_errors(directory):
        for reason in differences(directory, manifest, only):
            raise NotWholeError(directory, reason)
    return manifest


def differences(directory: Path, manifest: Manifest, only: str = "") -> Iterator[str]:
    """What is wrong with the files of `manifest` below `directory`, one after the other in their order.

    `READERS` of them are read at once. Raises OSError.
    """

    def entry_of(name: str) -> Entry | None:
        # Opening a pipe would wait for its writer.
        return digest_of(directory / name) if (directory / name).is_file() else None

    names = sorted(name for name in manifest.files if name.startswith(only))
    with readers() as threads:
        for name, actual in zip(names, threads.map(entry_of, names)):  # noqa: B905
            entry = manifest.files[name]
            if actual is None:
                yield f"{name} is missing"
            elif actual.size != entry.size:
                yield f"{name} has {actual.size} bytes, its manifest says {entry.size}"
            elif actual.sha256 != entry.sha256:
                yield f"{name} was altered: its SHA-256 is not the manifest's"


@contextlib.contextmanager
def readers() -> Iterator[ThreadPoolExecutor]:
    """Threads that read files; what they have not begun at the end is not begun."""
    threads = ThreadPoolExecutor(READERS)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)


def whole(directory: Path) -> tuple[bool, str]:
    """Whether `directory` holds a published result that can be used, and if not, why."""
    try:
        check(directory)
    except NotWholeError as error:
        return False, error.reason
    return True, ""


def finished(
    directory: Path, step: str, inputs: Mapping[str, str], settings: Mapping[str, Any]
) -> Manifest | None:
    """The manifest of an earlier, whole result of the same work in `directory`; None if the work is to be done.

    Says on standard output why a result that lies there is not taken.
    """
    wanted = Manifest(step=step, files={}, inputs=inputs, settings=settings)
    try:
        manifest = check(directory)
    except NotWholeError as error:
        if (directory / MANIFEST).exists():
            print(f"Doing it again: {error}", flush=True)
        return None
    if not manifest.same_work(wanted):
        print(f"Doing it again: {directory} was made from other inputs or settings", flush=True)
        return None
    return manifest


def digest_of(path: Path) -> Entry:
    """Size and SHA-256 of a file, read in pieces of 1 MiB."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Entry(size, digest.hexdigest())


@contextlib.contextmanager
def staging() -> Iterator[Path]:
    """A new, empty directory on the local disk, removed at the end: what a step fills and then publishes."""
    with tempfile.TemporaryDirectory(prefix="slipway-") as directory:
        yield Path(directory)


@timed(PUBLISH)
def publish(
    staged: Path,
    output: Path,
    *,
    step: str,
    inputs: Mapping[str, str],
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
) -> Manifest:
    """Copy every file under `staged` into `output`, its manifest last, and return what is then there.

    When another publisher of the same work was first, its result stands and is returned. When two interleave,
    each finds out by checking what lies there after its own manifest, and publishes again after a random pause:
    whoever ends last leaves one whole result.

    Raises:
        StoreError: the store cannot be written, or other publishers never leave it alone.
    """
    names = sorted(path.relative_to(staged).as_posix() for path in staged.rglob("*") if path.is_file())
    manifest = Manifest(
        step=step,
        files={name: digest_of(staged / name) for name in names},
        inputs=inputs,
        settings=settings,
        summary=summary,
    )
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(random.uniform(0.2, 0.5) * min(attempt, 4))
        earlier = _whole_manifest(output)
        if earlier is not None and earlier.same_work(manifest):
            return earlier
        with store_errors(output):
            output.mkdir(parents=True, exist_ok=True)
            remove_stale(output)
            try:
                for name in names:
                    copy_atomically(staged / name, output / name)
                write_atomically(output / MANIFEST, manifest.encode())
            except FileNotFoundError as error:
                if not output.parent.is_dir():
                    raise
                reason = f"{error.filename} disappeared"
                continue
        published = _whole_manifest(output)
        if published is not None and published.same_work(manifest):
            return published
        reason = "the files there are not those of the manifest"
    raise StoreError(f"{output} changed under every one of {ATTEMPTS} attempts to publish into it ({reason})")


def copy_atomically(source: Path, target: Path) -> None:
    """Copy a file so that `target` is either as before or the whole copy. Makes missing parent directories."""
    with source.open("rb") as reading, _replacing(target) as writing:
        shutil.copyfileobj(reading, writing, _CHUNK)


def size_text(size: float) -> str:
    """A number of bytes as people read it: ``12 B``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def write_atomically(target: Path, content: bytes) -> None:
    """Write a file so that `target` is either as before or holds all of `content`."""
    with _replacing(target) as writing:
        writing.write(content)


def read_file(path: Path) -> bytes | None:
    """The content of a file; None where there is no file, but nothing or a directory. Raises OSError."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def remove_file(path: Path) -> None:
    """Delete a file where there is one, and set a directory aside that stands in its place. Raises OSError."""
    try:
        path.unlink(missing_ok=True)
    # Linux refuses to unlink a directory with the one, macOS with the other.
    except (IsADirectoryError, PermissionError):
        if not path.is_dir():
            raise
        set_aside(path)


def set_aside(path: Path) -> None:
    """Rename a directory that stands where a file belongs, or the other way round, and say so on standard error.

    Raises OSError.
    """
    kind, wanted = ("directory", "file") if path.is_dir() else ("file", "directory")
    # Under a name that belongs to no result, and that `remove_stale` leaves alone: it may be somebody's own.
    numbers = itertools.count(1)
    names = (path.with_name(f"{path.name[:200]}.{number}{TEMPORARY_SUFFIX}") for number in numbers)
    free = next(name for name in names if not os.path.lexists(name))
    path.rename(free)
    print(
        f"warning: {path} is a {kind} where a {wanted} belongs; it is now {free.name}", file=sys.stderr, flush=True
    )


def remove_stale(directory: Path) -> None:
    """Delete temporary files that killed publishers left in `directory`.

    Those of processes of this machine that have ended, and of others those that are older than STALE_AFTER.
    """
    for path in directory.rglob(f".*{TEMPORARY_SUFFIX}"):
        with contextlib.suppress(OSError):
            if path.is_file() and (_is_left(path) or time.time() - path.stat().st_mtime > STALE_AFTER):
                path.unlink()


def _is_left(path: Path) -> bool:
    """Whether a process of this machine wrote it, and has ended."""
    match = re.search(rf"\.{re.escape(_host())}-(\d+)-[0-9a-f]+{re.escape(TEMPORARY_SUFFIX)}$", path.name)
    if match is None:
        return False
    try:
        os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _host() -> str:
    return socket.gethostname()[:32]


@contextlib.contextmanager
def store_errors(place: Path) -> Iterator[None]:
    """Turn an OSError into one StoreError that says in words what is wrong with the store at `place`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{error.filename or place}: {explain(error)}") from error


def explain(error: OSError) -> str:
    """What an operating-system error means for a store, and where to look."""
    if error.errno in (errno.EACCES, errno.EPERM) and (closed := _closed(error.filename)):
        return f"permission denied: its mode and owner keep this process from {closed}"
    words = {
        errno.EACCES: "permission denied; does the pod's identity have the role storage.objectUser on the bucket, "
        "and may the pod's user and group write this volume?",
        errno.EROFS: "the store is mounted read-only; mount it with write access for a step that publishes",
        errno.ENOSPC: "the store is full; enlarge the volume or delete old runs",
        errno.EDQUOT: "the store's quota is used up; raise it or delete old runs",
        errno.ENOENT: "it does not exist; is the store mounted here?",
        errno.ENOTDIR: "a part of the path is a file, not a directory",
        errno.ENOTCONN: "the mount is gone; look at the log of the store's sidecar or driver",
        errno.ESTALE: "the mount is stale; the volume was replaced under the pod",
        errno.EIO: "input/output error; look at the log of the store's sidecar or driver",
    }
    words[errno.EPERM] = words[errno.EACCES]
    return words.get(error.errno or 0, error.strerror or str(error))


def _closed(name: object) -> str:
    """The file or folder on the way to `name` that this process may not open, by what the machine itself knows of
    it; empty where there is none: a bucket's refusal does not stand in the mode of a file.
    """
    if not isinstance(name, str):
        return ""
    for path in (Path(name), *Path(name).parents):
        if os.access(path, os.F_OK):
            # Whoever is refused a file that is not there wanted to make it.
            needed = os.R_OK if path == Path(name) else os.R_OK | os.W_OK | os.X_OK
            return "" if os.access(path, needed) else str(path)
    return ""


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    """A new file next to `target`, under a name that no other process uses. It takes the place of `target` at the
    end, once it is on the disk; after an error it is deleted.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    temporary = target.with_name(f".{target.name[:120]}.{writer}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        try:
            temporary.replace(target)
        except IsADirectoryError:
            set_aside(target)
            temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _whole_manifest(directory: Path) -> Manifest | None:
    try:
        return check(directory)
    except NotWholeError:
        return None


def _inside(name: str) -> bool:
    os.fsencode(name)
    parts = name.split("/")
    return bool(name) and not name.startswith("/") and "\0" not in name and not {"", ".", ".."} & set(parts)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def main(arguments: list[str] | None = None) -> int:
    """Print a JSON object with each directory that holds no whole result, and why; returns the exit code.

    Raises:
        StoreError: the store cannot be read.
    """
    parser = argparse.ArgumentParser(prog="python -m slipway.runtime.store", description=__doc__)
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="what a step published")
    reasons = {str(directory): whole(directory)[1] for directory in parser.parse_args(arguments).directories}
    damaged = {directory: reason for directory, reason in reasons.items() if reason}
    print(json.dumps(damaged, indent=2))
    return BAD_INPUT if damaged else OK


if __name__ == "__main__":
    run(main)
