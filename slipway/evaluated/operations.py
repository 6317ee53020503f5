"""What an update would do to each resource, worked out as Pulumi's engine and the providers would.

The rules are those of the engine: which properties are unknown, what a changed provider or a resource that is
deleted first does to those that need it, whom ``protect`` stops. Source: `step_generator.go` of
https://pkg.go.dev/github.com/pulumi/pulumi/pkg/v3@v3.259.0/resource/deploy, read in November 2026.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slipway.evaluated.model import Operation
from slipway.infra.clouds.registry import reviews
from slipway.infra.review.contract import Review
from slipway.infra.review.effects import Consequence, Effects, Replacing
from slipway.infra.review.facts import Effect
from slipway.infra.review.property_diff import (
    Difference,
    Path,
    covers,
    differences,
    parse_path,
    unknown_paths,
    value_at,
)
from slipway.infra.review.stack import (
    FAILURE_FIELDS,
    KUBERNETES_PROVIDER,
    UNKNOWN,
    Resource,
    Stack,
    Unknown,
    unknown,
)

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
        settled = FAILURE_FIELDS if old.keeps_policy(new) else ()
        ignored = [parse_path(ignore_change) for ignore_change in [*new.ignore_changes, *settled]]
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
        for property_, urns in sorted(new.property_dependencies.items()):
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
    paths of files. Source: as of `slipway.evaluated.operations`.
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
