"""The contract between the preview and a cloud."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from infra.review.facts import Charge, Identity, InPlace, Quota, Seconds
from infra.review.holdings import Holding
from infra.review.policy import Policy
from infra.review.stack import Declared, NodePool, Stack


def _no_seconds(_: Declared) -> Seconds | None:
    return None


def _no_identities(_: Stack) -> Sequence[Identity]:
    return ()


def _no_endpoints(_: Stack) -> Mapping[str, str]:
    return {}


def _no_holding(_resource: Declared, _stack: Stack) -> Holding | None:
    return None


def _nothing_computed() -> Mapping[str, Sequence[str]]:
    return {}


def _nothing_in_place() -> Mapping[str, Sequence[InPlace]]:
    return {}


@dataclass(frozen=True)
class Review:
    """What a cloud, or Kubernetes, says of the resources that it knows; each part is silent about all others.

    ``replacing`` are, by resource type, the paths of the properties whose change replaces a resource, whatever the
    change below them is, without the indices of lists: ``nodeConfig.diskType``, ``spec.template``. A path that
    ends in ``{}`` counts only where a block comes or goes, or more or fewer of it: ``nodeConfig{}``. A type that
    is missing is not known. ``sometimes`` are, by type and path, the properties that replace a resource by some
    changes only; they are asked with the values before and after.

    ``computed`` are, by resource type, the paths of the optional properties that the provider computes where they
    are not set: one that is taken away keeps its value.

    ``holding`` is what of users' data goes with a resource of a stack, as both are before an update; None for a
    type that holds none. ``creation`` is how long a resource takes to be created. ``in_place`` are, by resource
    type, the updates in place that are refused, end what runs, or need a word. ``moving`` are the types of which
    every update, be it in place, changes what other resources read from them.
    """

    pools: Callable[[Stack], Sequence[NodePool]]
    charges: Callable[[Stack], Sequence[Charge]]
    quotas: Callable[[Stack], Sequence[Quota]]
    policies: Sequence[Policy]
    replacing: Callable[[], Mapping[str, Sequence[str]]]
    computed: Callable[[], Mapping[str, Sequence[str]]] = _nothing_computed
    holding: Callable[[Declared, Stack], Holding | None] = _no_holding
    creation: Callable[[Declared], Seconds | None] = _no_seconds
    in_place: Callable[[], Mapping[str, Sequence[InPlace]]] = _nothing_in_place
    moving: frozenset[str] = frozenset()
    sometimes: Mapping[str, Mapping[str, Callable[[object, object], bool]]] = field(
        default_factory=dict[str, Mapping[str, Callable[[object, object], bool]]]
    )
    identities: Callable[[Stack], Sequence[Identity]] = _no_identities
    endpoints: Callable[[Stack], Mapping[str, str]] = _no_endpoints
