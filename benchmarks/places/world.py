"""Zones of Spot nodes as traces have them, and a step that the policy of places moves among them.

Times are in seconds, money in hours of on-demand nodes. A request for nodes is granted at the first second at
which a zone of the place has as many as the step needs; from then on they are paid, and after the time to start
the program computes. A zone that has fewer takes all of them, and what was computed since the newest checkpoint is
lost.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipway.workloads.schedule.places.policy import GO, STOP, Look, Place, Rules, State, decide

SURE = "on demand"
"""The zone of nodes that are always there."""


@dataclass(frozen=True)
class Traces:
    """How many nodes zones had, a number for each tick of `gap` seconds. A trace that ends begins anew."""

    name: str
    gap: int
    zones: dict[str, list[int]]

    @property
    def ticks(self) -> int:
        """Ticks of the shortest zone: those after its end are left out."""
        return min(len(counts) for counts in self.zones.values())

    @property
    def most(self) -> int:
        """The most nodes that a zone ever had."""
        return max(max(counts) for counts in self.zones.values())

    def places(self) -> dict[str, list[str]]:
        """Zones by region, or each zone by itself where all are of one region."""
        regions: dict[str, list[str]] = {}
        for zone in self.zones:
            regions.setdefault(region_of(zone), []).append(zone)
        return regions if len(regions) > 1 else {zone: [zone] for zone in self.zones}


def region_of(zone: str) -> str:
    """The region of a zone, as AWS (us-east-1a) and Google Cloud (us-east1-b) write them."""
    name = zone.partition("_")[0]
    return name.rpartition("-")[0] if name[-2] == "-" else name[:-1]


def read_traces(paths: Sequence[Path]) -> list[Traces]:
    """The traces of files in one of two forms: all zones as runs of [nodes, ticks], or a file for each zone with
    its numbers as SkyPilot publishes them. Files of zones of one folder and kind of machine are one set.
    """
    sets: list[Traces] = []
    folders: dict[tuple[str, str], Traces] = {}
    for path in paths:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if "zones" in content:
            zones = {
                zone: [nodes for nodes, ticks in runs for _ in range(ticks)]
                for zone, runs in content["zones"].items()
            }
            sets.append(Traces(path.stem, content["gap_seconds"], zones))
            continue
        zone, _, machine = path.stem.partition("_")
        name = f"{path.parent.name} {machine}".strip()
        known = folders.setdefault(
            (str(path.parent), machine), Traces(name, int(content["metadata"]["gap_seconds"]), {})
        )
        known.zones[zone] = [int(nodes) for nodes in content["data"]]
    sets += folders.values()
    if empty := [traces.name for traces in sets if not traces.zones or not all(traces.zones.values())]:
        raise ValueError(f"{', '.join(empty)}: no zones, or one without numbers")
    return sets


class World:
    """Where and when a number of nodes is to be had, over traces."""

    def __init__(self, traces: Traces, nodes: int) -> None:
        self.traces, self.nodes = traces, nodes
        self.length = traces.ticks * traces.gap
        self._runs: dict[str, tuple[list[float], list[float]]] = {}
        for zone, counts in traces.zones.items():
            self._runs[zone] = _runs([count >= nodes for count in counts[: traces.ticks]], traces.gap)

    def has(self, zone: str, at: float) -> bool:
        """Whether the zone has the nodes at that time."""
        return self.granted(zone, at) == at

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
    nodes somebody says so. `spot` is the price of Spot nodes, of which on-demand ones cost 1.
    """

    work: float
    deadline: float
    nodes: int = 1
    start: float = 600.0
    warm: float = 120.0
    image: float = 120.0
    interval: float = 900.0
    stockout_after: float = 120.0
    spot: float = 0.3
    pause: float = 30.0


@dataclass(frozen=True)
class Outcome:
    """How a job ended: after how many seconds, what was paid, how often it moved and lost its nodes."""

    seconds: float
    paid: float
    moves: int
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
        self.moves = self.evictions = 0
        self.nodes = self._ask(0, began)
        self.computes = self.nodes.granted + job.start
        self.probe: Nodes | None = None

    def run(self, limit: float) -> Outcome:
        """Move the job until it is done, or has taken that long."""
        while self.now - self.began < limit:
            if (end := self._advance()) is not None:
                self._give_back(self.nodes, end)
                self._give_back(self.probe, end)
                return Outcome(end - self.began, self.paid, self.moves, self.evictions)
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
        return Outcome(math.inf, self.paid, self.moves, self.evictions)

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
        self.moves += 1
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
