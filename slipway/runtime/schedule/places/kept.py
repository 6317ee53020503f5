"""Where a step is on its way, as it is kept in the cluster: by the names of its Jobs, since the places of a stack
file may change meanwhile. Standard library only, Python 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.runtime.schedule.places.jobs import PlannedPlace
from slipway.runtime.schedule.places.policy import Rules, State

JOBS = "jobs"
"""The key of what is kept with the Jobs of the places, in their order, and the prices of these."""

FORMER = "former"
"""The key of what is kept with the Jobs of places that the step no longer has."""

GONE = -1
"""The index of a place that the step no longer has."""


def written(state: State, places: Sequence[PlannedPlace], former: Sequence[str] = ()) -> dict[str, Any]:
    """The state as JSON values."""
    content = {**state.write(), JOBS: [[place.job, place.price] for place in places]}
    return {**content, FORMER: [*former]} if former else content


def former_jobs(content: Mapping[str, Any], places: Sequence[PlannedPlace], every: Sequence[str]) -> list[str]:
    """The Jobs of places that the step had when `written` gave this, and no longer has; `every` are those that
    run the same at any pool of the cluster. Pods of them may be left.
    """
    before = {*(name for name, _ in content.get(JOBS, ())), *content.get(FORMER, ())}
    return [name for name in every if name in before.difference(place.job for place in places)]


def restore(content: Mapping[str, Any], places: Sequence[PlannedPlace], rules: Rules, now: float) -> State:
    """The state that `written` gave, with its indexes as these places have them; a beginning where none was kept.

    The names of Jobs have the digest of what they run: what was kept of another run is not taken up.
    """
    values = dict(content)
    values.pop(FORMER, None)
    before: list[list[Any]] = values.pop(JOBS, [])
    index = {place.job: position for position, place in enumerate(places)}
    if not any(name in index for name, _ in before):
        return State.begin(rules, now)
    if [name for name, _ in before] == list(index):
        return State.read(values, rules, now)
    position_of = [index.get(name, GONE) for name, _ in before]
    state = State(**values)
    spent = [0.0] * len(places)
    for (_, price), position, seconds in zip(before, position_of, state.spent):  # noqa: B905 (Python 3.9)
        if position == GONE:
            state.paid_before += (price or 0.0) * seconds / 3600
        else:
            spent[position] = seconds
    state.spent, state.tried, state.probed = spent, [-1.0] * len(places), -1
    state.way = [[float(position_of[int(place)]), *rest] for place, *rest in state.way]
    state.place = position_of[state.place]
    if state.place == GONE:
        # Nothing runs before its Job is quiet.
        state.place, state.since, state.computes, state.held = 0, now, 0.0, False
        state.way.append([0, now, 0.0])
    return state
