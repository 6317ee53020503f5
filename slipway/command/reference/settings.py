"""Writes docs/settings.md, the reference of every key of a stack file, from the settings models' own descriptions.

python -m slipway.command.reference.settings            # write it
python -m slipway.command.reference.settings --check    # exit 1 where it is out of date
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from slipway.files import write_or_check
from slipway.infra.pipelines import apps, contract, matrix
from slipway.infra.pipelines.file import shape
from slipway.infra.places import LIBRARY
from slipway.infra.schema import base as kinds
from slipway.infra.schema import cron, names, paths, secret_values, yaml_files
from slipway.infra.schema.base import ClusterSettings
from slipway.infra.schema.ingress import ReachableCluster
from slipway.infra.settings.model import Day, Settings

PAGE = LIBRARY / "docs" / "settings.md"

HEAD = f"""# Settings

Every key of a stack file (`stacks/Pulumi.<stack>.yaml`), which stands there under `slipway:`, in a line.
**`slipway explain` says the rest of each**: `slipway explain clusters.pools.spot`; of keys that a pipeline adds,
`slipway explain pipelines.churn`. [Your project](your-project.md#write-a-stack-of-your-own) says how to write a
stack. A key that is not listed is refused.

Names in `<>` are yours. Behind a key is its default, or the kind of what has none; of several values the first is
the default. Bold is required. This page is written by `python -m slipway.command.reference.settings`.

## How values are written

| value | written |
|---|---|
| CPU, size | `500m`, `2`; `512Mi`, `4Gi` |
| duration | `30m`, `12h`, `7d` |
| image by digest | `<image>@sha256:…` |
| cron, time zone | `"0 3 * * *"`: minute, hour, day, month, day of the week; `Europe/Berlin` |
| path in the store | `uploads/words.txt`, from the folder or bucket of all steps |

A stack file is YAML as the Pulumi CLI reads it: a key is text, stands once, and needs quotes where it is a
number. It has at most {yaml_files.FILE_BYTES // 1024} KiB, {yaml_files.VALUES:,} values of at most
{yaml_files.CHARACTERS:,} characters ({yaml_files.TOTAL_CHARACTERS:,} in all) and {yaml_files.DEPTH} levels;
what an alias (`*name`) repeats counts each time.
"""
NEXT = """
## Next

- [Keys of pipeline.yaml](pipeline.md)
- [Policies](policies.md)
"""

STEP, APP = "pipelines.<name>.steps.<name>", "pipelines.<name>.apps.<name>"

SHARED: Mapping[type[BaseModel], tuple[str, str]] = {
    ClusterSettings: ("Keys of every cluster", "clusters.<name>"),
    ReachableCluster: ("Keys of a cluster with pools", "clusters.<name>"),
    contract.PipelineSettings: ("Keys of every pipeline", "pipelines.<name>"),
    contract.StepSettings: ("Keys of every step", STEP),
    matrix.MatrixStepSettings: ("Keys of a step with a matrix", STEP),
    matrix.Axes: ("Keys of a matrix", f"{STEP}.matrix"),
    contract.ServiceSettings: ("Keys of every service", "pipelines.<name>.services.<name>"),
    apps.AppSettings: ("Keys of every app", APP),
    apps.KeptAppSettings: ("Keys of an app with a volume", APP),
}
"""Models that several sections have in common, and what pipelines have: title and place. They stand at the end."""

MOST_INLINE = 6
"""Keys of a section that stand in the table of the section around it, as `nodes.min`."""

TABLE = "| key and value | what it is |\n|---|---|\n"

# The kinds of text and what each is called. All are annotated str, told apart by their last validator.
KINDS: Mapping[Any, str] = {
    get_args(kind)[-1]: words
    for kind, words in (
        (kinds.Cpu, "CPU"),
        (kinds.Memory, "size"),
        (kinds.Size, "size"),
        (kinds.Duration, "duration"),
        (kinds.Cidr, "CIDR block"),
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


@dataclass(frozen=True)
class Section:
    """A place in a file, the key that tells it apart from others at the same place, and its model."""

    path: str
    where: str
    model: type[BaseModel]

    def below(self) -> Iterator["Section"]:
        """The sections in it, each followed by those in that one."""
        for name, field in keys_of(self.model):
            for suffix, where, held in sections_in(field, self.where):
                section = Section(f"{self.path}.{name}{suffix}".removeprefix("."), where, held)
                yield section
                yield from section.below()


def page() -> str:
    """The whole page."""
    return HEAD + describe("slipway:", Settings, SHARED) + NEXT


def describe(name: str, top: type[BaseModel], shared: Mapping[type[BaseModel], tuple[str, str]]) -> str:
    """The keys of a file: each model once, under all its places, and those in ``shared`` at the end."""
    tables = _Tables({model: title for model, (title, _) in shared.items()}, top)
    places: dict[type[BaseModel], list[Section]] = {}
    for root in (Section("", "", top), *(Section(path, "", model) for model, (_, path) in shared.items())):
        for section in root.below():
            inline = tables.is_inline(section.model) and "." in section.path.removesuffix(".<name>")
            if not inline and section.model not in shared and section not in places.setdefault(section.model, []):
                places[section.model].append(section)
    headings = {
        top: f"`{name}`",
        **{model: _heading(sections) for model, sections in places.items()},
        **tables.shared,
    }
    return "".join(tables.describe(model, heading) for model, heading in headings.items())


def _heading(sections: Sequence[Section]) -> str:
    """The places of a model, and the condition that all of them have."""
    paths = ", ".join(f"`{path}`" for path in dict.fromkeys(section.path for section in sections))
    conditions = {section.where for section in sections}
    return paths + (f", {conditions.pop()}" if conditions != {""} and len(conditions) == 1 else "")


@dataclass(frozen=True)
class _Tables:
    """Tables of keys: ``shared`` models are linked by their titles. Those with few keys stand in the table around
    them, but not in that of ``top``."""

    shared: Mapping[type[BaseModel], str]
    top: type[BaseModel]

    def is_inline(self, model: type[BaseModel]) -> bool:
        """Whether the keys of a model stand in the table of the section that has it."""
        return model not in self.shared and self._size(model) <= MOST_INLINE

    def _size(self, model: type[BaseModel]) -> int:
        fields = [field for _, field in keys_of(model)]
        inner = [held for field in fields for _, held in models_in(field.annotation)]
        return len(fields) + sum(self._size(held) for held in inner if self.is_inline(held))

    def describe(self, model: type[BaseModel], heading: str) -> str:
        """A table of the keys that a model does not share with the one that it extends."""
        base = next((base for base in model.__mro__[1:] if base in self.shared), None)
        words = f"\nIt has the {self._link(base)}.\n" if base else ""
        known = dict(keys_of(base)) if base else {}
        rows = "".join(self._rows(model, "", known))
        return f"\n## {heading}\n{words}" + (f"\n{TABLE}{rows}" if rows else "")

    def _link(self, model: type[BaseModel]) -> str:
        title = self.shared[model]
        anchor = re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
        return f"[{title[0].lower()}{title[1:]}](#{anchor})"

    def _rows(self, model: type[BaseModel], prefix: str, known: Mapping[str, FieldInfo]) -> Iterator[str]:
        """A row for each key, followed by those of a section that has no table of its own."""
        for name, field in keys_of(model):
            if name in known and field.is_required() == known[name].is_required():
                continue
            yield self._row(prefix + name, field)
            inner = [] if model is self.top else [*models_in(field.annotation)]
            for suffix, held in inner:
                if len(inner) == 1 and self.is_inline(held):
                    yield from self._rows(held, f"{prefix}{name}{suffix}.", {})

    def _row(self, name: str, field: FieldInfo) -> str:
        held = [self._link(model) for _, model in models_in(field.annotation) if model in self.shared]
        choices, default = choices_of(field.annotation), default_of(field)
        if choices:
            value = ", ".join(f"`{choice}`" for choice in sorted(choices, key=lambda choice: choice != default))
            value += "" if default or field.is_required() else ", or none"
        else:
            value = held[0] if len(held) == 1 else f"`{default}`" if default else kind_of(field)
        value = f"**{value}**" if field.is_required() else value
        cells = (f"`{name}`: {value}", brief(field.description or ""))
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(), "slipway.command.reference.settings", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
