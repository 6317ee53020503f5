"""`slipway update`: another version of the package, with all that it needs, in a project's requirements.txt."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version
from rich.text import Text

from slipway.infra.exits import Exit, report_error
from slipway.infra.places import DISTRIBUTION, LIBRARY, PACKAGE, PROJECT
from slipway.infra.schema.requirement_files import (
    REQUIREMENTS,
    Entry,
    RequirementFile,
    RequirementFileError,
    read,
    read_project,
)
from slipway.infra.schema.uv import BY_DIGESTS, FOR_ALL_PLATFORMS, UvError, compile_pins, install_alone
from slipway.infra.terminal import new_console
from slipway.infra.version import CHANGELOG
from slipway.offline import files
from slipway.offline.preview.base_software import installing
from slipway.tools.changelog import Part, between


class UpdateError(Exception):
    """No update can be made. The message says why, and what to do."""


@dataclass(frozen=True)
class Update:
    """Another version of the package: the text of requirements.txt with it.

    ``versions`` are those before and after by the names of all packages whose version changes; empty where it has
    none. Without any, nothing changes. ``changes`` is what the changelog says of it, and ``unknown`` why it says
    nothing.
    """

    text: str
    versions: Mapping[str, tuple[str, str]]
    changes: Sequence[Part] = ()
    unknown: str = ""


def main(wanted: str, *, check: bool = False) -> Exit:
    """Writes requirements.txt with the version ``wanted``, or with the newest; installs nothing.

    With ``check`` it writes nothing, and fails where there is another version.
    """
    console = new_console()
    try:
        if PROJECT == LIBRARY:
            raise UpdateError("this is a clone of Slipway, which takes updates with `git merge upstream/main`")
        file = PROJECT / REQUIREMENTS
        update = find(PROJECT, wanted)
        if update.versions and not check:
            files.write(file, update.text)
    except (UpdateError, OSError) as error:
        report_error(error)
        return Exit.REFUSED
    if not update.versions:
        console.print(Text(f"{REQUIREMENTS} has it already: nothing to update"))
        return Exit.DONE
    for line in _described(update):
        console.print(Text(line), soft_wrap=True)
    console.print(Text("There is an update:" if check else f"Wrote {file}:"))
    for name, (before, after) in update.versions.items():
        console.print(Text(f"  {name} {before or '(none)'} → {after or '(none)'}"), soft_wrap=True)
    if check:
        return Exit.FAILED
    console.print(Text("Next:"))
    for command, reason in (
        (installing(), "install it"),
        (f"{PACKAGE} preview --base HEAD", "see what it does to your stacks"),
        (f"git commit {REQUIREMENTS}", "keep it"),
    ):
        console.print(Text(f"  {command}    {reason}"), soft_wrap=True)
    return Exit.DONE


def _described(update: Update) -> Iterator[str]:
    """What the changelog says of an update, line by line."""
    before, after = update.versions[DISTRIBUTION]
    if update.unknown:
        yield f"What changes from {before} to {after} is unknown: {update.unknown}"
    elif not update.changes:
        yield f"The changelog says nothing of {before} to {after}."
    elif Version(before) > Version(after):
        yield f"The way back to {after} takes this away, and runs again what this ran again:"
    for part in update.changes:
        yield f"{part.title}, {part.release}:" if part.title else f"{part.release}:"
        yield f"{part.text}\n"


def find(project: Path, wanted: str = "") -> Update:
    """The update of the project's requirements.txt to the version ``wanted``, or to the newest that an index has.

    A newer version is asked of the indexes that the file, uv's settings and its variables name. Versions of other
    packages change only where the new one needs it, and what the project added stays as it is. Raises UpdateError.
    """
    path = project / REQUIREMENTS
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UpdateError(f"{path} cannot be read: {error}") from error
    file = read(text)
    pin = _pin(project, file)
    try:
        # Of a commit's own version, `0.2.0.dev3+g<commit>`, only the part before the `+` can be a bound (PEP 440).
        bound = f"=={Version(wanted)}" if wanted else f">={Version(pin.version).public}"
    except InvalidVersion as error:
        raise UpdateError(f"{wanted!r} is no version: write for example 0.2.0") from error
    assert pin.requirement is not None
    extras = f"[{','.join(sorted(pin.requirement.extras))}]" if pin.requirement.extras else ""
    options = [entry.words for entry in file.entries if not entry.name]
    package = f"{DISTRIBUTION}{extras}"
    if pin.hashed:
        # The file does not say which of its lines the package asked for.
        needed = {entry.name for entry in _compile(project, file, [*options, f"{package}=={pin.version}"]).entries}
    else:
        needed = {DISTRIBUTION}
    others = [entry.pin for entry in file.entries if entry.name and entry.name not in needed]
    compiled = _compile(project, file, [*options, f"{package}{bound}", *others])
    wanted_pin = compiled.of(DISTRIBUTION)[0]
    version = wanted_pin.version
    if version == pin.version:
        return Update(text, {})
    newer = max(pin, wanted_pin, key=lambda entry: Version(entry.version))
    try:
        changes, unknown = between(_changelog(project, [*options, newer.words]), pin.version, version), ""
    except UvError as error:
        changes, unknown = (), str(error)
    if pin.hashed:
        text, versions = _merged(file, compiled, pin.version, version), _changes(file, compiled)
    else:
        text, versions = _renumbered(text, pin, version), {DISTRIBUTION: (pin.version, version)}
    return Update(text, versions, changes, unknown)


def _pin(project: Path, file: RequirementFile) -> Entry:
    """The line that pins the package. Raises UpdateError."""
    lines = file.of(DISTRIBUTION)
    try:
        included = not lines and read_project(project).of(DISTRIBUTION)
    except RequirementFileError as error:
        raise UpdateError(str(error)) from error
    if included:
        raise UpdateError(
            f"{DISTRIBUTION} is in a file that {REQUIREMENTS} includes: write the number of the other version "
            f"there, or move the line into {REQUIREMENTS}"
        )
    example = f"`{DISTRIBUTION}[rehearse]==0.1.0`"
    if len(lines) != 1:
        count = f"{len(lines)} lines of {REQUIREMENTS} are" if lines else f"no line of {REQUIREMENTS} is"
        raise UpdateError(f"{count} for {DISTRIBUTION}: write one, such as {example}")
    [pin] = lines
    if pin.address:
        raise UpdateError(
            f"{REQUIREMENTS}:{pin.line} takes {DISTRIBUTION} from {pin.address}: write the address of the other "
            f"version there, or name a version, such as {example}, and the folder of its wheel by "
            "`--find-links <folder>`"
        )
    if not pin.version:
        raise UpdateError(
            f"{REQUIREMENTS}:{pin.line} pins no version of {DISTRIBUTION}: {pin.pin}; write one, such as {example}"
        )
    return pin


def _compile(project: Path, file: RequirementFile, lines: Sequence[str]) -> RequirementFile:
    """What uv resolves ``lines`` to, by the versions that ``file`` has but for that of the package itself."""
    pins = [entry.text for entry in file.entries if entry.version and not entry.address]
    options = [
        *FOR_ALL_PLATFORMS,
        "--no-strip-extras",
        BY_DIGESTS,
        "--no-header",
        "--upgrade-package",
        DISTRIBUTION,
    ]
    try:
        # In the project, where relative paths of options begin and uv's settings are.
        return read(compile_pins(lines, *options, folder=project, preferred=pins))
    except UvError as error:
        wanted = next(line for line in lines if line.startswith(DISTRIBUTION))
        raise UpdateError(
            f"{wanted} cannot be had: {error}. Have the package index reachable, or the wheel in a folder: "
            f"`--find-links <folder>` in {REQUIREMENTS}, or UV_FIND_LINKS"
        ) from error


def _changelog(project: Path, lines: Sequence[str]) -> str:
    """The changelog of the package that ``lines`` name; empty where it has none. Raises UvError."""
    with tempfile.TemporaryDirectory() as folder:
        install_alone(lines, Path(folder), project)
        path = Path(folder, PACKAGE, CHANGELOG)
        return path.read_text(encoding="utf-8") if path.is_file() else ""


def _renumbered(text: str, pin: Entry, version: str) -> str:
    """The text with ``version`` in the line of the package."""
    lines = text.splitlines(keepends=True)
    lines[pin.line - 1] = lines[pin.line - 1].replace(pin.version, version, 1)
    return "".join(lines)


def _merged(file: RequirementFile, compiled: RequirementFile, before: str, after: str) -> str:
    """The text of ``compiled``, with the options and comments of ``file`` and those of its lines that stay."""
    earlier = {(entry.name, entry.pin): entry.text for entry in file.entries}
    # Comments at the top are about the file, whatever stands below them.
    head, *_ = (entry.comments for entry in file.entries)
    comments = {entry.name: entry.comments for entry in file.entries[1:] if entry.name}
    lines = [*head]
    for index, entry in enumerate(file.entries):
        if not entry.name:
            lines += [*(entry.comments if index else ()), entry.text]
    for entry in compiled.entries:
        if entry.name:
            lines += [*comments.pop(entry.name, ()), earlier.get((entry.name, entry.pin), entry.text)]
    # The head says how the file was made, with the version.
    lines = [line.replace(f"=={before}", f"=={after}") if line.startswith("#") else line for line in lines]
    return "\n".join([*lines, *file.end]) + "\n"


def _changes(file: RequirementFile, compiled: RequirementFile) -> Mapping[str, tuple[str, str]]:
    """The versions before and after of each package whose version changes; that of Slipway first."""
    before, after = (
        {entry.name: entry.version for entry in one.entries if entry.name} for one in (file, compiled)
    )
    names = sorted({*before, *after}, key=lambda name: (name != DISTRIBUTION, name))
    pairs = {name: (before.get(name, ""), after.get(name, "")) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
