"""The nodes of a pool during an update: which node runs a Job, and when."""

import math
from bisect import insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from slipway.evaluated.scheduling import find_shortages
from slipway.infra.kubernetes.review import scale_down
from slipway.infra.platform import Resources, add, subtract
from slipway.infra.review.stack import NodePool


@dataclass
class Stay:
    """A node from being asked for until its last Job ends, in seconds after the update begins.

    ``number`` counts the nodes of the pool from 0. ``booted`` is False for a node that is there at all times.
    """

    pool: NodePool
    number: int
    since: float
    until: float
    booted: bool


@dataclass(frozen=True)
class Seat:
    """A place for a pod: a node and a time.

    ``begins`` is infinite where there is never room: what is there stays.
    """

    node: "Node"
    begins: float
    boots: bool = False


@dataclass
class Node:
    """One node of a pool. ``kept`` says that a pod is there that stays."""

    pool: NodePool
    number: int
    kept: bool = False
    stay: Stay | None = None
    images: set[str] = field(default_factory=set[str])
    _running: list[tuple[float, Resources]] = field(default_factory=list[tuple[float, Resources]])
    """Sorted by end. No Job begins before one that was placed earlier, so Jobs that ended by then are removed."""
    _newest: float = 0.0

    @property
    def always(self) -> bool:
        """Whether the node is there without any Job."""
        return self.kept or self.number < self.pool.min_nodes

    def is_up(self, time: float) -> bool:
        """Whether the node exists at ``time``."""
        if self.stay is None:
            return self.always
        return self.always or self.stay.until + scale_down(self.pool).amount >= time

    def seat(self, time: float, wanted: Resources) -> Seat:
        """The earliest place on this node from ``time`` on."""
        begins = max(time, self._newest)
        staying = [seat for seat in self._running if seat[0] > begins]
        free = subtract(self.pool.allocatable, add(*(resources for _, resources in staying)))
        for ends, resources in staying:
            if not find_shortages(wanted, free):
                break
            free = add(free, resources)
            begins = ends
        return Seat(self, begins)

    def take(self, seat: Seat, wanted: Resources, ends: float) -> None:
        """Runs a Job in its seat until ``ends``."""
        if seat.boots:
            self.images.clear()
            self._running.clear()
        self._newest = seat.begins
        self._running = [running for running in self._running if running[0] > seat.begins]
        insort(self._running, (ends, wanted), key=lambda entry: entry[0])
        if self.stay is None or seat.boots:
            self.stay = Stay(self.pool, self.number, seat.begins, ends, booted=not self.always)
        self.stay.until = max(self.stay.until, ends)

    def keep(self, seat: Seat, wanted: Resources) -> None:
        """Runs a pod in its seat from then on."""
        if seat.boots:
            self.images.clear()
            self._running.clear()
        self.kept = True
        self._newest = seat.begins
        self._running.append((math.inf, wanted))


class PoolNodes:
    """All nodes of one pool."""

    def __init__(self, pool: NodePool) -> None:
        self.pool = pool
        self.stays: list[Stay] = []
        self._nodes: list[Node] = []

    def seat(self, time: float, wanted: Resources, without: Collection[int] = ()) -> Seat:
        """The earliest place for a Job that can run from ``time`` on: on an existing node or on a new one.

        It is on none of the nodes that ``without`` has the numbers of.
        """
        seats = [node.seat(time, wanted) for node in self._up(time) if node.number not in without]
        first = min(seats, key=lambda seat: seat.begins, default=None)
        boot = self.pool.boot.amount if self.pool.boot else 0.0
        if (new := self._down(time, without)) is not None and (first is None or first.begins > time + boot):
            return Seat(new, time, boots=True)
        if first is None:
            raise ValueError(f"pool {self.pool.name} has no nodes")
        return first

    def take(self, seat: Seat, wanted: Resources, ends: float) -> None:
        """Runs a Job in its seat until ``ends``."""
        before = seat.node.stay
        seat.node.take(seat, wanted, ends)
        if (stay := seat.node.stay) is not None and stay is not before:
            self.stays.append(stay)

    @property
    def kept(self) -> frozenset[int]:
        """The numbers of the nodes on which pods stay."""
        return frozenset(node.number for node in self._nodes if node.kept)

    def _up(self, time: float) -> Sequence[Node]:
        while len(self._nodes) < self.pool.min_nodes:
            self._nodes.append(Node(self.pool, len(self._nodes)))
        return [node for node in self._nodes if node.is_up(time)]

    def _down(self, time: float, without: Collection[int]) -> Node | None:
        """A node that can be added, ``without`` those of these numbers; None if the pool has its largest size."""
        down = (node for node in self._nodes if not node.is_up(time) and node.number not in without)
        if gone := next(down, None):
            return gone
        if len(self._nodes) >= self.pool.max_nodes:
            return None
        self._nodes.append(Node(self.pool, len(self._nodes)))
        return self._nodes[-1]
