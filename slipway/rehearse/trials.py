"""How many trials of a search a rehearsal runs: a few, unless the stack file says how many."""

from collections.abc import Callable, Mapping
from typing import Any

from slipway.infra.pipelines.search import TRIALS
from slipway.infra.review.stack import mapping
from slipway.infra.schema.problems import PREFIX, without_prefix
from slipway.infra.settings.loading import lay_over, pipelines_in
from slipway.infra.settings.pipelines import steps_if_any

FEW = 4
"""Trials that show that a search works."""


def few_trials(values: dict[str, Any], overlay: Mapping[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """The configuration ``values`` with at most `FEW` trials of each search of which ``overlay``, the section of
    rehearsals, does not say how many; ``note`` gets a remark for each. A grid is tried as a whole.
    """
    said = mapping(overlay.get("pipelines"))
    for name, section in pipelines_in(without_prefix(values)).items():
        for step in steps_if_any(name, section):
            search, key = step.search, ("steps", step.name, TRIALS)
            if (
                search is None
                or search.method == "grid"
                or search.trials <= FEW
                or _has(mapping(said.get(name)), key)
            ):
                continue
            few = {name: {"steps": {step.name: {TRIALS: FEW}}}}
            values = lay_over(values, {f"{PREFIX}pipelines": few})
            note(
                f"{name}.{step.name} tries {FEW} of {search.trials} combinations, enough to see that it works; "
                f"`slipway:rehearsal: {{pipelines: {{{name}: {{steps: {{{step.name}: {{{TRIALS}: {search.trials}"
                "}}}}}` in the stack file tries all"
            )
    return values


def _has(section: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    first, *others = keys
    return first in section and (not others or _has(mapping(section[first]), tuple(others)))
