"""A stack as its program declared it: resources, node pools, configuration."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Any, cast

from slipway.infra.placed_model import PlacedStep
from slipway.infra.platform import Resources, Taint
from slipway.infra.review.facts import Charge, Grant, Holding, Identity, Quota, Seconds, Streaming

KUBERNETES_PROVIDER = "pulumi:providers:kubernetes"

JOB = "kubernetes:batch/v1:Job"
"""The one type of resource that runs to an end."""

FAILURE_FIELDS = ("spec.podFailurePolicy", "spec.backoffLimitPerIndex")
"""What a Job of Slipway keeps as it was created for as long as it has its name: they decide no result, and the API
server refuses to change them (ValidateJobSpecUpdate, Kubernetes 1.37.2)."""

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"

UNLIMITED = 10**9
"""The amount of a resource that a node is assumed to have where its machine type is in no catalogue.

Every pod fits, and no policy reports one."""


@dataclass
class Resource:
    """What the program asks the engine for.

    ``properties`` are its inputs as they may be shown: `Unknown` where only an update knows the value, `Partial`
    where it knows a part of a text, and a `Secret` for each secret. ``inputs`` are the same for the engine that
    evaluates the program: secrets in clear, a `pulumi.output.Unknown` for each unknown value. They are empty where
    another process evaluated it. ``outputs`` are there once an engine has created it, without secrets.

    ``parent`` and ``provider`` are URNs, empty where there is none (for ``provider``: the default one).
    ``property_dependencies`` are URNs by property. ``create_timeout`` is text such as ``45m``, empty without one.
    ``read`` says that it is looked up, not managed. ``place`` is the line of the program that declares it
    (``__main__.py:12``), empty for what a stack file asks for.
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
    retain_on_delete: bool = False
    delete_before_replace: bool = False
    ignore_changes: Sequence[str] = ()
    replace_on_changes: Sequence[str] = ()
    replace_with: frozenset[str] = frozenset()
    aliases: Sequence[str] = ()
    create_timeout: str = ""
    read: bool = False
    place: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def is_of_slipway(self) -> bool:
        """Whether one of Slipway's components has it: a URN has the types of all above it in its third part."""
        return "".join(self.urn.split("::")[2:3]).startswith("slipway:")

    def keeps_policy(self, new: "Resource") -> bool:
        """Whether ``new`` is the same Job of Slipway, and so has its `FAILURE_FIELDS`."""
        names = ([at(job.properties, "metadata", key) for key in ("namespace", "name")] for job in (self, new))
        return new.type == JOB == self.type and self.is_of_slipway and next(names) == next(names)

    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def package(self) -> str:
        """The Pulumi package of its type."""
        return self.type.partition(":")[0]

    @property
    def needs(self) -> frozenset[str]:
        """URNs without which it cannot be created."""
        return self.dependencies | ({self.provider} if self.provider else frozenset[str]())

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The ``metadata`` of a Kubernetes object's inputs; empty for other resources."""
        metadata = self.inputs.get("metadata")
        return cast("Mapping[str, Any]", metadata) if isinstance(metadata, Mapping) else {}


@dataclass(frozen=True)
class NodePool:
    """A node pool as declared, or the nodes of a cluster that the stack finds there.

    ``urn`` is that of the resource that brings the nodes; empty for nodes that are there already. ``labels``,
    ``taints`` and ``allocatable`` are those of one node; a machine type that no catalogue has leaves pods
    `UNLIMITED` resources. ``gpus`` are the physical GPUs of one node. ``run_limit`` is the longest a node may run,
    in seconds; None where nothing limits it. ``machine`` is the machine type, empty where it is not known.
    ``boot`` is how long a node takes from being asked for until its GPUs can be used, in seconds; None where it is
    not known. ``stack`` is the stack that declares the pool, where that is another one. ``zones`` are those that
    its nodes may be in; empty where they are not known. ``faster`` is the setting that would give its nodes a
    faster network between them; empty where there is none, or it is on. ``bills_pods`` says that its pods are
    billed, by what they ask for, and not its nodes. ``queued`` says that its nodes are asked for, and come some
    time. ``quotas`` are what one node needs of those that count machines and GPUs. ``scale_down`` is how long the
    autoscaler keeps a node after its last pod; None where nobody says. ``streaming`` is what starts containers on
    its nodes before their whole image is there, where anything does.
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
    boot: Seconds | None = None
    stack: str = ""
    zones: Sequence[str] = ()
    bills_pods: bool = False
    faster: str = ""
    queued: bool = False
    quotas: Sequence[Quota] = ()
    scale_down: Seconds | None = None
    streaming: Streaming | None = None

    @property
    def described(self) -> str:
        """Its nodes for people: ``Spot n1-standard-4 with 1 nvidia-tesla-t4``; empty where nothing is known."""
        sale = "Spot" if self.spot else "queued" if self.queued else ""
        gpus = f"with {self.gpus} {self.accelerator}" if self.accelerator else ""
        return " ".join(filter(None, [sale, self.machine, gpus])) if self.machine or gpus else ""


PROTECT = "slipway:protect"
"""The one switch of a stack file for all that keeps things from being deleted."""

_PRODUCTION = re.compile(r"(?:^|(?<!non)(?<!not)(?<!pre)[^a-z])prod(?:uction)?(?:$|[^a-z])", re.IGNORECASE)


def is_for_production(stack: str) -> bool:
    """Whether the name of a stack says that it is for production: `prod`, `ml-prod`; not `non-prod`."""
    return _PRODUCTION.search(stack) is not None


@dataclass(frozen=True)
class Stack:
    """A whole stack: what its program declared, and what the clouds say of that.

    ``configuration`` is what stands in the stack file, by full key, with a `Secret` for each encrypted value.
    ``steps`` are those of the placed model by their Jobs' logical names; empty where the program told of none: it
    does not call `slipway.run`, or is of a version from before that.
    ``pools`` are the declared node pools in the order of their declaration, then the nodes that are there before
    the stack, then those of other stacks whose clusters it uses. `slipway.infra.review.contract.reviewed` fills in
    the declared ones, and everything below them: ``holdings`` are by URN, ``endpoints`` by cluster.

    ``charges_elsewhere`` are what the nodes of other stacks are billed for, which is in the cost of those stacks.
    ``declared_elsewhere`` are the objects that those stacks declare in the clusters that this one uses, by the
    cluster.
    """

    name: str
    resources: Mapping[str, Resource]
    configuration: Mapping[str, Any] = field(default_factory=dict[str, Any])
    steps: Mapping[str, PlacedStep] = field(default_factory=dict[str, PlacedStep])
    pools: Sequence[NodePool] = ()
    charges: Sequence[Charge] = ()
    quotas: Sequence[Quota] = ()
    identities: Sequence[Identity] = ()
    grants: Sequence[Grant] = ()
    endpoints: Mapping[str, str] = field(default_factory=dict[str, str])
    holdings: Mapping[str, Holding] = field(default_factory=dict[str, Holding])
    charges_elsewhere: Sequence[Charge] = ()
    declared_elsewhere: Mapping[str, Sequence[Resource]] = field(default_factory=dict[str, Sequence[Resource]])

    @property
    def own_pools(self) -> list[NodePool]:
        """Those of `pools` that are not of another stack."""
        return [pool for pool in self.pools if not pool.stack]

    @property
    def production(self) -> bool:
        """Whether its name says that it is for production: `prod`, `ml-prod`, `production-eu`; not `non-prod`."""
        return is_for_production(self.name)

    @property
    def switched_off(self) -> bool:
        """Whether its file leaves `PROTECT` off."""
        return str(self.configuration.get(PROTECT, True)).lower() not in {"1", "on", "true", "yes"}

    def of_type(self, *types: str) -> list[Resource]:
        """The custom resources of these types that the stack manages, in the order of their declaration."""
        return [resource for resource in self.resources.values() if resource.type in types and not resource.read]

    def step_of(self, job: Resource) -> PlacedStep | None:
        """The step that a Job runs; None for a Job of the program's own, and of a stack without `steps`."""
        return self.steps.get(job.name) if job.type == JOB and job.is_of_slipway else None

    def source(self, resource: Resource, key: str, type_: str) -> Resource | None:
        """The resource of that type that a property comes from; None without one."""
        sources = (self.resources.get(urn) for urn in sorted(resource.property_dependencies.get(key, ())))
        return next((source for source in sources if source is not None and source.type == type_), None)

    def called(self, cluster: Resource) -> str:
        """The name by which Kubernetes objects know a declared cluster: that of the provider which comes from it.

        Without such a provider it is the cluster's own logical name.
        """
        dependents = (
            resource.name
            for resource in self.resources.values()
            if resource.type == KUBERNETES_PROVIDER and cluster.urn in resource.dependencies
        )
        return next(dependents, cluster.name)

    @property
    def namespaces(self) -> set[str]:
        """Those that the stack declares something in, and the clusters' own."""
        objects = (resource.properties for resource in self.resources.values())
        return {"kube-system", *(text(at(properties, "metadata", "namespace")) for properties in objects)}

    def cluster_called(self, name: str, type_: str) -> Resource | None:
        """The declared cluster that Kubernetes objects know by ``name``; None where it is of another type."""
        return next((cluster for cluster in self.of_type(type_) if self.called(cluster) == name), None)

    def cluster_of(self, resource: Resource) -> str:
        """For a Kubernetes object: the cluster it is on, by the logical name of its provider; else empty."""
        return resource.provider.rpartition("::")[2] if resource.package == "kubernetes" else ""


# Keys of plain values may be missing, and values may have any type. `Unknown`, `Partial` and `Secret` stand in for
# values that only an update can tell, and for secret ones.
Properties = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Unknown:
    """A property's value that only an update can tell; all of them count as equal.

    ``source`` says which output it is, where that is known: ``store.projectNumber``.
    """

    source: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown)

    def __hash__(self) -> int:
        return hash(Unknown)

    def __repr__(self) -> str:
        return f"[{self.source or 'unknown'}]"


UNKNOWN = Unknown()
"""An unknown value whose source is not known."""


class Partial(str):
    """A text that is known but for what only an update can tell, which stands in it as ``[resource.property]``."""

    __slots__ = ()


def unknown(value: object) -> bool:
    """Whether only an update can tell all of ``value``."""
    return isinstance(value, Unknown | Partial) or (isinstance(value, Secret) and value.partial)


@dataclass(frozen=True)
class Secret:
    """Stands for a secret value. Two are equal where their values are, as far as ``digest`` tells.

    The digest is keyed, with a key that no run of the preview keeps, so nothing can be guessed from it.
    ``partial`` says that only an update can tell a part of the value.
    """

    digest: str
    partial: bool = False

    def __repr__(self) -> str:
        return "[secret]"


def at(properties: object, *path: str) -> Any:
    """The value at ``path``: None where there is none, `UNKNOWN` where it or anything on the way is."""
    value = properties
    for key in path:
        if isinstance(value, Unknown):
            return UNKNOWN
        value = cast("Properties", value).get(key) if isinstance(value, Mapping) else None
    return value


def mapping(value: object) -> Properties:
    """``value`` where it is a mapping, else an empty one."""
    return cast("Properties", value) if isinstance(value, Mapping) else {}


def items(value: object) -> Sequence[Any]:
    """The elements of a list; none for anything else."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def mappings(value: object) -> list[Properties]:
    """The mappings in a list; none for anything else."""
    return [cast("Properties", element) for element in items(value) if isinstance(element, Mapping)]


def text(value: object) -> str:
    """A text; empty for anything else."""
    return value if isinstance(value, str) else ""


def texts(value: object) -> list[str]:
    """The texts in a list, or a single one; none for anything else."""
    return [value] if isinstance(value, str) else [element for element in items(value) if isinstance(element, str)]


def strings(value: object) -> dict[str, str]:
    """A mapping of texts, such as labels, without those that are not known."""
    return {str(key): str(member) for key, member in mapping(value).items() if not isinstance(member, Unknown)}


def whole(value: object, otherwise: int = 0) -> int:
    """A whole number, also where it is written as a float or a text; ``otherwise`` for anything else."""
    if isinstance(value, bool):
        return otherwise
    if isinstance(value, int | float):
        return int(value)
    return int(value) if isinstance(value, str) and value.strip().isdigit() else otherwise


def is_true(value: object) -> bool:
    """Whether a flag is set, as a boolean or as the text that some APIs use."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def number(value: object) -> int | None:
    """``value`` if it is a whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def json_document(value: object) -> Any:
    """The mapping or list in a text that is JSON, such as a policy; None for anything else."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return None
    try:
        return json.loads(value)
    except ValueError:
        return None


def leaves(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Every value in ``value`` that is neither a mapping nor a list, with its place: ``users[0].token``."""
    if isinstance(value, Mapping):
        for key, member in cast("Mapping[Any, Any]", value).items():
            yield from leaves(member, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, member in enumerate(cast("list[Any]", value)):
            yield from leaves(member, f"{place}[{index}]")
    else:
        yield place, value


def known(value: object) -> bool:
    """Whether ``value`` has no part that only an update can tell."""
    return not any(isinstance(leaf, Unknown) for _, leaf in leaves(value))


EVERYWHERE = "0.0.0.0/0"
"""Every IPv4 address."""


def whole_internet(blocks: Iterable[str]) -> bool:
    """Whether these blocks together are every IPv4 or every IPv6 address. What is no block is left out."""
    four: list[IPv4Network] = []
    six: list[IPv6Network] = []
    for block in blocks:
        network = _network(block)
        if isinstance(network, IPv4Network):
            four.append(network)
        elif network is not None:
            six.append(network)
    together = [*collapse_addresses(four), *collapse_addresses(six)]
    return any(network.prefixlen == 0 for network in together)


def within(block: str, blocks: Iterable[str]) -> bool:
    """Whether one of ``blocks`` has every address of ``block``. Text that is no block is in none, and has none."""
    inner = _network(block)
    return inner is not None and any(_has(_network(outer), inner) for outer in blocks)


def _network(block: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(block, strict=False)
    except ValueError:
        return None


def _has(outer: IPv4Network | IPv6Network | None, inner: IPv4Network | IPv6Network) -> bool:
    if isinstance(outer, IPv4Network):
        return isinstance(inner, IPv4Network) and inner.subnet_of(outer)
    return outer is not None and isinstance(inner, IPv6Network) and inner.subnet_of(outer)
