"""Resources with a pod template, the pools that can take their pods, and what an hour of them costs in US dollars.

Unlike `slipway.rehearse.cluster.pods`, which refuses pods that it cannot run, this module reads any pod.
Values that only an update knows are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from slipway.evaluated.scheduling import (
    AMOUNTS,
    PodRequest,
    affinity,
    find_shortages,
    pod_amounts,
    pools_of,
    resources_of,
    selector_picks,
    suitable,
    tolerations,
)
from slipway.infra.placed_model import PlacedStep
from slipway.infra.platform import Resources, subtract
from slipway.infra.review.facts import Charge
from slipway.infra.review.stack import (
    JOB,
    UNLIMITED,
    NodePool,
    Properties,
    Resource,
    Stack,
    at,
    known,
    mapping,
    mappings,
    strings,
    whole,
)
from slipway.infra.review.tables import hourly, node_price
from slipway.infra.schema.problems import key_of

POD = "kubernetes:core/v1:Pod"
DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
CRON_JOB = "kubernetes:batch/v1:CronJob"
STATEFUL_SET = "kubernetes:apps/v1:StatefulSet"
BUDGET = "kubernetes:policy/v1:PodDisruptionBudget"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"

_TEMPLATE = ("spec", "template")
TEMPLATES: Mapping[str, Sequence[str]] = {
    POD: (),
    "kubernetes:core/v1:PodTemplate": ("template",),
    "kubernetes:core/v1:ReplicationController": _TEMPLATE,
    DEPLOYMENT: _TEMPLATE,
    "kubernetes:apps/v1:ReplicaSet": _TEMPLATE,
    STATEFUL_SET: _TEMPLATE,
    DAEMON_SET: _TEMPLATE,
    JOB: _TEMPLATE,
    CRON_JOB: ("spec", "jobTemplate", *_TEMPLATE),
}
"""The path of the pod template in each kind."""

HOSTNAME = "kubernetes.io/hostname"
"""The label by which every node differs from all others."""

WAIT_FOR = "pulumi.com/waitFor"
"""The annotation that says what Pulumi waits for, in place of the end of a Job."""


def section_of(step: PlacedStep | None, pipelines: Properties) -> str:
    """The key of a step's settings in ``pipelines``, a section of the stack file; empty without one, as for gates.

    Of the steps of a matrix it is that of the one that has the matrix.
    """
    if step is None or step.declared not in mapping(at(pipelines, step.pipeline, "steps")):
        return ""
    return key_of(("pipelines", step.pipeline, "steps", step.declared))


def awaited(job: Resource) -> bool:
    """Whether `pulumi up` waits until the Job is done."""
    return WAIT_FOR not in mapping(at(job.properties, "metadata", "annotations"))


@dataclass(frozen=True)
class Workload:
    """One resource with a pod template. ``cluster`` is empty where its provider is the default one."""

    resource: Resource
    cluster: str
    template: Properties

    @property
    def spec(self) -> Properties:
        """The pod's spec."""
        return mapping(self.template.get("spec"))

    @property
    def job(self) -> Properties:
        """The spec of the Job, also of the Jobs that a CronJob makes; empty for other kinds."""
        if self.resource.type == CRON_JOB:
            return mapping(mapping(at(self.resource.properties, "spec", "jobTemplate")).get("spec"))
        return mapping(self.resource.properties.get("spec")) if self.resource.type == JOB else {}

    @property
    def namespace(self) -> object:
        """The namespace, `UNKNOWN` where only an update can tell."""
        return at(self.resource.properties, "metadata", "namespace") or "default"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its pods."""
        return strings(at(self.template, "metadata", "labels"))

    @property
    def pods(self) -> int:
        """How many pods it has at once: those of a Job while it runs."""
        if self.job:
            return min(whole(self.job.get("parallelism"), 1), whole(self.job.get("completions"), UNLIMITED))
        return whole(at(self.resource.properties, "spec", "replicas"), 1)

    @cached_property
    def one_a_node(self) -> bool:
        """Whether it has several pods at once, and no two of them can be on one node."""
        anti = at(self.spec, "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        return self.pods > 1 and any(
            term.get("topologyKey") == HOSTNAME and selector_picks(term.get("labelSelector"), self.labels)
            for term in mappings(anti)
        )

    @property
    def together(self) -> bool:
        """Whether they work together: each finds the others by their names, and can do nothing without them."""
        return self.resource.type in {JOB, CRON_JOB} and self.one_a_node and bool(self.spec.get("subdomain"))

    @property
    def stays(self) -> bool:
        """Whether its pods are there as long as it is, and are placed by the scheduler."""
        return self.resource.type in {STATEFUL_SET, DEPLOYMENT}

    @property
    def containers(self) -> list[Properties]:
        """All containers, init containers first."""
        return [*mappings(self.spec.get("initContainers")), *mappings(self.spec.get("containers"))]

    @property
    def volumes(self) -> list[Properties]:
        """The pod's volumes."""
        return mappings(self.spec.get("volumes"))

    @property
    def claims(self) -> set[object]:
        """The names of the claims that the pod mounts."""
        return {at(volume, "persistentVolumeClaim", "claimName") for volume in self.volumes} - {None}

    @cached_property
    def requests(self) -> Resources | None:
        """What the scheduler counts, in the units of `Resources`; None if it cannot be read."""
        try:
            return resources_of(pod_amounts(self.spec))
        except ValueError:
            return None

    @cached_property
    def request(self) -> PodRequest | None:
        """What decides which nodes can take the pod; None if that is unknown, or if the pod is not scheduled."""
        spec = self.spec
        required = at(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
        selecting = (spec.get("nodeSelector"), spec.get("tolerations"), spec.get("nodeName"), required)
        if (
            self.requests is None
            or not self.cluster
            or not known(selecting)
            or self.resource.type == DAEMON_SET
            or spec.get("nodeName")
            or spec.get("schedulerName", "default-scheduler") != "default-scheduler"
        ):
            return None
        return PodRequest(
            self.cluster,
            strings(spec.get("nodeSelector")),
            tolerations(spec.get("tolerations")),
            self.requests,
            affinity(mapping(required).get("nodeSelectorTerms")),
        )

    def suitable_pools(self, stack: Stack) -> list[NodePool]:
        """The pools whose nodes can take the pod; empty if that cannot be determined."""
        return suitable(self.request, pools_of(stack, self.cluster)) if self.request else []

    def pool(self, stack: Stack) -> NodePool | None:
        """The pool that the pod goes to; None if no pool can take it, or if that cannot be determined."""
        return next(iter(self.suitable_pools(stack)), None)

    def placement_known(self, stack: Stack) -> bool:
        """Whether its requests and the pools of its cluster are known, so that `suitable_pools` has all."""
        return self.request is not None and bool(pools_of(stack, self.cluster))


def workloads(stack: Stack, *types: str) -> Iterator[Workload]:
    """The resources of these types (default: of all) that have a pod template."""
    for resource in stack.of_type(*(types or TEMPLATES)):
        yield workload_of(resource, stack)


def workload_of(resource: Resource, stack: Stack) -> Workload:
    """A resource of one of the types in `TEMPLATES`."""
    template = mapping(at(resource.properties, *TEMPLATES[resource.type]))
    return Workload(resource, stack.cluster_of(resource), template)


def unevictable(workload: Workload, stack: Stack) -> Resource | None:
    """The PodDisruptionBudget that lets none of its pods be evicted while all of them run; None without one."""
    for budget in stack.of_type(BUDGET):
        spec = mapping(budget.properties.get("spec"))
        if (
            stack.cluster_of(budget) == workload.cluster
            and (at(budget.properties, "metadata", "namespace") or "default") == workload.namespace
            and selector_picks(spec.get("selector"), workload.labels)
            and _allows_none(spec, workload.pods)
        ):
            return budget
    return None


def _allows_none(budget: Properties, pods: int) -> bool:
    """Whether a budget's spec allows no disruption of this many pods. Percentages are rounded up.

    Source: https://kubernetes.io/docs/tasks/run-application/configure-pdb/, 2026-11-23.
    """
    least, most = (budget.get(key) for key in ("minAvailable", "maxUnavailable"))
    if most is not None:
        return most in {0, "0", "0%"}
    if isinstance(least, str) and least.endswith("%"):
        return pods > 0 and -(-whole(least[:-1]) * pods // 100) >= pods
    return least is not None and 0 < pods <= whole(least)


def gpus_of(workload: Workload) -> int:
    """The number of GPUs that its pod requests; 0 if it cannot be read."""
    return workload.requests.gpus if workload.requests is not None else 0


# Kubernetes objects with their patches applied.
#
# A patch (`ServicePatch`, `IngressPatch`, …) changes the object of its name, which the same program or somebody
# else declares (pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply,
# seen November 2026). Lists are taken to be replaced.


PATCH = "Patch"
"""What the type of a patch has behind that of the object."""


def as_patched(stack: Stack, *types: str) -> Iterator[Resource]:
    """The objects of the ``types`` with their patches, and the patches of objects that the stack lacks."""
    left = {patch.urn: patch for patch in stack.of_type(*(f"{type_}{PATCH}" for type_ in types))}
    for resource in stack.of_type(*types):
        merged = resource
        for urn, patch in list(left.items()):
            if patch.type == f"{resource.type}{PATCH}" and _object_key(patch) == _object_key(resource):
                merged = replace(merged, properties=_laid_over(merged.properties, patch.properties))
                del left[urn]
        yield merged
    yield from left.values()


def _object_key(resource: Resource) -> tuple[str, object, object]:
    """The key of the object: its cluster's provider, its namespace and its name."""
    name, namespace = (at(resource.properties, "metadata", key) for key in ("name", "namespace"))
    return resource.provider, namespace or "default", name


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        current = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(current, Mapping)
        merged[key] = _laid_over(cast("Any", current), cast("Any", value)) if both else value
    return merged


@dataclass(frozen=True)
class PoolRoom:
    """What the pods that stay leave of a pool: ``free`` of each node that has some of them, ``by`` whose they are.

    ``nodes`` is how many nodes there are at all times: the pool's least, or as many as they need.
    """

    pool: NodePool
    free: Sequence[Resources] = ()
    by: Sequence[Workload] = ()

    @property
    def nodes(self) -> int:
        return max(self.pool.min_nodes, len(self.free))

    def room(self, wanted: Resources, *, one_a_node: bool = False) -> int:
        """How many pods that want as much fit at the same time, with the pool at its largest.

        With ``one_a_node`` no two of them are on one node.
        """
        most = 1 if one_a_node else UNLIMITED
        empty = max(self.pool.max_nodes - len(self.free), 0)
        room = sum(min(_fit(wanted, node), most) for node in self.free)
        return room + empty * min(_fit(wanted, self.pool.allocatable), most)


def pool_rooms(stack: Stack) -> list[PoolRoom]:
    """What stays on each pool of the stack, in the order of `Stack.pools`.

    Pods go to the first node with room, in the order of their declaration. `slipway.infra.pipelines.residents`
    says the same of a stack file before anything is declared; this one reads what was declared in the end,
    whatever declared it, also of stacks of other revisions and of resources that are not Slipway's.
    """
    free: dict[tuple[str, str], list[Resources]] = {}
    by: dict[tuple[str, str], list[Workload]] = {}
    for workload in workloads(stack):
        pool = workload.pool(stack) if workload.stays else None
        if pool is None or workload.requests is None:
            continue
        key = (pool.cluster, pool.name)
        nodes = free.setdefault(key, [])
        by.setdefault(key, []).append(workload)
        for _ in range(min(workload.pods, pool.max_nodes * _fit(workload.requests, pool.allocatable))):
            _place(workload.requests, nodes, pool)
    return [
        PoolRoom(pool, free.get((pool.cluster, pool.name), ()), by.get((pool.cluster, pool.name), ()))
        for pool in stack.pools
    ]


def _place(wanted: Resources, nodes: list[Resources], pool: NodePool) -> None:
    for index, free in enumerate(nodes):
        if not find_shortages(wanted, free):
            nodes[index] = subtract(free, wanted)
            return
    if len(nodes) < pool.max_nodes:
        nodes.append(subtract(pool.allocatable, wanted))


def _fit(wanted: Resources, free: Resources) -> int:
    """How many times ``wanted`` is in ``free``."""
    counts = [getattr(free, key) // amount for key in AMOUNTS if (amount := getattr(wanted, key)) > 0]
    return max(min(counts, default=UNLIMITED), 0)


def hourly_of(charge: Charge) -> float | None:
    """The price for an hour; None if it is not known."""
    known = hourly(charge.price) if charge.price is not None else None
    return None if known is None else known * charge.quantity


def node_rate(stack: Stack, pool: NodePool | None) -> float | None:
    """What one node of the pool costs for an hour; None where several pools share one resource's charges."""
    if pool is None or not pool.urn or sum(other.urn == pool.urn for other in stack.pools) > 1:
        return None
    return node_price([*stack.charges, *stack.charges_elsewhere], pool.urn)


def pod_rate(stack: Stack, job: Resource) -> float | None:
    """What one pod of the Job costs for an hour, where pods are billed."""
    rates = [hourly_of(charge) for charge in stack.charges if charge.urn == job.urn]
    return None if not rates or None in rates else sum(rate for rate in rates if rate is not None)


def workload_rate(stack: Stack, workload: Workload) -> float | None:
    """What all pods of ``workload`` cost for an hour: a node for each, or themselves where pods are billed."""
    pool = workload.pool(stack)
    billed = pod_rate(stack, workload.resource) if pool and pool.bills_pods else node_rate(stack, pool)
    return None if billed is None else billed * workload.pods
