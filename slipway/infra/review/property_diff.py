"""The differences between two values of a property."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, cast

from slipway.infra.review.stack import UNKNOWN, Unknown, at, text, unknown

Path = tuple[str | int, ...]
"""Keys of mappings and indices of lists, from the resource's inputs downwards."""

IDENTIFYING = ("name", "key")
"""The keys that identify the elements of a list in Kubernetes and in the clouds."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_STEP = re.compile(r"""\[("(?:[^"\\]|\\.)*")\]|\[(\d+|\*)\]|([^.\[\]]+)""")


@dataclass(frozen=True)
class Difference:
    """One place where two resources differ; None if a side has no value there.

    Both are `UNKNOWN` if only the update can tell whether they differ.
    """

    path: Path
    before: Any
    after: Any

    @property
    def leaves(self) -> list[Path]:
        """The path itself, and those of all values below it on either side."""
        return list(dict.fromkeys([self.path, *_below(self.path, self.before), *_below(self.path, self.after)]))


def differences(before: Any, after: Any, path: Path = ()) -> Iterator[Difference]:
    """Every place where the values differ. Two unknown values count as equal."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        old, new = cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", after)
        # The order in which an SDK writes properties is not the same in every run.
        for key in sorted({*old, *new}):
            yield from differences(old.get(key), new.get(key), (*path, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_differences(cast("list[Any]", before), cast("list[Any]", after), path)
    elif not _equal(before, after):
        yield Difference(path, before, after)


def unknown_paths(value: Any, path: Path) -> Iterator[Path]:
    """The places in ``value`` that are unknown until the update."""
    if unknown(value):
        yield path
    for step, item in _items(value):
        yield from unknown_paths(item, (*path, step))


def path_text(path: Path) -> str:
    """The path as people and Pulumi write it: ``spec.containers[0].args``, ``data["train.py"]``."""
    joined = ""
    for step in path:
        if isinstance(step, int):
            joined += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            joined += f".{step}" if joined else step
        else:
            joined += f"[{json.dumps(step, ensure_ascii=False)}]"
    return joined


def parse_path(path: str) -> Path:
    """A path as it stands in ``ignore_changes``; ``*`` is a step like any other."""
    steps: list[str | int] = []
    for match in _STEP.finditer(path):
        quoted, index, key = match.groups()
        if quoted is not None:
            steps.append(json.loads(quoted))
        else:
            steps.append(int(index) if index and index != "*" else index or key)
    return tuple(steps)


def covers(pattern: Path, path: Path) -> bool:
    """Whether ``path`` is at or below ``pattern``, in which ``*`` stands for any key or index."""
    return len(pattern) <= len(path) and all(
        step in ("*", actual) for step, actual in zip(pattern, path, strict=False)
    )


def without_indices(path: Path) -> Path:
    """The path without the indices of lists."""
    return tuple(step for step in path if isinstance(step, str) and step != "*")


def touches(path: Path, difference: Difference) -> bool:
    """Whether the difference is at or below ``path``, or above it with something at ``path`` on one side.

    ``path`` has no indices of lists.
    """
    return any(without_indices(leaf)[: len(path)] == path for leaf in difference.leaves)


def value_at(value: object, path: Path) -> Any:
    """The value at ``path``; `UNKNOWN` if a value on the way is."""
    for step in path:
        if isinstance(value, Mapping):
            value = cast("Mapping[Any, object]", value).get(step)
        elif isinstance(value, list) and isinstance(step, int):
            elements = cast("list[object]", value)
            value = elements[step] if step < len(elements) else None
        else:
            return UNKNOWN if value == UNKNOWN else None
    return value


def _equal(before: Any, after: Any) -> bool:
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if any(isinstance(side, Unknown) and not side.source for side in (before, after)):
        # It may be the value of which the other side knows a part.
        return unknown(before) and unknown(after)
    return before == after


def _below(path: Path, value: Any) -> Iterator[Path]:
    for step, item in _items(value):
        yield (*path, step)
        yield from _below((*path, step), item)


def _items(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).items()
    return enumerate(cast("list[Any]", value)) if isinstance(value, list) else ()


def _list_differences(before: list[Any], after: list[Any], path: Path) -> Iterator[Difference]:
    old, new = _index_by_key(before), _index_by_key(after)
    if _are_scalars(before) and _are_scalars(after):
        yield from _scalar_differences(before, after, path)
        return
    if old is None or new is None:
        for index, (earlier, now) in enumerate(zip_longest(before, after)):
            yield from differences(earlier, now, (*path, index))
        return
    for name, index in new.items():
        earlier = before[old[name]] if name in old else None
        yield from differences(earlier, after[index], (*path, index))
    for name, index in old.items():
        if name not in new:
            yield Difference((*path, index), before[index], None)
    kept = [name for name in old if name in new]
    if kept != [name for name in new if name in old]:
        yield Difference(path, list(old), list(new))


def _scalar_differences(before: list[Any], after: list[Any], path: Path) -> Iterator[Difference]:
    """The elements that were added and removed, so that an added argument does not change all that follow it."""
    # `repr` keeps values of different types apart: 1, True and 1.0 are equal in Python.
    alike = SequenceMatcher(
        None, [repr(element) for element in before], [repr(element) for element in after], autojunk=False
    )
    for kind, old, old_end, new, new_end in alike.get_opcodes():
        if kind != "equal":
            for step in range(max(old_end - old, new_end - new)):
                came, went = new + step < new_end, old + step < old_end
                index = new + step if came else old + step
                yield Difference(
                    (*path, index), before[old + step] if went else None, after[new + step] if came else None
                )


def _are_scalars(elements: list[Any]) -> bool:
    return all(isinstance(element, str | int | float) for element in elements)


def _index_by_key(elements: list[Any]) -> dict[str, int] | None:
    """Indices by the key that identifies the elements; None if there is no such key."""
    if not elements:
        return {}
    for key in IDENTIFYING:
        names = [text(at(element, key)) for element in elements]
        if all(names) and len(set(names)) == len(names):
            return {name: index for index, name in enumerate(names)}
    return None


LIMIT = 200
"""Most characters of a value that is shown."""

LEAD = 40
"""Characters before the first difference of two long lines."""


def shorten(value: object) -> Any:
    """The value if it is short, else a shortened form."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if _short(value) else _lines(value) if "\n" in value else _cut(value, 0)
    if isinstance(value, Mapping | list):
        text = json.dumps(value, ensure_ascii=False, default=repr)
        return json.loads(text) if len(text) <= LIMIT else _cut(text, 0)
    return repr(value)


def shorten_both(before: object, after: object) -> tuple[Any, Any]:
    """Two different values, shortened so that the difference is visible."""
    if isinstance(before, str) and isinstance(after, str) and not (_short(before) and _short(after)):
        if "\n" in before or "\n" in after:
            return _lines(before), f"{_lines(after)} ({_count_changed_lines(before, after)})"
        begins = _first_difference(before, after) - LEAD
        return _cut(before, begins), _cut(after, begins)
    return shorten(before), shorten(after)


def _short(text: str) -> bool:
    return len(text) <= LIMIT and "\n" not in text.strip("\n")


def _lines(text: str) -> str:
    count = len(text.splitlines())
    return f"{count} line{'' if count == 1 else 's'}"


def _count_changed_lines(before: str, after: str) -> str:
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
