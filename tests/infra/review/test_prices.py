"""The tables of prices and times: every row has a source, and nothing is made up."""

import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.accelerators import PLACE
from slipway.infra.clouds.aws.review import charges as aws
from slipway.infra.clouds.gcp.review import charges as gcp
from slipway.infra.review.facts import Price, Source
from slipway.infra.review.tables import durations, hourly, price_table
from tests.support.checkout import ROOT

TABLES = {"gcp": gcp.TABLE, "aws": aws.TABLE}
FILES = [
    *(ROOT / "infra" / "clouds" / cloud / "data" / "prices.toml" for cloud in TABLES),
    *sorted((ROOT / PLACE).glob("*.toml")),
]
TIMES = [ROOT / "infra" / room / "data" / "times.toml" for room in ("clouds/gcp", "clouds/aws", "kubernetes")]

SMALL = """
[sources.list]
url = "https://prices.example"
date = 2026-11-01

[kinds]
machines = "list"

[machines.small]
here = { on_demand = 0.5, spot = 0.2 }
"*" = { on_demand = 0.7 }
"""


def table(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "prices.toml"
    file.write_text(text, encoding="utf-8")
    return file


def content(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_a_price_is_that_of_its_region_else_of_all(tmp_path: Path) -> None:
    result = price_table(table(tmp_path, SMALL))
    source = Source("https://prices.example", date(2026, 11, 1))
    assert result.price("machines", "small", "here", "on_demand") == Price(0.5, "hour", source)
    assert result.price("machines", "small", "there", "on_demand") == Price(0.7, "hour", source)


def test_what_is_not_in_the_table_has_no_price(tmp_path: Path) -> None:
    result = price_table(table(tmp_path, SMALL))
    assert result.price("machines", "large", "here", "on_demand") is None
    assert result.price("machines", "small", "there", "spot") is None


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ('there = { on_demand = 1, source = "nobody" }', "no source 'nobody'"),
        ("there = { on_demand = 0 }", "is no price"),
        ("there = { on_demand = -1 }", "is no price"),
        ('there = { on_demand = "cheap" }', "is no price"),
        ("there = { on_demant = 1 }", "is no price"),
    ],
)
def test_a_wrong_row_is_refused(tmp_path: Path, wrong: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"machines.small, there.*{why}"):
        price_table(table(tmp_path, SMALL + wrong + "\n"))


def test_a_row_without_a_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no source None"):
        price_table(table(tmp_path, SMALL + "\n[disks.fast]\nhere = { per_gib_month = 1 }\n"))


def test_a_month_has_730_hours() -> None:
    source = Source("", date(2026, 1, 1))
    assert hourly(Price(730, "month", source)) == hourly(Price(730, "GiB-month", source)) == 1
    assert hourly(Price(2, "hour", source)) == 2
    assert hourly(Price(2, "GiB", source)) is None


@pytest.mark.parametrize("cloud", TABLES)
def test_prices_are_dated_and_cited(cloud: str) -> None:
    result = TABLES[cloud]
    assert len(result.rows) > 50
    for source in result.sources.values():
        assert source.url.startswith("https://")
        assert date(2020, 1, 1) < source.date <= datetime.now(UTC).date()
    used = {price.source for regions in result.rows.values() for row in regions.values() for price in row.values()}
    assert used == set(result.sources.values())


@pytest.mark.parametrize("cloud", TABLES)
def test_spot_is_never_dearer(cloud: str) -> None:
    dearer = [
        f"{name} in {region}: {spot}"
        for name, regions in TABLES[cloud].rows.items()
        for region, row in regions.items()
        for spot, full in (
            ("spot", "on_demand"),
            ("spot_vcpu", "vcpu"),
            ("spot_gib", "gib"),
            ("spot_per_gib_month", "per_gib_month"),
        )
        if spot in row and full in row and row[spot].amount > row[full].amount
    ]
    assert dearer == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_price_table_is_small_enough_to_read(path: Path) -> None:
    assert path.stat().st_size < 60_000


@pytest.mark.parametrize("path", TIMES, ids=lambda path: path.parts[-3])
def test_times_are_dated_and_cited(path: Path) -> None:
    rows = durations(path)
    sources = content(path)["sources"]
    assert all(facts["url"].startswith("https://") and facts["what"] for facts in sources.values())
    assert all(0 <= time.amount < 1800 for time in rows.values())
    for kind, names in content(path).items():
        for name, row in names.items():
            if "range" in row:
                least, most = row["range"]
                assert least <= row["seconds"] <= most, f"{kind}.{name}"
