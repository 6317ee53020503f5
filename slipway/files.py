"""Files that the project writes on this machine: whole or not at all."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH

STALE_AFTER = 3600.0
"""Seconds after which nobody is at work on a file that is to replace another."""


@contextlib.contextmanager
def replacing(target: Path) -> Generator[Path]:
    """A path beside ``target``. What is written there takes the place of ``target``, unless an error is raised."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.partial")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
        _sweep(target.parent)


def _sweep(folder: Path) -> None:
    """Deletes what `replacing` left in ``folder`` for this user where it was killed, as far as nobody is at it."""
    for path in folder.glob(".*.partial"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            old = time.time() - status.st_mtime > STALE_AFTER
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and old:
                path.unlink()


def write(target: Path, text: str) -> None:
    """Writes ``text`` to ``target``, with the folders above it. Until that is done ``target`` stays as it is."""
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check(target: Path) -> None:
    """Raises OSError where `write` could not write ``target``. Makes the folders above it, and nothing else."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    target.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_or_check(page: Path, text: str, module: str, arguments: Sequence[str]) -> int:
    """Writes a page that the project generates, or says with ``--check`` whether it is up to date.

    ``module`` generates it. Returns the module's exit status.
    """
    if "--check" not in arguments:
        write(page, text)
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{page} is out of date; run: python -m {module}", file=sys.stderr)
    return 1


def remove(folder: Path) -> None:
    """Deletes ``folder`` with all that is in it, write-protected or not; of a link the link alone."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        # To delete a file takes rights on its folder alone, and its inode may have another name elsewhere.
        for path, _, _ in os.walk(folder):
            Path(path).chmod(stat.S_IMODE(Path(path).lstat().st_mode) | stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)


def change_mode(folder: Path, *, writable: bool) -> None:
    """Gives or takes the permission to write, in all of ``folder``."""
    for path, _, files in os.walk(folder):
        for entry in (Path(path), *(Path(path, file) for file in files)):
            if not entry.is_symlink():
                mode = entry.stat().st_mode
                entry.chmod(mode | stat.S_IWUSR if writable else mode & ~WRITE)


LOCK = "lock"
MARK = b"folder of slipway, last used by process "
"""How the lock file of such a folder begins. Any program may leave a file called `lock`."""


class BusyError(Exception):
    """Another process is at work in the folder; the text says which."""


class FolderError(Exception):
    """The folder cannot be used; the text says why."""


def is_marked(folder: Path) -> bool:
    """Whether Slipway made ``folder``, as its lock file says."""
    return _content(folder / LOCK).startswith(MARK)


def _content(path: Path) -> bytes:
    """What is in a regular file; nothing where there is no such file."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode):
            return path.read_bytes()
    return b""


def _is_of_unmarked_rehearsal(folder: Path) -> bool:
    """Whether a rehearsal made ``folder`` before there was a mark: beside the lock is its record of Jobs."""
    lock = _content(folder / LOCK)
    with contextlib.suppress(ValueError, AttributeError):
        return lock.isdigit() and json.loads(_content(folder / "state.json")).keys() == {"format", "jobs"}
    return False


class Lock:
    """Held while a command is at work in ``folder``; the system releases it however the command ends."""

    def __init__(self, folder: Path) -> None:
        """Raises BusyError and FolderError."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A command that was killed at once leaves an empty lock, and nothing else.
            entries = [path for path in folder.iterdir() if path.name != LOCK or path.lstat().st_size]
            if entries and not is_marked(folder) and not _is_of_unmarked_rehearsal(folder):
                raise FolderError(
                    f"{folder} is not empty, and no rehearsal made it; name a new or an empty folder"
                )
            self.descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise FolderError(f"{folder} cannot be written to: {error.strerror}") from error
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _content(folder / LOCK).removeprefix(MARK).decode(errors="replace").strip()
            os.close(self.descriptor)
            raise BusyError(
                f"another rehearsal (process {holder or 'unknown'}) is at work in {folder}; wait for it or stop it"
            ) from None
        # In one write, and over what is there: it is never without the mark.
        os.pwrite(self.descriptor, MARK + b"%-10d\n" % os.getpid(), 0)

    def close(self) -> None:
        """Releases the lock."""
        os.close(self.descriptor)
