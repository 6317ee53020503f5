"""Checks that the results of Jobs are still in the store and unchanged."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.kubernetes.run_records import MANIFEST
from offline.rehearsal.state import FolderError

CHECKER = "workloads.runtime.store"
"""The module that reads manifests, for the pods too. It runs as a process, as pods run it."""

WHOLE, NOT_WHOLE = 0, 4
"""The checker's exit codes where it could look at everything."""


@dataclass
class Results:
    """The results in the store below ``folder``. Usable from several threads.

    ``damaged`` has a reason for each directory, relative to ``folder``, that holds no whole result.
    """

    folder: Path
    damaged: dict[str, str] = field(default_factory=dict[str, str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def checked(cls, folder: Path, directories: Collection[str], root: Path) -> "Results":
        """Reads every file of ``directories``, relative to ``folder``, once. ``root`` is the repository.

        Raises FolderError where the store cannot be read.
        """
        if not directories:
            return cls(folder)
        paths = {str(folder / each): each for each in sorted(directories)}
        done = subprocess.run(
            [sys.executable, "-m", CHECKER, *paths], cwd=root, check=False, capture_output=True, text=True
        )
        if done.returncode not in {WHOLE, NOT_WHOLE}:
            raise FolderError(f"the results in {folder} cannot be checked: {done.stderr.strip()}")
        return cls(folder, {paths[path]: reason for path, reason in json.loads(done.stdout).items()})

    def published(self, directories: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of each manifest in ``directories``, by its directory. A Job has just found them whole."""
        manifests = {each: self.folder / each / MANIFEST for each in directories}
        found = {each: _digest(manifest) for each, manifest in manifests.items() if manifest.is_file()}
        with self._lock:
            for directory in found:
                self.damaged.pop(directory, None)
        return found

    def changed(self, recorded: Mapping[str, str]) -> str:
        """What has changed since the results in ``recorded`` were published; empty where nothing has."""
        for directory, digest in recorded.items():
            if reason := self.damaged.get(directory):
                return f"{directory}: {reason}"
            try:
                now = _digest(self.folder / directory / MANIFEST)
            except OSError:
                return f"{directory} has no {MANIFEST}"
            if now != digest:
                return f"{directory} has other results than before"
        return ""


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
