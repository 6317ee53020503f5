"""Which changes replace a resource, from the reviews of all clouds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.review.contract import Review
from infra.review.stack import KUBERNETES_PROVIDER
from offline.preview.property_diff import Difference, Path, covers, parsed, touches, value_at, without_indices

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
            type_: [parsed(path) for path in paths]
            for review in reviews
            for type_, paths in review.computed().items()
        }
        for review in reviews:
            for type_, paths in review.replacing().items():
                self._forces[type_] = [
                    _Force(parsed(path.removesuffix(BLOCK)), path.endswith(BLOCK)) for path in paths
                ]

    def knows(self, type_: str) -> bool:
        """Whether a source says which changes replace resources of this type."""
        return type_ in self._forces

    def forced(
        self, type_: str, found: Sequence[Difference], before: Mapping[str, object], after: Mapping[str, object]
    ) -> list[Difference]:
        """The differences that replace a resource with these properties before and after."""
        if type_ == KUBERNETES_PROVIDER:
            found = _of_provider(found, before, after)
        always, sometimes = self._forces.get(type_, ()), self._sometimes.get(type_, {})
        return [
            each
            for each in found
            if any(_forces(force, each) for force in always)
            or any(
                without_indices(each.path) == parsed(path) and replaces(each.before, each.after)
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


def _of_provider(
    found: Sequence[Difference], before: Mapping[str, object], after: Mapping[str, object]
) -> list[Difference]:
    """What counts of a Kubernetes provider.

    An identifier that stays says that it is the same cluster, whatever the kubeconfig; one that comes or goes says
    nothing.

    Source: `DiffConfig`, https://github.com/pulumi/pulumi-kubernetes/blob/v4.32.0/provider/pkg/provider/provider.go,
    2026-07-01.
    """
    changed = any(each.path == IDENTIFIER for each in found)
    both = all(side.get(IDENTIFIER[0]) is not None for side in (before, after))
    if both and not changed:
        return []
    return [each for each in found if each.path != IDENTIFIER or both]


def _forces(force: _Force, difference: Difference) -> bool:
    if force.whole:
        # An element that comes or goes changes the number of its list's blocks.
        block = without_indices(difference.path) == force.path and (
            difference.before is None or difference.after is None
        )
        return block or any(without_indices(path) == force.path for path in difference.leaves[1:])
    return touches(force.path, difference)
