"""Writes docs/settings.md, the reference of every key of a stack file, from the settings models' own descriptions.

python -m slipway.tools.reference.settings            # write it
python -m slipway.tools.reference.settings --check    # exit 1 where it is out of date
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from slipway.infra.pipelines.discovery import pipeline_names
from slipway.infra.pipelines.file import shape
from slipway.infra.places import LIBRARY
from slipway.infra.schema import base, cron, paths, secret_values, yaml_files
from slipway.infra.schema import names as images
from slipway.infra.schema import names as kubernetes_names
from slipway.infra.settings import model as suppressions
from slipway.infra.settings.model import with_pipelines
from slipway.infra.settings.pipelines import each_of
from slipway.offline.files import write_or_check
from slipway.tools.reference import shipped

PAGE = LIBRARY / "docs" / "settings.md"

HEAD = f"""# Settings

Every key that a stack file (`stacks/Pulumi.<stack>.yaml`) may have under `slipway:`. Keys that are not listed are
refused, and so is what could not work on the cloud named; all problems of a file are listed at once, before
anything is created. [Stacks](stacks.md) says how to change a stack and write a new one.

Names in `<>` are yours to choose. This page is written by `python -m slipway.tools.reference.settings` from the
settings models in `infra`; change them there.

A stack file is YAML as the Pulumi CLI reads it: a key is text, stands once, and needs quotes where it is a number.
It has at most {yaml_files.FILE_BYTES // 1024} KiB, {yaml_files.VALUES:,} values,
{yaml_files.CHARACTERS:,} characters in each and {yaml_files.TOTAL_CHARACTERS:,} in all, and {yaml_files.DEPTH}
sections and lists inside one another; what an alias (`*name`) repeats counts each time. Of YAML's tags, `!!str`,
`!!int`, `!!float`, `!!bool`, `!!null`, `!!map` and `!!seq` are known. Control characters are refused, but for line
breaks below `policies`.
"""
TABLE = "| key | value | default | what it is |\n| --- | --- | --- | --- |\n"

# The kinds of text and how each is written. All are annotated str, told apart by their last validator.
KINDS: Mapping[Any, str] = {
    get_args(kind)[-1]: words
    for kind, words in (
        (base.Cpu, "CPU: `500m`, `2`"),
        (base.Memory, "size: `512Mi`, `4Gi`"),
        (base.Size, "size: `512Mi`, `4Gi`"),
        (base.Duration, "duration: `30m`, `12h`, `7d`"),
        (base.Cidr, "CIDR block"),
        (base.UtcTime, "time in UTC, in quotes"),
        (cron.Cron, 'five fields: `"0 3 * * *"`'),
        (cron.TimeZone, "time zone: `Europe/Berlin`"),
        (images.Image, "image by digest"),
        (suppressions.Day, 'day: `"2027-03-31"`'),
        (paths.StorePath, "path in the store"),
        (paths.LocalPath, "path on this machine"),
        (paths.Folder, "path in the repository, or `store:<path>`"),
        (paths.ExportedPath, "absolute path"),
        (secret_values.SecretText, "encrypted text"),
        (kubernetes_names.ObjectName, "name of an object"),
        (kubernetes_names.NamespaceName, "name of a namespace"),
        (shape.Word, "text"),
        (shape.Words, "list of words"),
        (shape.Scalar, "text, number, `true` or `false`"),
        (shape.Bound, "number"),
    )
}
PLAIN: Mapping[Any, str] = {str: "text", int: "whole number", float: "number", bool: "`true` or `false`"}
NONE = "none"


@dataclass(frozen=True)
class Section:
    """A place in a stack file, the key that tells it apart from others at the same place, and its model."""

    path: str
    where: str
    model: type[BaseModel]
    top: bool = False

    def below(self) -> Iterator["Section"]:
        """The sections in it, each followed by those in that one."""
        for name, field in _keys(self.model):
            path = name if self.top else f"{self.path}.{name}"
            inner = list(_models(field.annotation))
            for suffix, model in inner:
                alike = [other for other, _ in inner if other == suffix]
                where = f"where `{_tag(model)}`" if len(alike) > 1 else self.where
                section = Section(path + suffix, where, model)
                yield section
                yield from section.below()


def page(pipelines: Sequence[str] = ()) -> str:
    """The whole page, with the settings of ``pipelines``, or else of all that are here."""
    names = pipelines or pipeline_names()
    return HEAD + describe(Section("slipway:", "", with_pipelines(each_of(names)), top=True))


def describe(top: Section) -> str:
    """The keys of a file: each model once, under all places that it describes."""
    places: dict[type[BaseModel], list[Section]] = {}
    for section in (top, *top.below()):
        places.setdefault(section.model, []).append(section)
    return "".join(_describe(model, sections) for model, sections in places.items())


def _describe(model: type[BaseModel], sections: Sequence[Section]) -> str:
    """The places of a model, what it is, and a table of its keys."""
    paths = ", ".join(f"`{path}`" for path in dict.fromkeys(section.path for section in sections))
    conditions = {section.where for section in sections}
    where = f", {conditions.pop()}" if conditions != {""} and len(conditions) == 1 else ""
    about = " ".join((model.__doc__ or "").split()).replace("``", "`")
    rows = "".join(_row(name, field) for name, field in _keys(model))
    return f"\n## {paths}{where}\n\n{about}\n\n{TABLE}{rows}"


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(shipped.pipelines()), "slipway.tools.reference.settings", arguments)


def _models(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models that a key's value holds, each with what stands between the key and it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _models(arguments[0])
    elif origin in {Union, UnionType}:
        for member in arguments:
            yield from _models(member)
    elif origin is dict:
        for suffix, model in _models(arguments[1]):
            yield f".<name>{suffix}", model
    elif origin is list:
        for suffix, model in _models(arguments[0]):
            yield f"[]{suffix}", model
    elif is_typeddict(annotation):
        for name, member in annotation.__annotations__.items():
            for suffix, model in _models(member):
                yield f".{name}{suffix}", model
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation


def _keys(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The keys that a stack file may have, and not what is read from elsewhere."""
    return ((name, field) for name, field in model.model_fields.items() if not field.exclude)


def _tag(model: type[BaseModel]) -> str:
    """`cloud: gcp`: what tells this member of a union apart."""
    name = next(name for name in ("cloud", "kind", "stack") if name in dict(_keys(model)))
    if name == "stack":
        return name
    return f"{name}: {get_args(model.model_fields[name].annotation)[0]}"


def _row(name: str, field: FieldInfo) -> str:
    cells = (f"`{name}`", _value(field), _default(field), field.description or "")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _value(field: FieldInfo) -> str:
    """What a key's value can be. Pydantic moves the outermost annotation's parts into the field's metadata."""
    text = next((KINDS[rule] for rule in field.metadata if _is_known(rule)), "") or _words(field.annotation)
    low = next((rule.ge for rule in field.metadata if isinstance(rule, Ge)), None)
    high = next((rule.le for rule in field.metadata if isinstance(rule, Le)), None)
    least = next((rule.min_length for rule in field.metadata if isinstance(rule, MinLen)), None)
    if low is not None:
        text += f", {low} to {high}" if high is not None else f", {low} or more"
    return f"{text}, at least {least}" if least else text


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
        words = "list of sections" if list(_models(annotation)) else f"list of {_words(arguments[0])}"
    elif origin is dict and list(_models(annotation)):
        words = "sections by name"
    elif origin is dict and arguments[1] is not Any:
        words = f"{_words(arguments[1])} by {'name' if arguments[0] is str else _words(arguments[0])}"
    return words


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value: object = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is None or isinstance(value, BaseModel) or value in ({}, [], ""):
        return NONE if value is None else ""
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return f"`{{{', '.join(f'{key}: {item}' for key, item in items)}}}`"
    if isinstance(value, list):
        return f"`[{', '.join(map(str, cast('list[object]', value)))}]`"
    return f"`{value}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
