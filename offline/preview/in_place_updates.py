"""The effects of updates in place, from the tables of the clouds and of Kubernetes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

from infra.review.contract import Review
from infra.review.facts import InPlace, When
from infra.review.properties import is_true, unknown
from infra.review.stack import Resource
from infra.schema.quantities import seconds, size_in_bytes
from offline.preview.property_diff import Difference, covers, parsed, touches, value_at, without_indices

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)(?:\.([0-9]+))?(?:-.*)?")

_OFF = frozenset({"", "disabled", "false", "none", "off", "suspended"})
"""How clouds write that a switch is off, in lower case."""

Amount = tuple[Fraction, ...]


@dataclass(frozen=True)
class Consequence:
    """A fact about updates in place that holds for ``differences`` of one resource."""

    fact: InPlace
    differences: Sequence[Difference]


class Effects:
    """Looks up the effects of an update in place."""

    def __init__(self, reviews: Sequence[Review]) -> None:
        self._facts: dict[str, list[InPlace]] = {}
        for review in reviews:
            for type_, facts in review.in_place().items():
                self._facts.setdefault(type_, []).extend(facts)

    def of(self, old: Resource, new: Resource, found: Sequence[Difference]) -> list[Consequence]:
        """The facts that apply to the change from ``old`` to ``new``, in the order of their table."""
        there = (
            (fact, [each for each in found if _holds(fact, each, old, new)])
            for fact in self._facts.get(new.type, ())
        )
        return [Consequence(fact, differences) for fact, differences in there if differences]


def _holds(fact: InPlace, difference: Difference, old: Resource, new: Resource) -> bool:
    kept = parsed(fact.kept)
    if kept and not any(covers(parsed(each), kept) for each in new.ignore_changes):
        return False
    if any(value_at(old.properties, parsed(path)) != value for path, value in fact.given.items()):
        return False
    for path in map(parsed, fact.paths):
        if fact.when is When.CHANGED:
            if touches(path, difference):
                return True
            continue
        if fact.when is When.OFF and isinstance(difference.path[-1], int):
            # An element whose place another one takes is still in the list.
            listed = value_at(new.properties, difference.path[:-1])
            if isinstance(listed, list) and difference.before in cast("list[object]", listed):
                continue
            difference = replace(difference, after=None)
        for before, after in _values(path, difference):
            earlier = value_at(old.properties, kept) if kept else before
            if _is(fact.when, earlier, after):
                return True
    return False


def _values(path: tuple[str | int, ...], difference: Difference) -> Iterator[tuple[Any, Any]]:
    """The values at ``path`` on both sides, once for every element of a list on the way."""
    for leaf in difference.leaves:
        if without_indices(leaf) == path:
            inside = leaf[len(difference.path) :]
            yield value_at(difference.before, inside), value_at(difference.after, inside)


def _is(when: When, before: Any, after: Any) -> bool:
    """Whether the change matches ``when``; false if that cannot be known."""
    if unknown(before) or unknown(after):
        return False
    if when in {When.ON, When.OFF}:
        return _is_on(before) is (when is When.OFF) and _is_on(after) is (when is When.ON)
    if when is When.SKIPPED:
        versions = [_VERSION.fullmatch(each) if isinstance(each, str) else None for each in (before, after)]
        numbers = [(int(each[1]), int(each[2])) for each in versions if each]
        return len(numbers) == 2 and numbers[1] > (numbers[0][0], numbers[0][1] + 1)
    earlier, now = _amount(before), _amount(after)
    if when is When.SHORTENED:
        never = before is None or (earlier is not None and not any(earlier))
        return now is not None and any(now) and (never or (earlier is not None and now < earlier))
    if earlier is None or now is None or len(earlier) != len(now):
        return False
    return now > earlier if when is When.RAISED else now < earlier


def _is_on(value: Any) -> bool:
    """Whether a switch is on, or a value there: what is no switch is on unless it is empty."""
    if isinstance(value, str):
        return value.lower() not in _OFF
    return is_true(value) or (not isinstance(value, bool) and bool(value))


def _amount(value: Any) -> Amount | None:
    """A number, a Kubernetes quantity, a version or a duration in a form that can be compared; None for any other.

    ``1.36`` is read as a version, so that 1.9 is older.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return (Fraction(value),)
    if not isinstance(value, str):
        return None
    if version := _VERSION.fullmatch(value):
        return tuple(Fraction(part or 0) for part in version.groups())
    for read in (size_in_bytes, seconds):
        try:
            return (Fraction(read(value)),)
        except ValueError:
            continue
    return None
