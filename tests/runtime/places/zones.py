"""Zones of Spot nodes over time, and a step that the policy of places moves among them.

Times are in seconds, money in hours of on-demand nodes. A request for nodes is granted at the first second at
which a zone of the place has them; from then on they are paid, and after the time to start the program computes.
A zone that has none any more takes them, and what was computed since the newest checkpoint is lost.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slipway.runtime.schedule.places.policy import GO, STOP, Look, Place, Rules, State, decide

SURE = "on demand"
"""The zone of nodes that are always there."""


class World:
    """When zones have nodes: a truth value for each tick of ``gap`` seconds, again and again."""

    def __init__(self, zones: Mapping[str, Sequence[bool]], gap: int) -> None:
        ticks = min(len(has) for has in zones.values())
        self.length = ticks * gap
        self._runs = {zone: _runs(has[:ticks], gap) for zone, has in zones.items()}

    def granted(self, zone: str, at: float) -> float:
        """When the zone next has the nodes; endless where it never has."""
        if zone == SURE:
            return at
        starts, ends = self._runs[zone]
        round_, at = divmod(at, self.length)
        index = bisect_right(starts, at) - 1
        if index >= 0 and at < ends[index]:
            return round_ * self.length + at
        if index + 1 < len(starts):
            return round_ * self.length + starts[index + 1]
        return (round_ + 1) * self.length + starts[0] if starts else math.inf

    def lost(self, zone: str, at: float) -> float:
        """When the zone, which has the nodes, next has not."""
        if zone == SURE:
            return math.inf
        starts, ends = self._runs[zone]
        round_, at = divmod(at, self.length)
        end = ends[bisect_right(starts, at) - 1]
        if end < self.length or starts[0] > 0:
            return round_ * self.length + end
        return math.inf if ends[0] == self.length else (round_ + 1) * self.length + ends[0]

    def first(self, zones: Sequence[str], at: float) -> tuple[float, str]:
        """Which of the zones has the nodes first, and when."""
        return min(((self.granted(zone, at), zone) for zone in zones), key=lambda offer: offer[0])


def _runs(has: Sequence[bool], gap: int) -> tuple[list[float], list[float]]:
    """When there were nodes: the starts and the ends of these times."""
    starts = [tick * gap for tick, now in enumerate(has) if now and not (tick and has[tick - 1])]
    ends = [
        (tick + 1) * gap for tick, now in enumerate(has) if now and not (tick + 1 < len(has) and has[tick + 1])
    ]
    return [float(start) for start in starts], [float(end) for end in ends]


@dataclass(frozen=True)
class Job:
    """What runs. `start` is the time from granted nodes to computing, `warm` that from nodes that a probe had, and
    pods are on nodes `image` seconds before the program computes. `stockout_after` seconds after a request without
    nodes somebody says so.
    """

    work: float
    deadline: float
    start: float = 600.0
    warm: float = 120.0
    image: float = 120.0
    interval: float = 900.0
    stockout_after: float = 120.0
    pause: float = 30.0


@dataclass(frozen=True)
class Outcome:
    """How a job ended: after how many seconds, what was paid, how often it lost its nodes."""

    seconds: float
    paid: float
    evictions: int


@dataclass
class Nodes:
    """Nodes that were asked for at a place."""

    place: int
    since: float
    granted: float
    zone: str
    lost: float

    def paid(self, until: float, price: float) -> float:
        """What they cost up to that time."""
        return max(0.0, min(until, self.lost) - self.granted) / 3600 * price


class Moved:
    """A job that the policy moves among places, each with its zones."""

    def __init__(self, world: World, job: Job, rules: Rules, zones: Sequence[Sequence[str]], began: float) -> None:
        self.world, self.job, self.rules, self.zones, self.now = world, job, rules, zones, began
        self.began = began
        self.state = State.begin(rules, began)
        self.done = self.saved = self.paid = 0.0
        self.checkpoint = 0.0
        self.evictions = 0
        self.nodes = self._ask(0, began)
        self.computes = self.nodes.granted + job.start
        self.probe: Nodes | None = None

    def run(self, limit: float) -> Outcome:
        """Move the job until it is done, or has taken that long."""
        while self.now - self.began < limit:
            if (end := self._advance()) is not None:
                self._give_back(self.nodes, end)
                self._give_back(self.probe, end)
                return Outcome(end - self.began, self.paid, self.evictions)
            decision = decide(self.rules, self.state, self._look())
            if decision.what == STOP:
                break
            if decision.what == GO:
                self._go(decision.place)
            elif decision.probed != (self.probe.place if self.probe else -1):
                self._give_back(self.probe, self.now)
                self.probe = self._ask(decision.probed, self.now) if decision.probed >= 0 else None
            self.now += self.job.pause
        self._give_back(self.nodes, self.now)
        self._give_back(self.probe, self.now)
        return Outcome(math.inf, self.paid, self.evictions)

    def _ask(self, place: int, at: float) -> Nodes:
        granted, zone = self.world.first(self.zones[place], at)
        return Nodes(place, at, granted, zone, self.world.lost(zone, granted) if granted < math.inf else math.inf)

    def _give_back(self, nodes: Nodes | None, at: float) -> None:
        if nodes:
            self.paid += nodes.paid(at, self.rules.places[nodes.place].price or 0.0)

    def _advance(self) -> float | None:
        """What happened up to now; returns when the job was done, None while it is not."""
        if self.probe and self.probe.lost <= self.now:
            self._give_back(self.probe, self.now)
            self.probe = self._ask(self.probe.place, self.probe.lost)
        while True:
            until = min(self.now, self.nodes.lost)
            end = self.computes + self.job.work - self.saved
            if end <= until:
                return end
            if until > self.computes:
                rounds = (until - self.computes) // self.job.interval
                if rounds:
                    self.saved += rounds * self.job.interval
                    self.computes += rounds * self.job.interval
                    self.checkpoint = self.computes
            if self.nodes.lost > self.now:
                return None
            self.evictions += 1
            self._give_back(self.nodes, self.now)
            self.nodes = self._ask(self.nodes.place, self.nodes.lost)
            self.computes = self.nodes.granted + self.job.start

    def _look(self) -> Look:
        on_nodes = self.job.start - self.job.image
        nodes, probe, now = self.nodes, self.probe, self.now
        out = now - self.job.stockout_after
        return Look(
            now,
            nodes=now >= self.computes - self.job.image,
            runs=now >= self.computes,
            probe_nodes=bool(probe) and now >= probe.granted + on_nodes,
            checkpoint=self.checkpoint,
            stockout="no capacity" if nodes.granted > now and nodes.since <= out else "",
            probe_stockout="no capacity" if probe and probe.granted > now and probe.since <= out else "",
        )

    def _go(self, place: int) -> None:
        self._give_back(self.nodes, self.now)
        probe, self.probe = self.probe, None
        if probe and probe.place == place and probe.granted <= self.now:
            self.nodes = probe
            self.computes = max(self.now + self.job.warm, probe.granted + self.job.start)
        else:
            self._give_back(probe, self.now)
            self.nodes = self._ask(place, self.now)
            self.computes = self.nodes.granted + self.job.start


def rules_for(job: Job, places: Sequence[Place], next_after: float, *, deadline: bool) -> Rules:
    """The rules of a step with those places."""
    rules = Rules(places, next_after, start=job.start, interval=job.interval)
    return replace(rules, deadline=job.deadline, work=job.work) if deadline else rules
