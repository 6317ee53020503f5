"""List prices as dated data: a cloud's table, and how a price by the month counts by the hour.

A table is TOML. ``[sources.<id>]`` is as in `infra.review.data_files`; ``[kinds]`` names the source of each kind
of row. All other tables are ``[<kind>.<name>]``, for example ``[machines.a3-highgpu-8g]``: by region, or by
``"*"`` for all regions, the amounts in US dollars by column, and a ``source`` where it is not the kind's.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from infra.review.data_files import sources
from infra.review.facts import Charge, Price, Source

HOURS_A_MONTH = 730
"""What all clouds count as a month: a twelfth of a year's 8,760 hours."""

RESERVED = "reserved, and billed whether it runs or not"
"""How a node is bought that belongs to a reservation."""

EVERYWHERE = "*"

UNITS: Mapping[str, str] = {
    "on_demand": "hour",
    "spot": "hour",
    "vcpu": "hour",
    "gib": "hour",
    "spot_vcpu": "hour",
    "spot_gib": "hour",
    "scratch_gib": "hour",
    "per_hour": "hour",
    "per_vm_hour": "hour",
    "per_month": "month",
    "per_gib_month": "GiB-month",
    "spot_per_gib_month": "GiB-month",
    "per_gib": "GiB",
    "per_lcu_hour": "LCU-hour",
    "per_gib_ingested": "GiB",
    "per_gib_written": "GiB",
}
"""What the amounts of each column are the price of."""

_NO_KINDS = frozenset({"sources", "kinds"})


@dataclass(frozen=True)
class PriceTable:
    """Prices by kind, name, region and column."""

    sources: Mapping[str, Source]
    rows: Mapping[tuple[str, str], Mapping[str, Mapping[str, Price]]]

    def price(self, kind: str, name: str, region: str, column: str) -> Price | None:
        """The price in ``region``, else that of all regions; None where the table has neither."""
        by_region = self.rows.get((kind, name), {})
        row = by_region.get(region) or by_region.get(EVERYWHERE) or {}
        return row.get(column)


@cache
def price_table(path: Path) -> PriceTable:
    """The table in ``path``. Raises ValueError where a row has no source, no known column or no amount above 0."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    known = sources(content["sources"])
    rows: dict[tuple[str, str], dict[str, dict[str, Price]]] = {}
    for kind, names in content.items():
        if kind in _NO_KINDS:
            continue
        for name, regions in names.items():
            where = f"{path.name}, {kind}.{name}"
            rows[kind, name] = {
                region: _row(f"{where}, {region}", columns, content["kinds"].get(kind), known)
                for region, columns in regions.items()
            }
    return PriceTable(known, rows)


def hourly(price: Price) -> float | None:
    """What one of its unit costs for an hour; None where it is not paid by time."""
    if price.unit == "hour":
        return price.amount
    return price.amount / HOURS_A_MONTH if price.unit.endswith("month") else None


def node_price(charges: Iterable[Charge], pool: str) -> float | None:
    """What a node of the pool with that URN costs for an hour; None where a price of it is not known."""
    found = [charge for charge in charges if charge.pool == pool and not charge.metered]
    known = [hourly(charge.price) for charge in found if charge.price is not None]
    if not found or len(known) < len(found) or None in known:
        return None
    return sum(rate * charge.quantity for rate, charge in zip(known, found, strict=True) if rate is not None)


def scaled(price: Price | None, by: float) -> Price | None:
    """The price of ``by`` of them together."""
    return None if price is None else Price(price.amount * by, price.unit, price.source)


def priced_in(charge: Charge, region: str) -> Charge:
    """The charge; where a price is missing, with the region in which it is."""
    if charge.price is not None or charge.metered or not region:
        return charge
    return replace(charge, what=f"{charge.what} in {region}")


def _row(
    where: str, columns: Mapping[str, Any], kind_source: str | None, known: Mapping[str, Source]
) -> dict[str, Price]:
    name = columns.get("source", kind_source)
    if name not in known:
        raise ValueError(f"{where}: there is no source {name!r}")
    amounts = {column: amount for column, amount in columns.items() if column != "source"}
    for column, amount in amounts.items():
        if column not in UNITS or not isinstance(amount, int | float) or not amount > 0:
            raise ValueError(f"{where}: {column} = {amount!r} is no price")
    return {column: Price(float(amount), UNITS[column], known[name]) for column, amount in amounts.items()}
