"""Becomes a program that starts in another folder than that of its code: `starting.py FOLDER PROGRAM ARGUMENT…`.

It is started in the folder of the code, and finds there what the command line names: each word that is the path of
a file there, and the modules of `python -m`; a script has that folder in `SLIPWAY_CODE`. A folder below `$TMPDIR`
is empty when the program starts. Standard library only, Python 3.9; this file runs without the package around it.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

BAD_INPUT = 4
"""Exit code: as in `slipway.runtime.exits`."""

SCRATCH = "$TMPDIR/"


def main() -> NoReturn:
    """Does not return."""
    place, words = sys.argv[1], sys.argv[2:]
    code = _code()
    words = [_locate(word, code, program=not index) for index, word in enumerate(words)]
    folder = Path(os.path.expandvars(place))
    try:
        if place.startswith(SCRATCH):
            _empty(folder)
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
    except OSError as error:
        _fail(f"the program cannot start in {folder}: {error.strerror}: {error.filename}")
    os.environ["PWD"] = str(folder)
    os.environ["SLIPWAY_CODE"] = str(code)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), os.environ.get("PYTHONPATH")]))
    try:
        os.execvp(words[0], words)
    except OSError as error:
        hint = "; is it executable? Else write its interpreter before it" if "/" in words[0] else ""
        _fail(f"{words[0]!r} cannot be started: {error.strerror}{hint}")


def _code() -> Path:
    """The current directory, by the path at which it is mounted.

    Kubernetes keeps the files of a ConfigMap in a folder `..2026_11_25…` of the volume, to which links lead.
    """
    code = Path.cwd()
    mounted = Path(*(part for part in code.parts if not part.startswith("..")))
    return mounted if mounted.is_dir() and mounted.samefile(code) else code


def _locate(word: str, code: Path, *, program: bool) -> str:
    """A word of the command line: the path of the file of the code that it names, or the word as it is."""
    if word.startswith(("/", "-")) or (program and "/" not in word):
        return word
    path = os.path.normpath(code / word)
    return path if Path(path).is_file() else word


def _empty(folder: Path) -> None:
    """Delete what an earlier program of this pod left in a folder; it may be a mount, so it stays itself.

    Where that program put a link in its place, what this leads to stays.
    """
    if folder.is_symlink():
        folder.unlink()
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
