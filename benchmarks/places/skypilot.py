"""SkyPilot's policies for Spot nodes under a deadline, as published, over the same traces.

Read for it: section 5 of "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI 2024); the
abstract of "SkyNomad" (arXiv 2601.06520) and the code of its artifact (github.com/andylizf/skynomad-artifact,
commit 62b9aaa, read in November 2026), which has both policies. Written anew from that: nothing of it is copied.
As there, decisions fall at the ticks of a trace, an answer to a request for nodes comes at once, and no checkpoint
is lost where a policy moves by itself. As for the other policies here, lost nodes take what was computed since a
checkpoint; the changeover delay that these policies reckon with is therefore a start and a whole interval, as
section 5.6 has it for a guarantee.

Left out of SkyNomad: that it scales its estimate of lifetimes by recent bursts of losses, and egress fees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.places.world import SURE, Job, Outcome, World, region_of

PROBE_EVERY = 2 * 3600.0
"""Seconds between two probes of a zone by SkyNomad: the paper's default."""

PROBE_TAKES = 60.0
"""Seconds of a Spot node that a successful probe costs there."""

GATE = (0.5 / 3.06, 0.05)
"""By how much better another zone must be for SkyNomad to move, a part of it by the value of progress: 0.50 USD
where
on demand is 3.06, as in its code."""


@dataclass
class View:
    """What a policy sees at a tick: the time since the beginning, the work that is done, where the job runs."""

    world: World
    job: Job
    began: float
    elapsed: float = 0.0
    done: float = 0.0
    zone: str = ""
    booted: bool = False
    probed: float = 0.0

    @property
    def delay(self) -> float:
        """The changeover delay."""
        return self.job.start + self.job.interval

    def launch(self, zone: str) -> bool:
        """Whether the zone has the nodes now."""
        return self.world.has(zone, self.began + self.elapsed)

    def net(self) -> str | None:
        """Where the safety net lets the job be; None where it does not matter yet."""
        left, work = self.job.deadline - self.elapsed, self.job.work - self.done
        if work + self.delay >= left:
            return self.zone if self.zone not in ("", SURE) and self.booted else SURE
        return None


@dataclass
class UniformProgress:
    """Uniform Progress with hysteresis. The region that lost nodes last is asked last ("eager failover")."""

    zones: Sequence[str]
    lost: str = ""

    def choose(self, view: View) -> str:
        """The zone of the next tick; empty to wait."""
        if view.zone not in ("", SURE):
            return view.zone
        if (zone := view.net()) is not None:
            return zone
        work, delay = view.job.work, view.delay
        line = work / view.job.deadline
        if work - view.done + 2 * delay > view.job.deadline - view.elapsed:
            return SURE
        if view.zone == SURE and view.done < (view.elapsed + 2 * delay) * line:
            return SURE
        order = sorted(self.zones, key=lambda zone: region_of(zone) == self.lost)
        if spot := next((zone for zone in order if view.launch(zone)), ""):
            return spot
        return SURE if view.zone == SURE or view.done < view.elapsed * line else ""

    def note_loss(self, zone: str, view: View) -> None:
        """The zone took its nodes."""
        del view
        self.lost = region_of(zone)


@dataclass
class SkyNomad:
    """Moves to what is worth most: the value of progress for the time for which nodes are likely to last, less
    their price. Lifetimes are estimated by Nelson and Aalen's hazard from those that were seen.
    """

    zones: Sequence[str]
    lives: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)
    opened: dict[str, float] = field(default_factory=dict)
    probed_at: dict[str, float] = field(default_factory=dict)

    def choose(self, view: View) -> str:
        """The zone of the next tick; empty to wait."""
        value = self._value(view)
        chosen = self._best(view, value)
        if (zone := view.net()) is not None:
            chosen = zone
        self._probe(view, chosen)
        if chosen not in ("", SURE) and chosen != view.zone:
            self.opened.setdefault(chosen, view.elapsed)
        if view.zone not in ("", SURE, chosen):
            self._close(view.zone, view.elapsed, failed=False)
        return chosen

    def note_loss(self, zone: str, view: View) -> None:
        """The zone took its nodes."""
        self._close(zone, view.elapsed, failed=True)

    def _best(self, view: View, value: float) -> str:
        spot = view.job.spot
        now = 0.0
        if view.zone:
            now = value - (1.0 if view.zone == SURE else spot)
        gate = GATE[0] + GATE[1] * value if view.zone else 0.0
        options = [(value - 1.0, SURE)]
        for zone in self.zones:
            life = self._life(zone, view)
            if life > view.delay:
                options.append(((value * (life - view.delay) - spot * life) / life, zone))
        for worth, zone in sorted(options, key=lambda option: -option[0]):
            if worth < 0 or worth <= now + gate:
                break
            if zone == view.zone:
                continue
            if view.launch(zone):
                return zone
            self._close(zone, view.elapsed, failed=True)
        return view.zone

    def _value(self, view: View) -> float:
        """What an hour of progress is worth: the on-demand price by how much faster than planned it has to go."""
        left = view.job.deadline - view.elapsed
        work = max(0.0, view.job.work - view.done)
        return max(view.job.spot, work * view.job.deadline / (left * view.job.work)) if left > 0 else math.inf

    def _life(self, zone: str, view: View) -> float:
        """Seconds for which nodes of the zone are likely to last."""
        age = view.elapsed - self.opened[zone] if zone in self.opened else 0.0
        samples = self.lives.get(zone, []) + ([(age, False)] if age > 0 else [])
        expected, survival, at, step = 0.0, 1.0, age, 0.0
        for life in sorted({life for life, failed in samples if failed}):
            step = sum(failed and other == life for other, failed in samples) / sum(
                other >= life for other, _ in samples
            )
            if life > at:
                expected += survival * (life - at)
                survival *= math.exp(-step)
                at = life
        expected += survival * view.world.traces.gap / (1 - math.exp(-max(step, 1e-8)))
        return min(expected, view.job.deadline - view.elapsed)

    def _probe(self, view: View, chosen: str) -> None:
        for zone in self.zones:
            due = view.elapsed - self.probed_at.get(zone, -math.inf) >= PROBE_EVERY
            if zone == chosen or zone in self.opened or not due:
                continue
            self.probed_at[zone] = view.elapsed
            if view.launch(zone):
                self.opened[zone] = view.elapsed
                view.probed += PROBE_TAKES

    def _close(self, zone: str, now: float, *, failed: bool) -> None:
        if zone in self.opened:
            self.lives.setdefault(zone, []).append((now - self.opened.pop(zone), failed))


def follow(policy: UniformProgress | SkyNomad, world: World, job: Job, began: float, limit: float) -> Outcome:
    """Run the job as the policy says, until it is done or has taken that long."""
    gap = world.traces.gap
    view = View(world, job, began // gap * gap)
    paid = saved = boot = 0.0
    moves = evictions = 0
    while view.elapsed < limit:
        if view.zone and not view.launch(view.zone):
            policy.note_loss(view.zone, view)
            evictions += 1
            view.zone, view.done = "", saved
        zone = policy.choose(view)
        if zone != view.zone:
            # It moves by itself: what it computed is saved.
            moves += bool(view.zone and zone)
            view.zone, saved, boot = zone, view.done, job.start
        if zone:
            computes = max(0.0, gap - boot)
            taken = min(gap, boot + job.work - view.done)
            paid += taken / 3600 * (1.0 if zone == SURE else job.spot)
            boot = max(0.0, boot - gap)
            view.done += computes
            if view.done >= job.work:
                return Outcome(view.elapsed + taken, paid + view.probed / 3600 * job.spot, moves, evictions)
            saved += (view.done - saved) // job.interval * job.interval
        view.booted = bool(zone) and boot <= 0
        view.elapsed += gap
    return Outcome(math.inf, paid, moves, evictions)
