"""What can be read of the values of a file with mistakes: the rest, without what is wrong."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from infra.schema import validation
from infra.schema.problems import Finding, Path

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
        return {key: copied(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    return [copied(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def leave_out_wrong(values: dict[str, Any], error: ValidationError, model: type[BaseModel]) -> set[Path]:
    """Removes what is wrong and returns its places, with those of what is missing."""
    lost: set[Path] = set()
    for detail in error.errors(include_url=False):
        place = validation.place_of(detail, model)
        if near := validation.misspelt_key(detail, model):
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
                place = validation.place_of(detail, model)
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
        inner = _section(section[key])
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
            values = next((each for key, each in items if str(key) == str(part)), None)
        elif isinstance(values, list) and isinstance(part, int) and part < len(cast("list[Any]", values)):
            values = cast("list[Any]", values)[part]
        else:
            return None
    return cast("dict[Any, Any]", values) if isinstance(values, dict) else None


def _stand_in(
    values: dict[str, Any], detail: ErrorDetails, model: type[BaseModel], sections: Collection[str]
) -> bool:
    """Puts a value where ``detail`` says that one is missing; False where nothing can stand in for it."""
    *way, last = validation.place_of(detail, model)
    section = section_at(values, tuple(way))
    found = validation.stand_in(detail["loc"], model, sections=detail["loc"][0] in sections)
    if section is None or found is None:
        return False
    section[last] = found
    return True


def _section(value: object) -> dict[Any, Any] | None:
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else None
