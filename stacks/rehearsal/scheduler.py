"""Placement: which node takes a pod, and why none does, in kube-scheduler's terms."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from infra.platform import GPU_RESOURCE, Node, Resources, Taint
from stacks.rehearsal.pods import PodSpec, Toleration, add

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})

SETTLE = 1.0
"""Seconds without a new node after which a pod that fits none of them is given up. In a cluster it would stay
Pending until its deadline, and a node pool that is declared at the same moment must not come too late."""

AMOUNTS: Mapping[str, str] = {
    "cpu": "cpu",
    "memory": "memory",
    "ephemeral_storage": "ephemeral-storage",
    "gpus": GPU_RESOURCE,
}
"""Kubernetes' names of the fields of `Resources`, and below them their units."""

UNITS = ("m", "Mi", "Mi", "")


@dataclass(frozen=True)
class PodRequest:
    """What of a pod decides where it can go."""

    cluster: str
    selector: Mapping[str, str]
    tolerations: Sequence[Toleration]
    resources: Resources

    @classmethod
    def of(cls, cluster: str, pod: PodSpec, *injected: Resources) -> "PodRequest":
        """The request of ``pod`` with what a cloud injects into it."""
        return cls(cluster, pod.selector, pod.tolerations, reduce(add, injected, pod.requests))


@dataclass(frozen=True)
class Placement:
    """A pod on a node, which it holds until it is released. ``number`` counts the nodes of the pool from 0."""

    node: Node
    number: int
    resources: Resources

    @property
    def node_name(self) -> str:
        """The name of the node."""
        return node_name(self.node, self.number)


def node_name(node: Node, number: int) -> str:
    """A name for one of the nodes that are like ``node``, as clouds make them: of cluster, pool and number."""
    return f"{node.cluster}-{node.pool}-{number}"


class UnschedulableError(Exception):
    """No declared pool can ever take the pod. ``reasons`` are by pool."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = reasons
        listed = "; ".join(f"{pool}: {reason}" for pool, reason in reasons.items())
        super().__init__(f"no pool can take the pod ({listed or 'the cluster has no nodes'})")


class CancelledError(Exception):
    """The pod was given up while it was Pending."""


@dataclass
class Scheduler:
    """The nodes that there are, and what is taken of each. Usable from several threads."""

    settle: float = SETTLE
    poll: float = 0.1
    """Seconds between two looks at whether a pod was given up."""
    no_devices: Callable[[Node], str] = lambda _: ""
    """Why a node's GPUs cannot be given to pods; empty where they can."""
    _nodes: list[Node] = field(default_factory=list[Node])
    _taken: list[Placement] = field(default_factory=list[Placement])
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _newest: float = 0.0

    def add(self, nodes: Sequence[Node]) -> None:
        """These nodes join their cluster."""
        with self._changed:
            self._nodes.extend(nodes)
            self._newest = time.monotonic()
            self._changed.notify_all()

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all clusters, alike ones together."""
        with self._changed:
            return list(self._nodes)

    def registered(self, node: Node) -> Node:
        """``node`` as it is registered with the API server: without GPUs where they cannot be given to pods."""
        return replace(node, allocatable=replace(node.allocatable, gpus=0)) if self.no_devices(node) else node

    def place(
        self, pod: PodRequest, cancelled: Callable[[], bool], pending: Callable[[str], None] = lambda _: None
    ) -> Placement:
        """Waits for a node with room and takes it. ``pending`` is told, once each, why there is none yet.

        Raises UnschedulableError where none of the nodes can take the pod however empty it is, and CancelledError.
        """
        told = ""
        with self._changed:
            self._newest = max(self._newest, time.monotonic())
            while not cancelled():
                suitable = [node for node in self._nodes if obstacle(pod, self.registered(node)) is None]
                placement = next(filter(None, (self._free(node, pod.resources) for node in suitable)), None)
                if placement is not None:
                    self._taken.append(placement)
                    return placement
                if not suitable and time.monotonic() - self._newest >= self.settle:
                    raise UnschedulableError(self._obstacles(pod))
                if suitable and (reason := self._shortage(suitable, pod.resources)) != told:
                    told = reason
                    pending(reason)
                self._changed.wait(self.poll)
        raise CancelledError

    def release(self, placement: Placement) -> None:
        """The pod is gone; what it held is free."""
        with self._changed:
            self._taken.remove(placement)
            self._changed.notify_all()

    def _obstacles(self, pod: PodRequest) -> dict[str, str]:
        reasons = obstacles(pod, [self.registered(node) for node in self._nodes])
        for node in self._nodes:
            if node.pool in reasons and node.cluster == pod.cluster and pod.resources.gpus:
                reasons[node.pool] = ": ".join(filter(None, (reasons[node.pool], self.no_devices(node))))
        return reasons

    def _free(self, node: Node, wanted: Resources) -> Placement | None:
        for number in range(node.count):
            if not lacking(wanted, self._rest(node, number)):
                return Placement(node, number, wanted)
        return None

    def _rest(self, node: Node, number: int) -> Resources:
        held = [each.resources for each in self._taken if each.node is node and each.number == number]
        return subtract(self.registered(node).allocatable, add(*held))

    def _shortage(self, suitable: Sequence[Node], wanted: Resources) -> str:
        parts: list[str] = []
        for node in suitable:
            short = sorted(
                {name for number in range(node.count) for name in lacking(wanted, self._rest(node, number))}
            )
            parts.append(f"{node.pool}: {node.count} {', '.join(f'Insufficient {name}' for name in short)}")
        return "; ".join(parts)


def obstacles(pod: PodRequest, nodes: Sequence[Node]) -> dict[str, str]:
    """Why each pool cannot take ``pod``, in kube-scheduler's words."""
    found: dict[str, str] = {}
    for node in nodes:
        if node.cluster != pod.cluster:
            found[f"{node.cluster}/{node.pool}"] = "in another cluster"
        elif reason := obstacle(pod, node):
            found[node.pool] = reason
    return found


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
    if taint := untolerated(pod.tolerations, node.taints):
        return f"{count} had untolerated taint {{{taint.key}: {taint.value}}}"
    if any(node.labels.get(key) != value for key, value in pod.selector.items()):
        return f"{count} didn't match Pod's node affinity/selector"
    if short := lacking(pod.resources, node.allocatable):
        return ", ".join(f"{node.count} Insufficient {name} ({detail})" for name, detail in short.items())
    return None


def untolerated(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> Taint | None:
    """The first of a node's taints that keeps off a pod with these tolerations; None if none does."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not any(tolerates(each, taint) for each in tolerations):
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


def lacking(wanted: Resources, there: Resources) -> dict[str, str]:
    """The resources of which there is too little, by Kubernetes' names, each with the two amounts."""
    return {
        name: f"requested {getattr(wanted, key)}{unit}, allocatable {max(getattr(there, key), 0)}{unit}"
        for (key, name), unit in zip(AMOUNTS.items(), UNITS, strict=True)
        if getattr(wanted, key) > 0 and getattr(wanted, key) > getattr(there, key)
    }


def subtract(there: Resources, taken: Resources) -> Resources:
    """What is left of ``there``."""
    return Resources(
        cpu=there.cpu - taken.cpu,
        memory=there.memory - taken.memory,
        ephemeral_storage=there.ephemeral_storage - taken.ephemeral_storage,
        gpus=there.gpus - taken.gpus,
    )
