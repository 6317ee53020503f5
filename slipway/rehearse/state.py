"""The files of a rehearsal: their places, and the record of what ran."""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from slipway import files
from slipway.files import FolderError, remove, replacing
from slipway.infra.kubernetes.run import MANIFEST
from slipway.infra.pipelines.discovery import pipeline_names
from slipway.infra.platform import Resources
from slipway.infra.schema.problems import Problem, key_of
from slipway.infra.schema.request import InputAccess

Seconds = Annotated[float, Field(ge=0, lt=1e10, allow_inf_nan=False)]
"""A time, or a span of it. The bounds are for what is read from a file."""


class Phase(StrEnum):
    """The phase of a Job. In the last six it has ended."""

    WAITING = "waiting"
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not run"
    SKIPPED = "skipped"

    @property
    def over(self) -> bool:
        """Whether the Job has ended."""
        return self not in {Phase.WAITING, Phase.PENDING, Phase.RUNNING}

    @property
    def good(self) -> bool:
        """Whether the Job's results are there."""
        return self in {Phase.SUCCEEDED, Phase.UNCHANGED}


@dataclass
class JobRecord:
    """One Job. Times are seconds since the epoch, amounts those of `Resources`, ``peak_memory`` in MiB.

    ``pending`` is how long it waited for a node. ``requested`` is the whole pod with what a
    cloud injects. ``epochs`` are (done, all) of a training, as its log says, or of another ``unit``. ``workers``
    are the pods that run at once; ``node`` then names all their nodes, and amounts are those of one pod. ``nodes``
    are how many of these work together, each on a node of its own, 0 where they do not, and ``generations`` how
    often they began together. ``index`` is that of the pod that made the Job fail. ``results`` are its own result
    in the store and those that it read: by directory the SHA-256 of the manifest. ``parts`` are seconds of its
    pods by what they went for, where it is measured.
    """

    urn: str
    name: str
    cluster: str = ""
    namespace: str = ""
    job_name: str = ""
    identity: str = ""
    phase: Phase = Phase.WAITING
    pool: str = ""
    node: str = ""
    accelerator: str = ""
    requested: Resources | None = None
    allocatable: Resources | None = None
    memory_limit: int | None = None
    workers: int = 1
    nodes: int = 0
    generations: int = 0
    index: int | None = None
    started: Seconds = 0.0
    finished: Seconds = 0.0
    pending: Seconds = 0.0
    attempts: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    peak_memory: int = 0
    epochs: tuple[int, int] | None = None
    unit: str = "epoch"
    notes: list[str] = field(default_factory=list[str])
    results: dict[str, str] = field(default_factory=dict[str, str])
    parts: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def seconds(self) -> float:
        """For how long the Job's last run ran, without what it waited for."""
        return max(self.finished - self.started - self.pending, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON values."""
        return asdict(self)


class ServicePhase(StrEnum):
    """The phase of a service, which the first Job that names it starts, or of an app, which starts by itself."""

    UNUSED = "not started"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


@dataclass
class ServiceRecord:
    """One service or app. Times are seconds since the epoch, amounts those of `Resources`, ``peak_memory`` in MiB.

    ``name`` is the logical name of its StatefulSet or Deployment, ``starts`` how often its process was started.
    ``requested`` is the whole pod with what a cloud injects. ``replicas`` are its pods in a cluster, of which a
    rehearsal runs one.
    """

    urn: str
    name: str
    cluster: str = ""
    namespace: str = ""
    kind: Literal["service", "app"] = "service"
    phase: ServicePhase = ServicePhase.UNUSED
    pool: str = ""
    node: str = ""
    requested: Resources | None = None
    allocatable: Resources | None = None
    memory_limit: int | None = None
    started: float = 0.0
    finished: float = 0.0
    starts: int = 0
    replicas: int = 1
    peak_memory: int = 0
    reason: str = ""
    notes: list[str] = field(default_factory=list[str])

    @property
    def seconds(self) -> float:
        """How long it ran, from its first start to its end, or until now."""
        return max((self.finished or time.time()) - self.started, 0.0) if self.started else 0.0


Format = Literal[2]
FORMAT: Format = 2
"""Version of the state file; another one is not read, and everything runs again."""

STATE = "state.json"
OUTPUTS = "outputs.json"
REPORT = "report.html"
RESULTS = "results"
"""Copies of results. They stay until others replace them, however a rehearsal ends: they may be the last."""

FOLDERS = ("store", "pods", "logs", "services")
CLEANED = ("pods", "logs", "services")
"""Folders of which a rehearsal deletes or overwrites parts."""

FRESH = (STATE, OUTPUTS, REPORT, *FOLDERS)
"""What a fresh start deletes."""


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
        """One log per Job and service."""
        return self.folder / "logs"

    def log(self, name: str) -> Path:
        """The log of the Job or service with this logical name."""
        return self.logs / f"{name}.log"

    def service(self, name: str) -> Path:
        """The volumes of the service with this logical name; they stay from rehearsal to rehearsal."""
        return self.folder / "services" / name

    def forget_services(self, known: Collection[str]) -> None:
        """Deletes the volumes of services that are not among the ``known``: they are gone from the stack."""
        folder = self.folder / "services"
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name not in known:
                remove(path)

    def cleared(self) -> str:
        """A sentence about what `clear` deletes; empty where there is no file of it."""
        roots = [path for name in FRESH if not (path := self.folder / name).is_symlink()]
        paths = [path for root in roots for path in (root, *root.rglob("*")) if path.is_file()]
        statuses = {path: path.lstat() for path in paths}
        if not statuses:
            return ""
        newest = max(statuses, key=lambda path: statuses[path].st_mtime)
        changed = datetime.fromtimestamp(statuses[newest].st_mtime).astimezone().isoformat(" ", "minutes")
        size = sum(status.st_size for status in statuses.values()) / 2**20
        names = ", ".join(root.name for root in roots if root.exists())
        return (
            f"Deletes {names} in {self.folder}: {len(statuses):,} files, {size:,.1f} MiB; the newest is "
            f"{newest.relative_to(self.folder)}, of {changed}"
        )

    def clear(self) -> None:
        """Deletes what earlier rehearsals made but for the copies of their results, and nothing else."""
        for name in FRESH:
            remove(self.folder / name)

    def create(self) -> list[str]:
        """Makes the folders; pods that a killed rehearsal left are removed.

        Returns a line for each file that stood where a folder belongs, or the other way round, and was renamed; so
        is a link in place of a folder that is cleaned, since what it leads to is somebody else's.
        """
        links = [name for name in CLEANED if (self.folder / name).is_symlink()]
        files_there = [name for name in (*FOLDERS, RESULTS) if (self.folder / name).is_file()]
        folders_there = [name for name in (STATE, OUTPUTS, REPORT) if _is_folder(self.folder / name)]
        renamed = [self._make_way(name) for name in dict.fromkeys([*links, *files_there, *folders_there])]
        remove(self.pods)
        for path in (self.store, self.pods, self.logs):
            path.mkdir(parents=True, exist_ok=True)
        return renamed

    def keep(self, source: Path, job: str, path: str) -> list[str]:
        """Copies the result ``source`` of a Job to where `kept` says, whole or not at all.

        Returns a line for each file or folder that was in the way and was renamed.
        """
        name = kept(job, path)
        above = [parent.as_posix() for parent in reversed(PurePosixPath(name).parents)]
        renamed = [self._make_way(parent) for parent in above if (self.folder / parent).is_file()]
        target = self.folder / name
        if _is_folder(target):
            renamed.append(self._make_way(name))
        with files.replacing(target) as temporary:
            shutil.copyfile(source, temporary)
        return renamed

    def copies(self) -> list[str]:
        """The copies of results that are there, relative to the folder."""
        paths = (self.folder / RESULTS).rglob("*")
        return sorted(path.relative_to(self.folder).as_posix() for path in paths if path.is_file())

    def _make_way(self, name: str) -> str:
        path = self.folder / name
        kind, wanted = ("folder", "file") if _is_folder(path) else ("file", "folder")
        kind = "link" if path.is_symlink() else kind
        free = next(
            candidate
            for number in itertools.count(1)
            if not os.path.lexists(candidate := path.with_name(f"{path.name}.{number}"))
        )
        path.rename(free)
        return f"{path} is a {kind} where a rehearsal keeps a {wanted}; it is now {free.name}"


def _is_folder(path: Path) -> bool:
    """Whether a file cannot take its place, as it can that of a link."""
    return path.is_dir() and not path.is_symlink()


@dataclass
class _Content:
    """The state file."""

    format: Format
    jobs: dict[str, JobRecord]


@cache
def _reader() -> TypeAdapter[_Content]:
    return TypeAdapter(_Content)


@dataclass
class State:
    """The last run of each Job, by URN. ``problem`` says why what an earlier rehearsal left cannot be used."""

    file: Path
    jobs: dict[str, JobRecord]
    problem: str = ""

    @classmethod
    def load(cls, place: Place) -> "State":
        """The state that the last rehearsal saved; empty where its store is gone or the file cannot be read."""
        file = place.folder / STATE
        if not place.store.is_dir():
            return cls(file, {})
        try:
            content = _reader().validate_json(file.read_bytes())
        except FileNotFoundError:
            return cls(file, {})
        except OSError as error:
            return cls(file, {}, f"{file} cannot be read: {error.strerror}")
        except ValidationError as error:
            older = error.errors()[0]["loc"] == ("format",)
            reason = "of another version of Slipway" if older else f"damaged: {first_problem(error)}"
            return cls(file, {}, f"{file} is {reason}")
        if other := [urn for urn, job in content.jobs.items() if job.urn != urn]:
            return cls(file, {}, f"{file} is damaged: {other[0]} has the record of another Job")
        return cls(file, content.jobs)

    def finished(self, urn: str, identity: str) -> JobRecord | None:
        """The last run of the Job, if it succeeded and the Job is still the same."""
        return self._find_ended(urn, identity, Phase.SUCCEEDED)

    def failed(self, urn: str, identity: str) -> JobRecord | None:
        """The last run of the Job, if it failed and the Job is still the same."""
        return self._find_ended(urn, identity, Phase.FAILED)

    def _find_ended(self, urn: str, identity: str, phase: Phase) -> JobRecord | None:
        known = self.jobs.get(urn)
        return known if known is not None and (known.identity, known.phase) == (identity, phase) else None

    def save(self) -> None:
        """Writes the file whole or not at all."""
        content = {"format": FORMAT, "jobs": {urn: job.as_dict() for urn, job in self.jobs.items()}}
        files.write(self.file, json.dumps(content, indent=1) + "\n")


def first_problem(error: ValidationError) -> str:
    """The first thing that a model refused: where it stands in the document, and why."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def kept(job: str, path: str = "") -> str:
    """Where the copy of a Job's result is, or its folder of copies, relative to the stack's folder."""
    return str(PurePosixPath(RESULTS, job, path))


CHECKER = "slipway.runtime.store"
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
        paths = {str(folder / directory): directory for directory in sorted(directories)}
        done = subprocess.run(
            [sys.executable, "-m", CHECKER, *paths], cwd=root, check=False, capture_output=True, text=True
        )
        if done.returncode not in {WHOLE, NOT_WHOLE}:
            raise FolderError(f"the results in {folder} cannot be checked: {done.stderr.strip()}")
        return cls(folder, {paths[path]: reason for path, reason in json.loads(done.stdout).items()})

    def is_empty(self, directory: str) -> bool:
        """Whether the result in ``directory`` is whole and has no files."""
        manifest = self.folder / directory / MANIFEST
        with contextlib.suppress(OSError, ValueError, KeyError):
            return json.loads(manifest.read_bytes())["files"] == {}
        return False

    def published(self, directories: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of each manifest in ``directories``, by its directory. A Job has just found them whole."""
        manifests = {name: self.folder / name / MANIFEST for name in directories}
        digests = {name: _digest(manifest) for name, manifest in manifests.items() if manifest.is_file()}
        with self._lock:
            for directory in digests:
                self.damaged.pop(directory, None)
        return digests

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


# The store of a rehearsal: a folder, to which files of this machine are copied before the Jobs run.
#
# Somebody copied those files to a real store; `slipway:rehearsal.store_files` names them.


KEY = ("rehearsal", "store_files")


@dataclass(frozen=True)
class StoreFolder:
    """Fulfils `slipway.infra.emulator.StoreFiles`."""

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
        paths = (path.relative_to(root).as_posix() for path in folder.rglob("*") if path.is_file())
        return sorted(name for name in paths if name.startswith(prefix))


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
    wrong: list[Problem] = []
    for target, path in files.items():
        if why := _obstacle(target, source_of(path, root), taken):
            wrong.append(Problem(key_of((*KEY, target)), path, *why))
    return wrong


def input_problems(inputs: Iterable[InputAccess]) -> list[Problem]:
    """What a rehearsal lacks of ``inputs``, which are in buckets: folders of its store that stand in for them."""
    problems: list[Problem] = []
    for access in inputs:
        name, key = access.data.name, key_of((KEY[0], *access.at))
        fix = f'write `{key}: "{{store}}/{name}"`, and in `{key_of(KEY)}` what is copied to `{name}`'
        problems.append(Problem(key_of(access.at), access.data.url, "a rehearsal has no bucket", fix))
    return problems


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
    lines: list[str] = []
    for target, path in files.items():
        source = source_of(path, root)
        if store.resolve().is_relative_to(source.resolve()):
            raise FolderError(f"{source} holds the store {store} itself, into which it is to be copied")
        copied = 0
        for file in _files(source):
            copied += _copy(file, store / target / file.relative_to(source) if source.is_dir() else store / target)
        if copied:
            lines.append(f"copied {source} to {target} of the store ({copied} file{'s' if copied != 1 else ''})")
    return lines


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
