"""What is declared of Kueue's queues, and what a Job asks of them.

The fields are those of github.com/kubernetes-sigs/kueue at commit ff69552 (22 August 2026), apis/kueue/v1beta2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.kubernetes.labels import PRIORITY_LABEL, QUEUE_LABEL
from infra.platform import Taint
from infra.review.properties import Properties, at, mapping, mappings, strings, texts
from offline.engine.quantities import amount
from offline.engine.scheduling import Expression, Toleration, affinity, tolerations

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has with its name."""

PODS = "pods"
"""The resource of which each pod takes one, where a ClusterQueue covers it."""

FlavorResource = tuple[str, str]
"""Names of a flavor and of a resource."""


@dataclass(frozen=True)
class Flavor:
    """The nodes that a part of a quota stands for."""

    labels: Mapping[str, str]
    taints: Sequence[Taint]
    tolerations: Sequence[Toleration]


@dataclass(frozen=True)
class Quota:
    """Amounts in the unit of the resource. ``borrowing`` and ``lending`` are limits; None: there is none."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True)
class Group:
    """Resources that a pod gets of one flavor, and the flavors in the order in which they are tried."""

    resources: Sequence[str]
    flavors: Sequence[str]


@dataclass(frozen=True)
class Holder:
    """What has quotas: a ClusterQueue, or a cohort. ``parent`` is the cohort around it, or empty."""

    name: str
    parent: str
    quotas: Mapping[FlavorResource, Quota]


@dataclass(frozen=True)
class ClusterQueue(Holder):
    """What the Jobs of some namespaces may have.

    In a ``strict`` queue nobody overtakes. One that ``preempts`` stops its own Jobs of lower priority for one
    that waits; one that ``reclaims`` stops those of others that use more than their shares. ``tries_next`` says
    that another flavor is better than quota that others lend. ``selector`` picks its namespaces by their
    labels; without one there are none.
    """

    groups: Sequence[Group] = ()
    strict: bool = False
    preempts: bool = False
    reclaims: bool = False
    tries_next: bool = False
    selector: Properties | None = None
    stopped: bool = False
    checks: Sequence[str] = ()

    @property
    def flavors(self) -> list[str]:
        """The names of all its flavors."""
        return [name for group in self.groups for name in group.flavors]


@dataclass(frozen=True)
class Asked:
    """What Kueue knows of a Job: what all of its pods ask for together, and which nodes they may be on.

    ``amounts`` are by resource, in units of `offline.engine.quantities`, for all its ``pods``. Jobs of the same
    ``priority`` have their turn by ``order``.
    """

    name: str
    namespace: str
    queue: str
    pods: int
    amounts: Mapping[str, int]
    selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: Sequence[Toleration] = ()
    affinity: Sequence[Sequence[Expression]] = ()
    priority: int = 0
    order: int = 0


def flavor(spec: Properties) -> Flavor:
    taints = [
        Taint(str(each.get("key", "")), str(each.get("value", "")), each.get("effect", "NoSchedule"))
        for each in mappings(spec.get("nodeTaints"))
    ]
    return Flavor(strings(spec.get("nodeLabels")), taints, tolerations(spec.get("tolerations")))


def cluster_queue(name: str, spec: Properties) -> ClusterQueue:
    selector = spec.get("namespaceSelector")
    return ClusterQueue(
        name=name,
        parent=str(spec.get("cohortName") or ""),
        quotas=quotas(spec),
        groups=[
            Group(texts(each.get("coveredResources")), [str(one["name"]) for one in mappings(each.get("flavors"))])
            for each in mappings(spec.get("resourceGroups"))
        ],
        strict=spec.get("queueingStrategy") == "StrictFIFO",
        preempts=at(spec, "preemption", "withinClusterQueue") in {"LowerPriority", "LowerOrNewerEqualPriority"},
        reclaims=at(spec, "preemption", "reclaimWithinCohort") in {"LowerPriority", "Any"},
        tries_next=at(spec, "flavorFungibility", "whenCanBorrow") == "TryNextFlavor",
        selector=None if selector is None else mapping(selector),
        stopped=is_stopped(spec),
        checks=[
            str(each.get("name", "")) for each in mappings(at(spec, "admissionChecksStrategy", "admissionChecks"))
        ],
    )


def is_stopped(spec: Properties) -> bool:
    return spec.get("stopPolicy", "None") != "None"


def quotas(spec: Properties) -> dict[FlavorResource, Quota]:
    found: dict[FlavorResource, Quota] = {}
    for group in mappings(spec.get("resourceGroups")):
        for flavor in mappings(group.get("flavors")):
            for each in mappings(flavor.get("resources")):
                resource = str(each.get("name"))
                limits = [
                    None if each.get(key) is None else amount(resource, each[key])
                    for key in ("borrowingLimit", "lendingLimit")
                ]
                found[str(flavor["name"]), resource] = Quota(
                    amount(resource, each.get("nominalQuota", 0)), *limits
                )
    return found


def asked_by(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    *,
    pods: int,
    spec: Properties,
    priorities: Mapping[str, int],
) -> Asked | None:
    """What a Job with these ``labels`` and this pod ``spec`` asks of its queue; None where it names none.

    Raises ValueError for an amount that is no quantity.
    """
    if QUEUE_LABEL not in labels:
        return None
    required = at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return Asked(
        name=name,
        namespace=namespace,
        queue=labels[QUEUE_LABEL],
        pods=pods,
        amounts={key: value * pods for key, value in requests(spec).items()},
        selector=strings(spec.get("nodeSelector")),
        tolerations=tolerations(spec.get("tolerations")),
        affinity=affinity(mapping(required).get("nodeSelectorTerms")),
        priority=priorities.get(labels.get(PRIORITY_LABEL, ""), 0),
    )


def requests(spec: Properties) -> dict[str, int]:
    """What a pod asks for, of every resource: as the scheduler counts it, with limits in place of requests.

    Init containers run one after another; those with the restart policy Always keep running. Raises ValueError.
    """
    staying: dict[str, int] = {}
    peak: dict[str, int] = {}
    for each in mappings(spec.get("initContainers")):
        own = _requests(each)
        if each.get("restartPolicy") == "Always":
            staying = _sum(staying, own)
            own = {}
        peak = _largest(peak, _sum(staying, own))
    return _largest(peak, _sum(staying, *map(_requests, mappings(spec.get("containers")))))


def _requests(container: Properties) -> dict[str, int]:
    resources = mapping(container.get("resources"))
    given = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}
    return {name: amount(name, value) for name, value in given.items()}


def _sum(*amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(each.get(name, 0) for each in amounts) for each in amounts for name in each}


def _largest(*amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: max(each.get(name, 0) for each in amounts) for each in amounts for name in each}
