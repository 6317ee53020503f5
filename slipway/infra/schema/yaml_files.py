"""A YAML file, read as the Pulumi CLI's parser reads it, within limits of time and memory.

The CLI (3.260) parses with gopkg.in/yaml.v3 3.0.1, whose scalars differ from those of YAML 1.1: ``yes`` is text,
``1e-3`` a number, ``0o17`` is 15, and a whole number of more than 64 bits is a float. PyYAML's parser is used for
its events alone; its constructors know other scalars, and build objects of tags that the CLI ignores.
"""

import copy
import math
import os
import re
import stat
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from slipway.infra.schema.problems import Path as KeyPath
from slipway.infra.schema.problems import Problem, key_of

# The largest stack file of this repository has 5 KB, 200 values and a depth of 8.
FILE_BYTES = 256 * 1024
"""Bytes of a file."""

DEPTH = 50
"""Sections and lists inside one another."""

VALUES = 20_000
"""Values of a file, sections and lists among them. What an alias stands for counts each time."""

CHARACTERS = 64 * 1024
"""Characters of one key or value."""

TOTAL_CHARACTERS = 1024 * 1024
"""Characters of all values together. What an alias stands for counts each time."""


def exceeded(raw: Mapping[str, Any]) -> list[Problem]:
    """The first of these limits that ``raw``, the plain values of a stack, exceeds; empty where it exceeds none.

    Everything that reads the values later relies on them: it may recurse, and take as long as there are values.
    """
    characters = 0
    for count, (path, value) in enumerate(_values(raw), 1):
        characters += len(value) if isinstance(value, str) else 0
        for amount, most, what in ((count, VALUES, "values"), (characters, TOTAL_CHARACTERS, "characters")):
            if amount > most:
                return [Problem("slipway", None, f"more than {most:,} {what}", "make several stacks of it")]
        if len(path) > DEPTH:
            reason = f"more than {DEPTH} sections or lists inside one another"
            return [Problem(f"{key_of(path[:3])}…", None, reason, "no setting is as deep: remove some")]
        for text, what, place in ((path[-1], "key", path[:-1]), (value, "value", path)):
            if isinstance(text, str) and len(text) > CHARACTERS:
                reason = f"a {what} of {len(text):,} characters"
                return [Problem(key_of(place), text, reason, f"use at most {CHARACTERS:,}")]
    return []


def _values(raw: Mapping[str, Any]) -> Iterator[tuple[KeyPath, Any]]:
    """Everything in ``raw`` in its order, without recursion: how deep it is, is not known yet."""
    waiting: list[Iterator[tuple[KeyPath, Any]]] = [_inside((), raw)]
    while waiting:
        for path, value in waiting[-1]:
            yield path, value
            waiting.append(_inside(path, value))
            break
        else:
            waiting.pop()


def _inside(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield (*path, str(key)), item
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield (*path, index), item


TAG = "tag:yaml.org,2002:"
MERGE = "<<"

BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
NULLS = {"", "~", "null", "Null", "NULL"}
WHOLE = re.compile(
    r"(?P<sign>[-+]?)(?:0[bB](?P<b>[01]+)|0[xX](?P<x>[0-9a-fA-F]+)|0[oO]?(?P<o>[0-7]+)|(?P<d>0|[1-9][0-9]*))"
)
BASES = {"b": 2, "x": 16, "o": 8, "d": 10}
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
SURROGATE = re.compile(r"[\ud800-\udfff]")
TIME = re.compile(
    r"(?P<date>\d{4}-\d\d?-\d\d?)"
    r"(?:[Tt]\d\d?:\d\d?:\d\d?(?:[.,]\d+)?(?:Z|[-+]\d\d:\d\d)| +\d\d?:\d\d?:\d\d?(?:[.,]\d+)?)?"
)
"""A date or a time as yaml.v3 3.0.1 (resolve.go, parseTimestamp) takes it out of a scalar without quotes."""

Place = tuple[str | int, ...]

KINDS = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a named pipe", stat.S_ISSOCK: "a socket"}

FIXES = {
    r"found character '\\t'": "it is a tab, and YAML indents with spaces alone: put spaces in its place",
    r"found character": "put the value in quotes",
    r"mapping values are not allowed": "put a text with `: ` in it in quotes, or correct the line's indentation",
    r"expected <block end>, but found '<scal": "put a text that begins with `{`, `[` or a quote whole in quotes",
    r"expected <block end>": "indent the line as those beside it are",
}
"""What mends what PyYAML 6.0.3 says of a text, by how that begins."""

KINDS_OF_SCALARS = {"null": type(None), "bool": bool, "int": int, "float": float}


class ConfigError(Exception):
    """A stack that does not exist, or a project or stack file that cannot be used. The text says where and why."""


@dataclass(frozen=True)
class Repeated:
    """A key that stands in its section again, in ``line``; the values of the first one count."""

    line: int
    place: Place


@dataclass(frozen=True)
class _Parsed:
    """``times`` are the dates and times without quotes: line, place, and what is written there."""

    content: Any
    repeated: Sequence[Repeated]
    times: Sequence[tuple[int, Place, str]]


def read_yaml(path: Path) -> Any:
    """The content of a file that the Pulumi CLI reads, too, keys as text; an empty mapping where it is empty.

    No two places of it share an object. Raises ConfigError with the line, the key where there is one, and the fix.
    """
    parsed = _read(path)
    for line, place, written in parsed.times:
        # The CLI (3.260) hands `2026-11-28` over as `2026-11-28 00:00:00 +0000 UTC`.
        reason = f'{_place(place)}the Pulumi CLI makes a time of {written}; write it in quotes: "{written}"'
        raise ConfigError(f"{path}:{line}: {reason}")
    for repeated in parsed.repeated:
        *section, key = repeated.place
        reason = f"{_place(tuple(section))}the key {_short(str(key))} stands here twice; remove one of them"
        raise ConfigError(f"{path}:{repeated.line}: {reason}")
    return _own(parsed)


def read_with_repeated(path: Path) -> tuple[Any, Sequence[Repeated]]:
    """A file's content, with the keys that stand in their sections more than once.

    Raises ConfigError for all else that is wrong. A date without quotes is text: the CLI reads no such file.
    """
    parsed = _read(path)
    return _own(parsed), parsed.repeated


def _own(parsed: _Parsed) -> Any:
    """A copy of the content, which the caller may change."""
    return {} if parsed.content is None else copy.deepcopy(parsed.content)


def _read(path: Path) -> _Parsed:
    text = _text(path)
    try:
        return _parse(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = str(error.problem or error.context)
        fix = next((f"; {fix}" for pattern, fix in FIXES.items() if re.match(pattern, problem)), "")
        raise ConfigError(f"{where}: not YAML: {problem}{fix}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reason = f"the control character U+{error.character:04X} may not stand in YAML; remove it"
        raise ConfigError(f"{path}:{line}: {reason}") from error
    except _LineError as error:
        raise ConfigError(f"{path}:{error}") from error
    except (ValueError, OverflowError) as error:
        # PyYAML's scanner has no error of its own for `"\U99999999"`.
        raise ConfigError(f"{path}: not YAML: {error}") from error


@lru_cache(maxsize=64)  # A preview reads the files of the pipelines anew for each of its stacks.
def _parse(text: str) -> _Parsed:
    reader = _Reader(text)
    return _Parsed(reader.document(), tuple(reader.repeated), tuple(reader.times))


def _text(path: Path) -> str:
    """The text of a file that is a plain one, and not too large."""
    try:
        # Opening a named pipe would else wait for whoever writes into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                kind = next((name for test, name in KINDS.items() if test(mode)), "a device")
                raise ConfigError(f"{path} cannot be read: it is {kind}; put a file in its place")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(FILE_BYTES + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path} cannot be read: {reason}") from error
    if len(content) > FILE_BYTES:
        raise ConfigError(f"{path} has more than {FILE_BYTES:,} bytes, the most that it may have")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from error


class _LineError(Exception):
    """Begins with the line that is wrong."""

    def __init__(self, event: Event, path: Place, reason: str) -> None:
        super().__init__(f"{event.start_mark.line + 1}: {_place(path)}{reason}")


def _place(path: Place) -> str:
    """``slipway:clusters.dev.pools: ``, without the ``config`` that all keys stand in; a deep one is shortened."""
    parts = path[1:] if path[:1] == ("config",) else path
    text = ""
    for part in parts[:8]:
        word = part if isinstance(part, int) else part if len(part) < 60 and part.isprintable() else _short(part)
        text += f"[{word}]" if isinstance(part, int) else f".{word}" if text else str(word)
    return f"{text}{'…' if len(parts) > 8 else ''}: " if text else ""


def _short(text: str) -> str:
    """``text`` in quotes, with escapes, and cut where it is long."""
    return repr(text if len(text) <= 80 else f"{text[:79]}…")


@dataclass
class _Anchored:
    """What an alias stands for: its value, how much there is in it, and whether it has been read to its end."""

    value: Any = None
    values: int = 0
    characters: int = 0
    depth: int = 0
    whole: bool = False


class _Reader:
    """Builds plain values of a YAML text's events, and counts what it builds."""

    def __init__(self, text: str) -> None:
        self._events = cast("Iterator[Event]", yaml.parse(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
        self._anchors: dict[str, _Anchored] = {}
        self._values = 0
        self._characters = 0
        self._deepest = 0
        self.repeated: list[Repeated] = []
        self.times: list[tuple[int, Place, str]] = []

    def document(self) -> Any:
        """The only document; None where there is none."""
        next(self._events)
        start = next(self._events)
        if isinstance(start, StreamEndEvent):
            return None
        assert isinstance(start, DocumentStartEvent)
        if start.version not in {None, (1, 1)}:
            raise _LineError(start, (), "YAML 1.1 alone is read; remove the line `%YAML`")
        content = self._value(next(self._events), ())
        next(self._events)
        after = next(self._events)
        if not isinstance(after, StreamEndEvent):
            raise _LineError(after, (), "a second document, which nothing reads; remove it and its `---`")
        return content

    def _value(self, event: Event, path: Place) -> Any:
        if isinstance(event, AliasEvent):
            return self._alias(event, path)
        values, characters, deepest = self._values, self._characters, self._deepest
        self._deepest = len(path)
        self._count(event, path, values=1, depth=0)
        anchored = _Anchored()
        if anchor := cast("str | None", getattr(event, "anchor", None)):
            self._anchors[anchor] = anchored
        match event:
            case MappingStartEvent():
                _check_tag(event, f"{TAG}map", path)
                anchored.value = self._section(path)
            case SequenceStartEvent():
                _check_tag(event, f"{TAG}seq", path)
                anchored.value = list(self._items(path))
            case _:
                assert isinstance(event, ScalarEvent)
                self._count(event, path, characters=len(event.value))
                anchored.value = _scalar(event, path)
                if event.implicit[0] and _is_time(event.value):
                    self.times.append((event.start_mark.line + 1, path, event.value))
        anchored.values = self._values - values
        anchored.characters = self._characters - characters
        anchored.depth = self._deepest - len(path)
        anchored.whole = True
        self._deepest = max(self._deepest, deepest)
        return anchored.value

    def _alias(self, event: AliasEvent, path: Place) -> Any:
        name = cast("str", event.anchor)
        anchored = self._anchors.get(name)
        if anchored is None:
            raise _LineError(event, path, f"there is no anchor {_short(name)} above this alias; correct its name")
        if not anchored.whole:
            raise _LineError(event, path, f"the anchor {_short(name)} contains itself; write out what is meant")
        self._count(event, path, anchored.values, anchored.characters, anchored.depth)
        return copy.deepcopy(anchored.value)

    def _count(self, event: Event, path: Place, values: int = 0, characters: int = 0, depth: int = 0) -> None:
        """Adds to what has been read; refuses what is too much before anything is made of it."""
        self._values += values
        self._characters += characters
        self._deepest = max(self._deepest, len(path) + depth)
        if self._values > VALUES:
            reason = f"more than {VALUES:,} values, with what aliases repeat; make several files of it"
        elif self._characters > TOTAL_CHARACTERS:
            most = f"{TOTAL_CHARACTERS:,}"
            reason = f"more than {most} characters, with what aliases repeat; make several files of it"
        elif len(path) + depth > DEPTH:
            reason = f"more than {DEPTH} sections or lists inside one another; no setting is as deep"
        elif characters > CHARACTERS and isinstance(event, ScalarEvent):
            reason = f"{characters:,} characters; use at most {CHARACTERS:,}"
        else:
            return
        raise _LineError(event, path, reason)

    def _items(self, path: Place) -> Iterator[Any]:
        index = 0
        while not isinstance(event := next(self._events), SequenceEndEvent):
            yield self._value(event, (*path, index))
            index += 1

    def _section(self, path: Place) -> dict[str, Any]:
        section: dict[str, Any] = {}
        merged: dict[str, Any] | None = None
        while not isinstance(event := next(self._events), MappingEndEvent):
            if isinstance(event, ScalarEvent) and event.implicit[0] and event.value == MERGE:
                if merged is not None:
                    raise _LineError(event, path, f"the key `{MERGE}` stands here twice; write one list of both")
                merged = _merge(event, self._value(next(self._events), (*path, MERGE)), path)
                continue
            key = self._key(event, path)
            value = self._value(next(self._events), (*path, key))
            if key in section:
                self.repeated.append(Repeated(event.start_mark.line + 1, (*path, key)))
            section.setdefault(key, value)
        return {**(merged or {}), **section}

    def _key(self, event: Event, path: Place) -> str:
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            raise _LineError(event, path, "a section or a list stands as a key; a key has to be text")
        key = self._value(event, path)
        self._values -= 1  # A key counts with its value.
        if isinstance(key, str):
            return key
        if isinstance(event, ScalarEvent) and event.value:
            # The CLI: "expected only string keys".
            raise _LineError(
                event, path, f'the key `{event.value}` is not text; write it in quotes: "{event.value}"'
            )
        raise _LineError(event, path, "a key is empty or not text; write a name")


def _check_tag(event: MappingStartEvent | SequenceStartEvent, known: str, path: Place) -> None:
    tag = cast("str | None", event.tag)
    if tag not in {None, known}:
        raise _LineError(event, path, f"the tag {_tag_name(tag)} cannot stand here; remove it")


def _tag_name(tag: str | None) -> str:
    """``!!set`` of ``tag:yaml.org,2002:set``."""
    return _short(f"!!{tag.removeprefix(TAG)}" if tag and tag.startswith(TAG) else f"{tag}")


def _merge(event: Event, value: Any, path: Place) -> dict[str, Any]:
    """The values that ``<<`` adds: those of a section, or of a list of sections, of which the first counts."""
    sections = cast("list[Any]", value if isinstance(value, list) else [value])
    merged: dict[str, Any] = {}
    for section in reversed(sections):
        if not isinstance(section, dict):
            raise _LineError(event, path, f"`{MERGE}` takes sections alone; write `{MERGE}: *anchor` of a section")
        merged.update(cast("dict[str, Any]", section))
    return merged


def _scalar(event: ScalarEvent, path: Place) -> Any:
    text = cast("str", event.value)
    if surrogate := SURROGATE.search(text):
        code = f"U+{ord(surrogate.group()):04X}"
        raise _LineError(event, path, f"{code} is half of a surrogate pair; write the whole character")
    tag = cast("str | None", event.tag)
    if tag == f"{TAG}str" or (tag is None and not event.implicit[0]):
        return text
    if NOT_FINITE.fullmatch(text):
        raise _LineError(event, path, "only finite numbers are read; write one, or text in quotes")
    value = plain(text)
    if tag is None:
        return value
    if tag == f"{TAG}float" and type(value) is int:
        return float(value)
    if tag in {f"{TAG}{name}" for name, kind in KINDS_OF_SCALARS.items() if type(value) is kind}:
        return value
    known = tag.removeprefix(TAG) in KINDS_OF_SCALARS
    why = "does not suit this value" if known else "cannot stand here"
    raise _LineError(event, path, f"the tag {_tag_name(tag)} {why}; remove it")


def _is_time(text: str) -> bool:
    written = TIME.fullmatch(text)
    if not written:
        return False
    year, month, day = (int(part) for part in written["date"].split("-"))
    return 1 <= month <= 12 and 1 <= day <= monthrange(year or 4, month)[1]


def plain(text: str) -> Any:
    """What yaml.v3 makes of a scalar without quotes: null, a truth value, a number, or the text itself.

    Times stay text; `read_yaml` refuses them.
    """
    if text in NULLS:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    if text[0] not in "+-.0123456789":
        return text
    number = text.replace("_", "")
    if whole := WHOLE.fullmatch(number):
        digits = (whole[str(whole.lastgroup)]).lstrip("0") or "0"
        # 64 binary digits are the most; Python refuses to read very many decimal ones.
        if len(digits) <= 64:
            value = int(f"{whole['sign']}{digits}", BASES[str(whole.lastgroup)])
            if -(2**63) <= value < (2**63 if whole["sign"] else 2**64):
                return value
    if FLOAT.fullmatch(number) and math.isfinite(value := float(number)):
        return value
    return text
