"""Pydantic's errors about the shape of a stack file or of a `pipeline.yaml`, in the words of a `Problem`."""

import difflib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from typing_extensions import is_typeddict

from slipway.infra.schema.base import WRONG_VALUE, Model
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed, nearest
from slipway.infra.schema.renamed import Renamed

KINDS = {
    "string_type": ("not text", "write it in quotes"),
    "int_type": ("not a whole number", "write a whole number"),
    "int_parsing": ("not a whole number", "write a whole number"),
    "int_from_float": ("not a whole number", "write a whole number"),
    "float_type": ("not a number", "write a number"),
    "float_parsing": ("not a number", "write a number"),
    "bool_type": ("neither true nor false", "write `true` or `false`"),
    "bool_parsing": ("neither true nor false", "write `true` or `false`"),
    "list_type": ("not a list", "write a list: `[…]`, or one `- …` a line"),
    "dict_type": ("not a section of keys and values", "write `key: value` lines below it"),
    "model_type": ("not a section of keys and values", "write `key: value` lines below it"),
    "model_attributes_type": ("not a section of keys and values", "write `key: value` lines below it"),
    "too_short": ("empty", "name at least one"),
}
BOUNDS = {
    "greater_than_equal": ("ge", "below {0}, the least it can be", "write {0} or more"),
    "greater_than": ("gt", "not above {0}", "write more than {0}"),
    "less_than_equal": ("le", "above {0}, the most it can be", "write {0} or less"),
    "less_than": ("lt", "not below {0}", "write less than {0}"),
}


SETTINGS = "docs/settings.md"
"""The page that describes the keys of a stack file."""


def findings(error: ValidationError, model: type[BaseModel], page: str = SETTINGS) -> list[Finding]:
    """Each error that ``model`` raised as a finding; ``page`` describes the model's keys."""
    return [finding_of(detail, model, page) for detail in error.errors(include_url=False)]


def place_of(error: ErrorDetails, model: type[BaseModel]) -> Path:
    """Where an error is in the file: its location without what pydantic adds for unions and for mappings' keys."""
    loc = list(error["loc"])
    if loc[1:] and loc[-1] == "[key]" and error["type"] in {*KINDS, WRONG_VALUE}:
        del loc[-1]
    return tuple(
        part if isinstance(part, int) and kind is not Part.KEY else str(part)
        for part, kind, _ in _parts(loc, model)
        if kind is not Part.TAG
    )


def misspelt_key(error: ErrorDetails, model: type[BaseModel]) -> str | None:
    """For an unknown key: the key of its section that it most likely means: misspelt, or another cloud's."""
    if error["type"] != "extra_forbidden":
        return None
    return other_name(error, model) or nearest(error["loc"][-1], _keys_beside(error["loc"], model))


def other_name(error: ErrorDetails, model: type[BaseModel]) -> str | None:
    """For an unknown key: the key of its section that was once called so, or that another cloud calls so."""
    if renamed := renamed_key(error, model):
        return renamed.to
    section = _model_at(error["loc"][:-1], model)
    return section.other_names.get(str(error["loc"][-1])) if section and issubclass(section, Model) else None


def renamed_key(error: ErrorDetails, model: type[BaseModel]) -> Renamed | None:
    """For an unknown key: the new name of what was called so in an earlier release."""
    section = _model_at(error["loc"][:-1], model) if error["type"] == "extra_forbidden" else None
    return section.renamed.get(str(error["loc"][-1])) if section and issubclass(section, Model) else None


def meant_tag(error: ErrorDetails, section: Mapping[Any, Any], model: type[BaseModel]) -> str | None:
    """For a section whose cloud or kind is wrong or missing: the one that is nearest, or has most of its keys."""
    union = _annotation_at(error["loc"], model)
    if error["type"] == "union_tag_invalid" and (near := nearest(error.get("ctx", {})["tag"], _tag_values(union))):
        return near
    counts = {_literals(model).pop(): _known_keys(model, section) for model in _options(union)}
    best = max(counts.values())
    fitting = [tag for tag, count in counts.items() if count == best]
    return fitting[0] if best and len(fitting) == 1 else None


def _known_keys(annotation: Any, value: object) -> int:
    """How many keys of ``value``, those of its sections included, the annotation knows."""
    if not isinstance(value, Mapping):
        return 0
    section = cast("Mapping[Any, Any]", value)
    for option in _options(annotation):
        if get_origin(option) is dict:
            return sum(_known_keys(get_args(option)[-1], element) for element in section.values())
        if isinstance(option, type) and issubclass(option, BaseModel):
            fields = option.model_fields
            return sum(1 + _known_keys(fields[key].annotation, section[key]) for key in section if key in fields)
    return 0


STAND_INS: tuple[Any, ...] = ("", "x", "1Gi", "/x", "x.example", "{store}/x", [], {}, {"x": "x"}, 2, 2000)
"""Values of every kind, of which a required key that is missing gets the first that it can have."""


def stand_in(loc: Sequence[str | int], model: type[BaseModel], *, sections: bool) -> Any:
    """What a required key could have, for checks of what is beside it; None where nothing can stand in for it.

    Without ``sections`` that is a section, and a key that tells one section from another.
    """
    field = _field_at(loc, model)
    if field is None:
        return None
    if not sections and (_sections(field.annotation) or get_origin(field.annotation) is Literal):
        return None
    return possible(field)


def possible(field: FieldInfo) -> Any:
    """A plain value that the field can have; None where none of those that are tried is one."""
    fields: Any = {"value": (field.annotation, field)}
    value = create_model("Value", **fields)
    for candidate in _tries(field.annotation):
        try:
            value(value=candidate)
        except ValidationError:
            continue
        return candidate
    return None


def _tries(annotation: Any) -> Iterator[Any]:
    for option in _options(annotation):
        origin, arguments = get_origin(option), get_args(option)
        if origin is Literal:
            yield from arguments
        elif origin is dict and _sections(arguments[-1]):
            yield from ({"x": element} for element in _tries(arguments[-1]))
        elif origin is list and _sections(arguments[0]):
            yield from ([element] for element in _tries(arguments[0]))
        elif isinstance(option, type) and issubclass(option, BaseModel):
            yield {name: possible(field) for name, field in option.model_fields.items() if field.is_required()}
    yield from STAND_INS


def _sections(annotation: Any) -> bool:
    return any(
        (isinstance(option, type) and issubclass(option, BaseModel)) or any(map(_sections, get_args(option)))
        for option in _options(annotation)
    )


def finding_of(error: ErrorDetails, model: type[BaseModel], page: str = SETTINGS) -> Finding:
    """One error as a finding; ``page`` describes the model's keys."""
    kind, place, value = error["type"], place_of(error, model), error["input"]
    context = error.get("ctx", {})
    reason, fix = error["msg"], f"see {page} for what it can be"
    if kind == "extra_forbidden":
        known = _keys_beside(error["loc"], model)
        reason = "there is no such key"
        meant = misspelt_key(error, model)
        fix = f"did you mean `{meant}`?" if meant else f"remove it; known here: {listed(known, 'and')}"
        if renamed := renamed_key(error, model):
            reason, fix = renamed.reason, renamed.fix
    elif kind == "missing":
        value, reason, fix = (
            None,
            "required, and not there",
            f"add it: {_description(error['loc'], model) or f'see {page}'}{_shape(error['loc'], model)}",
        )
    elif kind == "literal_error":
        reason, fix = _choice(value, str(context["expected"]))
    elif kind == "union_tag_not_found":
        place = (*place, str(context["discriminator"]).strip("'"))
        value, reason, fix = (
            None,
            "required, and not there",
            f"add it: {listed(_tag_values(_annotation_at(error['loc'], model)))}",
        )
    elif kind == "union_tag_invalid":
        tag = str(context["discriminator"]).strip("'")
        # The tag in the context is a text, for whatever stands there.
        section = cast("Mapping[str, Any]", value)
        place, value = (*place, tag), section.get(tag, context["tag"])
        reason, fix = _choice(value, str(context["expected_tags"]))
    elif kind == WRONG_VALUE:
        reason, fix = str(context["reason"]), str(context["fix"])
    elif kind in BOUNDS:
        name, reason, fix = BOUNDS[kind]
        reason, fix = reason.format(context[name]), fix.format(context[name])
    elif kind in KINDS:
        reason, fix = KINDS[kind]
    elif kind in {"value_error", "assertion_error"}:
        # Of a validator that a pipeline's declaration has.
        reason = str(context["error"])
    if value is None and kind not in {"missing", "union_tag_not_found", "extra_forbidden"}:
        reason, fix = "empty", f"{fix}, or remove the key"
    return Finding(place, value, reason, fix)


def _choice(value: object, expected: str) -> tuple[str, str]:
    """Reason and fix for a value that is none of pydantic's ``'a', 'b' or 'c'``."""
    written = [word.strip() for word in expected.replace(" or ", ", ").split(",")]
    words = [word.strip("'") for word in written]
    # A number is no misspelling of another one that has some of its digits.
    texts = [word for word, quoted in zip(words, written, strict=True) if quoted != word]
    if value in words and value not in texts:
        return "text, and it has to be a number", f"write it without quotes: `{value}`"
    return "not one of the values it can have", did_you_mean(value, texts, f"write {listed(words)}")


def _keys_beside(loc: Sequence[str | int], model: type[BaseModel]) -> list[str]:
    section = _model_at(loc[:-1], model)
    return [name for name, field in section.model_fields.items() if not field.exclude] if section else []


def _description(loc: Sequence[str | int], model: type[BaseModel]) -> str | None:
    field = _field_at(loc, model)
    return field.description if field else None


def _shape(loc: Sequence[str | int], model: type[BaseModel]) -> str:
    """What to write for a section that is not there: its required keys."""
    keys = _required_keys(_annotation_at(loc, model))
    return f" Write `{loc[-1]}: {keys}`" if keys else ""


def _required_keys(annotation: Any) -> str:
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return ""
    fields = [(name, field.annotation) for name, field in annotation.model_fields.items() if field.is_required()]
    keys = ", ".join(f"{name}: {_required_keys(below) or '…'}" for name, below in fields)
    return f"{{{keys}}}" if keys else ""


class Part(Enum):
    """What a part of an error's location is: a key of the file's, an index, or a tag that pydantic adds."""

    KEY = auto()
    INDEX = auto()
    TAG = auto()


def _parts(loc: Iterable[str | int], model: type[BaseModel]) -> Iterator[tuple[str | int, Part, Any]]:
    """Each part of an error's location, what it is, and the annotation of what is there; None where unknown."""
    current: Any = model
    for part in loc:
        options = _options(current)
        kind, current = Part.INDEX if isinstance(part, int) else Part.KEY, None
        for option in options:
            origin = get_origin(option)
            if origin in {dict, list}:
                kind, current = Part.KEY if origin is dict else kind, get_args(option)[-1]
            elif is_typeddict(option):
                current = option.__annotations__.get(str(part))
            elif isinstance(option, type) and issubclass(option, BaseModel):
                if len(options) > 1:
                    kind, current = (Part.TAG, option) if part in _literals(option) else (kind, current)
                elif part in option.model_fields:
                    current = option.model_fields[str(part)].annotation
        yield part, kind, current


def _annotation_at(loc: Iterable[str | int], model: type[BaseModel]) -> Any:
    """What can stand at an error's location, tags included; None where nothing is known of it."""
    annotation: Any = model
    for _, _, annotation in _parts(loc, model):
        if annotation is None:
            return None
    return annotation


def _model_at(loc: Iterable[str | int], model: type[BaseModel]) -> type[BaseModel] | None:
    """The settings model at an error's location, tags included."""
    annotation = _annotation_at(loc, model)
    models = [
        option for option in _options(annotation) if isinstance(option, type) and issubclass(option, BaseModel)
    ]
    return models[0] if len(models) == 1 else None


def _field_at(loc: Sequence[str | int], model: type[BaseModel]) -> FieldInfo | None:
    section = _model_at(loc[:-1], model)
    return section.model_fields.get(str(loc[-1])) if section else None


def _options(annotation: Any) -> list[Any]:
    """What an annotation allows, with Annotated, Union and None taken off."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _options(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        return [option for arg in get_args(annotation) for option in _options(arg) if arg is not NoneType]
    return [annotation]


def _literals(model: type[BaseModel]) -> set[Any]:
    """The values that tell this member of a union apart."""
    fields: Mapping[str, Any] = model.model_fields
    return {
        value
        for name in ("cloud", "kind")
        if name in fields and get_origin(fields[name].annotation) is Literal
        for value in get_args(fields[name].annotation)
    }


def _tag_values(union: Any) -> list[Any]:
    """What tells the members of a union apart, in their order."""
    return [value for member in _options(union) for value in _literals(member)]


# What is wrong with the plain values of a stack file, whatever they stand for.


LINES_ALLOWED = ("policies", "secrets")
"""Sections whose texts are for people, or nobody's, and may have several lines."""

WORDS = {
    "Cc": "the control character U+{code:04X}",
    "Cf": "the invisible character U+{code:04X}",
    "Cs": "U+{code:04X}, half of a surrogate pair",
    "Zl": "the line separator U+{code:04X}",
    "Zp": "the paragraph separator U+{code:04X}",
}
"""What no setting has, by Unicode's category (The Unicode Standard 17.0, table 4-4, September 2025)."""


def plain_value_findings(
    raw: Mapping[str, Any], unread: str = "", lines: Collection[str] = LINES_ALLOWED
) -> Iterator[Finding]:
    """Characters that no setting has, in keys and texts, and one key twice.

    ``unread`` is a section left out; texts of the sections ``lines`` may have several lines.
    """
    yield from _of_section((), {key: value for key, value in raw.items() if key != unread}, lines)


def order(raw: object, path: Iterable[str | int]) -> tuple[int, ...]:
    """Where in the file ``path`` comes, as far as it is there: by the number of each key among those beside it."""
    numbers: list[int] = []
    for part in path:
        if isinstance(raw, Mapping):
            section = cast("Mapping[Any, Any]", raw)
            keys = [str(key) for key in section]
            raw = next((value for key, value in section.items() if str(key) == str(part)), None)
            numbers.append(keys.index(str(part)) if str(part) in keys else len(keys))
        elif isinstance(part, int):
            raw = cast("list[Any]", raw)[part] if isinstance(raw, list) else None
            numbers.append(part)
    return tuple(numbers)


def _of_section(path: Path, section: Mapping[Any, Any], lines: Collection[str]) -> Iterator[Finding]:
    first: dict[str, object] = {}
    for key, value in section.items():
        place = (*path, str(key))
        if str(key) in first:
            reason = f"{first[str(key)]!r} and {key!r} are the same key"
            yield Finding(place, value, reason, "remove one of them")
            continue
        first[str(key)] = key
        if character := _unwritable(str(key), lines=False):
            yield Finding(place, value, f"the key has {character}", "remove that character")
        else:
            yield from _of_value(place, value, lines)


def _of_value(place: Path, value: object, lines: Collection[str]) -> Iterator[Finding]:
    if isinstance(value, str):
        if character := _unwritable(value, lines=place[0] in lines):
            yield Finding(place, value, f"the value has {character}", "remove that character")
    elif isinstance(value, dict):
        yield from _of_section(place, cast("dict[Any, Any]", value), lines)
    elif isinstance(value, list):
        for index, element in enumerate(cast("list[object]", value)):
            yield from _of_value((*place, index), element, lines)


def _unwritable(text: str, *, lines: bool) -> str | None:
    """The first character of ``text`` that no setting has, in words; None where there is none."""
    for character in text:
        words = WORDS.get(unicodedata.category(character))
        if words and not (lines and character in "\n\t"):
            return words.format(code=ord(character))
    return None


# What can be read of the values of a file with mistakes: the rest, without what is wrong.


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


def _section(value: object) -> dict[Any, Any] | None:
    return cast("dict[Any, Any]", value) if isinstance(value, dict) else None


# Corrections of keys and kinds that leave no doubt, so that what stands below them can be judged as well.
#
# They are reported like everything else: a stack that needs one is refused. Without them, the mistakes in a
# cluster whose `cloud` is misspelt would show only once that is corrected.


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
