"""The context of an image: the files of a folder that its Dockerfile may copy, as git would ship them."""

import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from infra.kubernetes import dockerfile, ignore_patterns
from infra.kubernetes.shipped_files import SHOWN, Files, ShippingError, obstacle, require_fit

IGNORED = ".dockerignore"

FORMAT = 1
"""Part of every digest. Raise it when the same context starts to become another image, and every image is built
again."""

NO_REPOSITORY = "not a git repository"
"""What git says of a folder that is in no repository (git 2.39 to 2.51, with the C locale)."""


@dataclass(frozen=True)
class Context:
    """The files of a context, the paths of those that may be executed, the Dockerfile's path, and the values of
    its arguments.
    """

    files: Files
    executable: Sequence[str]
    dockerfile: str
    arguments: Mapping[str, str]

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, over all that decides what the image is: its base images, by digest, included.

        The version of what builds it is not among that.
        """
        decisive = {
            "format": FORMAT,
            "files": self.files.digest,
            "executable": list(self.executable),
            "dockerfile": self.dockerfile,
            "arguments": dict(self.arguments),
        }
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def context_of(folder: Path, path: str = "Dockerfile", arguments: Mapping[str, str] | None = None) -> Context:
    """The context in ``folder``, of which ``path`` is the Dockerfile.

    In a git repository these are the files that git has or would take, elsewhere all; less what ``.dockerignore``
    (or ``<Dockerfile>.dockerignore``) leaves out. Links have become the files that they lead to. Raises
    ShippingError where something is missing, leads out of the folder or is too big, and where the Dockerfile
    begins with something that can become other code.
    """
    # `./Dockerfile` is the file that git calls `Dockerfile`.
    path = PurePosixPath(path).as_posix()
    if not folder.is_dir():
        raise ShippingError(str(folder), "there is no such folder", "name the folder with the Dockerfile: `build`")
    if not (folder / path).is_file():
        raise ShippingError(f"{folder}/{path}", "there is no such file", "add it, or name another: `dockerfile`")
    names = _kept(folder, path)
    if path not in names:
        fix = "take it out of `.gitignore`, or name another: `dockerfile`"
        raise ShippingError(f"{folder}/{path}", "git ignores it, so that nobody else has it", fix)
    _refuse(folder, names)
    # Before they are read: a folder of data fills a machine's memory.
    require_fit(
        {name: (folder / name).stat().st_size for name in names},
        f"leave out by {IGNORED} what the image does not need; what is larger belongs into the store, into a "
        f"package "
        "or into a base image",
    )
    files = Files({name: (folder / name).read_bytes() for name in names})
    _pinned(folder, path, files.contents[path], arguments or {})
    # As git takes a file for executable: what the user of this machine may do would be another image on another.
    executable = [name for name in names if (folder / name).stat().st_mode & stat.S_IXUSR]
    return Context(files, executable, path, dict(arguments or {}))


def _kept(folder: Path, path: str) -> list[str]:
    """The paths of the context's files, sorted."""
    own = folder / f"{path}{IGNORED}"
    place = own if own.is_file() else folder / IGNORED
    try:
        declared = ignore_patterns.patterns(place.read_text(encoding="utf-8")) if place.is_file() else []
    except ValueError as error:
        raise ShippingError(str(place), str(error), "correct the line") from error
    # BuildKit reads the Dockerfile also where it is left out of the context.
    return sorted(name for name in _there(folder) if name == path or not ignore_patterns.left_out(name, declared))


def _there(folder: Path) -> list[str]:
    """The files below ``folder`` that git has or would take; all but git's own where it is in no repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    # A git hook has variables that name its own repository, and would have this one read as if it were that.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment["LC_ALL"] = "C"
    try:
        found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    except FileNotFoundError as error:
        if any(os.path.lexists(each / ".git") for each in (folder.resolve(), *folder.resolve().parents)):
            reason = "it is in a git repository, and there is no git to say what of it would ship"
            raise ShippingError(str(folder), reason, "install git") from error
        return _all(folder)
    said = found.stderr.decode(errors="replace").strip()
    if found.returncode and NO_REPOSITORY in said:
        return _all(folder)
    if found.returncode:
        raise ShippingError(str(folder), f"git cannot say what of it would ship: {said}", "do what git says")
    names = {os.fsdecode(each) for each in found.stdout.split(b"\0") if each}
    # What is in the index and deleted in the checkout is gone.
    return sorted(name for name in names if os.path.lexists(folder / name))


def _all(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = (path.relative_to(folder) for path in paths)
    # Of a repository within it, too: its configuration may hold a token.
    return sorted(name.as_posix() for name in names if ".git" not in name.parts)


def _refuse(folder: Path, names: Sequence[str]) -> None:
    inside = folder.resolve()
    found = ((name, obstacle(folder / name, inside, "context")) for name in names)
    wrong = [f"{name} {why}" for name, why in found if why]
    if wrong:
        raise ShippingError(
            str(folder),
            "; ".join(wrong[:SHOWN]) + (f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""),
            f"put the files themselves there, under names that can be read, or leave them out by {IGNORED}",
        )


def _pinned(folder: Path, path: str, content: bytes, arguments: Mapping[str, str]) -> None:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ShippingError(f"{folder}/{path}", f"it is no text: {error}", "correct the file") from error
    wrong = list(dockerfile.movable(text, arguments))
    if wrong:
        reasons = "; ".join(f"line {each.line}: {each.reason}" for each in wrong[:SHOWN])
        raise ShippingError(f"{folder}/{path}", reasons, wrong[0].fix)
