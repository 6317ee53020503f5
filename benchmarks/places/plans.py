"""The cheapest plan that knows the future, over the traces of Spot nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.places.world import Job, World

COARSE = 180.0
"""Seconds that a tick of the plan has at least."""


def best_plan(world: World, job: Job, zones: Sequence[str], began: float) -> float:
    """What the cheapest plan costs that keeps the deadline: a lower bound.

    It knows when nodes come and go, so it loses nothing with them, and takes a zone for its whole tick that has
    nodes at its beginning or its end. Backwards over ticks, with the work that is left as its state: it waits,
    starts at a zone or on demand, or computes there.
    """
    gap = world.traces.gap
    tick = gap * max(1, math.ceil(COARSE / gap))
    work, ticks, boot = math.ceil(job.work / tick), int(job.deadline // tick), max(1, int(job.start // tick))
    has = np.array(
        [[_has(world, zone, began + at * tick, tick) for at in range(ticks)] for zone in zones] + [[True] * ticks]
    )
    price = np.array([job.spot] * len(zones) + [1.0])
    far = 1e9
    idle = np.full(work + 1, far)
    idle[0] = 0
    running = np.tile(idle, (len(price), 1))
    booting = np.tile(idle, (len(price), boot, 1))
    for at in range(ticks - 1, -1, -1):
        go_on = np.full_like(running, far)
        go_on[:, 1:] = running[:, :-1] + price[:, None]
        go_on[:, 0] = 0
        started = np.concatenate([running[:, None], booting[:, :-1]], axis=1) + price[:, None, None]
        started[:, :, 0] = 0
        now = has[:, at]
        go_on[~now] = far
        started[~now] = far
        idle = np.minimum(idle, started[:, -1].min(axis=0))
        running = np.minimum(go_on, idle)
        booting = np.minimum(started, idle)
    return float(idle[work]) * tick / 3600


def _has(world: World, zone: str, at: float, seconds: float) -> bool:
    return world.granted(zone, at) < at + seconds
