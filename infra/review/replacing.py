"""Reads what is known of changes: which of them replace a resource, and what updates in place do.

``replacing.json`` of a cloud is made from its provider's schema; ``in_place.toml`` is written by hand.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from infra.review.facts import InPlace, Source


@cache
def replacing_from(file: Path) -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties whose change replaces it."""
    return json.loads(file.read_text(encoding="utf-8"))["types"]


@cache
def in_place_from(file: Path) -> Mapping[str, Sequence[InPlace]]:
    """By resource type, what updates in place mean for what runs there."""
    with file.open("rb") as opened:
        types = tomllib.load(opened)
    return {
        type_: [InPlace(each["paths"], each["note"], Source(each["source"], each["date"])) for each in notes]
        for type_, notes in types.items()
    }
