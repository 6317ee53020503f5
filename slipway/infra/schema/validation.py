"""Pydantic's errors about the shape of a stack file or of a `pipeline.yaml`, in the words of a `Problem`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from typing_extensions import is_typeddict

from slipway.infra.commands import page
from slipway.infra.schema.base import WRONG_VALUE, Model
from slipway.infra.schema.problems import Finding, Path, did_you_mean, listed, nearest
from slipway.infra.schema.renamed import Removed, Renamed

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


SETTINGS = page("settings.md")
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
    if error["type"] != "extra_forbidden" or removed_key(error, model):
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


def removed_key(error: ErrorDetails, model: type[BaseModel]) -> Removed | None:
    """For an unknown key: what to write in place of one that an earlier release had."""
    section = _model_at(error["loc"][:-1], model) if error["type"] == "extra_forbidden" else None
    return section.removed.get(str(error["loc"][-1])) if section and issubclass(section, Model) else None


def removed_kind(error: ErrorDetails, model: type[BaseModel]) -> Removed | None:
    """For a section of an unknown kind: what to write in place of one that an earlier release had."""
    if error["type"] != "union_tag_invalid":
        return None
    tag, options = error.get("ctx", {})["tag"], _options(_annotation_at(error["loc"], model))
    kinds = [option.removed_kinds for option in options if issubclass(option, Model)]
    return next((removed[tag] for removed in kinds if tag in removed), None)


def meant_tag(error: ErrorDetails, section: Mapping[Any, Any], model: type[BaseModel]) -> str | None:
    """For a section whose cloud or kind is wrong or missing: the one that is nearest, or has most of its keys."""
    if removed_kind(error, model):
        return None
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
    if removed := removed_key(error, model) or removed_kind(error, model):
        reason, fix = removed.reason, removed.instead
    elif value is None and kind not in {"missing", "union_tag_not_found", "extra_forbidden"}:
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
    """What to write for a key that is not there: the required keys of a section, or one of its few values."""
    annotation = _annotation_at(loc, model)
    keys = _required_keys(annotation)
    if get_origin(annotation) is Literal:
        return f" Write {listed(get_args(annotation))}"
    return f" Write `{loc[-1]}: {keys}`" if keys else ""


def _required_keys(annotation: Any) -> str:
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return ""
    fields = [
        (name, field.annotation)
        for name, field in annotation.model_fields.items()
        # What only some sections can leave out has an example.
        if field.is_required() or field.examples
    ]
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
