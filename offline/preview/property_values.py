"""Shortens values of properties for display, without secrets."""

import difflib
import json
from collections.abc import Mapping
from typing import Any

LIMIT = 200
"""Most characters of a value that is shown."""

LEAD = 40
"""Characters before the first difference of two long lines."""


def shown(value: object) -> Any:
    """The value if it is short, else a shortened form."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if _short(value) else _lines(value) if "\n" in value else _cut(value, 0)
    if isinstance(value, Mapping | list):
        text = json.dumps(value, ensure_ascii=False, default=repr)
        return json.loads(text) if len(text) <= LIMIT else _cut(text, 0)
    return repr(value)


def both(before: object, after: object) -> tuple[Any, Any]:
    """Two different values, shortened so that the difference is visible."""
    if isinstance(before, str) and isinstance(after, str) and not (_short(before) and _short(after)):
        if "\n" in before or "\n" in after:
            return _lines(before), f"{_lines(after)} ({_counted(before, after)})"
        begins = _first_difference(before, after) - LEAD
        return _cut(before, begins), _cut(after, begins)
    return shown(before), shown(after)


def _short(text: str) -> bool:
    return len(text) <= LIMIT and "\n" not in text.strip("\n")


def _lines(text: str) -> str:
    count = len(text.splitlines())
    return f"{count} line{'' if count == 1 else 's'}"


def _counted(before: str, after: str) -> str:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"+{added} \N{MINUS SIGN}{removed}"


def _first_difference(before: str, after: str) -> int:
    pairs = zip(before, after, strict=False)
    return next((index for index, (old, new) in enumerate(pairs) if old != new), min(len(before), len(after)))


def _cut(text: str, begins: int) -> str:
    start = max(begins, 0)
    piece = text[start : start + LIMIT - 2]
    return f"{'…' if start else ''}{piece}{'…' if start + len(piece) < len(text) else ''}"
