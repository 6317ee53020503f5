"""With which packages the base of a project is evaluated: with those that its own requirements.txt pins.

A project has the version of Slipway, and of the providers, in its requirements.txt. Where the base pins others
than are installed, its stacks are evaluated by these, in an environment on top of the one at hand: it has what the
base pins differently, and all else from here. It is kept with those of rehearsals, under a digest of what it has.
"""

import re
import site
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from slipway.evaluated.model import PackageVersions
from slipway.infra.places import DISTRIBUTION, LIBRARY, PACKAGE
from slipway.infra.schema.requirement_files import (
    REQUIREMENTS,
    Entry,
    RequirementFile,
    RequirementFileError,
    parse,
    read,
    read_project,
)
from slipway.infra.schema.uv import UvError, compile_pins
from slipway.preview.revisions import Checkout, TreeError
from slipway.rehearse.machine.environments import (
    ENVIRONMENTS,
    Environment,
    EnvironmentFailedError,
    Environments,
    Software,
    closure,
)
from slipway.rehearse.machine.processes import Reaper, Stop

REHEARSAL = "rehearse"
"""The extra of the package with what only rehearsals import: TensorFlow, which has more than a gigabyte."""

OF_INDEX = re.compile(
    r"(-f|--find-links|-i|--index-url|--extra-index-url|--no-index|--pre|--no-binary|--only-binary|--trusted-host)"
    r"(?:[= ]\s*(\S+))?"
)
"""Options that say where packages are, and which of their files are taken."""

Note = Callable[[str], object]


@dataclass(frozen=True)
class BaseSoftware:
    """What evaluates the base: the interpreter ``python``, None for the one at hand.

    ``versions`` are those of the packages in which the two differ.
    """

    python: Path | None = None
    versions: Sequence[PackageVersions] = ()


AT_HAND = BaseSoftware()


def provide(checkout: Checkout, project: Path, note: Note) -> BaseSoftware:
    """What evaluates the base of ``project``, made where it is not there yet.

    ``note`` gets what the user should know meanwhile. Raises TreeError where the base cannot be evaluated by its
    own version, and where this revision would not be either, because what it pins is not installed.
    """
    try:
        here, base = read_project(project), read_project(checkout.path)
    except RequirementFileError as error:
        raise TreeError(str(error)) from error
    if (checkout.path / PACKAGE).is_dir() or not (here.of(DISTRIBUTION) or base.of(DISTRIBUTION)):
        return AT_HAND
    if (LIBRARY / "pyproject.toml").is_file():
        note(f"both revisions are evaluated by the checkout {LIBRARY}, whatever their {REQUIREMENTS} pins")
        return AT_HAND
    if missing := [entry for entry in here.entries if _matters(entry) and not entry.met]:
        raise TreeError(_not_installed(missing))
    if not any(entry.version or entry.address for entry in base.of(DISTRIBUTION)):
        installed = metadata.version(DISTRIBUTION)
        unpinned = f"{REQUIREMENTS} of {checkout.title} pins no {DISTRIBUTION}"
        note(f"{unpinned}: the installed {installed} evaluates it, too")
        return AT_HAND
    if _is_met(base):
        return AT_HAND
    return _make(checkout, project, base, note)


def _matters(entry: Entry) -> bool:
    """Whether it is a package that decides what a stack declares: Slipway, Pulumi's SDK, or one of a provider."""
    return entry.applies and (entry.name == DISTRIBUTION or entry.name.split("-")[0] == "pulumi")


def _is_met(file: RequirementFile) -> bool:
    return all(entry.met for entry in file.entries if _matters(entry))


def _not_installed(missing: Sequence[Entry]) -> str:
    said = ", ".join(f"{_named(entry)} (installed: {entry.installed or 'none'})" for entry in missing)
    return (
        f"this revision would not be evaluated by what its {REQUIREMENTS} pins: {said}. Install it: {installing()}"
    )


def installing() -> str:
    """The command that installs what requirements.txt pins into the environment at hand."""
    program = Path(sys.executable)
    shown = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    # uv is always there, and asks the same index that the file was compiled with: it does not read pip's settings.
    return f"{shown} -m uv pip install -r {REQUIREMENTS}"


def _make(checkout: Checkout, project: Path, base: RequirementFile, note: Note) -> BaseSoftware:
    """What evaluates the base, with all that ``base`` pins and is not installed."""
    folders = (project, checkout.path)
    options = [
        _absolute(option[1], option[2] or "", folders)
        for entry in base.entries
        if not entry.name and (option := OF_INDEX.fullmatch(entry.words))
    ]
    pins = [replace(entry, text=_absolute_wheel(entry, folders)) for entry in base.entries if entry.name]
    if not all(entry.hashed for entry in pins):
        # It need not list what those that it has depend on.
        pins = _resolve(checkout, [*options, *(f"-c {path}" for path in base.constraints)], pins)
    heavy = _only_rehearsed()
    lacking = [entry for entry in pins if entry.applies and not entry.met and entry.name not in heavy]
    changed = [entry for entry in lacking if _matters(entry)]
    if not changed:
        return AT_HAND
    others = len(lacking) - len(changed)
    more = f" and {others} other{'s' if others > 1 else ''}" if others else ""
    note(f"installing what evaluates {checkout.title}: {', '.join(map(_named, changed))}{more}")
    lines = "".join(f"{words}\n" for words in [*options, *(entry.words for entry in lacking)])
    environment = _install(checkout, project, lines, lacking)
    provided = {
        str(canonicalize_name(one.name)): one.version
        for one in metadata.distributions(path=[str(environment.packages)])
    }
    versions = [
        PackageVersions(package=entry.name, base=provided[entry.name], here=entry.installed) for entry in changed
    ]
    return BaseSoftware(environment.bin / "python", versions)


def _named(entry: Entry) -> str:
    return f"{entry.name} {entry.version or (entry.requirement and entry.requirement.specifier) or entry.address}"


def _install(checkout: Checkout, project: Path, lines: str, lacking: Sequence[Entry]) -> Environment:
    """The environment with what ``lines`` ask for."""
    hashed = all(entry.hashed for entry in lacking)
    reaper = Reaper()
    try:
        with tempfile.TemporaryDirectory() as folder:
            lock = Path(folder) / REQUIREMENTS
            lock.write_text(lines, encoding="utf-8")
            environments = Environments((project / ENVIRONMENTS).resolve(), reaper)
            software = Software((lock,), over=tuple(_package_folders()), hashed=hashed)
            return environments.provide(software, Stop(), lambda _: None)
    except EnvironmentFailedError as error:
        raise TreeError(_not_to_be_had(checkout, lacking, str(error))) from error
    finally:
        reaper.close()


def _not_to_be_had(checkout: Checkout, wanted: Sequence[Entry], reason: str) -> str:
    changed = [entry for entry in wanted if _matters(entry)]
    said = ", ".join(map(_named, changed))
    place = next((entry.address for entry in changed if "://" in entry.address), "")
    index = "the package index reachable, or the wheel in a folder: `--find-links <folder>` in "
    fix = f"{place} reachable" if place else f"{index}{REQUIREMENTS}, or the variable UV_FIND_LINKS"
    return (
        f"{checkout.title} has to be evaluated by {said}, which cannot be installed: {reason}. Have {fix}. To see "
        "your other changes alone, commit the update first and name that commit as the base"
    )


def _resolve(checkout: Checkout, options: Sequence[str], pins: Sequence[Entry]) -> Sequence[Entry]:
    """What is installed where a file without digests asks for ``pins``: these and what they depend on.

    What is installed here stays as far as they take it.
    """
    lines = [*options, *(entry.words for entry in pins)]
    here = [f"{package.name}=={package.version}" for package in metadata.distributions()]
    try:
        # In the root folder: uv would take up the settings of a project around it.
        text = compile_pins(lines, "--no-header", folder=Path("/"), preferred=here)
    except UvError as error:
        raise TreeError(_not_to_be_had(checkout, pins, str(error))) from error
    return [entry for entry in read(text).entries if entry.name]


def _absolute(option: str, value: str, folders: Sequence[Path]) -> str:
    """An option of a requirements file, with an absolute path in the place of one below any of ``folders``."""
    return f"{option} {_path(value, folders) if value and '://' not in value else value}".strip()


def _absolute_wheel(entry: Entry, folders: Sequence[Path]) -> str:
    """The words of a requirement, with an absolute path in the place of a wheel's below any of ``folders``."""
    if not entry.address or "://" in entry.address:
        return entry.words
    return entry.words.replace(entry.address, _path(entry.address, folders), 1)


def _path(relative: str, folders: Sequence[Path]) -> str:
    # The user's own file, of which the base may have no copy, does not change its place with every preview.
    return str(next((folder / relative for folder in folders if (folder / relative).exists()), relative))


def _package_folders() -> Iterator[Path]:
    """The folders in which the Python at hand has its packages."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return (Path(folder) for folder in folders if Path(folder).is_dir())


def _only_rehearsed() -> frozenset[str]:
    """The packages that are here for rehearsals alone. An evaluation imports none of them."""
    rehearsed: list[str] = []
    others: list[str] = []
    for line in metadata.requires(DISTRIBUTION) or ():
        requirement = parse(line)
        marker = str(requirement.marker or "")
        (rehearsed if f'extra == "{REHEARSAL}"' in marker else others).append(canonicalize_name(requirement.name))
    return frozenset({*rehearsed, *closure(rehearsed)} - closure(others).keys())
