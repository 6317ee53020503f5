"""The plain values of a stack file: what is wrong with them, whatever they stand for, and their order in it."""

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from slipway.infra.schema.problems import Finding, Path

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


def plain_value_findings(
    raw: Mapping[str, Any], unread: str = "", lines: Collection[str] = LINES_ALLOWED
) -> Iterator[Finding]:
    """Characters that no setting has, in keys and texts, and one key twice.

    ``unread`` is a section left out; texts of the sections ``lines`` may have several lines.
    """
    yield from _of_section((), {key: value for key, value in raw.items() if key != unread}, lines)


def order(raw: object, path: Iterable[str | int]) -> tuple[int, ...]:
    """Where in the file ``path`` comes, as far as it is there: by the number of each key among those beside it."""
    numbers: list[int] = []
    for part in path:
        if isinstance(raw, Mapping):
            section = cast("Mapping[Any, Any]", raw)
            keys = [str(key) for key in section]
            raw = next((value for key, value in section.items() if str(key) == str(part)), None)
            numbers.append(keys.index(str(part)) if str(part) in keys else len(keys))
        elif isinstance(part, int):
            raw = cast("list[Any]", raw)[part] if isinstance(raw, list) else None
            numbers.append(part)
    return tuple(numbers)


def _of_section(path: Path, section: Mapping[Any, Any], lines: Collection[str]) -> Iterator[Finding]:
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
            yield from _of_value(place, value, lines)


def _of_value(place: Path, value: object, lines: Collection[str]) -> Iterator[Finding]:
    if isinstance(value, str):
        if character := _unwritable(value, lines=place[0] in lines):
            yield Finding(place, value, f"the value has {character}", "remove that character")
    elif isinstance(value, dict):
        yield from _of_section(place, cast("dict[Any, Any]", value), lines)
    elif isinstance(value, list):
        for index, element in enumerate(cast("list[object]", value)):
            yield from _of_value((*place, index), element, lines)


def _unwritable(text: str, *, lines: bool) -> str | None:
    """The first character of ``text`` that no setting has, in words; None where there is none."""
    for character in text:
        words = WORDS.get(unicodedata.category(character))
        if words and not (lines and character in "\n\t"):
            return words.format(code=ord(character))
    return None
