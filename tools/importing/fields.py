"""What becomes of the fields of a manifest: a table, by their places."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
    return tuple(Rule(**each) for each in data["field"])


def rule_of(place: Place) -> Rule:
    """The first rule that holds for ``place``; the last of the table holds for every one."""
    return next(each for each in rules() if each.matches(place))


def shown(place: Place) -> str:
    """``place`` as people write it: ``spec.containers[0].image``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
