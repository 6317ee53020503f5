"""The scheduler of a rehearsal: it assigns pods to nodes of the declared pools; a pod waits until one has room."""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slipway.evaluated.scheduling import PodRequest, find_shortages, obstacle, obstacles, selector_picks
from slipway.infra.platform import Node, Resources, add, subtract
from slipway.infra.review.stack import Properties
from slipway.rehearse.machine.processes import CancelledError

SETTLE = 1.0
"""Seconds without a new node after which a pod that fits none of them is given up. In a cluster it would stay
Pending until its deadline, and a node pool that is declared at the same moment must not come too late."""


APART = "node(s) didn't match pod anti-affinity rules"
"""Why a pod cannot go to a node with another that it has to keep apart from, in kube-scheduler's words
(kubernetes/pkg/scheduler/framework/plugins/interpodaffinity/filtering.go, Kubernetes 1.34)."""


@dataclass(frozen=True)
class PodAffinity:
    """The rules of a pod about the other pods on its node.

    ``group`` names the pods that it avoids as long as there is room; empty if it avoids none. ``apart`` are the
    label selectors of pods in its namespace with which it never shares a node. ``gang`` names the pods
    that are of use only together with it; empty if it has none.
    """

    group: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    apart: Sequence[Properties] = ()
    gang: str = ""

    def refuses(self, other: "PodAffinity") -> bool:
        """Whether the two pods never share a node."""
        return self.namespace == other.namespace and (
            any(selector_picks(term, other.labels) for term in self.apart)
            or any(selector_picks(term, self.labels) for term in other.apart)
        )


ANYWHERE = PodAffinity()


@dataclass(frozen=True)
class Placement:
    """A pod on a node, which it holds until it is released. ``number`` counts the nodes of the pool from 0.

    ``stays`` says that it is not released before the rehearsal ends.
    """

    node: Node
    number: int
    resources: Resources
    stays: bool = False
    affinity: PodAffinity = ANYWHERE
    evict: Callable[[], None] = lambda: None
    """Ends the pod as the loss of its node does."""

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


class TooFewNodesError(UnschedulableError):
    """The pods that need a node each are more than the nodes that can take one. ``there`` are these by pool."""

    def __init__(self, pods: int, places: Mapping[str, int], reasons: Mapping[str, str]) -> None:
        super().__init__(reasons)
        places_words = "; ".join(f"{pool}: {count}" for pool, count in places.items())
        others = "; ".join(f"{pool}: {reason}" for pool, reason in reasons.items())
        text = f"{pods} pods need a node each, and {sum(places.values())} can take one ({places_words}"
        self.args = (f"{text}{'; ' if others else ''}{others})",)


@dataclass
class Scheduler:
    """The nodes that there are, and what is taken of each. Usable from several threads."""

    settle: float = SETTLE
    poll: float = 0.1
    """Seconds between two looks at whether a pod was given up."""
    most: int | None = None
    """Pods that are placed at a time, whatever room the nodes have; None for all of them. Those that stay do not
    count, and those of a gang count as one: pods that need them would wait for ever."""
    no_devices: Callable[[Node], str] = lambda _: ""
    """Why a node's GPUs cannot be given to pods; empty where they can."""
    capacity: Callable[[str], int | None] = lambda _: None
    """How many nodes a pool can have now; None: as many as it declares."""
    _nodes: list[Node] = field(default_factory=list[Node])
    _taken: list[Placement] = field(default_factory=list[Placement])
    _waiting: list[PodAffinity] = field(default_factory=list[PodAffinity])
    """What each pod that waits for a node asks for."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _newest: float = 0.0

    def add(self, nodes: Sequence[Node]) -> None:
        """Adds nodes to their clusters."""
        with self._changed:
            self._nodes.extend(nodes)
            self._newest = time.monotonic()
            self._changed.notify_all()

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all clusters; those of one pool are one entry."""
        with self._changed:
            return list(self._nodes)

    def registered(self, node: Node) -> Node:
        """``node`` as it is registered with the API server: without GPUs where they cannot be given to pods."""
        return replace(node, allocatable=replace(node.allocatable, gpus=0)) if self.no_devices(node) else node

    def place(
        self,
        pod: PodRequest,
        cancelled: Callable[[], bool],
        pending: Callable[[str], None] = lambda _: None,
        *,
        stays: bool = False,
        affinity: PodAffinity = ANYWHERE,
        evict: Callable[[], None] = lambda: None,
    ) -> Placement:
        """Waits for a node with room and takes it. ``pending`` gets each new reason why there is none yet.

        ``stays``, ``affinity`` and ``evict`` are those of the `Placement`. Raises UnschedulableError where none
        of the nodes can take the pod although all the others that do not stay were gone, and CancelledError.
        """
        at_most = f"there is room on the nodes, but this machine runs {self.most} pods at a time"
        last_reason = ""
        stuck: float | None = None
        with self._changed, self._wait(affinity):
            self._newest = max(self._newest, time.monotonic())
            while not cancelled():
                suitable = [node for node in self._nodes if self._rooms_ever(node, pod)]
                full = not stays and self._is_full(affinity.gang)
                free = self._free(suitable, pod.resources, affinity)
                if free is not None and not full:
                    placement = Placement(*free, pod.resources, stays, affinity, evict)
                    self._taken.append(placement)
                    return placement
                if not suitable and time.monotonic() - self._newest >= self.settle:
                    raise UnschedulableError(self._obstacles(pod))
                shortage = self._shortage(suitable, pod.resources, affinity) if free is None else at_most
                deadlock = self._deadlock(suitable) if suitable and free is None else ""
                stuck = (stuck or time.monotonic()) if deadlock else None
                if stuck and time.monotonic() - stuck >= self.settle:
                    shortage = f"{shortage}; {deadlock}"
                if suitable and shortage != last_reason:
                    last_reason = shortage
                    pending(shortage)
                self._changed.wait(self.poll)
        raise CancelledError

    @contextlib.contextmanager
    def _wait(self, affinity: PodAffinity) -> Generator[None]:
        self._waiting.append(affinity)
        try:
            yield
        finally:
            self._waiting.remove(affinity)

    def require(self, pod: PodRequest, count: int, cancelled: Callable[[], bool]) -> None:
        """Returns where ``count`` nodes can each take a pod like ``pod`` once all that do not stay are gone.

        Raises TooFewNodesError, UnschedulableError where there is no such node at all, and CancelledError.
        """
        with self._changed:
            self._newest = max(self._newest, time.monotonic())
            while not cancelled():
                places = {node.pool: rooms for node in self._nodes if (rooms := len(self._rooms_ever(node, pod)))}
                if sum(places.values()) >= count:
                    return
                if time.monotonic() - self._newest >= self.settle:
                    reasons = self._obstacles(pod)
                    others = {pool: reason for pool, reason in reasons.items() if pool not in places}
                    raise TooFewNodesError(count, places, others) if places else UnschedulableError(reasons)
                self._changed.wait(self.poll)
        raise CancelledError

    def _there(self, node: Node) -> int:
        """How many of the nodes like ``node`` there can be now."""
        capacity = self.capacity(node.pool)
        return node.count if capacity is None else min(node.count, capacity)

    def take_back(self) -> None:
        """Evicts the pods on nodes that can no longer be there."""
        with self._changed:
            lost = [entry for entry in self._taken if entry.number >= self._there(entry.node)]
        for placement in lost:
            placement.evict()

    def release(self, placement: Placement) -> None:
        """Frees the resources of a pod that has ended."""
        with self._changed:
            self._taken.remove(placement)
            self._changed.notify_all()

    def _obstacles(self, pod: PodRequest) -> dict[str, str]:
        reasons = obstacles(pod, [self.registered(node) for node in self._nodes])
        for node in self._nodes:
            if node.pool in reasons and node.cluster == pod.cluster and pod.resources.gpus:
                reasons[node.pool] = ": ".join(filter(None, (reasons[node.pool], self.no_devices(node))))
        for node in self._nodes:
            if node.cluster == pod.cluster and node.pool not in reasons:
                short = self._lacking(node, pod.resources, self._staying)
                listed = ", ".join(
                    f"{node.count} Insufficient {name} ({detail})" for name, detail in short.items()
                )
                reasons[node.pool] = f"{listed} beside the services that run there"
        return reasons

    def _is_full(self, gang: str) -> bool:
        """Whether this machine runs as many pods as it may, one more of ``gang`` among them."""
        counted = [placement for placement in self._taken if not placement.stays]
        gangs = {placement.affinity.gang for placement in counted} - {""}
        alone = sum(not placement.affinity.gang for placement in counted)
        return self.most is not None and alone + len(gangs) >= self.most and gang not in gangs

    def _rooms_ever(self, node: Node, pod: PodRequest) -> list[int]:
        """The numbers of the nodes like ``node`` that can take ``pod`` once all that do not stay are gone."""
        if obstacle(pod, self.registered(node)) is not None:
            return []
        staying = self._staying
        return [
            number
            for number in range(node.count)
            if not find_shortages(pod.resources, self._rest(node, number, staying))
        ]

    def _free(self, nodes: Sequence[Node], wanted: Resources, affinity: PodAffinity) -> tuple[Node, int] | None:
        """The first node with room. For a pod of a group: the node with the fewest others of that group."""
        free = [
            (node, number)
            for node in nodes
            for number in range(self._there(node))
            if not self._is_refused(node, number, affinity)
            and not find_shortages(wanted, self._rest(node, number, self._taken))
        ]
        group = affinity.group
        if not group:
            return next(iter(free), None)
        beside = [placement for placement in self._taken if placement.affinity.group == group]
        return min(free, key=lambda place: sum(_is_on(placement, *place) for placement in beside), default=None)

    def _is_refused(self, node: Node, number: int, affinity: PodAffinity) -> bool:
        """Whether a node has a pod that never shares it with one of this ``affinity``."""
        return any(
            affinity.refuses(placement.affinity) for placement in self._taken if _is_on(placement, node, number)
        )

    @property
    def _staying(self) -> list[Placement]:
        return [placement for placement in self._taken if placement.stays]

    def _rest(self, node: Node, number: int, taken: Sequence[Placement]) -> Resources:
        """What the pods ``taken`` leave of a node."""
        held = [placement.resources for placement in taken if _is_on(placement, node, number)]
        return subtract(self.registered(node).allocatable, add(*held))

    def _lacking(
        self, node: Node, wanted: Resources, taken: Sequence[Placement], numbers: Sequence[int] | None = None
    ) -> dict[str, str]:
        """What at least one of the nodes (of these ``numbers``) lacks beside the pods ``taken``, by name, with
        amounts."""
        lacks: dict[str, str] = {}
        for number in range(node.count) if numbers is None else numbers:
            lacks = {**find_shortages(wanted, self._rest(node, number, taken)), **lacks}
        return dict(sorted(lacks.items()))

    def _deadlock(self, nodes: Sequence[Node]) -> str:
        """That all pods on ``nodes`` wait for others that need a node there; empty where one can end by itself."""
        here = [
            placement
            for placement in self._taken
            if not placement.stays and any(placement.node is node for node in nodes)
        ]
        gangs = {placement.affinity.gang for placement in here}
        if not gangs or not gangs <= {waiting.gang for waiting in self._waiting if waiting.gang}:
            return ""
        names = ", ".join(sorted(gang.rpartition("::")[2] for gang in gangs))
        return f"deadlock: all pods there ({names}) hold their nodes and wait for pods that have none"

    def _shortage(self, suitable: Sequence[Node], wanted: Resources, affinity: PodAffinity) -> str:
        parts: list[str] = []
        for node in suitable:
            if not self._there(node):
                parts.append(f"{node.pool}: no capacity")
                continue
            open_to = [number for number in range(node.count) if not self._is_refused(node, number, affinity)]
            closed = node.count - len(open_to)
            short = [f"Insufficient {name}" for name in self._lacking(node, wanted, self._taken, open_to)]
            reasons = [f"{len(open_to)} {', '.join(short)}"] if short else []
            parts.append(f"{node.pool}: {', '.join([*([f'{closed} {APART}'] if closed else []), *reasons])}")
        return "; ".join(parts)


def _is_on(placement: Placement, node: Node, number: int) -> bool:
    return placement.node is node and placement.number == number
