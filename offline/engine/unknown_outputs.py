"""Marks in place of values that are known only after an update.

In Pulumi's own preview a text is unknown as soon as one part of it is. A reviewer would not see, for example, that
a role's policy allows another action, because the policy contains an address that only the cloud knows. So the
program gets a mark in place of an unknown value, and the mark stays visible in the texts that the program builds
from it. The mark of a number is a number, because the program may calculate with it. A truth value cannot be
marked: it stays unknown.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from infra.review.stack import UNKNOWN, Partial, Unknown

_MARK = re.compile(r"<<unknown:([^<>]*)>>")

_FIRST, _APART = 8_675_309_000_000_000, 1_000
_LAST = _FIRST + 999_999 * _APART
"""Numbers of 16 digits, which a double holds exactly. Far enough apart that what is one more stays one's own."""

_DIGITS = re.compile(r"(?<![0-9.])8675309[0-9]{9}(?:\.0)?(?![0-9])")

_numbered: list[str] = []
"""Names of the numbers that were handed on: the nth has the nth mark."""


def mark(name: str) -> str:
    """What stands for a text that is not known; ``name`` says which."""
    return f"<<unknown:{re.sub('[<>]', '', name)}>>"


def number_mark(name: str) -> int:
    """What stands for a number that is not known; ``name`` says which."""
    if name not in _numbered:
        _numbered.append(name)
    return _FIRST + _numbered.index(name) * _APART


def as_marks(value: Any) -> Any:
    """A text or a number, with marks of texts in place of those of numbers."""
    if isinstance(value, str):
        return _DIGITS.sub(lambda match: _mark_for(float(match[0])) or match[0], value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _mark_for(value) or value
    return value


def is_marked(value: Any) -> bool:
    """Whether a mark is in ``value`` or in anything below it."""
    if isinstance(value, Mapping):
        return any(is_marked(item) for item in cast("Mapping[Any, Any]", value).values())
    if isinstance(value, list):
        return any(is_marked(element) for element in cast("list[Any]", value))
    text = as_marks(value)
    return isinstance(text, str) and _MARK.search(text) is not None


def whole(value: Any) -> str | None:
    """The name of what ``value`` is the mark of; None where it is no mark, or more than one."""
    match = _MARK.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def unmark(text: str) -> str | Partial | Unknown:
    """``text`` as a reviewer may have it."""
    if _MARK.fullmatch(text):
        return UNKNOWN
    return Partial(_MARK.sub(r"[\1]", text)) if is_marked(text) else text


def _mark_for(number: float) -> str:
    """The mark of the text that stands for this number, or for one near it; empty where the number is none's."""
    if not _FIRST <= number <= _LAST:
        return ""
    index = round((number - _FIRST) / _APART)
    if index >= len(_numbered):
        return ""
    more = int(number) - _FIRST - index * _APART
    return mark(_numbered[index] + (f"{more:+d}" if more else ""))
