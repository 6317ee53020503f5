"""At which of its places a step runs next: a function of the rules, of where it was, and of what is seen now.

The same function decides in the cluster and in a rehearsal.

- Places have an order. One without nodes for `next_after` seconds is left for the next one, after the last one for
  the first. Where somebody says that a cloud has no such nodes now, that is not waited for, unless every other
  place costs more.
- Where it lost its nodes, the step asks for others at the same place: other zones may have some.
- At a later place, a probe asks for nodes of the earlier ones in turn. With some, the step goes back at its next
  checkpoint, where what is left to compute is worth the move.
- With a deadline, sure places are left out as long as others may do. Each look reckons that the nodes are lost
  now: what is not saved is computed once more, after one more start. Where the time bears no more than that, a
  sure place is taken, and kept to the end.
- Before `max_price` is spent, the step stops at a checkpoint.

A deadline is kept where a sure place has nodes at once. Standard library only, Python 3.9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

WAIT, GO, PROBE, DROP, STOP = "wait", "go", "probe", "drop", "stop"
"""What is to be done: nothing, go to the place `Decision.place`, ask for nodes of `Decision.probed` beside, no
longer ask for any, or end for good."""

START = 600.0
"""Seconds from nodes that a cloud grants to a program that computes: boot 575 s of a GPU node of GKE, of which the
image is a part (infra/data/accelerators, dated there)."""

INTERVAL = 900.0
"""Seconds between two checkpoints, until two were seen."""

MARGIN = 1.25
"""By how much longer than usual the last start may take without a deadline that is missed."""

BACKOFF = 300.0
"""Seconds for which a place is not asked again after a stockout: the Cluster Autoscaler does not either
(`--initial-node-group-backoff-duration`, cluster-autoscaler/FAQ.md, November 2026)."""


@dataclass(frozen=True)
class Place:
    """A place by the name of its pool. `price` is that of an hour of all nodes of the step there, in US dollars,
    None where that is not known. The nodes of one that is `sure` stay until they are given back. Whether there are
    nodes is asked beside where it has a `probe`.
    """

    name: str
    price: float | None
    sure: bool
    probe: bool = True


@dataclass(frozen=True)
class Rules:
    """Times are in seconds: `deadline` from the first try, `work` of computing in all, `start` from granted nodes
    to computing, `interval` between checkpoints, `fresh` since one after which next to nothing is lost.
    `max_price` is in US dollars. A deadline has no effect without `work`.
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

    `place` is the one that may run, since `since`; `probed` the one of which nodes are asked for beside, since
    `probe_since`, -1 for none. The program computes since `computes`, 0 while it does not, and had computed for
    `done` seconds at its newest checkpoint, of the time `saved`; `gap` is the time between the last two. `held`
    and `probe_held` say that there were nodes. `tried` has a time for each place that was left without nodes since
    there were some, or -1. `spent` are seconds of nodes by place up to `counted`, and `paid_before` what was
    paid, in US dollars, at places that it no longer has. `way` has an entry for each place it was at: the place,
    since when, and how much was done when it left. `queued` is when the step was last seen in a queue.
    """

    began: float
    place: int = 0
    since: float = 0.0
    probed: int = -1
    probe_since: float = 0.0
    computes: float = 0.0
    done: float = 0.0
    saved: float = 0.0
    gap: float = 0.0
    counted: float = 0.0
    held: bool = False
    probe_held: bool = False
    paid_before: float = 0.0
    queued: float = 0.0
    tried: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    way: list[list[float]] = field(default_factory=list)

    @classmethod
    def begin(cls, rules: Rules, now: float) -> State:
        """A step that asks for its first place now."""
        count = len(rules.places)
        return cls(now, since=now, counted=now, tried=[-1.0] * count, spent=[0.0] * count, way=[[0, now, 0.0]])

    @classmethod
    def read(cls, content: Mapping[str, Any], rules: Rules, now: float) -> State:
        """The state that `write` gave; a beginning where there is none, or it is one of other places."""
        try:
            state = cls(**content)
        except TypeError:
            return cls.begin(rules, now)
        fits = len(state.spent) == len(state.tried) == len(rules.places)
        return state if fits else cls.begin(rules, now)

    def resume(self, now: float) -> None:
        """Go on where somebody stopped the step: the time since the last look counts for nothing."""
        gap = max(0.0, now - self.counted)
        self.began, self.since, self.counted = self.began + gap, self.since + gap, now

    def write(self) -> dict[str, Any]:
        """The state as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Look:
    """What is seen at the time `now`: whether all pods of the step have nodes (`nodes`) and run (`runs`), whether
    all pods of the probe have nodes, and the time of the newest checkpoint. `stockout` is why there are no nodes
    at the place, where somebody says it, and `probe_stockout` that of the probe. `queue` is why the step waits in
    a queue there: no nodes are on their way.
    """

    now: float
    nodes: bool = False
    runs: bool = False
    probe_nodes: bool = False
    checkpoint: float = 0.0
    stockout: str = ""
    probe_stockout: str = ""
    queue: str = ""


@dataclass(frozen=True)
class Decision:
    """What is to be done, why in a word (`reason`), and in a sentence. `place` is where the step is to be,
    `probed` as in `State`.

    Reasons are `no-nodes`, `stockout`, `behind`, `deadline`, `probe` and `return` of a way to go, `nodes` and
    `computes` of waiting with nodes, `max-price`.
    """

    what: str
    place: int
    probed: int
    sentence: str
    reason: str


def decide(rules: Rules, state: State, look: Look) -> Decision:
    """What is to be done next. `state` is changed to how it is from then on."""
    at_checkpoint = _take_note(rules, state, look)
    if _too_dear(rules, state, look, at_checkpoint):
        words = f"${paid(rules, state):.2f} are spent of ${rules.max_price:.2f} (max_price)"
        return Decision(STOP, state.place, -1, words, "max-price")
    if look.nodes:
        return _with_nodes(rules, state, look, at_checkpoint)
    return _without_nodes(rules, state, look)


def paid(rules: Rules, state: State) -> float:
    """What the nodes of the step cost so far, in US dollars, without places whose price is not known."""
    prices = [place.price or 0.0 for place in rules.places]
    return state.paid_before + sum(price * state.spent[index] / 3600 for index, price in enumerate(prices))


def left(rules: Rules, state: State) -> float:
    """Seconds of computing that are left after the newest checkpoint; endless where `work` is not known."""
    return math.inf if rules.work is None else max(0.0, rules.work - state.done)


def _take_note(rules: Rules, state: State, look: Look) -> bool:
    """Take note of nodes, of checkpoints, of the beginning of the program, and of what was lost with its nodes.

    Returns whether a checkpoint was saved since the last look, or nothing computes that could be lost.
    """
    since = max(0.0, look.now - state.counted)
    probe_nodes = look.probe_nodes and state.probed >= 0
    if look.queue:
        state.queued = look.now
    # Nodes are paid before pods are on them: since when, nobody says, but since a start ago at most.
    if look.nodes:
        waited = look.now - max(state.since, state.queued)
        state.spent[state.place] += since if state.held else min(waited, rules.start)
    if probe_nodes:
        waited = look.now - state.probe_since
        state.spent[state.probed] += since if state.probe_held else min(waited, rules.start)
    before = max(state.saved, state.computes)
    is_new = state.computes > 0 and look.checkpoint > before
    if is_new:
        if state.saved > state.computes:
            state.gap = look.checkpoint - state.saved
        state.done += look.checkpoint - before
        state.saved = look.checkpoint
    if look.runs and not state.computes:
        state.computes = look.now
        state.saved = max(state.saved, look.checkpoint)
    if not look.runs:
        state.computes = 0.0
    if state.held and not look.nodes:
        state.since = look.now
    if look.nodes:
        state.tried = [-1.0] * len(rules.places)
    state.held, state.probe_held, state.counted = look.nodes, probe_nodes, look.now
    return not look.runs or (look.checkpoint > 0 and look.now - look.checkpoint <= rules.fresh + is_new * since)


def _interval(rules: Rules, state: State, look: Look) -> float:
    """Seconds between checkpoints: as was seen last, and no less than the time since the newest."""
    now = look.now - max(state.saved, state.computes) if state.computes else 0.0
    return max(state.gap or rules.interval, now)


def _too_dear(rules: Rules, state: State, look: Look, at_checkpoint: bool) -> bool:
    """Whether the money is spent before the next checkpoint, and next to nothing would be lost now."""
    if rules.max_price is None:
        return False
    spent = paid(rules, state)
    if spent >= rules.max_price:
        return True
    if not look.nodes:
        return not _affordable(rules, state, look)
    price = (rules.places[state.place].price or 0.0) * _interval(rules, state, look) / 3600
    return look.runs and at_checkpoint and spent + price > rules.max_price


def _affordable(rules: Rules, state: State, look: Look) -> list[int]:
    """The places at which a start and a checkpoint are paid yet."""
    if rules.max_price is None:
        return list(range(len(rules.places)))
    hours = (rules.start + _interval(rules, state, look)) / 3600
    money = rules.max_price - paid(rules, state)
    return [index for index, place in enumerate(rules.places) if (place.price or 0.0) * hours <= money]


def _slack(rules: Rules, state: State, now: float) -> float:
    """Seconds that may be lost yet, from the newest checkpoint, so that the deadline is kept with one more start;
    endless without a deadline.
    """
    if rules.deadline is None or rules.work is None:
        return math.inf
    return state.began + rules.deadline - now - left(rules, state) - MARGIN * rules.start


def _unsaved(state: State, now: float) -> float:
    """Seconds of computing since the newest checkpoint."""
    return now - max(state.computes, state.saved) if state.computes else 0.0


def _cheapest_sure(rules: Rules) -> list[int]:
    """The sure places, the cheapest first, as far as prices are known."""
    sure = [index for index, place in enumerate(rules.places) if place.sure]
    return sorted(sure, key=lambda index: _price(rules, index))


def _price(rules: Rules, index: int) -> float:
    price = rules.places[index].price
    return math.inf if price is None else price


def _must_be_sure(rules: Rules, state: State, look: Look) -> bool:
    """Whether the time bears no more than what may be lost at a place that is not sure: all since a checkpoint,
    and the start there where it has no nodes yet.
    """
    waited = look.now - state.since
    # Nodes that were granted at once are on their way, unseen. Where none were, the whole start is still to come.
    on_their_way = waited < rules.start and not look.stockout and not look.queue
    start = rules.start - waited if on_their_way else rules.start
    live = _slack(rules, state, look.now) + _unsaved(state, look.now)
    return live < (0.0 if look.nodes else start) + _interval(rules, state, look)


def _is_behind(rules: Rules, state: State, now: float) -> bool:
    """Whether less is done than at a uniform pace from the first try to the deadline."""
    if rules.deadline is None or rules.work is None:
        return False
    return state.done + _unsaved(state, now) < rules.work * (now - state.began) / rules.deadline


def _order(rules: Rules, state: State, look: Look) -> tuple[list[int], str]:
    """The places that may be asked for nodes now, the best first, and why those."""
    affordable = _affordable(rules, state, look)
    sure = [index for index in _cheapest_sure(rules) if index in affordable]
    if rules.deadline is None or rules.work is None or not sure:
        return affordable, ""
    if _must_be_sure(rules, state, look):
        return sure + [index for index in affordable if index not in sure], "deadline"
    if _is_behind(rules, state, look.now):
        return affordable, "behind"
    hopes = [index for index in affordable if not rules.places[index].sure]
    return [index for index in affordable if index in hopes or not hopes or index < hopes[0]], ""


def _without_nodes(rules: Rules, state: State, look: Look) -> Decision:
    """The step waits for nodes of its place, or asks for those of another one."""
    if state.probed >= 0 and look.probe_nodes:
        return _go(state, look, state.probed, f"{rules.places[state.probed].name} has nodes", "probe")
    order, why = _order(rules, state, look)
    target = _next(state, order)
    place, waited, name = rules.places[state.place], look.now - state.since, rules.places[target].name
    rested = state.tried[target] < 0 or look.now - state.tried[target] >= MARGIN * rules.start
    if why == "deadline" and not place.sure and rules.places[target].sure and rested:
        return _go(state, look, target, f"to {name}: the deadline bears no more waiting", why)
    dearer = _price(rules, target) > _price(rules, state.place)
    again = state.tried[target] >= 0 and look.now - state.tried[target] < BACKOFF
    why_not = look.stockout or look.queue
    # Nodes are asked for since the queue let the step run.
    patience = _patience(rules, why_not, max(0.0, state.queued - state.since))
    words = f"{_minutes(waited)} of {_minutes(patience)} minutes for {place.name}"
    words += f" ({why_not})" if why_not else ""
    leaves = (look.stockout and not dearer) or state.place not in _affordable(rules, state, look)
    if waited < patience and (again or not leaves):
        reason = "stockout" if look.stockout else "no-nodes"
        return _stay(state, look, f"{words}; next: {name}", reason)
    state.tried[state.place] = look.now
    reason = why or ("stockout" if look.stockout else "no-nodes")
    if target == state.place:
        state.since = look.now
        return _stay(state, look, f"no nodes for {_minutes(waited)} minutes; {name} is tried again", reason)
    return _go(state, look, target, f"to {name}: no nodes for {_minutes(waited)} minutes at {place.name}", reason)


def _patience(rules: Rules, stockout: str, queued: float = 0.0) -> float:
    """Seconds for which nodes of a place are waited for: `next_after`. After `queued` seconds in a queue, nodes
    are asked for as late, and may then be on their way, unseen, for as long as a start takes.
    """
    return (
        rules.next_after
        if stockout
        else max(rules.next_after, queued + min(rules.next_after, MARGIN * rules.start))
    )


def _next(state: State, order: Sequence[int]) -> int:
    """The first place of the order that was not tried since there were nodes; after the last one the first."""
    others = [index for index in order if index != state.place]
    return min(others or [state.place], key=lambda index: state.tried[index])


def _with_nodes(rules: Rules, state: State, look: Look, at_checkpoint: bool) -> Decision:
    """The step has nodes: it may go back to an earlier place, or to a sure one while there is time."""
    wanted, reason = _wanted(rules, state, look)
    ready = look.probe_nodes and state.probed in wanted
    late = reason == "deadline" and _slack(rules, state, look.now) <= 0
    if wanted and late:
        target = state.probed if state.probed in wanted else wanted[0]
        return _go(state, look, target, f"to {rules.places[target].name}: the deadline bears no more loss", reason)
    if ready and at_checkpoint:
        words = f"to {rules.places[state.probed].name}: it has nodes, and a checkpoint is saved"
        return _go(state, look, state.probed, words, reason)
    here = f"at {rules.places[state.place].name}"
    reason = "computes" if look.runs else "nodes"
    if not wanted:
        return _stay(state, look, here, reason)
    if ready:
        name = rules.places[state.probed].name
        return _stay(
            state, look, f"{here}; {name} has nodes: there after the next checkpoint", reason, state.probed
        )
    probed = state.probed
    if probed not in wanted:
        probed = wanted[0]
    elif look.now - state.probe_since >= min(
        _patience(rules, look.probe_stockout), BACKOFF if look.probe_stockout else math.inf
    ):
        probed = wanted[(wanted.index(probed) + 1) % len(wanted)]
        if probed == state.probed:
            state.probe_since = look.now
    return _stay(state, look, f"{here}; asks for {rules.places[probed].name}", reason, probed)


def _wanted(rules: Rules, state: State, look: Look) -> tuple[list[int], str]:
    """The places that would be better than the present one, if they had nodes, and why."""
    here, affordable = rules.places[state.place], _affordable(rules, state, look)
    must = _must_be_sure(rules, state, look)
    sure = [index for index in _cheapest_sure(rules) if index in affordable]
    if must and not here.sure and sure:
        return sure, "deadline"
    if not rules.returns:
        return [], ""
    # The move is a start. At a place that is not sure it may come to nothing until a checkpoint.
    live = _slack(rules, state, look.now) + _unsaved(state, look.now) - rules.start
    risk = _interval(rules, state, look)
    return [
        index
        for index in range(state.place)
        if index in affordable
        and rules.places[index].probe
        and _is_worth(rules, state, look, index)
        and live >= (0.0 if rules.places[index].sure else risk)
    ], "return"


def _is_worth(rules: Rules, state: State, look: Look, index: int) -> bool:
    """Whether what is left to compute is worth a move to an earlier place: its nodes are paid for a start and
    until the next checkpoint beside the present ones. Where prices are not known, the time for that decides.
    """
    beside = rules.start + _interval(rules, state, look)
    rest = left(rules, state) - _unsaved(state, look.now) - beside
    earlier, present = rules.places[index].price, rules.places[state.place].price
    if earlier is None or present is None or earlier > present:
        return rest > beside
    return present > earlier and (present - earlier) * rest > earlier * beside


def _stay(state: State, look: Look, words: str, reason: str, probed: int = -1) -> Decision:
    """Stay at the place, and ask for nodes of `probed` beside."""
    what = WAIT
    if probed != state.probed:
        what = PROBE if probed >= 0 else DROP
        state.probed, state.probe_since, state.probe_held = probed, look.now, False
    return Decision(what, state.place, probed, words, reason)


def _go(state: State, look: Look, place: int, words: str, reason: str) -> Decision:
    """Go to another place."""
    state.way[-1][2] = state.done
    state.way.append([place, look.now, 0.0])
    state.held = place == state.probed and state.probe_held
    state.place, state.since, state.computes = place, look.now, 0.0
    state.probed, state.probe_held = -1, False
    return Decision(GO, place, -1, words, reason)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f}"
