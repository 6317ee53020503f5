"""`slipway explain`: what a key of a stack file or of a `pipeline.yaml` means, from the models that read both."""

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slipway.command.reference.settings import (
    Section,
    about,
    brief,
    choices_of,
    default_of,
    keys_of,
    models_in,
    sections_in,
    value_of,
)
from slipway.infra.exits import Exit, report_error
from slipway.infra.pipelines.discovery import pipeline_names
from slipway.infra.pipelines.file.shape import PipelineFile
from slipway.infra.schema.base import Model
from slipway.infra.schema.problems import SettingsError, listed, nearest
from slipway.infra.settings.model import Settings, with_pipelines
from slipway.infra.settings.pipelines import each_of

FORMAT = 1
"""Of the document; it is raised where a key goes or means something else."""

NAMED = ("steps", "services", "apps", "inputs", "pipelines")
"""Sections whose keys are names of the user's own: a word that is none of them is looked for in each."""

WIDTH, SUGGESTED = 100, 3
NEAR = 0.8
"""How like a key a word is that is no name: `spott`, and not `train`, which is a little like `taints`."""


@dataclass(frozen=True)
class Key:
    """A key of a section: what its value is, the default as a file would have it, and what it is for."""

    key: str
    value: str
    choices: tuple[Any, ...]
    default: str
    required: bool
    description: str


@dataclass(frozen=True)
class Explained(Key):
    """A key or a section: in which file, ``where`` that is the case, and the ``keys`` below it."""

    file: str
    path: str
    where: str
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class _Place:
    """Where the words of a path led: to a key with its ``field``, to a section, or to a key that is ``gone``.

    ``names`` is how many words were taken for names of the user's own.
    """

    path: str
    where: str
    field: FieldInfo | None = None
    model: type[BaseModel] | None = None
    gone: str = ""
    names: int = 0


def main(path: str, *, as_json: bool) -> Exit:
    """Explains the key at ``path``, without one those at the top of both files."""
    words = [word for word in re.sub(r"\[\w*\]|\.<\w+>", "", path.removeprefix("slipway:")).split(".") if word]
    files = _files()
    meant = [(file, place) for file, model in files.items() for place in _Search(model).find(words)]
    fewest = min(((place.names, bool(place.gone)) for _, place in meant), default=None)
    meant = [(file, place) for file, place in meant if (place.names, bool(place.gone)) == fewest]
    if not meant or meant[0][1].gone:
        gone = meant[0][1] if meant else None
        reason = gone.gone if gone else f"no key of a stack file or of pipeline.yaml{_hint(words, files)}"
        report_error(f"{gone.path if gone else path}: {reason}")
        return Exit.REFUSED
    explained = [*_together(_explained(file, place) for file, place in meant)]
    if as_json:
        document = {"format": FORMAT, "explained": [asdict(entry) for entry in explained]}
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")
    else:
        sys.stdout.write("\n".join(map(_text, explained)))
    return Exit.DONE


def _files() -> Mapping[str, type[BaseModel]]:
    try:
        settings = with_pipelines(each_of(pipeline_names()))
    except SettingsError:
        # What is wrong with a pipeline, `slipway check` says. The keys of all others are as they are.
        settings = Settings
    return {"stack file": settings, "pipeline.yaml": PipelineFile}


class _Search:
    """Finds what words mean in a file. Names may be left out: of a cluster, a pool, a step."""

    def __init__(self, top: type[BaseModel]) -> None:
        self._top = top
        self.paths = {
            f"{section.path}.{name}".removeprefix(".")
            for section in (Section("", "", top), *Section("", "", top).below())
            for name, _ in keys_of(section.model)
        }

    def find(self, words: Sequence[str]) -> list[_Place]:
        """All that the words can mean."""
        return [*self._in_section(words, self._top, _Place("", ""))]

    def _in_section(self, words: Sequence[str], model: type[BaseModel], at: _Place) -> Iterator[_Place]:
        if not words:
            yield replace(at, model=model)
            return
        fields, (word, *rest) = dict(keys_of(model)), words
        here = replace(at, path=f"{at.path}.{word}".removeprefix("."))
        if word in fields and rest:
            yield from self._below(rest, fields[word], here)
        elif word in fields:
            yield replace(here, field=fields[word])
        elif issubclass(model, Model) and (gone := _gone(word, model)):
            yield replace(here, gone=gone)
        elif at.path.rpartition(".")[2] in NAMED:
            for name, field in fields.items():
                yield from self._below(words, field, replace(at, path=f"{at.path}.{name}"))

    def _below(self, words: Sequence[str], field: FieldInfo, at: _Place) -> Iterator[_Place]:
        sections = [*sections_in(field, at.where)]
        named = [section for section in sections if section[0].lstrip(".").partition(".")[0] == words[0]]
        for suffix, where, model in named or sections:
            place = replace(at, path=at.path + suffix, where=where)
            meant = [*self._in_section(words[1:] if named else words, model, place)]
            if not meant and suffix.startswith(".<name>") and self._is_name(words, place.path):
                meant = [*self._in_section(words[1:], model, replace(place, names=place.names + 1))]
            yield from meant

    def _is_name(self, words: Sequence[str], path: str) -> bool:
        """Whether the first word can be a name: one that ends a path is no key below it, and near to none."""
        below = {key for known in self.paths if known.startswith(path) for key in known[len(path) :].split(".")}
        return len(words) > 1 or not get_close_matches(words[0], below, cutoff=NEAR)


def _gone(word: str, model: type[Model]) -> str:
    """What to write in place of a key of an earlier release; empty where there never was such a key."""
    removed = model.removed.get(word)
    return f"{removed.reason}; {removed.instead}" if removed else ""


def _hint(words: Sequence[str], files: Mapping[str, type[BaseModel]]) -> str:
    """The keys that the words may mean, as an end of the sentence; empty where none is near."""
    paths = {re.sub(r"\.<name>|\[\]", "", path) for model in files.values() for path in _Search(model).paths}
    for end in range(len(words) - 1, -1, -1):
        start = "".join(f"{word}." for word in words[:end])
        known = {path.removeprefix(start).partition(".")[0] for path in paths if path.startswith(start)}
        if words[end] not in known and (near := nearest(words[end], known)):
            return f": did you mean `{start}{near}`?"
    last = get_close_matches(words[-1], {path.rpartition(".")[2] for path in paths}, n=1, cutoff=NEAR)
    meant = [path for path in sorted(paths, key=len) if path.rpartition(".")[2] in last]
    likely = [path for path in meant if path.startswith(f"{words[0]}.")] or meant
    return f": did you mean {listed(likely[:SUGGESTED])}?" if likely else ""


def _explained(file: str, place: _Place) -> Explained:
    models = [model for _, model in models_in(place.field.annotation)] if place.field else []
    models += [place.model] if place.model else []
    keys = {name: _key(name, field) for model in reversed(models) for name, field in keys_of(model)}
    key = _key(place.path, place.field) if place.field else Key(place.path, "section", (), "", False, "")
    key = key if key.description else replace(key, description=about(models[0]))
    return Explained(**vars(key), file=file, path=place.path, where=place.where, keys=tuple(keys.values()))


def _key(name: str, field: FieldInfo) -> Key:
    choices = tuple(choices_of(field.annotation))
    value, default = value_of(field).replace("`", ""), default_of(field)
    return Key(name, value, choices, default, field.is_required(), field.description or "")


def _together(entries: Iterable[Explained]) -> Iterator[Explained]:
    """Those that say the same once, with `<name>` where their paths differ."""
    alike: dict[Explained, list[Explained]] = {}
    for entry in entries:
        alike.setdefault(replace(entry, key=str(entry.path.count(".")), path="", where=""), []).append(entry)
    for group in alike.values():
        parts = zip(*(entry.path.split(".") for entry in group), strict=True)
        path = ".".join(part[0] if len({*part}) == 1 else "<name>" for part in parts)
        where = ", or ".join(dict.fromkeys(entry.where for entry in group if entry.where))
        yield replace(group[0], key=path.rpartition(".")[2], path=path, where=where)


def _text(entry: Explained) -> str:
    title = ", ".join(filter(None, (entry.path or entry.file, entry.where.replace("`", ""))))
    facts = f"  {entry.value}" + (", required" if entry.required else "")
    facts += f", default {entry.default}" if entry.default else ""
    wrapped = textwrap.fill(entry.description, WIDTH, initial_indent="  ", subsequent_indent="  ")
    lines = [f"{title}  ({entry.file})" if entry.path else title, facts, "", wrapped]
    if entry.keys:
        lines += ["", "  Keys below it:"]
        column = max(len(key.key) for key in entry.keys)
        for key in entry.keys:
            value = "required" if key.required else key.default or key.value
            line = f"{key.key:{column}}  {brief(key.description)} ({value})"
            lines += textwrap.wrap(line, WIDTH, initial_indent="    ", subsequent_indent=" " * (column + 6))
    return "\n".join((*lines, ""))
