"""The objects of Kueue that a stack declares, and what a Job requests of its queue.

The fields are those of github.com/kubernetes-sigs/kueue at commit ff69552 (22 August 2026), apis/kueue/v1beta2.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from infra.kubernetes.labels import PRIORITY_LABEL, QUEUE_LABEL
from infra.platform import Taint
from infra.review.stack import Properties, at, items, mapping, mappings, strings, texts
from offline.evaluated.scheduling import Expression, Toleration, affinity, amount, tolerations

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

    In a ``strict`` queue no Job overtakes another. A queue that ``preempts`` stops its own Jobs of lower priority
    for a waiting one. A queue that ``reclaims`` stops Jobs of other queues that use more than their shares.
    ``tries_next`` says
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
class QueuedJob:
    """What Kueue knows of a Job: what all of its pods ask for together, and which nodes they may be on.

    ``amounts`` are by resource, in units of `offline.evaluated.scheduling`, for all its ``pods``. Jobs of the same
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
        Taint(
            str(node_taint.get("key", "")),
            str(node_taint.get("value", "")),
            node_taint.get("effect", "NoSchedule"),
        )
        for node_taint in mappings(spec.get("nodeTaints"))
    ]
    return Flavor(strings(spec.get("nodeLabels")), taints, tolerations(spec.get("tolerations")))


def cluster_queue(name: str, spec: Properties) -> ClusterQueue:
    selector = spec.get("namespaceSelector")
    return ClusterQueue(
        name=name,
        parent=str(spec.get("cohortName") or ""),
        quotas=quotas(spec),
        groups=[
            Group(
                texts(resource_group.get("coveredResources")),
                [str(entry["name"]) for entry in mappings(resource_group.get("flavors"))],
            )
            for resource_group in mappings(spec.get("resourceGroups"))
        ],
        strict=spec.get("queueingStrategy") == "StrictFIFO",
        preempts=at(spec, "preemption", "withinClusterQueue") in {"LowerPriority", "LowerOrNewerEqualPriority"},
        reclaims=at(spec, "preemption", "reclaimWithinCohort") in {"LowerPriority", "Any"},
        tries_next=at(spec, "flavorFungibility", "whenCanBorrow") == "TryNextFlavor",
        selector=None if selector is None else mapping(selector),
        stopped=is_stopped(spec),
        checks=[
            str(check.get("name", ""))
            for check in mappings(at(spec, "admissionChecksStrategy", "admissionChecks"))
        ],
    )


def is_stopped(spec: Properties) -> bool:
    return spec.get("stopPolicy", "None") != "None"


def quotas(spec: Properties) -> dict[FlavorResource, Quota]:
    quotas_by_resource: dict[FlavorResource, Quota] = {}
    for group in mappings(spec.get("resourceGroups")):
        for flavor in mappings(group.get("flavors")):
            for entry in mappings(flavor.get("resources")):
                resource = str(entry.get("name"))
                limits = [
                    None if entry.get(key) is None else amount(resource, entry[key])
                    for key in ("borrowingLimit", "lendingLimit")
                ]
                quotas_by_resource[str(flavor["name"]), resource] = Quota(
                    amount(resource, entry.get("nominalQuota", 0)), *limits
                )
    return quotas_by_resource


def queued_job(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    *,
    pods: int,
    spec: Properties,
    priorities: Mapping[str, int],
) -> QueuedJob | None:
    """What a Job with these ``labels`` and this pod ``spec`` asks of its queue; None where it names none.

    Raises ValueError for an amount that is no quantity.
    """
    if QUEUE_LABEL not in labels:
        return None
    required = at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return QueuedJob(
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
    for init_container in mappings(spec.get("initContainers")):
        init_requests = _requests(init_container)
        if init_container.get("restartPolicy") == "Always":
            staying = _sum(staying, init_requests)
            init_requests = {}
        peak = _largest(peak, _sum(staying, init_requests))
    return _largest(peak, _sum(staying, *map(_requests, mappings(spec.get("containers")))))


def _requests(container: Properties) -> dict[str, int]:
    resources = mapping(container.get("resources"))
    amounts = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}
    return {name: amount(name, value) for name, value in amounts.items()}


def _sum(*amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(summand.get(name, 0) for summand in amounts) for container in amounts for name in container}


def _largest(*amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: max(summand.get(name, 0) for summand in amounts) for container in amounts for name in container}


# What the API server and Kueue's webhooks would say of the objects of queues.
#
# After apis/kueue/v1beta2 and pkg/webhooks of github.com/kubernetes-sigs/kueue at commit ff69552 (22 August 2026):
# the fields of each kind, and the rules about those that a stack declares. An unknown field is refused, since
# Pulumi applies objects on the server.


GROUP = "kueue.x-k8s.io"
VERSION = "v1beta2"
"""The one version that Kueue 0.20 serves, and the storage version of 0.19."""

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
STOP = ("None", "Hold", "HoldAndDrain")
NEXT = ("MayStopSearch", "TryNextFlavor")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True)
class Field:
    """A field: the ``fields`` of an object (None: any value), and whether it is a list, with its largest length.

    ``choices`` are the only values of a text, and ``pattern`` is what it has to be like, with at most ``length``
    characters. One that is ``needed`` cannot be missing.
    """

    fields: "Mapping[str, Field] | None" = None
    many: bool = False
    most: int = 0
    choices: Sequence[str] = ()
    pattern: str = ""
    length: int = 253
    needed: bool = False


ANY = Field()
NAME = Field(pattern=SUBDOMAIN, needed=True)
REFERENCE = Field(pattern=SUBDOMAIN)


def _one_of(*choices: str) -> Field:
    return Field(choices=choices)


def _object(**fields: Field) -> Field:
    return Field(fields)


def _list(most: int, **fields: Field) -> Field:
    return Field(fields, many=True, most=most)


WEIGHT = _object(weight=ANY)
GROUPS = _list(
    16,
    coveredResources=Field(many=True, most=64, needed=True),
    flavors=_list(
        64,
        name=NAME,
        resources=_list(
            64, name=Field(needed=True), nominalQuota=Field(needed=True), borrowingLimit=ANY, lendingLimit=ANY
        ),
    ),
)
TOLERATION = {"key": ANY, "operator": _one_of("Equal", "Exists"), "value": ANY, "effect": _one_of(*EFFECTS)}

SPECS: Mapping[str, Mapping[str, Field]] = {
    "ClusterQueue": {
        "resourceGroups": GROUPS,
        "cohortName": REFERENCE,
        "queueingStrategy": _one_of("StrictFIFO", "BestEffortFIFO"),
        "namespaceSelector": _object(matchLabels=ANY, matchExpressions=ANY),
        "flavorFungibility": _object(
            whenCanBorrow=_one_of(*NEXT),
            whenCanPreempt=_one_of(*NEXT),
            preference=_one_of("BorrowingOverPreemption", "PreemptionOverBorrowing"),
        ),
        "preemption": _object(
            reclaimWithinCohort=_one_of("Never", "LowerPriority", "Any"),
            borrowWithinCohort=_object(policy=_one_of("Never", "LowerPriority"), maxPriorityThreshold=ANY),
            withinClusterQueue=_one_of("Never", "LowerPriority", "LowerOrNewerEqualPriority"),
        ),
        "admissionChecksStrategy": _object(
            admissionChecks=_list(64, name=REFERENCE, onFlavors=Field(many=True, most=64))
        ),
        "stopPolicy": _one_of(*STOP),
        "fairSharing": WEIGHT,
        "admissionScope": _object(admissionMode=ANY),
        "concurrentAdmissionPolicy": ANY,
    },
    "LocalQueue": {"clusterQueue": REFERENCE, "stopPolicy": _one_of(*STOP), "fairSharing": WEIGHT},
    "ResourceFlavor": {
        "nodeLabels": Field(most=8),
        "nodeTaints": _list(8, key=Field(needed=True), value=ANY, effect=_one_of(*EFFECTS), timeAdded=ANY),
        "tolerations": Field({**TOLERATION, "tolerationSeconds": ANY}, many=True, most=8),
        "topologyName": REFERENCE,
    },
    "Cohort": {"parentName": REFERENCE, "resourceGroups": GROUPS, "fairSharing": WEIGHT},
    "AdmissionCheck": {
        "controllerName": Field(needed=True),
        "parameters": _object(apiGroup=REFERENCE, kind=ANY, name=Field(pattern=LABEL, length=63)),
    },
    "ProvisioningRequestConfig": {
        "provisioningClassName": REFERENCE,
        "parameters": Field(most=100),
        "managedResources": Field(many=True, most=100),
        "retryStrategy": _object(backoffLimitCount=ANY, backoffBaseSeconds=ANY, backoffMaxSeconds=ANY),
        "podSetUpdates": ANY,
        "podSetMergePolicy": ANY,
    },
    "Topology": {"levels": _list(16, nodeLabel=ANY)},
}

TOP = {"apiVersion", "kind", "metadata", "spec", "status"}
OF_CLASSES = {"apiVersion", "kind", "metadata", "value", "description"}
CLASS = "WorkloadPriorityClass"


def problems(kind: str, properties: Properties) -> list[str]:
    """Why an object of the group `GROUP` would be refused; nothing where it would be taken."""
    version = str(properties.get("apiVersion", ""))
    if version != f"{GROUP}/{VERSION}" or kind not in {*SPECS, CLASS}:
        return [f'no matches for kind "{kind}" in version "{version}"']
    known = OF_CLASSES if kind == CLASS else TOP
    messages = [_undeclared_message(name) for name in properties if name not in known]
    if kind == CLASS:
        return messages if isinstance(properties.get("value"), int) else [*messages, "value: Required value"]
    spec = mapping(properties.get("spec"))
    messages += _check_fields(spec, SPECS[kind], "spec")
    if kind in {"ClusterQueue", "Cohort"} and not messages:
        parent = spec.get("cohortName" if kind == "ClusterQueue" else "parentName")
        messages += _groups(mappings(spec.get("resourceGroups")), bool(parent))
    if kind == "ClusterQueue" and not messages:
        messages += _checks(spec)
    return messages


def _undeclared_message(path: str) -> str:
    return f".{path}: field not declared in schema"


def _check_fields(value: Properties, fields: Mapping[str, Field], path: str) -> Iterator[str]:
    yield from (_undeclared_message(f"{path}.{name}") for name in value if name not in fields)
    for name, shape in fields.items():
        if value.get(name) is None:
            if shape.needed:
                yield f"{path}.{name}: Required value"
            continue
        yield from _value(value[name], shape, f"{path}.{name}")


def _value(value: object, known: Field, path: str) -> Iterator[str]:
    count = len(items(value)) if known.many else len(mapping(value))
    if known.most and count > known.most:
        yield f"{path}: Too many: {count}: must have at most {known.most} items"
    if known.fields is not None:
        several = mappings(value) if known.many else [mapping(value)]
        for index, item in enumerate(several):
            yield from _check_fields(item, known.fields, f"{path}[{index}]" if known.many else path)
    if known.choices and value not in known.choices:
        listed = ", ".join(f'"{choice}"' for choice in known.choices)
        yield f'{path}: Unsupported value: "{value}": supported values: {listed}'
    text = str(value)
    if known.pattern and not (len(text) <= known.length and re.fullmatch(known.pattern, text)):
        yield f"{path}: Invalid value: \"{text}\": should match '^{known.pattern}$' in {known.length} characters"


@dataclass
class _SeenNames:
    resources: set[str] = field(default_factory=set[str])
    flavors: set[str] = field(default_factory=set[str])


def _groups(groups: Sequence[Properties], has_cohort: bool) -> Iterator[str]:
    """The rules of `validateResourceGroups` (clusterqueue_webhook.go)."""
    seen = _SeenNames()
    for index, group in enumerate(groups):
        path = f"spec.resourceGroups[{index}]"
        covered = [str(resource) for resource in items(group.get("coveredResources"))]
        flavors = mappings(group.get("flavors"))
        if not covered or not flavors:
            yield f"{path}: coveredResources and flavors should have at least 1 items"
        for name in covered:
            if name in seen.resources:
                yield f'{path}.coveredResources: Duplicate value: "{name}"'
            seen.resources.add(name)
        for number, flavor in enumerate(flavors):
            yield from _flavor(flavor, covered, has_cohort, f"{path}.flavors[{number}]")
            if flavor["name"] in seen.flavors:
                yield f'{path}.flavors[{number}].name: Duplicate value: "{flavor["name"]}"'
            seen.flavors.add(str(flavor["name"]))


def _flavor(flavor: Properties, covered: Sequence[str], has_cohort: bool, path: str) -> Iterator[str]:
    resources = mappings(flavor.get("resources"))
    if len(resources) != len(covered):
        yield f"{path}: flavors must have the same number of resources as the coveredResources"
    for index, (resource, name) in enumerate(zip(resources, covered, strict=False)):
        here = f"{path}.resources[{index}]"
        if resource["name"] != name:
            yield f'{here}.name: Invalid value: "{resource["name"]}": must match the name in coveredResources'
        for key in ("nominalQuota", "borrowingLimit", "lendingLimit"):
            if (value := resource.get(key)) is None:
                continue
            try:
                amount(name, value)
            except ValueError:
                yield f'{here}.{key}: Invalid value: "{value}": must be a quantity, and not below 0'
            if key != "nominalQuota" and not has_cohort:
                yield f'{here}.{key}: Invalid value: "{value}": must be nil when cohort is empty'


def _checks(spec: Properties) -> Iterator[str]:
    flavors = {
        str(flavor["name"])
        for group in mappings(spec.get("resourceGroups"))
        for flavor in mappings(group.get("flavors"))
    }
    strategy = mapping(spec.get("admissionChecksStrategy"))
    for index, check in enumerate(mappings(strategy.get("admissionChecks"))):
        for number, name in enumerate(items(check.get("onFlavors"))):
            if name not in flavors:
                path = f"spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{number}]"
                yield f'{path}: Unsupported value: "{name}": supported values: {", ".join(sorted(flavors))}'
