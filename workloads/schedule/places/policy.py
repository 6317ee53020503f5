"""At which of its places a step runs next: a function of what is seen, of the rules, and of where it was.

The same function decides in the cluster, in a rehearsal, and over traces of Spot nodes in `benchmarks/places.py`.
Places have an order. Where there are no nodes for `next_after` seconds, the next place is tried, and after the
last one the first. While the step computes at a later place that costs more, a probe asks for nodes of the earlier
ones in turn; when one has them, the step goes there at its next checkpoint.

With a deadline the step waits for places that are not sure as long as it is ahead of a line from the first try to
the deadline: uniform progress ("Can't Be Late: Optimizing Spot Instance Savings under Deadlines", NSDI 2024).
Behind it, a sure place is taken; and once what is left would not bear another start, the step stays there to the
end. Standard library only, Python 3.9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

WAIT, GO, STOP = "wait", "go", "stop"
"""What is to be done: nothing, go to the place `Decision.place`, or end for good."""

START = 600.0
"""Seconds from a node that was asked for to a program that computes: boot 575 s of a GPU node of GKE, of which the
image is a part (infra/data/accelerators, dated there)."""

INTERVAL = 900.0
"""Seconds between two checkpoints, while nothing is known of them."""

SLACK = 1.25
"""By how much more than it takes the last start is begun before the deadline."""

LEAST_PATIENCE = 120.0
"""Seconds for which a place is asked at least: an autoscaler looks every ten seconds, and says within a minute or
two that a cloud has no such machine."""


@dataclass(frozen=True)
class Place:
    """A place by the name of its pool. `price` is that of an hour of all nodes of the step there, in US dollars,
    None where that is not known. The nodes of one that is `sure` stay until they are given back.
    """

    name: str
    price: float | None
    sure: bool


@dataclass(frozen=True)
class Rules:
    """Times are in seconds: `deadline` from the first try, `work` of computing, `start` from being asked for nodes
    that are there to computing, `interval` between checkpoints, `fresh` since one after which next to nothing is
    lost. `max_price` is in US dollars.
    """

    places: Sequence[Place]
    next_after: float
    returns: bool = True
    deadline: float | None = None
    work: float | None = None
    max_price: float | None = None
    start: float = START
    interval: float = INTERVAL
    fresh: float = 30.0


@dataclass
class State:
    """Where a step is on its way; times are seconds since the epoch. It goes to JSON and back.

    `place` is the one that may run, since `since`; `probed` the earlier one of which nodes are asked for beside,
    since `probe_since`, -1 for none. The program computes since `computes`, 0 while it does not, and had computed
    for `done` seconds at its newest checkpoint, of the time `saved`. `held` says that it had nodes. `spent` are
    seconds of nodes by place up to `counted`, and `paid_before` US dollars for nodes of places that the step no
    longer has. `way` has an entry for each place it was at: the place, since when,
    and how much was done when it left.
    """

    began: float
    place: int = 0
    since: float = 0.0
    probed: int = -1
    probe_since: float = 0.0
    computes: float = 0.0
    done: float = 0.0
    saved: float = 0.0
    counted: float = 0.0
    held: bool = False
    spent: list[float] = field(default_factory=list)
    way: list[list[float]] = field(default_factory=list)
    paid_before: float = 0.0

    @classmethod
    def begin(cls, rules: Rules, now: float) -> State:
        """A step that asks for its first place now."""
        return cls(now, since=now, counted=now, spent=[0.0] * len(rules.places), way=[[0, now, 0.0]])

    @classmethod
    def read(cls, content: Mapping[str, Any], rules: Rules, now: float) -> State:
        """The state that `write` gave; a beginning where there is none, or it is one of other places."""
        try:
            state = cls(**content)
        except TypeError:
            return cls.begin(rules, now)
        return state if len(state.spent) == len(rules.places) else cls.begin(rules, now)

    def write(self) -> dict[str, Any]:
        """The state as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Look:
    """What is seen at the time `now`: whether all pods of the step have nodes (`nodes`) and run (`runs`), whether
    all pods of the probe have nodes, and the time of the newest checkpoint. `stockout` is why there are no nodes
    at the place, where somebody says it.
    """

    now: float
    nodes: bool = False
    runs: bool = False
    probe_nodes: bool = False
    checkpoint: float = 0.0
    stockout: str = ""


@dataclass(frozen=True)
class Decision:
    """What is to be done, and why, in a sentence. `place` is where the step is to be, `probed` as in `State`."""

    what: str
    place: int
    probed: int
    sentence: str


def decide(rules: Rules, state: State, look: Look) -> Decision:
    """What is to be done next. `state` is changed to how it is from then on."""
    _count(state, look)
    _progress(state, look)
    if _too_dear(rules, state, look):
        price = paid(rules, state)
        return Decision(STOP, state.place, -1, f"${price:.2f} are spent of ${rules.max_price:.2f} (max_price)")
    if look.nodes:
        return _at_work(rules, state, look)
    return _without_nodes(rules, state, look)


def paid(rules: Rules, state: State) -> float:
    """What the nodes of the step cost so far, in US dollars, without places whose price is not known."""
    prices = [place.price or 0.0 for place in rules.places]
    return state.paid_before + sum(price * state.spent[index] / 3600 for index, price in enumerate(prices))


def left(rules: Rules, state: State, now: float) -> float:
    """Seconds of computing that are left; endless where nobody said how long it takes."""
    if rules.work is None:
        return math.inf
    return max(0.0, rules.work - computed(state, now))


def computed(state: State, now: float) -> float:
    """Seconds of computing that are not lost."""
    return state.done + (now - max(state.computes, state.saved) if state.computes else 0.0)


def _count(state: State, look: Look) -> None:
    """Counts the seconds of nodes since the last look."""
    since = max(0.0, look.now - state.counted)
    if look.nodes:
        state.spent[state.place] += since
    if state.probed >= 0 and look.probe_nodes:
        state.spent[state.probed] += since
    state.counted = look.now


def _progress(state: State, look: Look) -> None:
    """Takes note of checkpoints, of the beginning of the program, and of what was lost with its nodes."""
    if look.runs and not state.computes:
        state.computes = look.now
        state.saved = max(state.saved, look.checkpoint)
    if state.computes and look.checkpoint > max(state.saved, state.computes):
        state.done += look.checkpoint - max(state.saved, state.computes)
        state.saved = look.checkpoint
    if not look.runs:
        state.computes = 0.0
    if state.held and not look.nodes:
        state.since = look.now
    state.held = look.nodes


def _too_dear(rules: Rules, state: State, look: Look) -> bool:
    """Whether the money is spent before the next checkpoint, and none was lost since the last."""
    if rules.max_price is None:
        return False
    spent, price = paid(rules, state), rules.places[state.place].price or 0.0
    until_next = price * (rules.interval + rules.start) / 3600
    return spent >= rules.max_price or (0 < spent > rules.max_price - until_next and _is_saved(rules, state, look))


def _is_saved(rules: Rules, state: State, look: Look) -> bool:
    """Whether next to nothing would be lost now."""
    fresh = 0 < state.saved == look.checkpoint and look.now - state.saved <= rules.fresh
    return fresh or not look.runs


def _slack(rules: Rules, state: State, look: Look) -> float:
    """Seconds that may be lost yet, so that the deadline is kept; endless without one."""
    if rules.deadline is None:
        return math.inf
    return state.began + rules.deadline - look.now - left(rules, state, look.now)


def _is_behind(rules: Rules, state: State, look: Look) -> bool:
    """Whether less is done than would be at a uniform pace."""
    if rules.deadline is None or rules.work is None:
        return False
    return computed(state, look.now) < rules.work * (look.now - state.began) / rules.deadline


def _must_be_sure(rules: Rules, state: State, look: Look) -> bool:
    """Whether another loss of nodes would be one too many: of what is not saved, and of a start."""
    at_stake = rules.interval if look.nodes else 0.0
    return _slack(rules, state, look) <= SLACK * rules.start + at_stake


def _patience(rules: Rules, state: State, look: Look) -> float:
    """Seconds for which the step waits at its place: fewer where all places would not have their turn."""
    share = (_slack(rules, state, look) - SLACK * rules.start) / len(rules.places)
    return min(rules.next_after, max(share, LEAST_PATIENCE))


def _without_nodes(rules: Rules, state: State, look: Look) -> Decision:
    """The step waits for nodes of its place."""
    place, waited = rules.places[state.place], look.now - state.since
    if state.probed >= 0 and look.probe_nodes:
        return _go(rules, state, look, state.probed, "it has nodes")
    sure = [index for index, other in enumerate(rules.places) if other.sure]
    if sure and not place.sure and _must_be_sure(rules, state, look):
        return _go(rules, state, look, _cheapest(rules, sure), "the deadline bears no more waiting")
    patience = _patience(rules, state, look)
    if waited < patience:
        target = rules.places[_next(rules, state, look)].name
        why = f" ({look.stockout})" if look.stockout else ""
        words = f"{_minutes(waited)} of {_minutes(patience)} minutes for {place.name}{why}; next: {target}"
        return Decision(WAIT, state.place, -1, words)
    return _go(rules, state, look, _next(rules, state, look), f"no nodes for {_minutes(waited)} minutes")


def _next(rules: Rules, state: State, look: Look) -> int:
    """The place after the present one. With a deadline the sure ones are left out while the step is ahead."""
    ahead = rules.deadline is not None and not _is_behind(rules, state, look)
    order = [index for index, place in enumerate(rules.places) if not (ahead and place.sure)]
    later = [index for index in order if index > state.place]
    return later[0] if later else order[0] if order else state.place


def _at_work(rules: Rules, state: State, look: Look) -> Decision:
    """The step has nodes: it may go back to an earlier place, or to a sure one while there is time."""
    wanted = _wanted(rules, state, look)
    if state.probed not in wanted:
        state.probed, state.probe_since = (wanted[0] if wanted else -1), look.now
    elif not look.probe_nodes and look.now - state.probe_since >= rules.next_after:
        state.probed = wanted[(wanted.index(state.probed) + 1) % len(wanted)]
        state.probe_since = look.now
    if state.probed >= 0 and look.probe_nodes and _is_saved(rules, state, look):
        return _go(rules, state, look, state.probed, "it has nodes, and a checkpoint is saved")
    words = f"at {rules.places[state.place].name}"
    if state.probed >= 0:
        other, ready = rules.places[state.probed].name, "has nodes: there after the next checkpoint"
        words += f"; {other} {ready}" if look.probe_nodes else f"; asks for {other}"
    return Decision(WAIT, state.place, state.probed, words)


def _wanted(rules: Rules, state: State, look: Look) -> list[int]:
    """The places that would be better than the present one, if they had nodes."""
    sure = [index for index, other in enumerate(rules.places) if other.sure]
    here, must = rules.places[state.place], _must_be_sure(rules, state, look)
    if must and not here.sure and sure:
        return [_cheapest(rules, sure)]
    if not rules.returns or left(rules, state, look.now) <= 2 * (rules.start + rules.interval):
        return []
    earlier = [index for index in range(state.place) if _is_cheaper(rules.places[index], here)]
    return [index for index in earlier if not (must and here.sure and not rules.places[index].sure)]


def _is_cheaper(place: Place, other: Place) -> bool:
    """Whether ``place`` costs less than ``other``; an earlier one does where nobody knows."""
    return place.price is None or other.price is None or place.price < other.price


def _cheapest(rules: Rules, among: Sequence[int]) -> int:
    known = [(price, index) for index in among if (price := rules.places[index].price) is not None]
    return min(known)[1] if known else among[0]


def _go(rules: Rules, state: State, look: Look, place: int, why: str) -> Decision:
    name = rules.places[place].name
    if place == state.place:
        state.since = look.now
        return Decision(WAIT, place, -1, f"{why}; {name} is tried again")
    state.way[-1][2] = state.done
    state.way.append([place, look.now, 0.0])
    state.place, state.since, state.probed, state.computes, state.held = place, look.now, -1, 0.0, False
    return Decision(GO, place, -1, f"to {name}: {why}")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f}"
