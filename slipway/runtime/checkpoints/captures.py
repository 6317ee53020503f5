"""The checkpoints that a program leaves in its local folder, kept as they are while they are copied.

A checkpoint is one entry of that folder, a file or a folder, which the program renames into it when it is whole. A
capture is a tree of hard links to its files: the program may replace or delete the entry, and the capture stays.
What is changed in place shows in a file's size or time of change, and is no checkpoint. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

TEMPORARY_ENDS = (".tmp", ".new", ".part")
TEMPORARY_PART = "checkpoint-tmp"
"""What names of folders have that Orbax has not finished (`<name>.orbax-checkpoint-tmp`,
orbax/checkpoint/_src/path/atomicity.py, 0.11, seen November 2026)."""

Version = tuple[int, int, int]
"""What tells one checkpoint from the next of the same name: inode, time of change in ns, size."""

NO_VERSION: Version = (0, 0, 0)
"""None has it."""

Signature = tuple[tuple[str, int, int, int], ...]
"""Path, inode, size and time of change of each file and folder."""


def is_temporary(name: str) -> bool:
    """Whether an entry of this name is none yet: it begins with a dot, or ends in `.tmp`, `.new` or `.part`."""
    return name.startswith(".") or name.endswith(TEMPORARY_ENDS) or TEMPORARY_PART in name


@dataclass(frozen=True)
class Entry:
    """A file or folder in the local folder of checkpoints."""

    path: Path
    version: Version
    is_file: bool
    named: int
    """When it got its name, or was changed after that, in ns since the epoch."""

    @property
    def changed(self) -> int:
        """When it was written last, in ns since the epoch."""
        return self.version[1]

    @property
    def is_sealed(self) -> bool:
        """Whether it can be seen that it was not changed since it got its name: one that is being deleted was. A
        system with coarse times does not show it of a folder that was written in some milliseconds.
        """
        return self.is_file or self.named > self.changed


def entries(folder: Path) -> dict[str, Entry]:
    """The checkpoints in the folder by their names, temporary ones and links left out. Raises OSError."""
    checkpoints: dict[str, Entry] = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as listed:
        for item in listed:
            if is_temporary(item.name):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = item.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                    version, is_file = version_of(status), stat.S_ISREG(status.st_mode)
                    checkpoints[item.name] = Entry(Path(item.path), version, is_file, status.st_ctime_ns)
    return checkpoints


def version_of(status: os.stat_result) -> Version:
    """The version of an entry by what the system says of it."""
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return status.st_ino, status.st_mtime_ns, size


class ChangedError(Exception):
    """The entry was changed after it had its name, or vanished while it was captured."""


@dataclass
class Capture:
    """A checkpoint at the moment of its capture. `files` are its files by their paths in it, the entry's name
    first: `step-5/model.pt`. `begun` is when it was captured, by `time.monotonic`.
    """

    name: str
    entry: Entry
    folder: Path
    files: Mapping[str, Path]
    signature: Signature
    begun: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(size for path, _, size, _ in self.signature if not path.endswith("/"))

    @property
    def is_sealed(self) -> bool:
        """As that of its entry, for all folders in it."""
        return self.entry.is_file or self.entry.named > max(
            changed for path, _, _, changed in self.signature if path.endswith("/")
        )

    def verify(self) -> None:
        """Raise ChangedError where a file is not as it was, or the entry has got or lost some in place, or maybe
        did so before it was captured.
        """
        expected = {path: rest for path, *rest in self.signature}
        for name, path in self.files.items():
            try:
                status = path.stat()
            except OSError:
                raise ChangedError(f"{name} vanished") from None
            if [status.st_ino, status.st_size, status.st_mtime_ns] != expected[name]:
                raise ChangedError(f"{name} was written to after it had its name")
        with contextlib.suppress(FileNotFoundError):
            now = signature_of(self.entry.path)
            # A folder that took its place may have its inode. Those of files cannot be given away: they are held.
            if _inodes(now) & _inodes(self.signature):
                if now != self.signature:
                    raise ChangedError(f"{self.name} has got or lost files after it had its name")
                return
        if not self.is_sealed:
            raise ChangedError(f"{self.name} was deleted within a second or two, maybe before it was captured")

    def release(self) -> None:
        """Remove the links; the program's own files stay."""
        shutil.rmtree(self.folder, ignore_errors=True)


def capture(entry: Entry, folder: Path) -> Capture:
    """Link all files of `entry` below `folder`, a new one in the same file system.

    Raises:
        ChangedError: it vanished or changed meanwhile, or has a file that is none.
        OSError: the file system refuses.
    """
    name = entry.path.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        signature = signature_of(entry.path)
        linked = _link(entry, folder / name)
        if not linked or signature_of(entry.path) != signature:
            raise ChangedError(f"{name} is still written to" if linked else f"{name} has no files")
    except FileNotFoundError:
        shutil.rmtree(folder, ignore_errors=True)
        raise ChangedError(f"{name} was replaced") from None
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Capture(name, entry, folder, linked, signature)


def _link(entry: Entry, target: Path) -> dict[str, Path]:
    """The links by the paths of their files. A folder is walked by its descriptor, not by its name: another one
    that takes its place is not mixed with it.
    """
    name = entry.path.name
    if entry.is_file:
        os.link(entry.path, target, follow_symlinks=False)
        return {name: target}
    linked: dict[str, Path] = {}
    for place, folders, files, descriptor in os.fwalk(entry.path):
        below = Path(place).relative_to(entry.path)
        (target / below).mkdir()
        for other in (*folders, *files):
            mode = os.stat(other, dir_fd=descriptor, follow_symlinks=False).st_mode
            if other in files and stat.S_ISREG(mode):
                link = target / below / other
                os.link(other, link, src_dir_fd=descriptor, follow_symlinks=False)
                linked[(Path(name) / below / other).as_posix()] = link
            elif not stat.S_ISDIR(mode):
                raise ChangedError(f"{(Path(name) / below / other).as_posix()} is a link or no regular file")
    return linked


def has_lost_files(before: Signature, now: Signature) -> bool:
    """Whether it is the folder that it was before, and lacks files that it had: it is being deleted."""
    if before[0][:2] != now[0][:2]:
        return False
    gone = {path for path, *_ in before} - {path for path, *_ in now}
    return any(not is_temporary(PurePosixPath(path).name) for path in gone)


def _inodes(signature: Signature) -> set[int]:
    return {inode for path, inode, *_ in signature if not path.endswith("/")}


def signature_of(path: Path) -> Signature:
    """The signature of a file, or of a folder with all in it. Raises FileNotFoundError where it vanishes."""
    status = path.lstat()
    if stat.S_ISREG(status.st_mode):
        return ((path.name, status.st_ino, status.st_size, status.st_mtime_ns),)
    rows: list[tuple[str, int, int, int]] = []
    for place, _, files, descriptor in os.fwalk(path):
        below = (Path(path.name) / Path(place).relative_to(path)).as_posix()
        of_folder = os.fstat(descriptor)
        rows.append((f"{below}/", of_folder.st_ino, 0, of_folder.st_mtime_ns))
        for name in files:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            rows.append((f"{below}/{name}", status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(sorted(rows))
