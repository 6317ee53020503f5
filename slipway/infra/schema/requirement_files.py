"""Requirements files as pip and uv read them: what a file asks for, and the words in which it does.

The format is pip's (pip.pypa.io/en/stable/reference/requirements-file-format, read November 2026): a requirement
or an option on each line, `\\` at its end continues it, `#` begins a comment.
"""

import json
import os
import re
import threading
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

REQUIREMENTS = "requirements.txt"

_OF_REQUIREMENT = re.compile(r"\s+--")
"""Where the options of a single requirement begin, such as its digests."""

_FILE = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s*=\s*|\s+)(\S+)")
"""An option that names another requirements file."""

_COMMENT = re.compile(r"(?:^|\s)#.*")
_WHEEL = re.compile(r"(?P<path>[^\s;\[]+\.whl)(?P<rest>(?:\[[^\]]*\])?\s*(?:;.*)?)")

_parsing = threading.Lock()


@dataclass(frozen=True)
class Entry:
    """A requirement or an option of a requirements file.

    ``text`` is as it is written, with the lines that continue it; ``comments`` are the lines above it, and
    ``line`` is its number. ``name`` is normalized, and empty for an option and for what is neither. ``version`` is
    the only one that it allows, if it names one. ``address`` is the path or URL of what it names, if any.
    """

    text: str
    line: int
    comments: Sequence[str] = ()
    name: str = ""
    version: str = ""
    address: str = ""
    requirement: Requirement | None = field(default=None, repr=False)

    @property
    def words(self) -> str:
        """What it says without its comment, on one line."""
        return _COMMENT.sub("", re.sub(r"\\\n", " ", self.text)).strip()

    @property
    def pin(self) -> str:
        """The same without the options of a single requirement."""
        return _OF_REQUIREMENT.split(self.words)[0].strip()

    @property
    def hashed(self) -> bool:
        """Whether it has a digest of each file that may be installed for it."""
        return "--hash=" in self.text

    @property
    def applies(self) -> bool:
        """Whether it is a requirement of this Python on this platform."""
        if self.requirement is None or self.requirement.marker is None:
            return self.requirement is not None
        with _parsing:
            return self.requirement.marker.evaluate()

    @property
    def installed(self) -> str:
        """The version of the package that is installed here; empty where none is."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return ""

    @property
    def met(self) -> bool:
        """Whether what it asks for is installed here."""
        if self.requirement is None or not (installed := self.installed):
            return False
        if self.version or not self.address:
            specifier = SpecifierSet(f"=={self.version}") if self.address else self.requirement.specifier
            return specifier.contains(installed, prereleases=True)
        return self.address in _addresses(self.name)


class RequirementFileError(Exception):
    """A requirements file cannot be read. The message says which and why."""


@dataclass(frozen=True)
class RequirementFile:
    """What a requirements file has, in its order; ``end`` are the comments behind all that.

    ``constraints`` are the files that limit versions, as far as `read_project` read it.
    """

    entries: Sequence[Entry]
    end: Sequence[str] = ()
    constraints: Sequence[Path] = ()

    def of(self, name: str) -> list[Entry]:
        """The requirements of the package with this normalized name, those of other platforms included."""
        return [entry for entry in self.entries if entry.name == name]


def read_project(folder: Path) -> RequirementFile:
    """The requirements of the project in ``folder``, with those of the files that its file includes (`-r`).

    None where the project has no such file. Raises RequirementFileError.
    """
    path = folder / REQUIREMENTS
    entries: list[Entry] = []
    files, constraints = [path] if path.is_file() else [], list[Path]()
    for file in files:
        try:
            lines = read(file.read_text(encoding="utf-8")).entries
        except (OSError, UnicodeDecodeError) as error:
            raise RequirementFileError(f"{file} cannot be read: {error}") from error
        for included, limits in _included(file, lines):
            others = constraints if limits else files
            others += [included] if included not in others else []
        entries += lines
    return RequirementFile(entries, constraints=constraints)


def _included(file: Path, lines: Sequence[Entry]) -> Iterator[tuple[Path, bool]]:
    """The files that ``lines`` of ``file`` name, and whether they limit versions. Raises RequirementFileError."""
    for line in lines:
        if match := _FILE.fullmatch(line.words):
            if "://" in match[2]:
                fix = "write what it has into a file of the project"
                raise RequirementFileError(f"{file}:{line.line}: {match[2]} is no file of the project: {fix}")
            yield Path(os.path.normpath(file.parent / match[2])), match[1] in {"-c", "--constraint"}


def read(text: str) -> RequirementFile:
    """Reads the text of a requirements file. What it cannot read has no name."""
    entries: list[Entry] = []
    comments: list[str] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first = number
        while lines[number].endswith("\\") and number + 1 < len(lines):
            number += 1
        number += 1
        content = "\n".join(lines[first:number])
        if not content.strip() or content.lstrip().startswith("#"):
            comments += lines[first:number]
        else:
            entries.append(_entry(Entry(content, first + 1, tuple(comments))))
            comments = []
    return RequirementFile(entries, tuple(comments))


def _entry(entry: Entry) -> Entry:
    """The entry with what its words say; as it is where they are an option or no requirement."""
    words = entry.pin
    if words.startswith("-"):
        return entry
    address = ""
    try:
        if wheel := _WHEEL.fullmatch(words):
            address = wheel["path"]
            words = f"{parse_wheel_filename(PurePosixPath(address).name)[0]}{wheel['rest']}"
        requirement = parse(words)
        address = address or re.split("[?#]", requirement.url or "")[0]
        version = _only_version(requirement)
        if address.endswith(".whl"):
            version = str(parse_wheel_filename(PurePosixPath(address).name)[1])
    except (InvalidRequirement, InvalidWheelFilename):
        return entry
    name = canonicalize_name(requirement.name)
    return Entry(entry.text, entry.line, entry.comments, name, version, address, requirement)


def parse(words: str) -> Requirement:
    """A requirement without options. Raises InvalidRequirement."""
    # Markers are parsed by `ast`, in which threads disturb one another: "AST constructor recursion depth mismatch"
    # (github.com/python/cpython/issues/106905; seen with CPython 3.11.7 in November 2026).
    with _parsing:
        return Requirement(words)


def _addresses(name: str) -> Set[str]:
    """What an installed package may have been asked for by, where it was asked for by a URL.

    As its ``direct_url.json`` says (packaging.python.org/en/latest/specifications/direct-url, read November 2026).
    """
    direct = json.loads(metadata.distribution(name).read_text("direct_url.json") or "{}")
    url, of_repository = direct.get("url", ""), direct.get("vcs_info", {})
    if not of_repository:
        return {url}
    revisions = [of_repository.get("requested_revision"), of_repository.get("commit_id")]
    return {f"{of_repository.get('vcs')}+{url}{f'@{revision}' if revision else ''}" for revision in revisions}


def _only_version(requirement: Requirement) -> str:
    """The version of `name==version`, and nothing of any other specifier."""
    specifiers = [*requirement.specifier]
    if len(specifiers) != 1 or specifiers[0].operator not in {"==", "==="} or "*" in specifiers[0].version:
        return ""
    return specifiers[0].version
