"""Files that the project writes on this machine: whole or not at all."""

import contextlib
import errno
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
    """Deletes ``folder`` with all that is in it, write-protected or not."""
    if folder.exists():
        change_mode(folder, writable=True)
        shutil.rmtree(folder, ignore_errors=True)


def change_mode(folder: Path, *, writable: bool) -> None:
    """Gives or takes the permission to write, in all of ``folder``."""
    for path, _, files in os.walk(folder):
        for entry in (Path(path), *(Path(path, file) for file in files)):
            if not entry.is_symlink():
                mode = entry.stat().st_mode
                entry.chmod(mode | stat.S_IWUSR if writable else mode & ~WRITE)
