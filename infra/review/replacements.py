"""Reads what is known of changes: which of them replace a resource, and what updates in place do.

``replacing.json`` of a cloud is made from its provider's schema; ``in_place.toml`` is written by hand. It is a
list of `infra.review.facts.InPlace` by resource type, with the keys ``paths``, ``note``, ``source`` (an address)
and ``date`` (of the source, or when it was read), and where they are not the default ``effect``, ``when``,
``kept`` and ``fix``.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from infra.review.facts import Effect, InPlace, Source, When


@cache
def replacing_from(file: Path) -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties whose change replaces it."""
    return json.loads(file.read_text(encoding="utf-8"))["types"]


@cache
def computed_from(file: Path) -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties that keep their value where they are taken away."""
    with file.open("rb") as opened:
        return tomllib.load(opened)["types"]


@cache
def in_place_from(file: Path) -> Mapping[str, Sequence[InPlace]]:
    """By resource type, what updates in place mean for what is there."""
    with file.open("rb") as opened:
        types = tomllib.load(opened)
    return {type_: [_in_place(each) for each in facts] for type_, facts in types.items()}


def _in_place(fact: Mapping[str, Any]) -> InPlace:
    return InPlace(
        paths=fact["paths"],
        note=fact["note"],
        source=Source(fact["source"], fact["date"]),
        effect=Effect(fact.get("effect", Effect.NOTE)),
        when=When(fact.get("when", When.CHANGED)),
        kept=fact.get("kept", ""),
        fix=fact.get("fix", ""),
    )
