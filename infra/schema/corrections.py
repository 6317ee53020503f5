"""Corrections of keys and kinds that leave no doubt, so that what stands below them can be judged as well.

They are reported like everything else: a stack that needs one is refused. Without them, the mistakes in a cluster
whose `cloud` is misspelt would show only once that is corrected.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from infra.schema import validation
from infra.schema.problems import Finding, Path
from infra.schema.salvage import section_at

ROUNDS = 8
"""Levels of sections of which each can show only once the one above is corrected; no stack file is as deep."""


SURE = 0.8
"""Likeness of two words from which one is taken for a misspelling of the other, and not only suggested."""


def repair(
    values: dict[str, Any], model_of: Callable[[Mapping[str, Any]], type[BaseModel]]
) -> tuple[list[Finding], Mapping[Path, str]]:
    """Corrects ``values``, of which ``model_of`` says what they should be.

    Returns what was wrong, and the key that the file has at each corrected place.
    """
    found: list[Finding] = []
    written: dict[Path, str] = {}
    for _ in range(ROUNDS):
        model = model_of(values)
        try:
            model.model_validate(values)
        except ValidationError as error:
            # A correction changes what the errors show as their input.
            told = [(validation.finding(detail, model), detail) for detail in error.errors(include_url=False)]
            corrected = [
                (finding, place)
                for finding, detail in told
                if (place := _correct(values, detail, model)) is not None
            ]
        else:
            break
        for finding, place in corrected:
            found.append(as_written(finding, written))
            if place != finding.path:
                written[place] = str(finding.path[-1])
        if not corrected:
            break
    return found, written


def as_written(finding: Finding, written: Mapping[Path, str]) -> Finding:
    """The finding with the keys of its path as the file has them."""
    path = tuple(written.get(finding.path[: depth + 1], part) for depth, part in enumerate(finding.path))
    return Finding(path, finding.value, finding.reason, finding.fix, finding.read, finding.all_of)


def _likeness(word: str, other: str) -> float:
    """From 0 to 1; two letters of a word of three say too little."""
    return difflib.SequenceMatcher(None, word, other).ratio() if min(len(word), len(other)) > 2 else 0


def _correct(values: dict[str, Any], detail: ErrorDetails, model: type[BaseModel]) -> Path | None:
    """Makes the correction that the error leaves no doubt of, and returns its place."""
    place = validation.place_of(detail, model)
    if near := validation.misspelt_key(detail, model):
        section = section_at(values, place[:-1])
        key = next((key for key in section or {} if str(key) == str(place[-1])), None)
        if section is None or key is None or near in section:
            return None
        if not validation.other_name(detail, model) and _likeness(str(key), near) < SURE:
            return None
        section[near] = section.pop(key)
        return (*place[:-1], near)
    if detail["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        section = section_at(values, place)
        tag = str(detail.get("ctx", {})["discriminator"]).strip("'")
        meant = validation.meant_tag(detail, section or {}, model)
        if section is None or meant is None:
            return None
        section[tag] = meant
        return (*place, tag)
    return None
