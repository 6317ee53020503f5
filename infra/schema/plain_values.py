"""What is wrong with the plain values of a stack file, whatever they stand for."""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, cast

from infra.schema.problems import Finding, Path

LINES_ALLOWED = ("policies", "secrets")
"""Sections whose texts are for people, or nobody's, and may have several lines."""

WORDS = {
    "Cc": "the control character U+{code:04X}",
    "Cf": "the invisible character U+{code:04X}",
    "Cs": "U+{code:04X}, half of a surrogate pair",
    "Zl": "the line separator U+{code:04X}",
    "Zp": "the paragraph separator U+{code:04X}",
}
"""What no setting has, by Unicode's category (The Unicode Standard 17.0, table 4-4, September 2025)."""


def findings(raw: Mapping[str, Any], unread: str) -> Iterator[Finding]:
    """Characters that no setting has, in keys and texts, and one key twice. ``unread`` is a section left out."""
    yield from _of_section((), {key: value for key, value in raw.items() if key != unread})


def _of_section(path: Path, section: Mapping[Any, Any]) -> Iterator[Finding]:
    first: dict[str, object] = {}
    for key, value in section.items():
        place = (*path, str(key))
        if str(key) in first:
            reason = f"{first[str(key)]!r} and {key!r} are the same key"
            yield Finding(place, value, reason, "remove one of them")
            continue
        first[str(key)] = key
        if character := _unwritable(str(key), lines=False):
            yield Finding(place, value, f"the key has {character}", "remove that character")
        else:
            yield from _of_value(place, value)


def _of_value(place: Path, value: object) -> Iterator[Finding]:
    if isinstance(value, str):
        if character := _unwritable(value, lines=place[0] in LINES_ALLOWED):
            yield Finding(place, value, f"the value has {character}", "remove that character")
    elif isinstance(value, dict):
        yield from _of_section(place, cast("dict[Any, Any]", value))
    elif isinstance(value, list):
        for index, each in enumerate(cast("list[object]", value)):
            yield from _of_value((*place, index), each)


def _unwritable(text: str, *, lines: bool) -> str | None:
    """The first character of ``text`` that no setting has, in words; None where there is none."""
    for character in text:
        words = WORDS.get(unicodedata.category(character))
        if words and not (lines and character in "\n\t"):
            return words.format(code=ord(character))
    return None
