"""An object of a manifest: its fields, which of them were read, and what becomes of each."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from slipway.infra.review.stack import items, mapping
from slipway.infra.schema.problems import Problem
from slipway.tools.new.writing import RefusedError

OPTION = "MANIFEST"
"""The option of `make import` that names the manifest."""

DATA = Path(__file__).parent / "data" / "fields.toml"

Place = tuple[str | int, ...]
"""A field's place in a manifest: keys of mappings and indices of lists, from the root."""

ANY, ANY_DEPTH, ROLE = "*", "**", "<role>"


@dataclass(frozen=True)
class Rule:
    """What becomes of the fields at a place: what they are in the pipeline, and what else there is to say."""

    at: str
    becomes: str = ""
    why: str = ""

    def matches(self, place: Place) -> bool:
        """Whether it holds for what stands at ``place``."""
        return _matches(self.at.split("."), [str(part) for part in place])


def _matches(pattern: Sequence[str], place: Sequence[str]) -> bool:
    """Whether ``pattern`` is the beginning of ``place``."""
    if not pattern:
        return True
    if pattern[0] == ANY_DEPTH:
        return any(_matches(pattern[1:], place[start:]) for start in range(len(place) + 1))
    return bool(place) and pattern[0] in {ANY, ROLE, place[0]} and _matches(pattern[1:], place[1:])


@cache
def rules() -> Sequence[Rule]:
    """The whole table, in its order."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return tuple(Rule(**row) for row in data["field"])


def rule_of(place: Place) -> Rule:
    """The first rule that holds for ``place``; the last of the table holds for every one."""
    return next(rule for rule in rules() if rule.matches(_in_job(place)))


def _in_job(place: Place) -> Place:
    """``place`` as it is in a Job, where a CronJob, a JobSet or a runtime has it in the template of one."""
    for index, key in enumerate(place):
        if key == "jobTemplate":
            return place[index + 1 :]
        if key == "replicatedJobs" and place[index + 2 : index + 3] == ("template",):
            return place[index + 3 :]
    return place


def path_text(place: Place) -> str:
    """``place`` as people write it: ``spec.containers[0].image``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass
class Document:
    """One object of a manifest. ``used`` are the places of the fields that were carried over.

    ``origin`` is the object that it was before another one changed it.
    """

    file: Path
    content: Mapping[str, Any]
    used: set[Place] = field(default_factory=set[Place])
    origin: "Document | None" = None

    def read_identity(self) -> None:
        """Counts what the object is as carried over."""
        for place in (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "generateName")):
            self.get(*place)

    def get(self, *place: str | int) -> Any:
        """What stands at ``place``, which counts as carried over with all that is below it; None where nothing
        is."""
        value: Any = self.content
        for part in place:
            if isinstance(value, Mapping) and part in value:
                value = cast("Mapping[str | int, Any]", value)[part]
            elif isinstance(value, list) and isinstance(part, int) and part < len(cast("list[Any]", value)):
                value = cast("list[Any]", value)[part]
            else:
                return None
        self.used.add(place)
        return value

    def unread(self) -> Iterator[tuple[Place, Any]]:
        """The fields that were not carried over, the highest ones of which nothing was."""
        yield from self._unread((), self.content)

    def _unread(self, place: Place, value: object) -> Iterator[tuple[Place, Any]]:
        if place in self.used or value is None:
            return
        fields, elements = mapping(value), items(value)
        deeper = any(used[: len(place)] == place for used in self.used)
        if not place or (deeper and (fields or elements)):
            for key, inner in fields.items():
                yield from self._unread((*place, str(key)), inner)
            for index, inner in enumerate(elements):
                yield from self._unread((*place, index), inner)
        else:
            yield place, value


def value_at(content: object, place: Place) -> Mapping[str, Any]:
    """The mapping at ``place``; an empty one where there is none."""
    for part in place:
        fields: Mapping[Any, Any] = dict(enumerate(items(content))) if isinstance(part, int) else mapping(content)
        content = fields.get(part)
    return mapping(content)


def refusal(value: str, reason: str, fix: str) -> RefusedError:
    """The error of a manifest that is no training."""
    return RefusedError([Problem(OPTION, value, reason, fix)])
