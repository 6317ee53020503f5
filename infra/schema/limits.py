"""How large a stack file may be."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from infra.schema.problems import Path, Problem, key_of

# The largest stack file of this repository has 5 KB, 200 values and a depth of 8.
FILE_BYTES = 256 * 1024
"""Bytes of a file."""

DEPTH = 50
"""Sections and lists inside one another."""

VALUES = 20_000
"""Values of a file, sections and lists among them. What an alias stands for counts each time."""

CHARACTERS = 64 * 1024
"""Characters of one key or value."""

TOTAL_CHARACTERS = 1024 * 1024
"""Characters of all values together. What an alias stands for counts each time."""


def exceeded(raw: Mapping[str, Any]) -> list[Problem]:
    """The first of these limits that ``raw``, the plain values of a stack, exceeds; empty where it exceeds none.

    Everything that reads the values later relies on them: it may recurse, and take as long as there are values.
    """
    characters = 0
    for count, (path, value) in enumerate(_values(raw), 1):
        characters += len(value) if isinstance(value, str) else 0
        for amount, most, what in ((count, VALUES, "values"), (characters, TOTAL_CHARACTERS, "characters")):
            if amount > most:
                return [Problem("slipway", None, f"more than {most:,} {what}", "make several stacks of it")]
        if len(path) > DEPTH:
            reason = f"more than {DEPTH} sections or lists inside one another"
            return [Problem(f"{key_of(path[:3])}…", None, reason, "no setting is as deep: remove some")]
        for text, what, place in ((path[-1], "key", path[:-1]), (value, "value", path)):
            if isinstance(text, str) and len(text) > CHARACTERS:
                reason = f"a {what} of {len(text):,} characters"
                return [Problem(key_of(place), text, reason, f"use at most {CHARACTERS:,}")]
    return []


def _values(raw: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Everything in ``raw`` in its order, without recursion: how deep it is, is not known yet."""
    waiting: list[Iterator[tuple[Path, Any]]] = [_inside((), raw)]
    while waiting:
        for path, value in waiting[-1]:
            yield path, value
            waiting.append(_inside(path, value))
            break
        else:
            waiting.pop()


def _inside(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[Any, Any]", value).items():
            yield (*path, str(key)), each
    elif isinstance(value, list):
        for index, each in enumerate(cast("list[Any]", value)):
            yield (*path, index), each
