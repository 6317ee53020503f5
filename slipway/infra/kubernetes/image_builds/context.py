"""The context of an image: the files of a folder that its Dockerfile may copy, as git would ship them."""

import contextlib
import hashlib
import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, cast

from slipway.infra.kubernetes.shipping.bundle import Files, obstacle
from slipway.infra.kubernetes.shipping.sizes import SHOWN, ShippingError, require_fit

# What a Dockerfile takes from elsewhere that can become something else while the file stays the same.
#
# The grammar is that of docs.docker.com/reference/dockerfile (seen November 2026). Commands of ``RUN`` are not
# read:
# what they download, nobody knows before they run.


BY_DIGEST = re.compile(r"\S+@sha256:[0-9a-f]{64}")
SCRATCH = "scratch"
"""The empty image, of which there is only one."""

IMAGE_FIX = (
    "name the image by digest: `FROM <image>@sha256:…`; `docker buildx imagetools inspect <image>` shows the "
    "digest"
)
SYNTAX_ARGUMENT = "BUILDKIT_SYNTAX"
"""The argument that names the frontend as a line ``# syntax=`` does (github.com/moby/buildkit,
frontend/dockerfile/builder/build.go, v0.33.0)."""

DOWNLOAD_FIX = "give `ADD` the file's `--checksum=sha256:…`, or a git repository's commit: `…git#<40 digits>`"

_DIRECTIVE = re.compile(r"#\s*([A-Za-z]+)\s*=\s*(.+?)\s*")
_OTHER_DIRECTIVE = re.compile(r"//\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")
_REMOTE = re.compile(r"https?://|git@|git://|ssh://")
_COMMIT = re.compile(r"#[0-9a-f]{40}(?::|$)")
_MOUNTED = re.compile(r"--mount=\S*?\bfrom=([^,\s]+)")


@dataclass(frozen=True)
class Movable:
    """Something that a Dockerfile names and that others can change, with the line that names it."""

    line: int
    reason: str
    fix: str


@dataclass(frozen=True)
class _Instruction:
    line: int
    name: str
    rest: str

    @property
    def flags(self) -> list[str]:
        """The words before its arguments that begin with ``--``."""
        words: list[str] = []
        for word in self.rest.split():
            if not word.startswith("--"):
                break
            words.append(word)
        return words


def movable(text: str, arguments: Mapping[str, str]) -> Iterator[Movable]:
    """What can become other code: images without a digest, downloads without a checksum.

    ``arguments`` are the values that the build is given, in place of the defaults of ``ARG``.
    """
    known: dict[str, str] = {}
    stages: list[str] = []
    directives, instructions = _read(text)
    # The argument is taken before the line.
    for syntax in (arguments.get(SYNTAX_ARGUMENT), directives.get("syntax") or _other_syntax(text)):
        if syntax and not BY_DIGEST.fullmatch(syntax.partition(" ")[0]):
            fix = "remove it, since BuildKit has a frontend of its own; or name the image by digest"
            reason = f"`syntax={syntax}` is an image by tag, and it decides what every other line means"
            yield Movable(1, reason, fix)
    for instruction in instructions:
        if instruction.name == "ARG" and not stages:
            for word in instruction.rest.split():
                name, mark, default = word.partition("=")
                value = arguments.get(name, _fill(default.strip("\"'"), known) if mark else None)
                if value is not None:
                    known[name] = value
        elif instruction.name == "FROM":
            named = [word for word in instruction.rest.split() if not word.startswith("--")]
            yield from _image(instruction.line, _fill(named[0], known) if named else "", stages)
            stages.append(named[2].lower() if len(named) > 2 and named[1].upper() == "AS" else "")
        elif instruction.name in {"COPY", "ADD", "RUN"}:
            yield from _sources(instruction, stages)
    if not stages:
        yield Movable(1, "it has no `FROM`", "begin it with `FROM`, and name the base image by digest")


def _sources(instruction: _Instruction, stages: list[str]) -> Iterator[Movable]:
    """What ``COPY``, ``ADD`` and the mounts of ``RUN`` take from elsewhere."""
    of = [flag.removeprefix("--from=") for flag in instruction.flags if flag.startswith("--from=")]
    if instruction.name == "RUN":
        of = [match[1] for flag in instruction.flags if (match := _MOUNTED.match(flag))]
    for image in of:
        if not image.isdigit():
            yield from _image(instruction.line, image.strip("\"'"), stages)
    if instruction.name == "ADD" and not any(flag.startswith("--checksum=") for flag in instruction.flags):
        for word in re.split(r"[\s,\[\]\"]+", instruction.rest):
            if _REMOTE.match(word) and not _COMMIT.search(word):
                yield Movable(instruction.line, f"what is at {word} can be changed there", DOWNLOAD_FIX)


def _image(line: int, image: str, stages: list[str]) -> Iterator[Movable]:
    if image != SCRATCH and image.lower() not in filter(None, stages) and not BY_DIGEST.fullmatch(image):
        what = f"the image `{image}`" if image else "no image"
        yield Movable(line, f"it names {what} without a digest: a tag can be moved", IMAGE_FIX)


def _fill(word: str, known: Mapping[str, str]) -> str:
    """``word`` with the values of arguments; a name that has none becomes empty, as in a build."""

    def value(match: re.Match[str]) -> str:
        name, rule, other = match[1] or match[2], match[3] or "", match[4] or ""
        argument = known.get(name)
        if rule.endswith("-"):
            return other if argument is None or (rule == ":-" and not argument) else argument
        if rule.endswith("+"):
            return other if argument or (argument == "" and rule == "+") else ""
        return argument or ""

    return _VARIABLE.sub(value, word)


def _other_syntax(text: str) -> str:
    """The frontend that BuildKit reads of a file that is in no language of Dockerfiles; empty where there is none.

    A line ``// syntax=`` or a JSON object names one too (github.com/moby/buildkit, `DetectSyntax` in
    frontend/dockerfile/parser/directives.go, v0.33.0).
    """
    for line in _head(text):
        match = _OTHER_DIRECTIVE.fullmatch(line)
        if not match:
            break
        if match[1].lower() == "syntax":
            return match[2]
    with contextlib.suppress(ValueError, RecursionError):
        content: Any = json.loads("\n".join(_head(text)))
        if isinstance(content, dict):
            return str(cast("dict[str, Any]", content).get("syntax") or "")
    return ""


def _head(text: str) -> list[str]:
    """The lines from where directives may stand: after a first one that says which program reads the file."""
    lines = text.lstrip("\ufeff").splitlines()
    return lines[1:] if lines and lines[0].startswith("#!") else lines


def _read(text: str) -> tuple[dict[str, str], list[_Instruction]]:
    """The parser directives, by their names in small letters, and the instructions in their order."""
    lines = text.lstrip("\ufeff").splitlines()
    directives: dict[str, str] = {}
    for line in _head(text):
        match = _DIRECTIVE.fullmatch(line.strip())
        if not match or match[1].lower() in directives:
            break
        directives[match[1].lower()] = match[2]
    instructions: list[_Instruction] = []
    index = 0
    while index < len(lines):
        first = index + 1
        whole, index = _join(lines, index, directives.get("escape", "\\"))
        name, _, rest = whole.strip().partition(" ")
        if not name:
            continue
        if name.upper() == "ONBUILD":
            # What an image does to those that begin with it: a later stage of this file, for one.
            name, _, rest = rest.strip().partition(" ")
        instructions.append(_Instruction(first, name.upper(), rest.strip()))
        if instructions[-1].name in {"RUN", "COPY", "ADD"}:
            for end in (match[2] for match in _HEREDOC.finditer(rest)):
                index = next((at + 1 for at in range(index, len(lines)) if lines[at].strip() == end), len(lines))
    return directives, instructions


def _join(lines: list[str], index: int, escape: str) -> tuple[str, int]:
    """The instruction that begins at ``index``, in one line, and where the next begins.

    Comments and empty lines may stand within it.
    """
    whole = ""
    while index < len(lines):
        line = lines[index].rstrip()
        index += 1
        if not line or line.lstrip().startswith("#"):
            if not whole:
                break
            continue
        whole += line.removesuffix(escape) + " "
        if not line.endswith(escape):
            break
    return whole, index


# The patterns of a ``.dockerignore`` file (docs.docker.com/build/concepts/context, "Dockerignore files"; the
# rules of github.com/moby/patternmatcher, v0.6.0, seen November 2026).


@dataclass(frozen=True)
class Pattern:
    """One line. ``keeps`` says that it begins with ``!``: what it matches is no longer left out."""

    matches: re.Pattern[str]
    keeps: bool


def patterns(text: str) -> list[Pattern]:
    """The patterns of a file, in its order. Raises ValueError, with the line, for one that is none."""
    rules: list[Pattern] = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if line.startswith("#") or not (word := line.strip()):
            continue
        keeps = word.startswith("!")
        path = _clean(word.removeprefix("!").strip())
        if not path:
            if keeps:
                raise ValueError(f"line {number}: `!` alone is no pattern")
            continue
        try:
            rules.append(Pattern(re.compile(_expression(path)), keeps))
        except re.error as error:
            raise ValueError(f"line {number}: `{word}` is no pattern: {error}") from error
    return rules


def left_out(path: str, declared: Sequence[Pattern]) -> bool:
    """Whether ``path``, relative to the context and with ``/``, is left out: the last pattern decides that matches
    it or one of the folders that it is in.
    """
    parts = path.split("/")
    places = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    out = False
    for pattern in declared:
        if out == pattern.keeps and any(pattern.matches.fullmatch(place) for place in places):
            out = not pattern.keeps
    return out


def _clean(path: str) -> str:
    """``./a//b/`` as ``a/b``; a pattern always begins at the root of the context."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in {"", ".", ".."}:
            parts.append(part)
    return "/".join(parts)


def _expression(path: str) -> str:
    """The pattern as a regular expression: ``*`` and ``?`` stay within a name, ``**`` is any number of folders."""
    expression, index = "", 0
    while index < len(path):
        letter = path[index]
        if path.startswith("**", index):
            index += 2
            if path.startswith("/", index):
                expression += "(?:.*/)?"
                index += 1
            else:
                expression += ".*"
            continue
        if letter == "*":
            expression += "[^/]*"
        elif letter == "?":
            expression += "[^/]"
        elif letter == "[" and (end := path.find("]", index + 2)) > 0:
            expression += path[index : end + 1].replace("\\", "\\\\")
            index = end
        elif letter == "\\" and index + 1 < len(path):
            index += 1
            expression += re.escape(path[index])
        else:
            expression += re.escape(letter)
        index += 1
    return expression


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
    names = _keep(folder, path)
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
    _require_pins(folder, path, files.contents[path], arguments or {})
    # As git takes a file for executable: what the user of this machine may do would be another image on another.
    executable = [name for name in names if (folder / name).stat().st_mode & stat.S_IXUSR]
    return Context(files, executable, path, dict(arguments or {}))


def _keep(folder: Path, path: str) -> list[str]:
    """The paths of the context's files, sorted."""
    beside = folder / f"{path}{IGNORED}"
    place = beside if beside.is_file() else folder / IGNORED
    try:
        declared = patterns(place.read_text(encoding="utf-8")) if place.is_file() else []
    except ValueError as error:
        raise ShippingError(str(place), str(error), "correct the line") from error
    # BuildKit reads the Dockerfile also where it is left out of the context.
    return sorted(name for name in _files_of(folder) if name == path or not left_out(name, declared))


def _files_of(folder: Path) -> list[str]:
    """The files below ``folder`` that git has or would take; all but git's own where it is in no repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    # A git hook has variables that name its own repository, and would have this one read as if it were that.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment["LC_ALL"] = "C"
    try:
        listing = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    except FileNotFoundError as error:
        if any(os.path.lexists(parent / ".git") for parent in (folder.resolve(), *folder.resolve().parents)):
            reason = "it is in a git repository, and there is no git to say what of it would ship"
            raise ShippingError(str(folder), reason, "install git") from error
        return _all_files(folder)
    said = listing.stderr.decode(errors="replace").strip()
    if listing.returncode and NO_REPOSITORY in said:
        return _all_files(folder)
    if listing.returncode:
        raise ShippingError(str(folder), f"git cannot say what of it would ship: {said}", "do what git says")
    names = {os.fsdecode(part) for part in listing.stdout.split(b"\0") if part}
    # What is in the index and deleted in the checkout is gone.
    return sorted(name for name in names if os.path.lexists(folder / name))


def _all_files(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = (path.relative_to(folder) for path in paths)
    # Of a repository within it, too: its configuration may hold a token.
    return sorted(name.as_posix() for name in names if ".git" not in name.parts)


def _refuse(folder: Path, names: Sequence[str]) -> None:
    inside = folder.resolve()
    obstacles = ((name, obstacle(folder / name, inside, "context")) for name in names)
    wrong = [f"{name} {why}" for name, why in obstacles if why]
    if wrong:
        raise ShippingError(
            str(folder),
            "; ".join(wrong[:SHOWN]) + (f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""),
            f"put the files themselves there, under names that can be read, or leave them out by {IGNORED}",
        )


def _require_pins(folder: Path, path: str, content: bytes, arguments: Mapping[str, str]) -> None:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ShippingError(f"{folder}/{path}", f"it is no text: {error}", "correct the file") from error
    wrong = list(movable(text, arguments))
    if wrong:
        reasons = "; ".join(f"line {place.line}: {place.reason}" for place in wrong[:SHOWN])
        raise ShippingError(f"{folder}/{path}", reasons, wrong[0].fix)
