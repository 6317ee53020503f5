"""What a rehearsal leaves on disk: where its files are, what ran, and who is at it."""

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stacks.rehearsal.records import JobRecord, Phase
from stacks.rehearsal.volumes import remove

FORMAT = 1
"""Version of the state file; another one is not read, and everything runs again."""

OWN = (
    "state.json",
    "store",
    "pods",
    "logs",
    "report.html",
    "outputs.json",
    "predictions.json",
    "contact_sheet.png",
)
"""All that a rehearsal makes in its folder, and all that a fresh start deletes."""


LOCK = "lock"


class BusyError(Exception):
    """Another rehearsal of the stack is running; the text says which."""


class FolderError(Exception):
    """The folder cannot be used; the text says why."""


@dataclass(frozen=True)
class Place:
    """The folder of a stack's rehearsals."""

    folder: Path

    @property
    def store(self) -> Path:
        """The store, which all clusters share."""
        return self.folder / "store"

    @property
    def pods(self) -> Path:
        """Volumes of the pods that run."""
        return self.folder / "pods"

    @property
    def logs(self) -> Path:
        """One log per Job."""
        return self.folder / "logs"

    def log(self, job: str) -> Path:
        """The log of the Job with this logical name."""
        return self.logs / f"{job}.log"

    def clear(self) -> None:
        """Deletes what earlier rehearsals made, and nothing else."""
        for name in OWN:
            path = self.folder / name
            if path.is_symlink() or path.is_file():
                path.unlink()
            else:
                remove(path)

    def create(self) -> None:
        """Makes the folders; pods that a killed rehearsal left are removed."""
        remove(self.pods)
        for path in (self.store, self.pods, self.logs):
            path.mkdir(parents=True, exist_ok=True)


class Lock:
    """Held while a rehearsal of the folder runs; the system releases it however the rehearsal ends."""

    def __init__(self, folder: Path) -> None:
        """Raises BusyError and FolderError."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A folder of ours has the lock; in any other, `logs` or `store` may be somebody's own.
            if not (folder / LOCK).exists() and any(folder.iterdir()):
                raise FolderError(
                    f"{folder} is not empty, and no rehearsal made it; name a new or an empty folder"
                )
            self._file: IO[str] = (folder / LOCK).open("a+", encoding="utf-8")
        except OSError as error:
            raise FolderError(f"{folder} cannot be written to: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            raise BusyError(
                f"another rehearsal (process {holder or 'unknown'}) is at work in {folder}; wait for it or stop it"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    @property
    def descriptor(self) -> int:
        """For a helper that has to outlive this process: the lock is free when both are gone."""
        return self._file.fileno()

    def release(self) -> None:
        """Lets the next one in."""
        self._file.close()


@dataclass
class State:
    """The last run of each Job, by URN."""

    file: Path
    jobs: dict[str, JobRecord]

    @classmethod
    def load(cls, place: Place) -> "State":
        """What the last rehearsal knew. Nothing, where its store is gone or its file cannot be read."""
        file = place.folder / "state.json"
        if not place.store.is_dir():
            return cls(file, {})
        try:
            content: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                return cls(file, {})
            return cls(file, {urn: JobRecord.from_dict(job) for urn, job in content["jobs"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls(file, {})

    def finished(self, urn: str, identity: str) -> JobRecord | None:
        """The last run of the Job, if it succeeded and the Job is still the same."""
        return self._ended(urn, identity, Phase.SUCCEEDED)

    def failed(self, urn: str, identity: str) -> JobRecord | None:
        """The last run of the Job, if it failed and the Job is still the same."""
        return self._ended(urn, identity, Phase.FAILED)

    def _ended(self, urn: str, identity: str, phase: Phase) -> JobRecord | None:
        known = self.jobs.get(urn)
        return known if known is not None and (known.identity, known.phase) == (identity, phase) else None

    def save(self) -> None:
        """Writes the file whole or not at all."""
        content = {"format": FORMAT, "jobs": {urn: job.as_dict() for urn, job in self.jobs.items()}}
        temporary = self.file.with_suffix(".partial")
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.file)


def copy(source: Path, target: Path) -> None:
    """Copies a file, whole or not at all."""
    temporary = target.with_name(f".{target.name}.partial")
    shutil.copyfile(source, temporary)
    temporary.replace(target)
