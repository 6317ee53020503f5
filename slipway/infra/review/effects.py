"""What a change of properties does to a resource: whether it replaces it, and what an update in place means."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

from slipway.infra.review.contract import Review
from slipway.infra.review.facts import InPlace, When
from slipway.infra.review.property_diff import (
    Difference,
    Path,
    covers,
    parse_path,
    touches,
    value_at,
    without_indices,
)
from slipway.infra.review.stack import KUBERNETES_PROVIDER, Resource, is_true, unknown
from slipway.infra.schema.quantities import seconds, size_in_bytes

BLOCK = "{}"
IDENTIFIER = ("clusterIdentifier",)


@dataclass(frozen=True)
class _Force:
    """A property whose change replaces the resource; with ``whole`` only its addition or removal does."""

    path: Path
    whole: bool


class Replacing:
    """Looks up which changes replace a resource."""

    def __init__(self, reviews: Sequence[Review]) -> None:
        self._forces: dict[str, list[_Force]] = {}
        self.moving = frozenset[str]().union(*(review.moving for review in reviews))
        """Types whose outputs may change with every update."""
        self._sometimes = {type_: paths for review in reviews for type_, paths in review.sometimes.items()}
        self._computed = {
            type_: [parse_path(path) for path in paths]
            for review in reviews
            for type_, paths in review.computed().items()
        }
        for review in reviews:
            for type_, paths in review.replacing().items():
                self._forces[type_] = [
                    _Force(parse_path(path.removesuffix(BLOCK)), path.endswith(BLOCK)) for path in paths
                ]

    def knows(self, type_: str) -> bool:
        """Whether a source says which changes replace resources of this type."""
        return type_ in self._forces

    def find_forcing(
        self, type_: str, diffs: Sequence[Difference], before: Mapping[str, object], after: Mapping[str, object]
    ) -> list[Difference]:
        """The differences that replace a resource with these properties before and after."""
        if type_ == KUBERNETES_PROVIDER:
            diffs = _provider_differences(diffs, before, after)
        always, sometimes = self._forces.get(type_, ()), self._sometimes.get(type_, {})
        return [
            difference
            for difference in diffs
            if any(_forces(force, difference) for force in always)
            or any(
                without_indices(difference.path) == parse_path(path)
                and replaces(difference.before, difference.after)
                for path, replaces in sometimes.items()
            )
        ]

    def keeps(self, type_: str, difference: Difference, after: Mapping[str, object]) -> bool:
        """Whether the provider keeps a value that is no longer set ``after`` the change."""
        return any(
            covers(path, difference.path) and value_at(after, path) is None
            for path in self._computed.get(type_, ())
        )

    def may_force(self, type_: str, property_: str) -> bool:
        """Whether a change below ``property_`` replaces the resource."""
        return any(force.path[0] == property_ for force in self._forces.get(type_, ()))


def _provider_differences(
    diffs: Sequence[Difference], before: Mapping[str, object], after: Mapping[str, object]
) -> list[Difference]:
    """The differences of a Kubernetes provider that may replace it.

    If both sides have the same cluster identifier, it is the same cluster, whatever the kubeconfig. An identifier
    that only one side has tells nothing.

    Source: `DiffConfig`, https://github.com/pulumi/pulumi-kubernetes/blob/v4.32.0/provider/pkg/provider/provider.go,
    2026-07-01.
    """
    changed = any(difference.path == IDENTIFIER for difference in diffs)
    both = all(side.get(IDENTIFIER[0]) is not None for side in (before, after))
    if both and not changed:
        return []
    return [difference for difference in diffs if difference.path != IDENTIFIER or both]


def _forces(force: _Force, difference: Difference) -> bool:
    if force.whole:
        # An element that comes or goes changes the number of its list's blocks.
        block = without_indices(difference.path) == force.path and (
            difference.before is None or difference.after is None
        )
        return block or any(without_indices(path) == force.path for path in difference.leaves[1:])
    return touches(force.path, difference)


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

    def of(self, old: Resource, new: Resource, diffs: Sequence[Difference]) -> list[Consequence]:
        """The facts that apply to the change from ``old`` to ``new``, in the order of their table."""
        facts = (
            (fact, [difference for difference in diffs if _holds(fact, difference, old, new)])
            for fact in self._facts.get(new.type, ())
        )
        return [Consequence(fact, differences) for fact, differences in facts if differences]


def _holds(fact: InPlace, difference: Difference, old: Resource, new: Resource) -> bool:
    kept = parse_path(fact.kept)
    if kept and not _ignores(new, kept):
        return False
    if fact.sent and _ignores(new, parse_path(fact.sent)):
        return False
    if any(value_at(old.properties, parse_path(path)) != value for path, value in fact.given.items()):
        return False
    for path in map(parse_path, fact.paths):
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
            if _matches(fact.when, earlier, after):
                return True
    return False


def _ignores(resource: Resource, path: Path) -> bool:
    return any(covers(parse_path(ignored), path) for ignored in resource.ignore_changes)


def _values(path: tuple[str | int, ...], difference: Difference) -> Iterator[tuple[Any, Any]]:
    """The values at ``path`` on both sides, once for every element of a list on the way."""
    for leaf in difference.leaves:
        if without_indices(leaf) == path:
            inside = leaf[len(difference.path) :]
            yield value_at(difference.before, inside), value_at(difference.after, inside)


def _matches(when: When, before: Any, after: Any) -> bool:
    """Whether the change matches ``when``; false if that cannot be known."""
    if unknown(before) or unknown(after):
        return False
    if when in {When.ON, When.OFF}:
        return _is_on(before) is (when is When.OFF) and _is_on(after) is (when is When.ON)
    if when is When.SKIPPED:
        versions = [_VERSION.fullmatch(side) if isinstance(side, str) else None for side in (before, after)]
        numbers = [(int(version[1]), int(version[2])) for version in versions if version]
        return len(numbers) == 2 and numbers[1] > (numbers[0][0], numbers[0][1] + 1)
    earlier, now = _amount(before), _amount(after)
    if when is When.SHORTENED:
        never = before is None or (earlier is not None and not any(earlier))
        return now is not None and any(now) and (never or (earlier is not None and now < earlier))
    if earlier is None or now is None or len(earlier) != len(now):
        return False
    return now > earlier if when is When.RAISED else now < earlier


def _is_on(value: Any) -> bool:
    """Whether a switch is on. A value of another kind is on unless it is empty."""
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
