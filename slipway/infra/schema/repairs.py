"""What can be read of a file with mistakes: the rest, without what is wrong, and corrections that leave no doubt.

Corrections are reported like everything else: a stack that needs one is refused. Without them, the mistakes in a
cluster whose `cloud` is misspelt would show only once that is corrected.
"""

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from slipway.infra.schema.problems import Finding, Path
from slipway.infra.schema.validation import (
    finding_of,
    meant_tag,
    misspelt_key,
    other_name,
    place_of,
    renamed_key,
    stand_in,
)

D = TypeVar("D", bound=BaseModel)


def rests_on_readable(finding: Finding, unreadable: Collection[Path]) -> bool:
    """Whether everything that ``finding`` rests on could be read; ``unreadable`` are places that were left out."""
    places = (finding.path, *finding.read)
    return not any(
        any(place[: len(lost)] == lost for place in places)
        or any(lost[: len(section)] == section for section in finding.all_of)
        for lost in unreadable
    )


def copied(value: Any) -> Any:
    """A copy in which a section that an alias of YAML repeats is there as often: each can be changed by itself."""
    if isinstance(value, Mapping):
        return {key: copied(element) for key, element in cast("Mapping[Any, Any]", value).items()}
    return [copied(element) for element in cast("list[Any]", value)] if isinstance(value, list) else value


def leave_out_wrong(values: dict[str, Any], error: ValidationError, model: type[BaseModel]) -> set[Path]:
    """Removes what is wrong and returns its places, with those of what is missing."""
    lost: set[Path] = set()
    for detail in error.errors(include_url=False):
        place = place_of(detail, model)
        if near := misspelt_key(detail, model):
            lost.add((*place[:-1], near))
        lost.add(place if detail["type"] == "missing" else leave_out(values, place))
    return lost


def salvage(
    values: dict[str, Any], lost: set[Path], model: type[BaseModel], draft: type[D], sections: Collection[str] = ()
) -> D:
    """What is right of ``values``, which it changes; ``lost`` grows by the places of what else is left out.

    ``draft`` is ``model`` with less required. A value that is required all the same has a stand-in, so that the
    rest of its section can be read; below the keys ``sections``, that may be a whole section.
    """
    stood_in: set[Path] = set()
    while True:
        try:
            return draft.model_validate(values)
        except ValidationError as remaining:
            for detail in remaining.errors(include_url=False):
                place = place_of(detail, model)
                if (
                    detail["type"] == "missing"
                    and place not in stood_in
                    and _stand_in(values, detail, model, sections)
                ):
                    stood_in.add(place)
                    lost.add(place)
                else:
                    lost.add(leave_out(values, place[:-1] if detail["type"] == "missing" else place))


def leave_out(values: dict[Any, Any], place: Path) -> Path:
    """Removes the value at ``place`` and returns what was removed.

    That is more than the place where a part of it cannot be removed alone: a whole list, so that the indexes of
    its other items still say where they stand, or the section nearest to a place that is not there.
    """
    section = values
    for depth, part in enumerate(place):
        key = next((key for key in section if str(key) == str(part)), None)
        if key is None:
            break
        inner = as_section(section[key])
        if inner is None or depth == len(place) - 1 or str(place[depth + 1]) not in map(str, inner):
            del section[key]
            return place[: depth + 1]
        section = inner
    values.clear()
    return ()


def section_at(values: Any, place: Path) -> dict[Any, Any] | None:
    """The section at ``place``, whose parts are keys as text; None where none is there."""
    for part in place:
        if isinstance(values, dict):
            items = cast("dict[Any, Any]", values).items()
            values = next((value for key, value in items if str(key) == str(part)), None)
        elif isinstance(values, list) and isinstance(part, int) and part < len(cast("list[Any]", values)):
            values = cast("list[Any]", values)[part]
        else:
            return None
    return cast("dict[Any, Any]", values) if isinstance(values, dict) else None


def _stand_in(
    values: dict[str, Any], detail: ErrorDetails, model: type[BaseModel], sections: Collection[str]
) -> bool:
    """Puts a value where ``detail`` says that one is missing; False where nothing can stand in for it."""
    *way, last = place_of(detail, model)
    section = section_at(values, tuple(way))
    value = stand_in(detail["loc"], model, sections=detail["loc"][0] in sections)
    if section is None or value is None:
        return False
    section[last] = value
    return True


def as_section(value: object) -> dict[Any, Any] | None:
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else None


ROUNDS = 8
"""Levels of sections of which each can show only once the one above is corrected; no stack file is as deep."""

SURE = 0.8
"""Likeness of two words from which one is taken for a misspelling of the other, and not only suggested."""


class Repairs(NamedTuple):
    """What was corrected: ``findings`` are what was wrong, ``renamed`` keys that may still have their old name.

    ``written`` are the keys that the file has at corrected places.
    """

    findings: list[Finding]
    renamed: list[Finding]
    written: Mapping[Path, str]


def repair(values: dict[str, Any], model_of: Callable[[Mapping[str, Any]], type[BaseModel]]) -> Repairs:
    """Corrects ``values``, of which ``model_of`` says what they should be."""
    findings: list[Finding] = []
    renamed: list[Finding] = []
    written: dict[Path, str] = {}
    for _ in range(ROUNDS):
        model = model_of(values)
        try:
            model.model_validate(values)
        except ValidationError as error:
            # A correction changes what the errors show as their input.
            details = [(finding_of(detail, model), detail) for detail in error.errors(include_url=False)]
            corrected = [
                (finding, place, renamed_key(detail, model))
                for finding, detail in details
                if (place := _correct(values, detail, model)) is not None
            ]
        else:
            break
        for finding, place, new in corrected:
            if new and place == finding.path:
                fix = f"remove it: `{new.to}` stands beside it"
                findings.append(as_written(replace(finding, fix=fix), written))
                continue
            (renamed if new and not new.removed else findings).append(as_written(finding, written))
            if place != finding.path:
                written[place] = str(finding.path[-1])
        if not corrected:
            break
    return Repairs(findings, renamed, written)


def as_written(finding: Finding, written: Mapping[Path, str]) -> Finding:
    """The finding with the keys of its path as the file has them."""
    path = tuple(written.get(finding.path[: depth + 1], part) for depth, part in enumerate(finding.path))
    return Finding(path, finding.value, finding.reason, finding.fix, finding.read, finding.all_of)


def _likeness(word: str, other: str) -> float:
    """From 0 to 1; two letters of a word of three say too little."""
    return difflib.SequenceMatcher(None, word, other).ratio() if min(len(word), len(other)) > 2 else 0


def _correct(values: dict[str, Any], detail: ErrorDetails, model: type[BaseModel]) -> Path | None:
    """Makes the correction that the error leaves no doubt of, and returns its place."""
    place = place_of(detail, model)
    if near := misspelt_key(detail, model):
        section = section_at(values, place[:-1])
        key = next((key for key in section or {} if str(key) == str(place[-1])), None)
        if section is None or key is None:
            return None
        if near in section:
            return leave_out(values, place) if renamed_key(detail, model) else None
        is_sure = other_name(detail, model) or _likeness(str(key), near) >= SURE
        if is_sure:
            section[near] = section.pop(key)
        return (*place[:-1], near) if is_sure else None
    if detail["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        section = section_at(values, place)
        tag = str(detail.get("ctx", {})["discriminator"]).strip("'")
        meant = meant_tag(detail, section or {}, model)
        if section is None or meant is None:
            return None
        section[tag] = meant
        return (*place, tag)
    return None
