"""Lists, takes and gives files of a store, in a pod that has it mounted: `python3 -c … COMMAND ROOT PATH`.

`list` prints a JSON object with the size in bytes and the time in whole seconds of each file. `take` reads a tar
archive from standard input; each file gets its name when all of it is there. `give` reads the names as JSON from
standard input, and writes a tar archive. Standard library only, Python 3.9.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PARTIAL = ".slipway-partial"
"""As of files that steps write; a lifecycle rule of buckets deletes what is left of them."""


def files(place: Path) -> Iterator[tuple[str, Path]]:
    """Each file below a folder by its path from there; of a file itself that path is empty."""
    if place.is_file():
        yield "", place
    for folder, _, names in os.walk(place):
        for name in names:
            path = Path(folder, name)
            if not name.endswith(PARTIAL) and path.is_file():
                yield path.relative_to(place).as_posix(), path


def path_of(place: Path, name: str) -> Path:
    """Where the file called `name` is; raises ValueError where that is not below `place`."""
    if name in ("", "."):
        return place
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} is not below {place}")
    return place / name


def write(content: IO[bytes], path: Path, time: float) -> None:
    """Writes a file, which gets its name when all of it is there. `time` is in seconds since the epoch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("wb") as stream:
        shutil.copyfileobj(content, stream, 1 << 20)
        stream.flush()
        os.fsync(stream.fileno())
    os.utime(partial, (time, time))
    partial.replace(path)


def take(place: Path, stream: IO[bytes]) -> Iterator[int]:
    """Writes the files that an archive has; the size in bytes of each."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                write(content, path_of(place, member.name), member.mtime)
                yield member.size


def main() -> None:
    """Runs the command of the command line."""
    command, root, path = sys.argv[1:]
    place = Path(root, path)
    if command == "list":
        states = ((name, file.stat()) for name, file in files(place))
        print(json.dumps({name: [state.st_size, int(state.st_mtime)] for name, state in states}))
    elif command == "take":
        for _ in take(place, sys.stdin.buffer):
            pass
    else:
        with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
            for name in json.load(sys.stdin):
                archive.add(path_of(place, name), name or ".", recursive=False)


if __name__ == "__main__":
    main()
