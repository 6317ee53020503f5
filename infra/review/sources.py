"""Reads where the facts of a table are from.

``[sources.<id>]`` has the ``url`` of what was read and its ``date``. A source without a date of its own has the
day on which it was ``read`` in its place: the fact is at least that old, and nobody knows how much older.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any

from infra.review.facts import Source


def sources(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Source]:
    """By id. Raises ValueError where one has neither ``date`` nor ``read``, or both."""
    return {name: _source(name, facts) for name, facts in tables.items()}


def _source(name: str, facts: Mapping[str, Any]) -> Source:
    dates = [facts[key] for key in ("date", "read") if key in facts]
    if len(dates) != 1 or not isinstance(dates[0], date):
        raise ValueError(f"source {name} needs either a date or the day on which it was read")
    return Source(str(facts["url"]), dates[0], dated="date" in facts)
