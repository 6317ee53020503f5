"""Reads the data files of reviews: sources, durations, and what changes do.

In a TOML file ``[sources.<id>]`` says where its facts are from: the ``url`` of what was read and its ``date``. A
source without a date of its own has the day on which it was ``read`` in its place: the fact is at least that old.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from infra.review.facts import NOT_RESTORED, Effect, InPlace, Seconds, Source, When


def sources(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Source]:
    """By id. Raises ValueError where one has neither ``date`` nor ``read``, or both."""
    return {name: _source(name, facts) for name, facts in tables.items()}


def _source(name: str, facts: Mapping[str, Any]) -> Source:
    dates = [facts[key] for key in ("date", "read") if key in facts]
    if len(dates) != 1 or not isinstance(dates[0], date):
        raise ValueError(f"source {name} needs either a date or the day on which it was read")
    return Source(str(facts["url"]), dates[0], dated="date" in facts)


@cache
def durations(path: Path) -> Mapping[tuple[str, str], Seconds]:
    """How long things take, by kind and name, from a table of a cloud.

    Its other tables are ``[<kind>.<name>]``, for example ``[creation."gcp:compute/router:Router"]``, with
    ``seconds`` and ``source``. Raises KeyError where a row has no seconds or no source that is there.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    known = sources(content.pop("sources"))
    return MappingProxyType(
        {
            (kind, name): Seconds(float(row["seconds"]), known[row["source"]])
            for kind, rows in content.items()
            for name, row in rows.items()
        }
    )


@cache
def replacing_from(file: Path) -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties whose change replaces it, as its provider's schema says."""
    return json.loads(file.read_text(encoding="utf-8"))["types"]


@cache
def computed_from(file: Path) -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties that keep their value where they are taken away, as its
    provider's schema says: they are optional, and computed where nobody sets them."""
    return json.loads(file.read_text(encoding="utf-8")).get("computed", {})


@cache
def in_place_from(file: Path) -> Mapping[str, Sequence[InPlace]]:
    """By resource type, what updates in place mean for what is there.

    The file is written by hand: a list of `InPlace` by resource type, with the keys ``paths``, ``note``,
    ``source`` (an address) and ``date`` (of the source, or when it was read), and where they are not the default
    ``effect``, ``when``, ``kept``, ``fix`` and ``restore``.
    """
    types = tomllib.loads(file.read_text(encoding="utf-8"))
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
        blocked=fact.get("blocked", ""),
        given=fact.get("given", {}),
        restore=fact.get("restore", NOT_RESTORED),
    )
