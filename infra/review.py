"""What a reviewer needs to know of a stack, and what each cloud has to say about its resources.

Everything here is plain data: a declared stack without the SDKs that declared it. The engines in ``stacks`` fill
a `Stack` from an evaluation, or from Pulumi's own when they are run as a policy pack; the clouds answer through a
`Review`. Importing a cloud's review never imports its SDK.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import cached_property
from typing import Any

from infra.platform import Resources, Taint


class Unknown:
    """The type of `UNKNOWN`."""

    def __repr__(self) -> str:
        return "[unknown]"


UNKNOWN = Unknown()
"""A property's value that only an update can tell."""


class Partial(str):
    """A text that is known but for what only an update can tell, which stands in it as ``[resource.property]``."""

    __slots__ = ()


def unknown(value: object) -> bool:
    """Whether only an update can tell all of ``value``."""
    return isinstance(value, Unknown | Partial)


@dataclass(frozen=True)
class Secret:
    """Stands for a secret value. Two are equal where their values are, as far as ``digest`` tells.

    The digest is keyed, with a key that no run of the preview keeps, so nothing can be guessed from it.
    """

    digest: str

    def __repr__(self) -> str:
        return "[secret]"


KUBERNETES_PROVIDER = "pulumi:providers:kubernetes"

UNLIMITED = 10**9
"""What a node is taken to have of a resource where nobody can tell, so that nothing is said of it."""


@dataclass(frozen=True)
class Declared:
    """One resource as the program declared it.

    ``properties`` are its inputs, with `UNKNOWN` where only an update knows them and a `Secret` for each secret.
    ``parent`` and ``provider`` are URNs, empty where there is none (for ``provider``: the default one).
    ``property_dependencies`` are URNs by property. ``read`` says that it is looked up, not managed.
    """

    urn: str
    type: str
    name: str
    properties: Mapping[str, Any]
    custom: bool = True
    parent: str = ""
    provider: str = ""
    dependencies: frozenset[str] = frozenset()
    property_dependencies: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    protect: bool = False
    delete_before_replace: bool = False
    ignore_changes: Sequence[str] = ()
    replace_on_changes: Sequence[str] = ()
    replace_with: frozenset[str] = frozenset()
    aliases: Sequence[str] = ()
    read: bool = False

    @property
    def package(self) -> str:
        """The Pulumi package of its type."""
        return self.type.partition(":")[0]


@dataclass(frozen=True)
class NodePool:
    """A node pool as declared, or the nodes of a cluster that the stack finds there.

    ``urn`` is that of the resource that brings the nodes; empty for nodes that are there already. ``labels``,
    ``taints`` and ``allocatable`` are those of one node; a machine type that no catalogue has leaves pods
    `UNLIMITED` resources. ``gpus`` are the physical GPUs of one node. ``run_limit`` is the longest a node may run,
    in seconds; None where nothing limits it. ``machine`` is the machine type, empty where it is not known.
    ``boot`` is how long a node takes from being asked for until its GPUs can be used, in seconds; None where it is
    not known.
    """

    urn: str
    cluster: str
    name: str
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    allocatable: Resources
    min_nodes: int
    max_nodes: int
    accelerator: str | None = None
    gpus: int = 0
    spot: bool = False
    run_limit: int | None = None
    machine: str = ""
    boot: "Seconds | None" = None


PROTECT = "slipway:protect"
"""The one switch of a stack file for all that keeps things from being deleted."""

_PRODUCTION = re.compile(r"(?:^|(?<!non)(?<!not)(?<!pre)[^a-z])prod(?:uction)?(?:$|[^a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Stack:
    """A whole stack.

    ``configuration`` is what stands in the stack file, by full key, with a `Secret` for each encrypted value.
    ``reviews`` are those of the clouds that the stack may use. ``standing`` are nodes that are there before it.
    """

    name: str
    resources: Mapping[str, Declared]
    configuration: Mapping[str, Any] = field(default_factory=dict[str, Any])
    standing: Sequence[NodePool] = ()
    reviews: Sequence["Review"] = ()

    @cached_property
    def pools(self) -> Sequence[NodePool]:
        """Every node pool: declared ones in the order of their declaration, then those that are there."""
        return [*(pool for review in self.reviews for pool in review.pools(self)), *self.standing]

    @property
    def production(self) -> bool:
        """Whether its name says that it is for production: `prod`, `ml-prod`, `production-eu`; not `non-prod`."""
        return _PRODUCTION.search(self.name) is not None

    @property
    def switched_off(self) -> bool:
        """Whether its file leaves `PROTECT` off."""
        return str(self.configuration.get(PROTECT, True)).lower() not in {"1", "on", "true", "yes"}

    def of_type(self, *types: str) -> list[Declared]:
        """The custom resources of these types that the stack manages, in the order of their declaration."""
        return [each for each in self.resources.values() if each.type in types and not each.read]

    def ancestor(self, resource: Declared, type_: str) -> Declared | None:
        """The nearest component of that type around ``resource``."""
        parent = self.resources.get(resource.parent)
        while parent is not None and parent.type != type_:
            parent = self.resources.get(parent.parent)
        return parent

    def source(self, resource: Declared, key: str, type_: str) -> Declared | None:
        """The resource of that type that a property comes from; None without one."""
        found = (self.resources.get(urn) for urn in sorted(resource.property_dependencies.get(key, ())))
        return next((each for each in found if each is not None and each.type == type_), None)

    def called(self, cluster: Declared) -> str:
        """The name by which Kubernetes objects know a declared cluster: that of the provider which comes from it.

        Without such a provider it is the cluster's own logical name.
        """
        found = (
            each.name
            for each in self.resources.values()
            if each.type == KUBERNETES_PROVIDER and cluster.urn in each.dependencies
        )
        return next(found, cluster.name)

    def cluster_of(self, resource: Declared) -> str:
        """For a Kubernetes object: the cluster it is on, by the logical name of its provider; else empty."""
        return resource.provider.rpartition("::")[2] if resource.package == "kubernetes" else ""


@dataclass(frozen=True)
class Source:
    """Where a fact is from, and the date of that source; when it was read where it has none (not ``dated``)."""

    url: str
    date: date
    dated: bool = True

    @property
    def when(self) -> str:
        """``2026-07-30``, or ``undated, read 2026-11-21``."""
        return f"{'' if self.dated else 'undated, read '}{self.date}"


@dataclass(frozen=True)
class Price:
    """A list price in US dollars per ``unit``, before discounts and taxes.

    The unit is ``hour``, ``month`` or ``GiB-month`` of what is paid by time, else for example ``GiB``.
    """

    amount: float
    unit: str
    source: Source


@dataclass(frozen=True)
class Charge:
    """What one resource is billed for.

    ``price`` is None where no source says it. Of things that are paid by the hour, ``idle`` are those billed while
    no Job runs, ``most`` those with every pool at its largest. ``quantity`` is how much of the price's unit one of
    them is: 100 for a disk of 100 GiB. What is paid by usage alone (``metered``) is listed with its price and in
    no sum. ``pool`` is the URN of the pool whose nodes are billed so, each of them; empty for everything else.
    """

    urn: str
    what: str
    price: Price | None
    idle: float = 1
    most: float = 1
    quantity: float = 1
    metered: bool = False
    pool: str = ""


@dataclass(frozen=True)
class Quota:
    """What the stack needs of one quota with every pool at its largest.

    ``where`` is the region or zone, ``see`` the command or page that shows the limit. ``ordinary`` is the limit of
    a new project or account, None where it is not documented.
    """

    metric: str
    where: str
    needed: float
    unit: str
    see: str
    ordinary: float | None = None


@dataclass(frozen=True)
class Seconds:
    """How long something takes, as far as its source goes."""

    amount: float
    source: Source


@dataclass(frozen=True)
class Identity:
    """Who may do what outside the cluster.

    ``name`` is what the cloud calls it, ``of`` whose it is (``pods of slipway/runner``), ``may`` what it may do,
    in a few words. ``clusters`` are those in which it is used. ``store`` says that the store is reached through
    it.
    """

    name: str
    of: str
    may: str
    clusters: Sequence[str] = ()
    store: bool = False


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Violation:
    """One breach of a policy. ``resource`` is a URN, or a configuration key where no resource is to blame."""

    resource: str
    reason: str
    fix: str


@dataclass(frozen=True)
class Policy:
    """A rule about a whole stack.

    ``id`` is what suppressions name; ``title`` says the rule in one sentence, and ``fix`` what to do about a
    breach of it, where that is the same for all of them.
    """

    id: str
    severity: Severity
    title: str
    check: Callable[[Stack], Iterable[Violation]]
    fix: str = ""


def _no_seconds(_: Declared) -> Seconds | None:
    return None


@dataclass(frozen=True)
class InPlace:
    """What an update in place of the properties at ``paths`` means for what runs there.

    The paths are written as in `Review.replacing`.
    """

    paths: Sequence[str]
    note: str
    source: Source


def _no_identities(_: Stack) -> Sequence[Identity]:
    return ()


def _no_endpoints(_: Stack) -> Mapping[str, str]:
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

    ``creation`` is how long a resource takes to be created. ``in_place`` are, by resource type, the updates in
    place that people should know more of. ``moving`` are the types of which every update, be it in place, changes
    what other resources read from them.
    """

    pools: Callable[[Stack], Sequence[NodePool]]
    charges: Callable[[Stack], Sequence[Charge]]
    quotas: Callable[[Stack], Sequence[Quota]]
    policies: Sequence[Policy]
    replacing: Callable[[], Mapping[str, Sequence[str]]]
    creation: Callable[[Declared], Seconds | None] = _no_seconds
    in_place: Callable[[], Mapping[str, Sequence[InPlace]]] = _nothing_in_place
    moving: frozenset[str] = frozenset()
    sometimes: Mapping[str, Mapping[str, Callable[[object, object], bool]]] = field(
        default_factory=dict[str, Mapping[str, Callable[[object, object], bool]]]
    )
    identities: Callable[[Stack], Sequence[Identity]] = _no_identities
    endpoints: Callable[[Stack], Mapping[str, str]] = _no_endpoints
