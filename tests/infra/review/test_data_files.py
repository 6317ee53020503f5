"""Where the facts of a table are from, and of when."""

from datetime import date
from typing import Any

import pytest

from slipway.infra.review.facts import Source
from slipway.infra.review.tables import sources

URL = "https://prices.example"


def test_a_source_has_its_date_or_the_day_on_which_it_was_read() -> None:
    result = sources(
        {"list": {"url": URL, "date": date(2026, 7, 30)}, "page": {"url": URL, "read": date(2026, 11, 21)}}
    )
    assert result == {
        "list": Source(URL, date(2026, 7, 30)),
        "page": Source(URL, date(2026, 11, 21), dated=False),
    }
    assert [entry.when for entry in result.values()] == ["2026-07-30", "undated, read 2026-11-21"]


@pytest.mark.parametrize(
    "when", [{}, {"date": date(2026, 1, 1), "read": date(2026, 1, 1)}, {"date": "2026-01-01"}]
)
def test_anything_else_is_refused(when: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="source list needs either a date or the day"):
        sources({"list": {"url": URL, **when}})
