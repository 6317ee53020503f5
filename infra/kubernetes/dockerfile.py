"""What a Dockerfile takes from elsewhere that can become something else while the file stays the same.

The grammar is that of docs.docker.com/reference/dockerfile (seen November 2026). Commands of ``RUN`` are not read:
what they download, nobody knows before they run.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

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
        found: list[str] = []
        for word in self.rest.split():
            if not word.startswith("--"):
                break
            found.append(word)
        return found


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
    for each in instructions:
        if each.name == "ARG" and not stages:
            for word in each.rest.split():
                name, mark, default = word.partition("=")
                value = arguments.get(name, _filled(default.strip("\"'"), known) if mark else None)
                if value is not None:
                    known[name] = value
        elif each.name == "FROM":
            named = [word for word in each.rest.split() if not word.startswith("--")]
            yield from _image(each.line, _filled(named[0], known) if named else "", stages)
            stages.append(named[2].lower() if len(named) > 2 and named[1].upper() == "AS" else "")
        elif each.name in {"COPY", "ADD", "RUN"}:
            yield from _sources(each, stages)
    if not stages:
        yield Movable(1, "it has no `FROM`", "begin it with `FROM`, and name the base image by digest")


def _sources(each: _Instruction, stages: list[str]) -> Iterator[Movable]:
    """What ``COPY``, ``ADD`` and the mounts of ``RUN`` take from elsewhere."""
    of = [flag.removeprefix("--from=") for flag in each.flags if flag.startswith("--from=")]
    if each.name == "RUN":
        of = [found[1] for flag in each.flags if (found := _MOUNTED.match(flag))]
    for image in of:
        if not image.isdigit():
            yield from _image(each.line, image.strip("\"'"), stages)
    if each.name == "ADD" and not any(flag.startswith("--checksum=") for flag in each.flags):
        for word in re.split(r"[\s,\[\]\"]+", each.rest):
            if _REMOTE.match(word) and not _COMMIT.search(word):
                yield Movable(each.line, f"what is at {word} can be changed there", DOWNLOAD_FIX)


def _image(line: int, image: str, stages: list[str]) -> Iterator[Movable]:
    if image != SCRATCH and image.lower() not in filter(None, stages) and not BY_DIGEST.fullmatch(image):
        what = f"the image `{image}`" if image else "no image"
        yield Movable(line, f"it names {what} without a digest: a tag can be moved", IMAGE_FIX)


def _filled(word: str, known: Mapping[str, str]) -> str:
    """``word`` with the values of arguments; a name that has none becomes empty, as in a build."""

    def value(found: re.Match[str]) -> str:
        name, rule, other = found[1] or found[2], found[3] or "", found[4] or ""
        there = known.get(name)
        if rule.endswith("-"):
            return other if there is None or (rule == ":-" and not there) else there
        if rule.endswith("+"):
            return other if there or (there == "" and rule == "+") else ""
        return there or ""

    return _VARIABLE.sub(value, word)


def _other_syntax(text: str) -> str:
    """The frontend that BuildKit reads of a file that is in no language of Dockerfiles; empty where there is none.

    A line ``// syntax=`` or a JSON object names one too (github.com/moby/buildkit, `DetectSyntax` in
    frontend/dockerfile/parser/directives.go, v0.33.0).
    """
    for line in _head(text):
        found = _OTHER_DIRECTIVE.fullmatch(line)
        if not found:
            break
        if found[1].lower() == "syntax":
            return found[2]
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
        found = _DIRECTIVE.fullmatch(line.strip())
        if not found or found[1].lower() in directives:
            break
        directives[found[1].lower()] = found[2]
    instructions: list[_Instruction] = []
    index = 0
    while index < len(lines):
        first = index + 1
        whole, index = _joined(lines, index, directives.get("escape", "\\"))
        name, _, rest = whole.strip().partition(" ")
        if not name:
            continue
        if name.upper() == "ONBUILD":
            # What an image does to those that begin with it: a later stage of this file, for one.
            name, _, rest = rest.strip().partition(" ")
        instructions.append(_Instruction(first, name.upper(), rest.strip()))
        if instructions[-1].name in {"RUN", "COPY", "ADD"}:
            for end in (found[2] for found in _HEREDOC.finditer(rest)):
                index = next((at + 1 for at in range(index, len(lines)) if lines[at].strip() == end), len(lines))
    return directives, instructions


def _joined(lines: list[str], index: int, escape: str) -> tuple[str, int]:
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
