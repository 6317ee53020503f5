"""The store of a rehearsal, a folder, and the files of this machine that it is given before the Jobs run.

A real store has those files because somebody copied them there; `slipway:rehearsal.store_files` names them.
"""

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.pipelines.discovery import pipeline_names
from infra.schema.problems import Problem, key_of
from offline.files import replacing
from offline.rehearsal.state import FolderError

KEY = ("rehearsal", "store_files")


@dataclass(frozen=True)
class StoreFolder:
    """Fulfils `infra.emulator.StoreFiles`."""

    folder: Path

    def read_text(self, path: str) -> str:
        """The file's text; raises FileNotFoundError where there is none, or it would lie outside."""
        file = (self.folder / path).resolve()
        if not file.is_relative_to(self.folder.resolve()):
            raise FileNotFoundError(path)
        return file.read_text(encoding="utf-8")

    def names(self, prefix: str) -> Sequence[str]:
        """Paths of the files whose path begins with ``prefix``, sorted."""
        root = self.folder.resolve()
        folder = (root / prefix.rpartition("/")[0]).resolve()
        if not folder.is_relative_to(root):
            return []
        found = (path.relative_to(root).as_posix() for path in folder.rglob("*") if path.is_file())
        return sorted(name for name in found if name.startswith(prefix))


def source_of(path: str, root: Path) -> Path:
    """What ``path`` names on this machine; a relative one is below the repository's ``root``."""
    try:
        return root / Path(path).expanduser()
    except RuntimeError:
        # `~name` of somebody whom this machine does not know.
        return root / path


def problems(files: Mapping[str, str], root: Path, pipelines: Iterable[str]) -> list[Problem]:
    """What keeps ``files``, paths of this machine by their paths in the store, from being copied.

    ``pipelines`` are the names of the stack's pipelines, each of which has a folder of the store.
    """
    taken = {*pipelines, *pipeline_names()}
    found: list[Problem] = []
    for target, path in files.items():
        if why := _obstacle(target, source_of(path, root), taken):
            found.append(Problem(key_of((*KEY, target)), path, *why))
    return found


def _obstacle(target: str, source: Path, taken: Collection[str]) -> tuple[str, str] | None:
    name = target.split("/", maxsplit=1)[0]
    if name in taken:
        return (
            f"`{name}/` of the store holds the results of the pipeline `{name}`",
            "name another folder of the store",
        )
    if not source.exists():
        return f"there is no {source} on this machine", "correct the path, or put the files there"
    if not source.is_file() and not source.is_dir():
        return f"{source} is neither a file nor a folder", "name a file or a folder"
    unreadable = next((file for file in _files(source) if not os.access(file, os.R_OK)), None)
    if unreadable is not None:
        return f"{unreadable} cannot be read", "correct its permissions, or where its link leads"
    if not any(_files(source)):
        return f"there is no file in {source}", "put the files there"
    return None


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    for folder, _, names in os.walk(source):
        yield from (Path(folder) / name for name in sorted(names))


def give(files: Mapping[str, str], store: Path, root: Path) -> list[str]:
    """Copies ``files`` into ``store``, each whole or not at all, and says which; what is there already stays.

    Raises FolderError.
    """
    said: list[str] = []
    for target, path in files.items():
        source = source_of(path, root)
        if store.resolve().is_relative_to(source.resolve()):
            raise FolderError(f"{source} holds the store {store} itself, into which it is to be copied")
        copied = 0
        for file in _files(source):
            copied += _copy(file, store / target / file.relative_to(source) if source.is_dir() else store / target)
        if copied:
            said.append(f"copied {source} to {target} of the store ({copied} file{'s' if copied != 1 else ''})")
    return said


def _copy(source: Path, target: Path) -> bool:
    """Copies a file unless it is there with the same size and time; returns whether it did."""
    try:
        have, want = (target.stat() if target.is_file() else None), source.stat()
        if have and (have.st_size, have.st_mtime_ns) == (want.st_size, want.st_mtime_ns):
            return False
        with replacing(target) as temporary:
            shutil.copy2(source, temporary)
    except OSError as error:
        raise FolderError(f"{source} cannot be copied to {target}: {error.strerror}") from error
    return True
