"""Values that only an update can tell, as a preview hands them to the program.

Pulumi's own preview makes a whole text unknown where a part of it is. Nobody would then see that a role's policy,
which holds an address that only the cloud knows, allows another action. So a value that is not known yet is handed
on as a mark, which survives in the texts that the program makes of it. A number's mark is a number, since the
program may do with it what it does with numbers. A truth value cannot be marked: it stays unknown.
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
        return _DIGITS.sub(lambda match: _marked(float(match[0])) or match[0], value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _marked(value) or value
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


def told(text: str) -> str | Partial | Unknown:
    """``text`` as a reviewer may have it."""
    if _MARK.fullmatch(text):
        return UNKNOWN
    return Partial(_MARK.sub(r"[\1]", text)) if is_marked(text) else text


def _marked(number: float) -> str:
    """The mark of the text that stands for this number, or for one near it; empty where the number is none's."""
    if not _FIRST <= number <= _LAST:
        return ""
    index = round((number - _FIRST) / _APART)
    if index >= len(_numbered):
        return ""
    more = int(number) - _FIRST - index * _APART
    return mark(_numbered[index] + (f"{more:+d}" if more else ""))
