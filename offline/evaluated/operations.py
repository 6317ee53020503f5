"""What an update would do to each resource, worked out as Pulumi's engine and the providers would.

The rules are those of the engine: which properties are unknown, what a changed provider or a resource that is
deleted first does to those that need it, whom ``protect`` stops. Source: `step_generator.go` of
https://pkg.go.dev/github.com/pulumi/pulumi/pkg/v3@v3.259.0/resource/deploy, read in November 2026.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

from slipway.infra.clouds.registry import reviews
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import Effect, InPlace, When
from slipway.infra.review.stack import KUBERNETES_PROVIDER, UNKNOWN, Resource, Stack, Unknown, is_true, unknown
from slipway.infra.schema.quantities import seconds, size_in_bytes
from slipway.offline.evaluated.model import Operation
from slipway.offline.evaluated.property_diff import (
    Difference,
    Path,
    covers,
    differences,
    parse_path,
    touches,
    unknown_paths,
    value_at,
    without_indices,
)

# Which changes replace a resource, from the reviews of all clouds.


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


# The effects of updates in place, from the tables of the clouds and of Kubernetes.


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


SAME_SERVER = "both lead to the same server, which this preview does not look up"

GOES = frozenset({Operation.REPLACE, Operation.DELETE})
"""The operations after which the resource that was there is gone."""

SECRET_TYPE, SECRET_DATA = "kubernetes:core/v1:Secret", ("data", "stringData")
MUTABLE = "enableSecretMutable"
"""The property of a Kubernetes provider that has it change Secrets in place (seen with provider 4.32 in November
2026; https://www.pulumi.com/registry/packages/kubernetes/api-docs/provider)."""

_LEADS = frozenset({"kubeconfig", "context", "cluster"})
"""The properties of a Kubernetes provider that lead to its cluster."""


@dataclass(frozen=True)
class ResourceDiff:
    """One resource on both sides; ``before`` or ``after`` is None where it is created or deleted.

    ``operation`` is None where it stays as it is. ``forcing`` are those of ``differences`` that replace it, and
    ``because`` says what else does. ``known`` is false where no source says which changes replace it.
    ``consequences`` are what an update in place means for what is there. ``kept`` are differences that the
    provider does not carry out: what is no longer set stays. ``unless`` says when a resource that counts as
    replaced stays after all.
    """

    before: Resource | None
    after: Resource | None
    operation: Operation | None
    differences: Sequence[Difference] = ()
    forcing: Sequence[Difference] = ()
    because: str = ""
    known: bool = True
    consequences: Sequence[Consequence] = ()
    kept: Sequence[Difference] = ()
    unless: str = ""

    @property
    def resource(self) -> Resource:
        """The resource after the update, or before it if it is deleted."""
        resource = self.after or self.before
        assert resource is not None
        return resource

    @property
    def note(self) -> str:
        """The effects of an update in place as text; empty if none is known."""
        refused = [effect for effect in self.consequences if effect.fact.effect is Effect.REFUSED]
        return "; ".join(effect.fact.note for effect in refused or self.consequences)

    @property
    def deleted(self) -> Resource | None:
        """The old resource if the update deletes it, to replace it or for good; None if it stays."""
        return None if self.operation not in GOES or self.protected or self.retained else self.before

    @property
    def retained(self) -> bool:
        """Whether Pulumi only forgets the resource that is there, and does not delete it."""
        return self.before is not None and self.before.retain_on_delete

    @property
    def protected(self) -> bool:
        """Whether the update fails because the resource may not be deleted."""
        if self.before is None or self.operation not in GOES:
            return False
        return self.before.protect and (self.after is None or self.after.protect)


def compare_resources(before: Stack, after: Stack, known: Sequence[Review] | None = None) -> list[ResourceDiff]:
    """Every managed resource in the order of declaration, then those that are deleted.

    ``known`` says which changes replace a resource; default: the reviews of all clouds and of Kubernetes.
    """
    return _Update(before, after, reviews() if known is None else known).all()


class _Update:
    """Decides about resources in the order of declaration, so that dependencies are decided first."""

    def __init__(self, before: Stack, after: Stack, known: Sequence[Review]) -> None:
        self._before = before
        self._after = after
        self._replacing = Replacing(known)
        self._effects = Effects(known)
        self._pairs = _pairs(before, after)
        self._now_called = {old.urn: new.urn for old, new in self._pairs if old and new}
        self._renamed = {old.name: new.name for old, new in self._pairs if old and new and old.name != new.name}
        self._created = {new.urn for old, new in self._pairs if old is None and new}
        self._replaced = set[str]()
        self._unless = dict[str, str]()
        """Under which condition neither a provider nor the objects on its cluster are replaced, by the URN of the
        provider."""
        self._deleted_first = set[str]()
        self._renewed = set(self._created)
        """Resources whose outputs are unknown until they are updated."""

    def all(self) -> list[ResourceDiff]:
        comparisons: list[ResourceDiff] = []
        for old, new in self._pairs:
            if old is None or new is None:
                comparisons.append(ResourceDiff(old, new, Operation.DELETE if new is None else Operation.CREATE))
            else:
                comparisons.append(self._compare(old, new))
        return comparisons

    def _compare(self, old: Resource, new: Resource) -> ResourceDiff:
        changed = self._differences(old, new)
        kept = [resource for resource in changed if self._replacing.keeps(new.type, resource, new.properties)]
        pending = [resource for resource in changed if resource not in kept]
        forcing = self._forcing_differences(old, new, pending)
        forcing += [resource for resource in pending if resource not in forcing and _is_to_replace(new, resource)]
        because = self._because(old, new, forcing)
        known = not pending or bool(forcing or because) or self._replacing.knows(new.type)
        if forcing or because:
            self._replaced.add(new.urn)
            self._renewed.add(new.urn)
            if new.delete_before_replace or _keeps_name(old, new) or self._goes_first(new):
                self._deleted_first.add(new.urn)
            unless = self._unless.get(new.provider, "")
            if new.type == KUBERNETES_PROVIDER and (unless := _same_cluster(forcing)):
                self._unless[new.urn] = unless
            return ResourceDiff(
                old, new, Operation.REPLACE, pending, forcing, because, known, kept=kept, unless=unless
            )
        if not pending:
            return ResourceDiff(old, new, None, kept=kept)
        if new.type in self._replacing.moving:
            self._renewed.add(new.urn)
        consequences = self._effects.of(old, new, pending)
        return ResourceDiff(old, new, Operation.UPDATE, pending, known=known, consequences=consequences, kept=kept)

    def _forcing_differences(
        self, old: Resource, new: Resource, changed: Sequence[Difference]
    ) -> list[Difference]:
        forced = self._replacing.find_forcing(new.type, changed, old.properties, new.properties)
        provider = self._after.resources.get(new.provider)
        if new.type != SECRET_TYPE or provider is None or not _on(provider.properties.get(MUTABLE)):
            return forced
        return [difference for difference in forced if difference.path[0] not in SECRET_DATA]

    def _differences(self, old: Resource, new: Resource) -> list[Difference]:
        ignored = [parse_path(ignore_change) for ignore_change in new.ignore_changes]
        candidates = [*differences(old.properties, new.properties), *self._may_differ(old, new)]
        return [
            difference
            for difference in candidates
            if not any(covers(pattern, difference.path) for pattern in ignored)
        ]

    def _may_differ(self, old: Resource, new: Resource) -> Iterator[Difference]:
        """The differences in values that are unknown on both sides but come from another resource than before."""
        for property_ in dict.fromkeys([*new.property_dependencies, *old.property_dependencies]):
            urns = new.property_dependencies.get(property_, frozenset())
            paths = list(unknown_paths(new.properties.get(property_), (property_,)))
            elsewhere = [path for path in paths if self._comes_from_elsewhere(old, new, path)]
            for path in elsewhere:
                yield Difference(path, value_at(old.properties, path), value_at(new.properties, path))
            candidates = [
                Difference(path, UNKNOWN, UNKNOWN)
                for path in paths
                if urns & self._renewed and path not in elsewhere and _same_unknown(old, new, path)
            ]
            # An update in place keeps the identifiers of a resource, so it replaces no other resource.
            kept = (
                [] if urns & (self._created | self._replaced) else self._forcing_differences(old, new, candidates)
            )
            yield from (difference for difference in candidates if difference not in kept)

    def _comes_from_elsewhere(self, old: Resource, new: Resource, path: Path) -> bool:
        """Whether a value that is unknown on both sides is another output than before.

        If a side does not name the output, the resources that the property depends on are compared. These are
        known of a whole property only, so a value inside it counts as different only if no resource is the same.
        """
        earlier, now = value_at(old.properties, path), value_at(new.properties, path)
        sources = [resource.source for resource in (earlier, now) if isinstance(resource, Unknown)]
        if not unknown(earlier) or not unknown(now) or (len(sources) < 2 and all(sources)):
            return False
        if all(sources):
            return self._now_named(sources[0]) != sources[1]
        before = {self._now_called.get(urn, urn) for urn in old.property_dependencies.get(str(path[0]), ())}
        after = set(new.property_dependencies.get(str(path[0]), ()))
        return before != after if len(path) == 1 else bool(before and after) and not before & after

    def _now_named(self, source: str) -> str:
        """The name of an output with the name that its resource has now."""
        for earlier, now in self._renamed.items():
            if source.startswith(f"{earlier}."):
                return now + source.removeprefix(earlier)
        return source

    def _because(self, old: Resource, new: Resource, forcing: Sequence[Difference]) -> str:
        """Why the resource is replaced if not for a changed property; empty if there is no such reason."""
        if new.provider in self._replaced:
            return f"{self._describe(new.provider)} is replaced"
        if self._other_provider(old, new):
            return f"it moves from {_provider(old)} to {_provider(new)}"
        if together := sorted(new.replace_with & self._replaced):
            return f"it is replaced with {self._describe(together[0])}"
        unknown = {
            difference.path[0] for difference in forcing if UNKNOWN in (difference.before, difference.after)
        }
        for property_, urns in new.property_dependencies.items():
            if property_ in unknown and (sources := urns & self._renewed):
                return self._comes_from(str(property_), sources)
            if (gone := urns & self._deleted_first) and self._replacing.may_force(new.type, property_):
                # The engine treats all outputs of a resource that is deleted first as unknown.
                return self._comes_from(str(property_), gone)
        return ""

    def _goes_first(self, new: Resource) -> bool:
        """Whether it depends on a resource that is deleted before its replacement, and is therefore deleted before
        that."""
        needed = frozenset[str]().union(*new.property_dependencies.values(), [new.provider])
        return bool(needed & self._deleted_first)

    def _other_provider(self, old: Resource, new: Resource) -> bool:
        """Whether the provider changed to one for another cluster or account."""
        if self._now_called.get(old.provider, old.provider) == new.provider:
            return False
        earlier, now = self._before.resources.get(old.provider), self._after.resources.get(new.provider)
        if earlier is None or now is None or now.dependencies & self._renewed:
            return True
        changed = list(differences(earlier.properties, now.properties))
        return bool(self._replacing.find_forcing(now.type, changed, earlier.properties, now.properties))

    def _comes_from(self, property_: str, sources: set[str] | frozenset[str]) -> str:
        replaced, created = sorted(sources & self._replaced), sorted(sources & self._created)
        urn = [*replaced, *created, *sorted(sources)][0]
        fate = "is replaced" if replaced else "is new" if created else "is updated"
        return f"its {property_} comes from {self._describe(urn)}, which {fate}"

    def _describe(self, urn: str) -> str:
        resource = self._after.resources[urn]
        if resource.type.startswith("pulumi:providers:"):
            return f"the provider {resource.name}"
        return f"{resource.type.rpartition(':')[2]} {resource.name}"


def _is_to_replace(new: Resource, difference: Difference) -> bool:
    patterns = [parse_path(replace_on_change) for replace_on_change in new.replace_on_changes]
    return any(covers(pattern, path) for pattern in patterns for path in difference.leaves)


def _same_unknown(old: Resource, new: Resource, path: Path) -> bool:
    """Whether it is unknown if the value at ``path`` changes."""
    earlier, now = value_at(old.properties, path), value_at(new.properties, path)
    return isinstance(earlier, Unknown) or (unknown(earlier) and earlier == now)


def _same_cluster(forcing: Sequence[Difference]) -> str:
    """When a Kubernetes provider is only updated though its kubeconfig is another; empty where it is replaced.

    The provider compares the clusters that both kubeconfigs name. They are unknown here if the kubeconfigs are
    paths of files. Source: as of `slipway.offline.evaluated.operations`.
    """
    paths = all(difference.path[0] in _LEADS and not unknown(difference.after) for difference in forcing)
    return SAME_SERVER if forcing and paths else ""


def _on(value: object) -> bool:
    """Whether a property of a provider, which has text, is true."""
    return str(value).lower() == "true"


def _keeps_name(old: Resource, new: Resource) -> bool:
    """Whether the successor has its predecessor's name, which can exist only once.

    The Kubernetes provider deletes such an object first, asked to or not, and so do the providers that are bridged
    from Terraform's.
    """
    names = [("metadata", "namespace"), ("metadata", "name")] if new.package == "kubernetes" else [("name",)]
    before, after = ([value_at(resource.properties, path) for path in names] for resource in (old, new))
    return before == after and isinstance(after[-1], str)


def _provider(resource: Resource) -> str:
    name = resource.provider.rpartition("::")[2]
    return f"the provider {name}" if name else "the default provider"


def _pairs(before: Stack, after: Stack) -> list[tuple[Resource | None, Resource | None]]:
    """The managed resources of both sides, matched; then those that are gone, in the order of their deletion."""
    old, new = _managed_resources(before), _managed_resources(after)
    left = dict(old)
    pairs: list[tuple[Resource | None, Resource | None]] = []
    for urn, resource in new.items():
        match = left.pop(urn, None)
        if match is None:
            earlier = (
                earlier_urn
                for earlier_urn in _earlier_urns(resource, after)
                if earlier_urn in left and earlier_urn not in new
            )
            match = left.pop(next(earlier, ""), None)
        pairs.append((match, resource))
    return [*pairs, *((resource, None) for resource in reversed(left.values()))]


def _managed_resources(stack: Stack) -> Mapping[str, Resource]:
    return {urn: resource for urn, resource in stack.resources.items() if resource.custom and not resource.read}


def _earlier_urns(resource: Resource, stack: Stack) -> Iterator[str]:
    """The URNs that its aliases, and those of the components around it, give a resource."""
    yield from _aliased_urns(resource)
    # Pulumi's SDKs give a child whose name begins with its parent's the aliases of the parent.
    parent = stack.resources.get(resource.parent)
    while parent is not None:
        if resource.name.startswith(parent.name):
            for urn in _aliased_urns(parent):
                name = urn.rpartition("::")[2] + resource.name.removeprefix(parent.name)
                yield _with_name(resource.urn, name)
        parent = stack.resources.get(parent.parent)


def _aliased_urns(resource: Resource) -> Iterator[str]:
    for alias in resource.aliases:
        yield alias if alias.startswith("urn:pulumi:") else _with_name(resource.urn, alias)


def _with_name(urn: str, name: str) -> str:
    return f"{urn.rpartition('::')[0]}::{name}"
