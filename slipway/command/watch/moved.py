"""A step with places as one step: where it is, what it waits for, and what its mover says of that."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slipway.command.watch.states import Phase, Reason, StepState

MOVED = "place"
"""The kind of a reason that is a mover's sentence."""

IDLE = (Phase.HELD, Phase.ABSENT, Phase.UNKNOWN)
"""Phases of a Job of which nothing runs, or of which nothing is known: its cluster may be another one."""


def at_its_place(
    mover: StepState, places: Sequence[StepState], pools: Sequence[str], notes: Mapping[str, str]
) -> StepState:
    """The state of a step: ``mover`` is that of its mover, ``places`` are those of its Jobs at them, in order.

    ``pools`` are those of the places, and ``notes`` what the mover keeps.
    """
    active = [place for place in places if place.phase not in IDLE]
    if mover.phase in IDLE and not active:
        return replace(mover, pool=pools[0])
    if mover.phase.over:
        last = next((place for place in active if place.phase is mover.phase), None)
        if last is None:
            return mover
        # Why the step failed is known where it ran.
        reason = last.reason if mover.phase is Phase.FAILED and last.reason.says else mover.reason
        return replace(mover, pool=last.pool, reason=reason, pods=last.pods, retries=last.retries, tail=last.tail)
    # While the pods of one place end, the next one is still suspended.
    place = next((place for place in active if place.phase is not Phase.ENDING), next(iter(active), None))
    said = notes.get("said", "")
    if place is None:
        reason = Reason(said, kind=MOVED) if said else mover.reason
        return replace(mover, pool=pools[0], reason=reason, pods=(), running=0)
    place = replace(place, name=mover.name, began=mover.began, remark=place.remark or _beside(notes, pools))
    if place.phase is Phase.WAITING and said:
        # What would mend that one place is not what comes next.
        place = replace(place, reason=Reason(said, words=place.reason.says, kind=MOVED))
    if mover.phase is not Phase.RUNNING:
        stays = f"nothing moves it now: its mover {mover.phase}"
        place = replace(place, remark="; ".join(filter(None, [place.remark, stays])))
    return place


def _beside(notes: Mapping[str, str], pools: Sequence[str]) -> str:
    """Which other place is asked for nodes meanwhile; empty where none is."""
    try:
        state: Any = json.loads(notes.get("state", "{}"))
        probed = int(state.get("probed", -1))
    except (ValueError, TypeError, AttributeError):
        return ""
    return f"asks for nodes of {pools[probed]}, too" if 0 <= probed < len(pools) else ""
