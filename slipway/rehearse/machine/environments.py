"""Virtual environments for steps that run a program of their own: one for each lock file, created once.

They are below ``build/environments/``, outside the folders of rehearsals, so that ``FRESH=1`` keeps them.
"""

import contextlib
import csv
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from slipway import files
from slipway.infra.places import DISTRIBUTION
from slipway.infra.schema.requirement_files import parse, read
from slipway.infra.schema.uv import reason
from slipway.rehearse.machine import processes
from slipway.rehearse.machine.processes import CancelledError, Launch, Reaper, Stop

TENSORFLOW = ("tensorflow", "tensorflow-cpu")
"""The distributions that are TensorFlow; the project installs one of them, as the platform has it."""


REHEARSING = f"{DISTRIBUTION}[rehearse]"
"""What a project asks for that rehearses steps in TensorFlow's image."""


def closure(roots: Iterable[str]) -> Mapping[str, metadata.Distribution]:
    """The ``roots`` that are installed, with all that they depend on, by normalized name."""
    return _closure(tuple(roots))


@cache
def _closure(roots: Sequence[str]) -> Mapping[str, metadata.Distribution]:
    distributions: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [(canonicalize_name(root), "") for root in roots]
    while left:
        name, extra = left.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            distribution = distributions.setdefault(name, metadata.distribution(name))
        except metadata.PackageNotFoundError:
            continue
        for line in distribution.requires or ():
            needed = parse(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                left += [(canonicalize_name(needed.name), wanted_extra) for wanted_extra in ("", *needed.extras)]
    return dict(sorted(distributions.items()))


def link(packages: Mapping[str, metadata.Distribution], folder: Path) -> None:
    """Fills ``folder``, which is new, with links to the files of ``packages``, so that Python finds these there.

    A folder with files of these packages alone becomes one link. A folder that other packages share, such as that
    of a namespace package, is created with links to the files of these packages: Python finds nothing of the
    others.
    """
    folder.mkdir(parents=True)
    for site in {Path(str(package.locate_file(""))) for package in packages.values()}:
        paths = [file for package in packages.values() for file in _package_files(package)]
        tops = {file.partition("/")[0] for file in paths}
        others = {PurePosixPath()}
        for distribution in metadata.distributions(path=[str(site)]):
            if canonicalize_name(distribution.name) not in packages:
                shared = (file for file in _package_files(distribution) if file.partition("/")[0] in tops)
                others.update(parent for file in shared for parent in PurePosixPath(file).parents)
        linked: set[PurePosixPath] = set()
        for file in map(PurePosixPath, paths):
            # The outermost folder above the file that is theirs alone; the file itself where there is none.
            whole = next((path for path in [*reversed(file.parents), file] if path not in others), file)
            if whole in linked or not (site / whole).exists():
                continue
            linked.add(whole)
            target = folder / whole
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(site / whole)


def has_all_of(lock: Path) -> bool:
    """Whether the project's own environment has every package that ``lock`` pins, at its version."""
    try:
        entries = read(lock.read_text(encoding="utf-8")).entries
    except OSError:
        return False
    return all(entry.name and (entry.met or not entry.applies) for entry in entries)


def _package_files(distribution: metadata.Distribution) -> Iterator[str]:
    """The files that a distribution has below site-packages."""
    # `Distribution.files` makes an object with hash and size of each of TensorFlow's 20,000.
    for path, *_ in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        if not path.startswith(("../", "/")):
            yield path


ENVIRONMENTS = Path("build", "environments")
"""Where the environments are, of all stacks and of earlier versions of Slipway, below the project."""

FORMAT = 4
"""Part of every digest. Raise it when environments are made in another way."""

WHOLE = "whole.json"
"""The file of an environment that is written last: it has a digest of the others. Its time of modification is that
of the last use."""

_NAME = re.compile(r"[0-9a-f]{16}")
"""What environments are called."""

KEPT = 10
RECENT = 24 * 3600.0
"""How many environments are kept. Beyond these, one goes that no rehearsal used for this many seconds."""

INSTALLING = ("pip", "sync", "--no-progress")
"""How uv installs a lock file: these packages, and nothing that they depend on."""

COMPILING = ("-m", "compileall", "-qq", "-j", "0", "-x")
"""How Python compiles what is installed. Pods write no bytecode, and every one of them would compile it anew.

uv's own `--compile-bytecode` leaves nothing out (uv 0.13, November 2026). The packages' own tests, which no
program imports, take half of the time.
"""

OWN_TESTS = r"/.*/tests?/"
"""What is not compiled, below the folder of the packages."""

USER_PACKAGES = (
    "import os, site, sys; site.PREFIXES[:] = [prefix for prefix in site.PREFIXES if prefix == sys.prefix]; "
    "own = site.getusersitepackages(); sys.flags.no_user_site or os.path.isdir(own) and site.addsitedir(own)\n"
)
"""A line of a `.pth` file, which Python runs when it starts: as in an image, what a program installs for its user
comes before what the image has. Packages of the machine's Python, to which pyvenv.cfg opens the way, stay out.

pip installs for its user where it may not write to the other packages, and in a virtual environment only where its
file has `include-system-site-packages = true` (pip 23.2 to 24.2 with Python 3.11 to 3.13, tried November 2026).
"""

PROGRAM = """#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys
from {module} import {name}
sys.exit({function}())
"""
"""A program of a package. The shell starts Python: a line `#!` takes no path that is long or has spaces."""

PIP = ("pip", "pip3")


class EnvironmentFailedError(Exception):
    """An environment could not be made; the text says why, and what to do."""


@dataclass(frozen=True)
class Software:
    """What a step's container has beside its own files: pip, and what the lock files ``locks`` pin.

    With ``tensorflow`` also TensorFlow and what it depends on, as TensorFlow's image has them.

    With ``over`` it is no container's: it has the packages in these folders, as far as the lock files pin no other
    version, and nothing is compiled beforehand. ``hashed``: all that the lock files pin has digests.
    """

    locks: tuple[Path, ...] = ()
    tensorflow: bool = False
    over: tuple[Path, ...] = ()
    hashed: bool = True

    def image_packages(self) -> Mapping[str, Distribution]:
        """What the image has, as far as the project's own environment has it."""
        if self.over:
            return {}
        return closure(("pip", *TENSORFLOW) if self.tensorflow else ("pip",))

    def __str__(self) -> str:
        parts = [lock.name for lock in self.locks]
        if self.tensorflow:
            lacks = self.image_packages().keys().isdisjoint(TENSORFLOW)
            parts.append(f"no TensorFlow ({REHEARSING} brings it)" if lacks else "TensorFlow's packages")
        return " and ".join(parts) or "no packages"


@dataclass(frozen=True)
class Environment:
    """A virtual environment. ``made`` says that this call made it, ``seconds`` how long that took."""

    folder: Path
    made: bool = False
    seconds: float = 0.0

    @property
    def bin(self) -> Path:
        """The folder with ``python`` and the programs of its packages."""
        return self.folder / "bin"

    @property
    def packages(self) -> Path:
        """The folder in which its Python finds packages."""
        return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(self.folder)}))


@dataclass(frozen=True)
class Environments:
    """The environments in ``folder``, which several rehearsals may use at a time."""

    folder: Path
    reaper: Reaper
    poll: float = 0.1
    """Seconds between two looks at whether another one has finished."""

    def provide(self, software: Software, stop: Stop, write: Callable[[bytes], None]) -> Environment:
        """The environment with ``software``, made where it is not there; ``write`` gets what uv says.

        One at a time is made. Raises EnvironmentFailedError, and CancelledError where ``stop`` is requested.
        """
        began = time.monotonic()
        folder = self.folder / self._name(software)
        if self._mark_used(folder):
            return Environment(folder)
        with self._alone(stop):
            if self._mark_used(folder):
                return Environment(folder)
            # What a killed rehearsal left is in no known state, and neither is what somebody changed.
            shutil.rmtree(folder, ignore_errors=True)
            self._make(software, folder, stop, write)
            self._clean(folder)
        return Environment(folder, made=True, seconds=time.monotonic() - began)

    def known(self, software: Software) -> Environment | None:
        """The environment with ``software`` where it is there already."""
        folder = self.folder / self._name(software)
        return Environment(folder) if _is_whole(folder) else None

    def _name(self, software: Software) -> str:
        """Changes with everything that decides the content of the environment and whether it works there."""
        image = software.image_packages()
        decisive = {
            "format": FORMAT,
            "folder": str(self.folder),
            "python": [sys.version, sys.base_prefix],
            "image": [
                sysconfig.get_path("purelib"),
                {name: distribution.version for name, distribution in image.items()},
            ],
            "locks": [_content(lock) for lock in software.locks],
            **({"over": [str(folder) for folder in software.over]} if software.over else {}),
        }
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]

    def _mark_used(self, folder: Path) -> bool:
        """Whether it is there as it was made; notes that it is used."""
        if not _is_whole(folder):
            return False
        try:
            os.utime(folder / WHOLE)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def _alone(self, stop: Stop) -> Generator[None]:
        """Waits until nobody else makes or deletes an environment. The system ends a killed one's turn."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            while True:
                if stop.requested:
                    raise CancelledError
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(self.poll)
            yield

    def _make(self, software: Software, folder: Path, stop: Stop, write: Callable[[bytes], None]) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        uv = shutil.which("uv", path=path)
        if uv is None:
            raise EnvironmentFailedError(
                "uv is not in the project's environment; install the project's requirements again"
            )
        self._uv([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], stop, write)
        site = next(folder.glob("lib/python*/site-packages"))
        if software.locks:
            python = str(folder / "bin" / "python")
            # Without files of the project's: their settings are for its own lock files.
            words = [*INSTALLING, *(["--require-hashes"] if software.hashed else [])]
            self._uv([uv, *words, "--python", python, *map(str, software.locks)], stop, write)
            if not software.over:
                self._compile(python, site, stop)
        if software.over:
            # As Python adds a folder of packages itself: those that are linked there by `.pth` files come with it.
            lines = [f"import site; site.addsitedir({str(below)!r})\n" for below in software.over]
            (site / "over.pth").write_text("".join(lines), encoding="utf-8")
        image, packages = folder / "image", software.image_packages()
        link(packages, image)
        # Comes last in Python's path, so that a package of the lock file hides the image's, as on a cluster.
        (site / "image.pth").write_text(f"{USER_PACKAGES}{image}\n", encoding="utf-8")
        if not software.over:
            _write_programs(packages.values(), folder / "bin")
            settings = (folder / "pyvenv.cfg").read_text(encoding="utf-8")
            settings = re.sub(r"(?m)^(include-system-site-packages = )false$", r"\1true", settings)
            (folder / "pyvenv.cfg").write_text(settings, encoding="utf-8")
        files.write(folder / WHOLE, json.dumps({"has": str(software), "files": _files(folder)}) + "\n")

    def _uv(self, command: Sequence[str], stop: Stop, write: Callable[[bytes], None]) -> None:
        output: list[str] = []

        def note(line: bytes) -> None:
            output.append(line.decode(errors="replace").rstrip())
            write(line)

        if code := self._run(command, stop, note):
            raise EnvironmentFailedError(reason(output) or f"uv ended with exit code {code}")

    def _compile(self, python: str, site: Path, stop: Stop) -> None:
        """A file that Python cannot compile, such as a template, is left as it is."""
        self._run([python, *COMPILING, re.escape(str(site)) + OWN_TESTS, str(site)], stop, lambda _: None)

    def _run(self, command: Sequence[str], stop: Stop, write: Callable[[bytes], None]) -> int:
        """The exit code of the command. Raises CancelledError."""
        # All that says where packages are and how to reach them, of which nobody has a list.
        ours = ("PYTHON", "SLIPWAY_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        # Started in the root folder: below the repository uv would take up the settings in pyproject.toml.
        launch = Launch(command, {**environment, "LANG": "C.UTF-8"}, Path(self.folder.anchor))
        ended = processes.run(launch, self.reaper, _AtOnce(stop), write)
        if stop.requested:
            raise CancelledError
        return ended.code

    def _clean(self, newest: Path) -> None:
        """Deletes environments that nobody used of late, and what killed rehearsals left of others.

        Others may keep folders beside them: those here are called by a digest, and have what uv writes first.
        """
        others = [
            path
            for path in self.folder.iterdir()
            if path != newest and _NAME.fullmatch(path.name) and (path / "pyvenv.cfg").is_file()
            if not path.is_symlink()
        ]
        used = {other: (other / WHOLE).stat().st_mtime for other in others if (other / WHOLE).is_file()}
        oldest = sorted(used, key=lambda kept: used[kept], reverse=True)[KEPT - 1 :]
        for other in others:
            if other not in used or (other in oldest and time.time() - used[other] > RECENT):
                # Without its mark first: what is half deleted counts as not there.
                (other / WHOLE).unlink(missing_ok=True)
                shutil.rmtree(other, ignore_errors=True)


def _write_programs(packages: Iterable[Distribution], folder: Path) -> None:
    """Writes into ``folder`` the programs of ``packages``, and pip: the machine's are of another Python."""
    entries = [entry for package in packages for entry in package.entry_points.select(group="console_scripts")]
    programs = {entry.name: (entry.module, entry.attr) for entry in entries}
    for name, (module, function) in {**dict.fromkeys(PIP, ("pip._internal.cli.main", "main")), **programs}.items():
        if not (program := folder / name).exists():
            python, imported = shlex.quote(str(folder / "python3")), function.partition(".")[0]
            text = PROGRAM.format(python=python, module=module, name=imported, function=function)
            program.write_text(text, encoding="utf-8")
            program.chmod(0o755)


class _AtOnce(Stop):
    """Ends a process that has nothing to save with the request, without the grace that a Job has."""

    def __init__(self, of_job: Stop) -> None:
        super().__init__()
        self._of_job = of_job

    @property
    def requested(self) -> bool:
        return self._of_job.requested


def _is_whole(folder: Path) -> bool:
    """Whether all files of an environment are there, unchanged."""
    try:
        return json.loads((folder / WHOLE).read_bytes())["files"] == _files(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _files(folder: Path) -> str:
    """A digest of the names, sizes and times of change of all files below ``folder``, compiled ones excepted.

    Their contents are some gigabytes, which would take longer to read than to make anew.
    """
    digest = hashlib.sha256()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(entry for entry in folders if entry != "__pycache__")
        links = [entry for entry in folders if os.path.islink(os.path.join(place, entry))]  # noqa: PTH114, PTH118
        for name in sorted((*names, *links)):
            path = os.path.join(place, name)  # noqa: PTH118
            if path != str(folder / WHOLE):
                status = os.lstat(path)
                digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _content(lock: Path) -> str:
    """The digest of a lock file. Raises EnvironmentFailedError."""
    try:
        # As it ships to pods, whatever ends its lines on this machine.
        return hashlib.sha256(lock.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
    except OSError as error:
        raise EnvironmentFailedError(f"{lock} cannot be read: {error.strerror}") from error
