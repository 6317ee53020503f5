"""What an image lacks, packages and libraries, from the store to the local disk: checked on the way, whole or not.

`slipway.runtime.steps.command` supplies a step with it. A program that stays, as of an app, is started
by this module, whose place it takes, so that it gets its signals itself: `python3 -m
slipway.runtime.supplied --libraries DIR --code DIR -- python serve.py`. Standard library only, Python
3.9.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import hashlib
import importlib.util
import os
import runpy
import shutil
import stat
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from slipway.runtime.exits import BAD_INPUT, USAGE, StepError, parse_before_program, run
from slipway.runtime.parts import PACKAGES, timed
from slipway.runtime.store import (
    Entry,
    NotWholeError,
    StoreError,
    explain,
    load_manifest,
    store_errors,
)

ARCHIVE = "packages.tar"
"""The one file that `slipway.runtime.steps.environment` publishes where the image lacks packages."""

_CHUNK = 1 << 20

_COPIES = 4
"""Files that are copied at once: one stream of a bucket is slower than the disk."""


@timed(PACKAGES)
def unpack_packages(directory: Path, target: Path) -> bool:
    """Unpack what `slipway.runtime.steps.environment` published in `directory` into `target`, an empty
    folder.

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


@timed(PACKAGES)
def local_libraries(directory: Path) -> Path | None:
    """The folder of the local disk with all files that `directory` publishes side by side; None where it has none.

    They are copied once in a pod, and stay: the test of its GPUs and its program share them, and so does a
    container that starts anew. Read in the store, a page that this cannot deliver would end the process.

    Raises:
        StepError: BAD_INPUT where one is missing or altered; StoreError.
    """
    manifest = load_manifest(directory)
    if not manifest.files:
        return None
    place = Path(tempfile.gettempdir(), f"slipway-libraries-{manifest.digest[:16]}")
    if _is_private(place):
        return place
    copies = Path(tempfile.mkdtemp(prefix="slipway-libraries-"))
    try:
        with store_errors(directory), ThreadPoolExecutor(_COPIES) as pool:
            copying = [
                pool.submit(_copy, directory, name, entry, copies) for name, entry in manifest.files.items()
            ]
            for copied in copying:
                copied.result()
    except BaseException:
        shutil.rmtree(copies, ignore_errors=True)
        raise
    try:
        copies.rename(place)
    except OSError:
        # Another process was first, or the name is somebody else's.
        return copies
    return place


def _is_private(folder: Path) -> bool:
    """Whether it is a folder that this user made, and that nobody else can write to."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _copy(directory: Path, name: str, entry: Entry, folder: Path) -> None:
    try:
        stream = (directory / name).open("rb")
    except (FileNotFoundError, IsADirectoryError):
        raise NotWholeError(directory, f"{name} is missing") from None
    with stream, (folder / Path(name).name).open("wb") as copy:
        reading = _Digesting(stream)
        while chunk := reading.read(_CHUNK):
            copy.write(chunk)
    if reading.entry != entry:
        raise NotWholeError(directory, f"{name} was altered: its SHA-256 is not the manifest's")


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    parts = member.name.split("/")
    if not member.isreg() or member.name.startswith("/") or {"", ".", ".."} & set(parts):
        raise ValueError(f"{member.name!r} is not a file below the archive's folder")
    # Python asks for a filter from 3.12 on and has none before 3.9.17; what `environment` packs needs none.
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


SONAMES = ("libcudnn.so.9", "libnccl.so.2")
"""What TensorFlow 2.21 loads by name and its image lacks.

TensorFlow's GPU images from 2.18 on bring cuDNN 8.9 where TensorFlow loads 9, and no NCCL, which it needs for more
than one GPU; it then finds no GPU at all. (github.com/tensorflow/build, tensorflow_runtime_dockerfiles/
gpu.packages.txt of February 2026 and issue 221; read November 2026.)
"""


def lacking() -> list[str]:
    """Those of `SONAMES` that the loader does not find here; empty where TensorFlow is built without CUDA."""
    return [soname for soname in SONAMES if not _loads(soname)] if _built_for_cuda() else []


def preload(directory: Path | None) -> None:
    """Load the libraries that `slipway.runtime.cuda.install` published in `directory`, before TensorFlow asks
    for them.

    The loader then gives TensorFlow the ones that are in the process already, whatever lies on its search path.
    Does nothing without a directory, or where nothing was lacking.

    Raises:
        StepError: with BAD_INPUT where a library is missing, altered or cannot be loaded; StoreError.
    """
    local = None if directory is None else local_libraries(directory)
    if local is None:
        return
    published = [soname for soname in SONAMES if (local / soname).exists()]
    for soname in published:
        try:
            ctypes.CDLL(str(local / soname), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
        except OSError as error:
            raise StepError(BAD_INPUT, f"{soname} of {directory} cannot be loaded: {error}") from error
    print(f"Loaded {', '.join(published)} from {directory}", flush=True)


def _built_for_cuda() -> bool:
    """Read from TensorFlow's build record, since importing TensorFlow takes seconds."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None or sys.platform != "linux":
        return False
    record = Path(spec.origin).parent / "python" / "platform" / "build_info.py"
    return bool(runpy.run_path(str(record))["build_info"].get("is_cuda_build"))


def _loads(soname: str) -> bool:
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


def prepend(environment: dict[str, str], variable: str, place: Path) -> None:
    """Put `place` in front of the folders of a search path."""
    before = environment.get(variable, os.defpath if variable == "PATH" else "")
    environment[variable] = f"{place}{os.pathsep}{before}" if before else str(place)


def become(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> NoReturn:
    """Start a program in the place of this one. Raises StepError with USAGE where that cannot be done."""
    try:
        os.chdir(folder)
        os.execvpe(words[0], list(words), dict(environment))
    except OSError as error:
        raise not_started(words, folder, error) from error


def not_started(words: Sequence[str], folder: Path, error: OSError) -> StepError:
    """Says that a program cannot be started."""
    return StepError(USAGE, f"{words[0]} cannot be started in {folder}: {error.strerror}")


def main(arguments: list[str] | None = None) -> int:
    """Start the program; returns only where it cannot be started.

    Raises:
        StepError: BAD_INPUT where a library is missing or altered, or does not fit; USAGE where there is no such
            program or folder; StoreError.
    """
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    environment = dict(os.environ)
    if libraries := local_libraries(options.libraries):
        # An image may have set it, for its driver's libraries too, so that a pod cannot.
        prepend(environment, "LD_LIBRARY_PATH", libraries)
        print(f"Libraries of {options.libraries} are in front of those of the image", flush=True)
    become(options.words, options.code, environment)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m slipway.runtime.supplied",
        usage="%(prog)s --libraries DIR [--code DIR] -- PROGRAM [ARGUMENT...]",
        description=__doc__,
    )
    parser.add_argument(
        "--libraries", type=Path, required=True, help="what slipway.runtime.cuda.install published"
    )
    parser.add_argument("--code", type=Path, default=Path(), help="where the program starts; default: here")
    return parse_before_program(parser, arguments)


if __name__ == "__main__":
    run(main)
