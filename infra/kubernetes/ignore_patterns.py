"""The patterns of a ``.dockerignore`` file (docs.docker.com/build/concepts/context, "Dockerignore files"; the
rules of github.com/moby/patternmatcher, v0.6.0, seen November 2026)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pattern:
    """One line. ``keeps`` says that it begins with ``!``: what it matches is no longer left out."""

    matches: re.Pattern[str]
    keeps: bool


def patterns(text: str) -> list[Pattern]:
    """The patterns of a file, in its order. Raises ValueError, with the line, for one that is none."""
    found: list[Pattern] = []
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
            found.append(Pattern(re.compile(_expression(path)), keeps))
        except re.error as error:
            raise ValueError(f"line {number}: `{word}` is no pattern: {error}") from error
    return found


def left_out(path: str, declared: Sequence[Pattern]) -> bool:
    """Whether ``path``, relative to the context and with ``/``, is left out: the last pattern decides that matches
    it or one of the folders that it is in.
    """
    parts = path.split("/")
    places = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    out = False
    for each in declared:
        if out == each.keeps and any(each.matches.fullmatch(place) for place in places):
            out = not each.keeps
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
    found, index = "", 0
    while index < len(path):
        letter = path[index]
        if path.startswith("**", index):
            index += 2
            if path.startswith("/", index):
                found += "(?:.*/)?"
                index += 1
            else:
                found += ".*"
            continue
        if letter == "*":
            found += "[^/]*"
        elif letter == "?":
            found += "[^/]"
        elif letter == "[" and (end := path.find("]", index + 2)) > 0:
            found += path[index : end + 1].replace("\\", "\\\\")
            index = end
        elif letter == "\\" and index + 1 < len(path):
            index += 1
            found += re.escape(path[index])
        else:
            found += re.escape(letter)
        index += 1
    return found
