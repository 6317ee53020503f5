"""Placement: whether a node can take a pod, and why not, in kube-scheduler's terms."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slipway.infra.platform import GPU_RESOURCE, Node, Resources, Taint
from slipway.infra.review.stack import NodePool, Properties, Stack, at, mappings, strings, text, texts
from slipway.infra.schema.quantities import cpu_millicores, size_in_bytes

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})

AMOUNTS: Mapping[str, str] = {
    "cpu": "cpu",
    "memory": "memory",
    "ephemeral_storage": "ephemeral-storage",
    "gpus": GPU_RESOURCE,
}
"""Kubernetes' names of the fields of `Resources`, and below them their units."""

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has with its name."""

ZONE = "topology.kubernetes.io/zone"
"""A label that differs between the nodes of a pool over several zones."""

UNITS = ("m", "Mi", "Mi", "")


@dataclass(frozen=True)
class Toleration:
    """A pod's toleration. Empty ``key`` with ``Exists`` tolerates everything; empty ``effect`` every effect."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True)
class Expression:
    """What a node affinity asks of one label, by one of Kubernetes' operators."""

    key: str
    operator: str
    values: Sequence[str]


@dataclass(frozen=True)
class PodRequest:
    """The parts of a pod that decide on which nodes it can run. A node has to match one of the terms in
    ``affinity``."""

    cluster: str
    selector: Mapping[str, str]
    tolerations: Sequence[Toleration]
    resources: Resources
    affinity: Sequence[Sequence[Expression]] = ()


def obstacles(pod: PodRequest, nodes: Sequence[Node]) -> dict[str, str]:
    """Why each pool cannot take ``pod``, in kube-scheduler's words."""
    reasons: dict[str, str] = {}
    for node in nodes:
        if node.cluster != pod.cluster:
            reasons[f"{node.cluster}/{node.pool}"] = "in another cluster"
        elif reason := obstacle(pod, node):
            reasons[node.pool] = reason
    return reasons


def obstacle(pod: PodRequest, node: Node) -> str | None:
    """What keeps ``pod`` off an empty node like ``node``; None if nothing does.

    kube-scheduler asks its filters in this order and reports the first that refuses a node: TaintToleration,
    NodeAffinity, NodeResourcesFit.
    """
    count = f"{node.count} node(s)"
    if node.cluster != pod.cluster:
        return "in another cluster"
    if node.count == 0:
        return "it has no nodes and cannot grow"
    if taint := find_untolerated(pod.tolerations, node.taints):
        return f"{count} had untolerated taint {{{taint.key}: {taint.value}}}"
    if not selects(pod, node.labels):
        return f"{count} didn't match Pod's node affinity/selector"
    if short := find_shortages(pod.resources, node.allocatable):
        return ", ".join(f"{node.count} Insufficient {name} ({detail})" for name, detail in short.items())
    return None


def pools_of(stack: Stack, cluster: str) -> list[NodePool]:
    """The pools of a cluster; empty where the stack does not know them."""
    return [pool for pool in stack.pools if pool.cluster == cluster]


def has_gpus(pool: NodePool) -> bool:
    """Whether its nodes have GPUs."""
    return pool.gpus > 0 or pool.accelerator is not None


def pool_of_nodes(node: Node) -> NodePool:
    """Nodes that are there before the stack, as a pool that it does not declare."""
    return NodePool(
        urn="",
        cluster=node.cluster,
        name=node.pool,
        labels=node.labels,
        taints=node.taints,
        allocatable=node.allocatable,
        min_nodes=node.count,
        max_nodes=node.count,
        accelerator=node.accelerator,
        gpus=node.allocatable.gpus,
    )


def suitable(pod: PodRequest, pools: Sequence[NodePool]) -> list[NodePool]:
    """Those of a cluster's ``pools`` whose nodes can take ``pod``. It goes to the first.

    Those are first that are known to have all labels which the pod selects: nodes that exist already may have
    others than the stack file names. Then come pools without GPUs, because a pod that fits there asks for none.
    """
    pools_that_fit = [pool for pool in pools if pool_obstacle(pod, pool, pools) is None]
    return sorted(pools_that_fit, key=lambda pool: (not selects(pod, pool.labels), has_gpus(pool)))


def pool_obstacle(pod: PodRequest, pool: NodePool, pools: Sequence[NodePool]) -> str | None:
    """What keeps ``pod`` off the nodes of ``pool``, one of its cluster's ``pools``; None if nothing known does."""
    node = Node(
        pool.cluster, pool.name, pool.labels, pool.taints, pool.allocatable, pool.max_nodes, pool.accelerator
    )
    return obstacle(without_unknown_labels(pod, pool, pools), node)


def without_unknown_labels(pod: PodRequest, pool: NodePool, pools: Sequence[NodePool]) -> PodRequest:
    """``pod`` without the labels in its selector and affinity that the nodes of ``pool`` may or may not have.

    A stack file names only some labels of nodes that exist already, and a label with a domain may be set by the
    kubelet, a driver or an operator.
    """

    def is_known(key: str) -> bool:
        if key in pool.labels:
            return True
        declared = any(key in pool.labels for pool in pools)
        return bool(pool.urn) and key != ZONE and (declared or "/" not in key)

    return replace(
        pod,
        selector={key: value for key, value in pod.selector.items() if is_known(key)},
        affinity=[[expression for expression in term if is_known(expression.key)] for term in pod.affinity],
    )


def selects(pod: PodRequest, labels: Mapping[str, str]) -> bool:
    """Whether a pod's node selector and node affinity choose nodes with these labels."""
    selected = all(labels.get(key) == value for key, value in pod.selector.items())
    return selected and (not pod.affinity or any(all(holds(e, labels) for e in term) for term in pod.affinity))


def holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Whether these labels are what is asked of one of them."""
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            # Gt and Lt compare whole numbers.
            bound = expression.values[0] if expression.values else ""
            if value is None or not value.isdigit() or not bound.isdigit():
                return False
            return int(value) > int(bound) if expression.operator == "Gt" else int(value) < int(bound)


def selector_picks(selector: object, labels: Mapping[str, str]) -> bool:
    """Whether a label selector picks a pod with these labels; an empty one picks all."""
    if any(labels.get(key) != value for key, value in strings(at(selector, "matchLabels")).items()):
        return False
    expressions = (
        Expression(
            str(expression.get("key", "")), str(expression.get("operator", "")), texts(expression.get("values"))
        )
        for expression in mappings(at(selector, "matchExpressions"))
    )
    return all(holds(expression, labels) for expression in expressions)


def find_untolerated(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> Taint | None:
    """The first of a node's taints that keeps off a pod with these tolerations; None if none does."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether ``toleration`` matches ``taint``, by Kubernetes' rules."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in {"Equal", ""} and toleration.value == taint.value


def find_shortages(wanted: Resources, capacity: Resources) -> dict[str, str]:
    """The resources of which there is too little, by Kubernetes' names, each with the two amounts."""
    return {
        name: f"requested {getattr(wanted, key)}{unit}, allocatable {max(getattr(capacity, key), 0)}{unit}"
        for (key, name), unit in zip(AMOUNTS.items(), UNITS, strict=True)
        if getattr(wanted, key) > 0 and getattr(wanted, key) > getattr(capacity, key)
    }


def taints_of(value: object) -> list[Taint]:
    """The taints of a node, or of Kueue's flavor."""
    return [
        Taint(text(taint.get("key")), text(taint.get("value")), taint.get("effect", "NoSchedule"))
        for taint in mappings(value)
    ]


def tolerations(value: object) -> list[Toleration]:
    """The tolerations of a pod spec."""
    return [
        Toleration(
            key=str(toleration.get("key", "")),
            operator=str(toleration.get("operator", "Equal")),
            value=str(toleration.get("value", "")),
            effect=str(toleration.get("effect", "")),
        )
        for toleration in mappings(value)
    ]


def affinity(terms: object) -> list[list[Expression]]:
    """The ``nodeSelectorTerms`` of a required node affinity. What they ask of a node's fields is left out."""
    return [
        [
            Expression(
                str(match_expression.get("key", "")),
                str(match_expression.get("operator", "")),
                texts(match_expression.get("values")),
            )
            for match_expression in mappings(term.get("matchExpressions"))
        ]
        for term in mappings(terms)
    ]


CPU = "cpu"
BYTES = ("memory", "ephemeral-storage", "hugepages-")
BYTE_UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def amount(resource: str, quantity: object) -> int:
    """The amount that a quantity of ``resource`` is. Raises ValueError for what is no quantity."""
    text = str(quantity)
    return cpu_millicores(text) if resource == CPU else math.ceil(size_in_bytes(text))


def quantity_text(resource: str, value: int) -> str:
    """An amount of ``resource`` as Kubernetes writes it."""
    if resource == CPU:
        return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"
    if resource.startswith(BYTES):
        for unit, size in BYTE_UNITS:
            if value and value % size == 0:
                return f"{value // size}{unit}"
    return str(value)


def pod_amounts(spec: Properties) -> Counter[str]:
    """What a pod asks for, of every resource: as the scheduler counts it, with limits in place of requests.

    Init containers run one after another; those with the restart policy Always keep running
    (kubernetes.io/docs/concepts/workloads/pods/sidecar-containers, November 2026). What only an update knows is
    left out. Raises ValueError for what is no quantity.
    """
    staying, peak = Counter[str](), Counter[str]()
    for init_container in mappings(spec.get("initContainers")):
        wanted = _container_amounts(init_container)
        if init_container.get("restartPolicy") == "Always":
            staying += wanted
            wanted = Counter[str]()
        peak |= staying + wanted
    return peak | sum(map(_container_amounts, mappings(spec.get("containers"))), staying)


def _container_amounts(container: Properties) -> Counter[str]:
    limits, requests = (strings(at(container, "resources", key)) for key in ("limits", "requests"))
    return Counter({name: amount(name, quantity) for name, quantity in {**limits, **requests}.items()})


def resources_of(amounts: Mapping[str, int]) -> Resources:
    """The amounts in the units of `Resources`, rounded up."""
    memory, storage = (math.ceil(amounts.get(name, 0) / 2**20) for name in ("memory", "ephemeral-storage"))
    return Resources(amounts.get(CPU, 0), memory, storage, amounts.get(GPU_RESOURCE, 0))
