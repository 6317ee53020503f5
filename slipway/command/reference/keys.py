"""What models say of the keys of a stack file and of `pipeline.yaml`: for the pages and `slipway explain`."""

import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from slipway.infra.pipelines.file import shape
from slipway.infra.schema import base, cron, names, paths, secret_values
from slipway.infra.settings.model import Day

# The kinds of text and what each is called. All are annotated str, told apart by their last validator.
KINDS: Mapping[Any, str] = {
    get_args(kind)[-1]: words
    for kind, words in (
        (base.Cpu, "CPU"),
        (base.Memory, "size"),
        (base.Size, "size"),
        (base.Duration, "duration"),
        (base.Cidr, "CIDR block"),
        (cron.Cron, "cron"),
        (cron.TimeZone, "time zone"),
        (names.Image, "image by digest"),
        (Day, "day"),
        (paths.StorePath, "path in the store"),
        (paths.LocalPath, "path on this machine"),
        (paths.ExportedPath, "absolute path"),
        (secret_values.SecretText, "encrypted text"),
        (names.ObjectName, "name of an object"),
        (names.NamespaceName, "name of a namespace"),
        (shape.Word, "text"),
        (shape.Words, "list of words"),
        (shape.Scalar, "text, number or boolean"),
        (shape.Bound, "number"),
    )
}
PLAIN: Mapping[Any, str] = {str: "text", int: "whole number", float: "number", bool: "boolean"}

LONG = 7
"""Words of an explanation of which a page has the first clause alone."""


def keys_of(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The keys that a file may have, and not what is read from elsewhere."""
    return ((name, field) for name, field in model.model_fields.items() if not field.exclude)


def models_in(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models that a key's value holds, each with what stands between the key and it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from models_in(arguments[0])
    elif origin in {Union, UnionType}:
        for member in arguments:
            yield from models_in(member)
    elif origin is dict:
        for suffix, model in models_in(arguments[1]):
            yield f".<name>{suffix}", model
    elif origin is list:
        for suffix, model in models_in(arguments[0]):
            yield f"[]{suffix}", model
    elif is_typeddict(annotation):
        for name, member in annotation.__annotations__.items():
            for suffix, model in models_in(member):
                yield f".{name}{suffix}", model
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation


def sections_in(field: FieldInfo, where: str) -> Iterator[tuple[str, str, type[BaseModel]]]:
    """The models that a key's value holds: what stands between, the condition of each, and the model."""
    inner = list(models_in(field.annotation))
    for suffix, model in inner:
        alike = [other for other, _ in inner if other == suffix]
        yield suffix, f"where `{_tag(model)}`" if len(alike) > 1 else where, model


def _tag(model: type[BaseModel]) -> str:
    """`cloud: gcp`: what tells this member of a union apart."""
    name = next(name for name in ("cloud", "kind", "stack") if name in dict(keys_of(model)))
    if name == "stack":
        return name
    return f"{name}: {get_args(model.model_fields[name].annotation)[0]}"


def about(model: type[BaseModel]) -> str:
    """What a model is, as its docstring says it."""
    return " ".join((model.__doc__ or "").split()).replace("``", "`")


def brief(text: str) -> str:
    """What an explanation begins with: no second sentence, no example, nothing behind a colon, and of a long one
    the first clause. What stands between backticks stays whole."""
    parts = re.split(r"(`[^`]*`)", text)
    hidden = "".join("\0" * len(part) if part[:1] == "`" else part for part in parts)
    end = re.search(r"(?<=\.) |; |(?<!\0): |, (?:for example|such as|which) | \(|$", hidden)
    start = hidden[: end.start()] if end else hidden
    clause = re.match(r"(?:\S+ ){3,}?\S+(?=, )", start)
    return text[: len(clause[0] if clause and len(start.split()) > LONG else start)].rstrip(".")


def value_of(field: FieldInfo) -> str:
    """What a key's value can be, with its bounds."""
    text = kind_of(field)
    low = next((rule.ge for rule in field.metadata if isinstance(rule, Ge)), None)
    high = next((rule.le for rule in field.metadata if isinstance(rule, Le)), None)
    least = next((rule.min_length for rule in field.metadata if isinstance(rule, MinLen)), None)
    if low is not None:
        text += f", {low} to {high}" if high is not None else f", {low} or more"
    return f"{text}, at least {least}" if least else text


def kind_of(field: FieldInfo) -> str:
    """What a key's value is. Pydantic moves the outermost annotation's parts into the field's metadata."""
    return next((KINDS[rule] for rule in field.metadata if _is_known(rule)), "") or _words(field.annotation)


def choices_of(annotation: Any) -> list[Any]:
    """The values that a key may have, where they are few; else none."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    inner = get_args(annotation) if get_origin(annotation) in {Union, UnionType, Annotated} else ()
    return [choice for member in inner for choice in choices_of(member)]


def default_of(field: FieldInfo) -> str:
    """The default as a file would write it; empty where there is none."""
    value: object = None if field.is_required() else field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, BaseModel) or value in ({}, [], ""):
        return ""
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return f"{{{', '.join(f'{key}: {item}' for key, item in items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(str, cast('list[object]', value)))}]"
    return str(value)


def _is_known(rule: object) -> bool:
    return any(rule is validator for validator in KINDS)


def _words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    words = "sections by name" if is_typeddict(annotation) else PLAIN.get(annotation, "section")
    if origin is Annotated:
        words = next((KINDS[rule] for rule in arguments[1:] if _is_known(rule)), "") or _words(arguments[0])
    elif origin is Literal:
        words = ", ".join(f"`{argument}`" for argument in arguments)
    elif origin in {Union, UnionType}:
        words = " or ".join(dict.fromkeys(_words(member) for member in arguments if member is not NoneType))
    elif origin is list:
        words = "list of sections" if list(models_in(annotation)) else f"list of {_words(arguments[0])}"
    elif origin is dict and list(models_in(annotation)):
        words = "sections by name"
    elif origin is dict and arguments[1] is not Any:
        words = f"{_words(arguments[1])} by {'name' if arguments[0] is str else _words(arguments[0])}"
    return words
