"""Copies of a step's inputs on the disk of its node, which its program reads in place of the mounted store.

A store is read over the network, and more than once: to check an input, and by the program, in each epoch. For a
copy it is read once, by several threads, and the copy is checked. Standard library only, Python 3.9.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.runtime.parts import INPUTS, timed
from slipway.runtime.store import (
    MANIFEST,
    Manifest,
    check,
    differences,
    load_manifest,
    readers,
    size_text,
)

PART = 64 << 20
"""Bytes of a file that one thread copies, so that several copy a large one."""

BLOCK = 4096
"""Bytes in which the disk's room is counted: the kubelet ends a pod whose volume has more than its limit."""

_CHUNK = 1 << 20


@dataclass
class LocalInputs:
    """The copies below `root`, of `room` bytes at most in all.

    `places` has where each directory was copied to.
    """

    root: Path
    room: int
    places: dict[str, str] = field(default_factory=dict)

    @timed(INPUTS)
    def take(self, name: str, directory: Path) -> Manifest:
        """Copy the input called `name`, the result in `directory`, and check the copy.

        Where there is no room for it, or the copy is not whole, the result is checked where it is.

        Raises:
            NotWholeError: naming the first file that is missing, truncated or altered.
            StoreError: the store cannot be read.
        """
        manifest = load_manifest(directory)
        target = self.root / name
        sizes = {file: entry.size for file, entry in manifest.files.items()}
        if not self._copy(name, directory, target, sizes):
            return check(directory)
        if wrong := next(differences(target, manifest), ""):
            self._remove(target, f"the copy of {name} on the node's disk is not whole: {wrong}")
            return check(directory)
        (target / MANIFEST).write_bytes(manifest.encode())
        self.places[str(directory)] = str(target)
        return manifest

    @timed(INPUTS)
    def take_folder(self, name: str, directory: Path) -> None:
        """Copy the folder of data called `name`, of which no manifest says what it has; without room, leave it."""
        try:
            sizes = dict(_sizes(directory))
        except OSError:
            # The program says it in its own words, once it reads there.
            return
        if self._copy(name, directory, self.root / name, sizes):
            self.places[str(directory)] = str(self.root / name)

    def moved(self, text: str) -> str:
        """A word or value with the places of copies in place of the directories."""
        if not self.places:
            return text
        anywhere = "|".join(re.escape(place) for place in sorted(self.places, key=len, reverse=True))
        pattern = rf"(?<![\w./-])(?:{anywhere})(?![\w.-])"
        return re.sub(pattern, lambda match: self.places[match.group()], text)

    def _copy(self, name: str, directory: Path, target: Path, sizes: Mapping[str, int]) -> bool:
        """Copy the files of these sizes; whether that went well. Else nothing is left of them, and why is said."""
        started, size = time.monotonic(), sum(sizes.values())
        needed = sum(BLOCK + -(-length // BLOCK) * BLOCK for length in sizes.values())
        if needed > self.room:
            room = f"the step's cache has {size_text(max(self.room, 0))} left"
            print(f"warning: {name} has {size_text(size)}, and {room}: it is read from the store", file=sys.stderr)
            return False
        try:
            for path in sizes:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                with (target / path).open("wb"):
                    pass
            with readers() as threads:
                for _ in threads.map(lambda part: _copy_part(directory, target, *part), _parts(sizes)):
                    pass
        except OSError as error:
            why = f"{error.filename or target}: {error.strerror or error}"
            self._remove(target, f"{name} cannot be copied to the node's disk: {why}")
            return False
        self.room -= needed
        seconds = time.monotonic() - started
        rate = f", {size / seconds / 1e6:.0f} MB/s" if seconds >= 1 else ""
        what = f"{len(sizes)} files, {size_text(size)}"
        print(f"Copied {name} to the node's disk: {what}, in {seconds:.1f} s{rate}", flush=True)
        return True

    def _remove(self, target: Path, why: str) -> None:
        shutil.rmtree(target, ignore_errors=True)
        print(f"warning: {why}: it is read from the store", file=sys.stderr, flush=True)


def _sizes(directory: Path) -> Iterator[tuple[str, int]]:
    """The files below a folder, each with its size. Raises OSError."""

    def fail(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(directory, onerror=fail):
        for name in names:
            status = Path(folder, name).stat()
            if stat.S_ISREG(status.st_mode):
                yield Path(folder, name).relative_to(directory).as_posix(), status.st_size


def _parts(sizes: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """What threads copy one after the other: a file, from which byte on, and how many."""
    for path, size in sizes.items():
        for start in range(0, size, PART):
            yield path, start, min(PART, size - start)


def _copy_part(directory: Path, target: Path, path: str, start: int, length: int) -> None:
    """Copy bytes of a file; of one that is shorter fewer. Raises OSError."""
    source, copy = directory / path, target / path
    with source.open("rb", buffering=0) as reading, copy.open("r+b", buffering=0) as writing:
        reading.seek(start)
        writing.seek(start)
        while length and (chunk := reading.read(min(_CHUNK, length))):
            length -= len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[writing.write(view) :]
