"""Which kills happen to workers and their queue, and when: drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

MODES = ("parallel", "ordered", "static")
"""The first two share a queue; in `static` each worker has its own share."""

SHARES = {"parallel": 0.5, "ordered": 0.35, "static": 0.15}
"""Of all events, how many happen in each mode."""

KINDS = {"worker": 6, "pause": 3, "server": 2, "server and worker": 2, "power": 2, "power and worker": 1}
"""Kinds of events, and how often each is drawn."""

WITHOUT_QUEUE = ("worker", "pause")
ON_WORKERS = ("worker", "pause", "server and worker", "power and worker")
ON_SERVER = ("server", "server and worker", "power", "power and worker")
POWER = ("power", "power and worker")

LEASE = 2.0
"""Seconds after which a silent worker loses its item."""


@dataclass(frozen=True)
class Event:
    """`after` is in seconds since the event before. `chosen` in [0, 1) says which worker of those that are alive,
    or, with `busy`, of those that have an item. `away` is for how many seconds it, or the server, is gone.
    """

    kind: str
    after: float
    chosen: float
    busy: bool
    away: float


def plan(seed: int, kills: int) -> dict[str, list[Event]]:
    """The events of each mode. Equal for equal arguments."""
    rest = kills
    events: dict[str, list[Event]] = {}
    for mode in MODES:
        count = min(rest, round(kills * SHARES[mode])) if mode != MODES[-1] else rest
        rest -= count
        dice = random.Random(f"{seed} {mode}")
        kinds = {kind: weight for kind, weight in KINDS.items() if mode != "static" or kind in WITHOUT_QUEUE}
        events[mode] = [_event(dice, kinds) for _ in range(count)]
    return events


def _event(dice: random.Random, kinds: dict[str, int]) -> Event:
    [kind] = dice.choices(list(kinds), weights=list(kinds.values()))
    away = dice.uniform(1.2, 2.0) * LEASE if kind == "pause" else dice.uniform(0.1, 1.0)
    # Now and then the server is away for longer than the leases last.
    if kind != "pause" and dice.random() < 0.2:
        away = dice.uniform(1.1, 1.6) * LEASE
    return Event(kind, dice.uniform(0.1, 1.6), dice.random(), dice.random() < 0.8, away)
