"""Writes docs/settings.md, the reference of every key of a stack file, from the settings models' own descriptions.

python -m slipway.command.reference.settings            # write it
python -m slipway.command.reference.settings --check    # exit 1 where it is out of date
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from slipway.command.reference import shipped
from slipway.files import write_or_check
from slipway.infra.pipelines import apps, contract, matrix
from slipway.infra.pipelines.app_kinds.contract import AppKind
from slipway.infra.pipelines.discovery import pipeline_names
from slipway.infra.pipelines.file import shape
from slipway.infra.places import LIBRARY
from slipway.infra.schema import base, cron, paths, secret_values, yaml_files
from slipway.infra.schema import names as images
from slipway.infra.schema import names as kubernetes_names
from slipway.infra.settings import model as suppressions
from slipway.infra.settings.model import with_pipelines
from slipway.infra.settings.pipelines import each_of

PAGE = LIBRARY / "docs" / "settings.md"

HEAD = f"""# Settings

Every key of a stack file (`stacks/Pulumi.<stack>.yaml`), which stands there under `slipway:`, for whoever
writes or reads one. [Your project](your-project.md#write-a-stack-of-your-own) says how to write a stack. A key
that is not listed is refused, and so is what cannot work on the cloud that is named: all problems of a file are
listed at once, before anything is created. This page is written by `python -m
slipway.command.reference.settings`.

Names in `<>` are yours to choose. `nodes.min` is the key `min` of the section `nodes`. A key without a default
is optional, and what it describes is not there without it. Sections that several keys have in common stand
once, under "Keys of …".

## How values are written

| value | written |
|---|---|
| boolean | `true` or `false` |
| CPU, size | as Kubernetes quantities: `500m`, `2`; `512Mi`, `4Gi` |
| duration | `30m`, `12h`, `7d` |
| image by digest | `<image>@sha256:…` |
| cron, time zone | `"0 3 * * *"`: minute, hour, day, month, day of the week; `Europe/Berlin` |
| time in UTC, day | `"2026-01-03T02:00:00Z"`, `"2027-03-31"`, in quotes |
| path in the store | relative to its top, the folder or bucket that all steps share: `uploads/words.txt` |

A stack file is YAML as the Pulumi CLI reads it: a key is text, stands once, and needs quotes where it is a
number. It has at most {yaml_files.FILE_BYTES // 1024} KiB, {yaml_files.VALUES:,} values of at most
{yaml_files.CHARACTERS:,} characters ({yaml_files.TOTAL_CHARACTERS:,} in all) and {yaml_files.DEPTH} levels;
what an alias (`*name`) repeats counts each time. Tags are `!!str`, `!!int`, `!!float`, `!!bool`, `!!null`,
`!!map` and `!!seq`. Control characters are refused, but for line breaks below `policies`.
"""
NEXT = """
## Next

- [Your project](your-project.md): write a stack and change it
- [Keys of pipeline.yaml](pipeline.md): declare a pipeline
- [Policies](policies.md): what is refused, and how to suppress a finding
"""

GROUPS: Sequence[Mapping[type[BaseModel], str]] = (
    {base.ClusterSettings: "Keys of every cluster"},
    {
        contract.PipelineSettings: "Keys of every pipeline",
        contract.StepSettings: "Keys of every step",
        matrix.MatrixStepSettings: "Keys of a step with a matrix",
        matrix.Axes: "Keys of a matrix",
        contract.MultiNodeSettings: "Keys of a step on several nodes",
        matrix.MatrixNodesSettings: "Keys of a step on several nodes, with a matrix",
        contract.ServiceSettings: "Keys of every service",
        apps.AppSettings: "Keys of every app",
        apps.KeptAppSettings: "Keys of an app with a volume",
    },
    {AppKind: "Keys of an app of any kind"},
)
"""Models that several sections have in common, described once, before the first section that has one of its group,
and the heading of each."""

SHARED: Mapping[type[BaseModel], str] = {model: title for group in GROUPS for model, title in group.items()}

MOST_INLINE = 6
"""Keys of a section that stand in the table of the section around it, as `nodes.min`."""

TABLE = "| key | value | default | what it is |\n|---|---|---|---|\n"

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
        (images.Image, "image by digest"),
        (suppressions.Day, "day"),
        (paths.StorePath, "path in the store"),
        (paths.LocalPath, "path on this machine"),
        (paths.ExportedPath, "absolute path"),
        (secret_values.SecretText, "encrypted text"),
        (kubernetes_names.ObjectName, "name of an object"),
        (kubernetes_names.NamespaceName, "name of a namespace"),
        (shape.Word, "text"),
        (shape.Words, "list of words"),
        (shape.Scalar, "text, number or boolean"),
        (shape.Bound, "number"),
    )
}
PLAIN: Mapping[Any, str] = {str: "text", int: "whole number", float: "number", bool: "boolean"}


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
    return HEAD + describe(Section("slipway:", "", with_pipelines(each_of(names)), top=True)) + NEXT


def describe(top: Section) -> str:
    """The keys of a file: each model once, under all places that it describes, and before them what many share."""
    places: dict[type[BaseModel], list[Section]] = {}
    for section in (top, *top.below()):
        places.setdefault(section.model, []).append(section)
    inline = set(_inline(places, top.model))
    used = {base for model in places for base in model.__mro__}
    groups = [{model: title for model, title in group.items() if model in used} for group in GROUPS]
    text = ""
    for model, sections in places.items():
        for group in [group for group in groups if not group.keys().isdisjoint(model.__mro__)]:
            text += "".join(_describe(shared, title, inline) for shared, title in group.items())
            group.clear()
        if model not in inline and not _is_told_by_its_row(model):
            text += _describe(model, _heading(sections), inline)
    return text


def _inline(models: Iterable[type[BaseModel]], top: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The models with few keys that only one key has as its value: their keys stand in the table of that one."""
    holders: dict[type[BaseModel], set[tuple[type[BaseModel], str]]] = {}
    unions: set[type[BaseModel]] = set()
    for model in models:
        for name, field in _keys(model):
            inner = [held for _, held in _models(field.annotation)]
            for held in inner:
                holders.setdefault(held, set()).add((_declaring(model, name), name))
            unions.update(inner if len(inner) > 1 else ())
    sizes: dict[type[BaseModel], int] = {}

    def is_inline(model: type[BaseModel]) -> bool:
        return (
            len(holders[model]) == 1
            and not any(issubclass(top, holder) for holder, _ in holders[model])
            and model not in unions
            and _shared_base(model) is None
            and not _is_told_by_its_row(model)
            and size(model) <= MOST_INLINE
        )

    def size(model: type[BaseModel]) -> int:
        if model not in sizes:
            inner = [held for held in _inner(model) if is_inline(held)]
            sizes[model] = len(list(_keys(model))) + sum(map(size, inner))
        return sizes[model]

    yield from filter(is_inline, holders)


def _declaring(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The class of which ``model`` has the key ``name``: the farthest base that has it with the same type."""
    annotation = model.model_fields[name].annotation
    bases = [base for base in model.__mro__ if issubclass(base, BaseModel) and name in base.model_fields]
    return [base for base in bases if base.model_fields[name].annotation == annotation][-1]


def _heading(sections: Sequence[Section]) -> str:
    """The places of a model, and the condition that all of them have."""
    paths = ", ".join(f"`{path}`" for path in _folded(section.path for section in sections))
    conditions = {section.where for section in sections}
    return paths + (f", {conditions.pop()}" if conditions != {""} and len(conditions) == 1 else "")


def _folded(paths: Iterable[str]) -> Iterator[str]:
    """The paths, of which those of several pipelines and equally deep are one, with `<name>` where they differ."""
    alike: dict[object, list[list[str]]] = {}
    for path in dict.fromkeys(paths):
        parts = path.split(".")
        alike.setdefault(len(parts) if parts[0] == "pipelines" else path, []).append(parts)
    for group in alike.values():
        yield ".".join(parts[0] if len(set(parts)) == 1 else "<name>" for parts in zip(*group, strict=True))


def _describe(model: type[BaseModel], heading: str, inline: Collection[type[BaseModel]]) -> str:
    """What a model is, and a table of the keys that it does not share with the model that it extends."""
    about = _about(model)
    base = _shared_base(model)
    if base:
        about += f"\n\nIt has the {_link(base)}.{_differences(model, base)}"
    rows = "".join(_rows(model, "", inline))
    return f"\n## {heading}\n\n{about}\n" + (f"\n{TABLE}{rows}" if rows else "")


def _about(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split()).replace("``", "`")


def _rows(model: type[BaseModel], prefix: str, inline: Collection[type[BaseModel]]) -> Iterator[str]:
    """A row for each key, followed by those of a section that has no table of its own."""
    base = _shared_base(model)
    shared = dict(_keys(base)) if base else {}
    for name, field in _keys(model):
        if _is_like(name, field, shared):
            continue
        inner = [(suffix, held) for suffix, held in _models(field.annotation) if held in inline]
        # Its first sentence says what the description of the key says.
        yield _row(prefix + name, field, *(_about(held).partition(". ")[2] for _, held in inner))
        for suffix, held in inner:
            yield from _rows(held, f"{prefix}{name}{suffix}.", inline)


def _shared_base(model: type[BaseModel]) -> type[BaseModel] | None:
    """The nearest of the shared models that a model extends."""
    return next((base for base in model.__mro__[1:] if base in SHARED), None)


def _link(model: type[BaseModel]) -> str:
    title = SHARED[model]
    return f"[{title[0].lower()}{title[1:]}](#{title.lower().replace(',', '').replace(' ', '-')})"


def _is_like(name: str, field: FieldInfo, shared: Mapping[str, FieldInfo]) -> bool:
    """Whether a key is a shared one, at most with another default."""
    if name not in shared:
        return False
    other = shared[name]
    return field.is_required() == other.is_required() and _value(field) == _value(other)


def _is_told_by_its_row(model: type[BaseModel]) -> bool:
    """Whether a model is a shared one, or has its keys with other defaults: then it needs no table."""
    if model in SHARED or issubclass(model, matrix.Axes):
        return True
    base = _shared_base(model)
    return (
        base is not None
        and base is not contract.PipelineSettings
        and {*dict(_keys(model))} == {*dict(_keys(base))}
    )


def _shared_keys(field: FieldInfo) -> tuple[str, str]:
    """Of a key that holds a shared model: the link to it, and in which defaults and axes its own differs."""
    models = [model for _, model in _models(field.annotation)]
    if len(models) != 1 or not _is_told_by_its_row(models[0]) or issubclass(models[0], matrix.Axes):
        return "", ""
    model = models[0]
    base = model if model in SHARED else _shared_base(model)
    assert base is not None
    return _link(base), _differences(model, base)


def _differences(model: type[BaseModel], base: type[BaseModel]) -> str:
    """The defaults that are others than those of a shared model, and the axes of a matrix, as sentences."""
    shared = dict(_keys(base))
    words = [
        f"`{name}: {_default(field).strip('`')}`"
        for name, field in _keys(model)
        if _is_like(name, field, shared) and _default(field) != _default(shared[name])
    ]
    return (f" Defaults: {', '.join(words)}." if words else "") + _axes(model)


def _axes(model: type[BaseModel]) -> str:
    """The parameters that the matrix of a step may have beside its pool, with those values that it has already."""
    axes = next((inner for inner in _inner(model) if issubclass(inner, matrix.Axes)), matrix.Axes)
    names = [
        f"`{name}`" + (f" (default {_default(field)})" if field.get_default(call_default_factory=True) else "")
        for name, field in _keys(axes)
        if name not in matrix.Axes.model_fields
    ]
    return f" Its `matrix` may have {', '.join(names)}." if names else ""


def _inner(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for _, field in _keys(model):
        yield from (inner for _, inner in _models(field.annotation))


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with ``--check`` says whether it is up to date."""
    return write_or_check(PAGE, page(shipped.pipelines()), "slipway.command.reference.settings", arguments)


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


def _row(name: str, field: FieldInfo, *more: str) -> str:
    link, differences = _shared_keys(field)
    about = " ".join(filter(None, [(field.description or "") + differences, *more]))
    cells = (f"`{name}`", link or _value(field), _default(field), about)
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
        return ""
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return f"`{{{', '.join(f'{key}: {item}' for key, item in items)}}}`"
    if isinstance(value, list):
        return f"`[{', '.join(map(str, cast('list[object]', value)))}]`"
    return f"`{value}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
