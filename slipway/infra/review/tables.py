"""Tables with dated data: how they are read, what data a resource holds, and list prices.

In a TOML file ``[sources.<id>]`` says where its facts are from: the ``url`` of what was read and its ``date``. A
source without a date of its own has the day on which it was ``read`` in its place: the fact is at least that old.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from slipway.infra.platform import Rate
from slipway.infra.review.facts import NOT_RESTORED, Charge, Effect, Holding, InPlace, Price, Seconds, Source, When
from slipway.infra.review.stack import Resource, at, is_true, unknown


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

    Its other tables are ``[<kind>.<name>]``, for example ``[boot.gpu]``, with
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
def facts_from(file: Path) -> Mapping[str, Any]:
    """What a TOML file says that needs no shape of its own: lists and tables of names."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


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
    ``effect``, ``when``, ``kept``, ``sent``, ``fix`` and ``restore``.
    """
    types = tomllib.loads(file.read_text(encoding="utf-8"))
    return {type_: [_in_place(fact) for fact in facts] for type_, facts in types.items()}


def _in_place(fact: Mapping[str, Any]) -> InPlace:
    return InPlace(
        paths=fact["paths"],
        note=fact["note"],
        source=Source(fact["source"], fact["date"]),
        effect=Effect(fact.get("effect", Effect.NOTE)),
        when=When(fact.get("when", When.CHANGED)),
        kept=fact.get("kept", ""),
        sent=fact.get("sent", ""),
        fix=fact.get("fix", ""),
        blocked=fact.get("blocked", ""),
        given=fact.get("given", {}),
        restore=fact.get("restore", NOT_RESTORED),
    )


# A table of holdings is TOML. ``[sources.<id>]`` is as above. All other tables are ``["<type>"]``:
#
# - ``lost``: what is gone with the resource, as the object of "deletes": ``the bucket and everything in it``;
# - ``kept``: why the data outlive the resource; not given where they do not;
# - ``emptied_by``: the property without which the cloud refuses to delete what is not empty, ``forceDestroy``;
# - ``guarded_by``: the property with which the cloud or the provider refuses to delete it, ``deletionProtection``;
# - ``restore``: how it can be had back, with ``{days}`` for the value of ``window``, a path to a number of
#   ``unit`` (``days`` or ``seconds``), or for ``default`` days where the property is not set;
# - ``meant``: true where nothing has to protect the resource, because it holds no data;
# - ``source``.
_SECONDS_A_DAY = 86_400


@dataclass(frozen=True)
class Row:
    """One row of a table: the facts about one type of resource. A field that the table lacks is empty."""

    lost: str
    source: Source
    kept: str = ""
    emptied_by: str = ""
    guarded_by: str = ""
    restore: str = ""
    window: str = ""
    unit: str = "days"
    default: int = 0
    meant: bool = False

    def of(self, resource: Resource) -> Holding:
        """What goes with this resource of the row's type."""
        return Holding(self.lost, self.kept, self._refused(resource), self._restore(resource), meant=self.meant)

    def _refused(self, resource: Resource) -> str:
        if self.guarded_by and is_true(resource.properties.get(self.guarded_by)):
            return f"it cannot be deleted while {self.guarded_by} is on"
        emptied = resource.properties.get(self.emptied_by)
        if self.emptied_by and not (is_true(emptied) or unknown(emptied)):
            return f"it cannot be deleted while anything is in it, since {self.emptied_by} is off"
        return ""

    def _restore(self, resource: Resource) -> str:
        if not self.window:
            return self.restore or NOT_RESTORED
        window = at(resource.properties, *self.window.split("."))
        days = self.default
        if isinstance(window, int | float):
            days = int(window / _SECONDS_A_DAY) if self.unit == "seconds" else int(window)
        return self.restore.format(days=days) if days else NOT_RESTORED


@cache
def holdings_from(path: Path) -> Mapping[str, Row]:
    """By resource type. Raises KeyError or TypeError where a row lacks a key, or has one that is not known."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    known = sources(content.pop("sources"))
    return MappingProxyType({type_: Row(source=known[row.pop("source")], **row) for type_, row in content.items()})


# A table of list prices is TOML. ``[sources.<id>]`` is as above; ``[kinds]`` names the source of each
# kind of row. All other tables are ``[<kind>.<name>]``, for example ``[machines.a3-highgpu-8g]``: by region, or by
# ``"*"`` for all regions, the amounts in US dollars by column, and a ``source`` where it is not the kind's.
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


def price_table(path: Path, more: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> PriceTable:
    """The table in ``path``, and rows of it that are kept elsewhere, by kind and name.

    Raises ValueError where a row has no source, no known column or no amount above 0.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    known, kinds = sources(content.pop("sources")), content.pop("kinds")
    rows = {
        (kind, name): {
            region: _row(f"{path.name}, {kind}.{name}, {region}", columns, kinds.get(kind), known)
            for region, columns in regions.items()
        }
        for table in (content, more)
        for kind, names in table.items()
        for name, regions in names.items()
    }
    return PriceTable(known, rows)


def hourly(price: Price) -> float | None:
    """What one of its unit costs for an hour; None where it is not paid by time."""
    if price.unit == "hour":
        return price.amount
    return price.amount / HOURS_A_MONTH if price.unit.endswith("month") else None


def node_price(charges: Iterable[Charge], pool: str) -> float | None:
    """What a node of the pool with that URN costs for an hour; None where a price of it is not known."""
    matching = [charge for charge in charges if charge.pool == pool and not charge.metered]
    known = [hourly(charge.price) for charge in matching if charge.price is not None]
    if not matching or len(known) < len(matching) or None in known:
        return None
    return sum(rate * charge.quantity for rate, charge in zip(known, matching, strict=True) if rate is not None)


def rate_of(charges: Iterable[Charge]) -> Rate | None:
    """The price of what is billed by ``charges``, which are of no pool; None where one of them is not known."""
    billed = [*charges]
    dollars = node_price(billed, "")
    days = [charge.price.source.date for charge in billed if charge.price is not None]
    return Rate(dollars, f"{min(days)}") if dollars is not None else None


def scaled(price: Price | None, by: float) -> Price | None:
    """The price of ``by`` of them together."""
    return None if price is None else Price(price.amount * by, price.unit, price.source)


def priced_in(charge: Charge, region: str) -> Charge:
    """``charge``; if its price is missing, its words name the region."""
    if charge.price is not None or charge.metered or not region:
        return charge
    return replace(charge, what=f"{charge.what} in {region}")


def _row(
    where: str, columns: Mapping[str, Any], kind_source: str | None, known: Mapping[str, Source]
) -> dict[str, Price]:
    source: str | Mapping[str, str] | None = columns.get("source", kind_source)
    prices: dict[str, Price] = {}
    for column, amount in columns.items():
        if column == "source":
            continue
        # One for the whole row, or one for each column.
        name = source.get(column) if isinstance(source, Mapping) else source
        if name is None or name not in known:
            raise ValueError(f"{where}: there is no source {name!r}")
        if column not in UNITS or not isinstance(amount, int | float) or not amount > 0:
            raise ValueError(f"{where}: {column} = {amount!r} is no price")
        prices[column] = Price(float(amount), UNITS[column], known[name])
    return prices
