"""One accelerator is one file: every fact of every cloud that offers it, or why it is unknown."""

import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import UTC, date, datetime
from typing import Any

import pytest

from slipway.infra.accelerators import PLACE
from tests.support.checkout import ROOT

FILES = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in sorted((ROOT / PLACE).glob("*.toml"))}
SOURCES = tomllib.loads((ROOT / f"{PLACE}.toml").read_text("utf-8"))

Fact = tuple[str, str]
"""A fact, and the machine type or family that it is of; empty for all."""


def priced(section: Mapping[str, Any], kinds: tuple[str, ...], name: str) -> set[str]:
    """The columns in which a region has a price."""
    tables = [section.get("prices", {}).get(kind, {}).get(name, {}) for kind in kinds]
    return {column for table in tables for row in table.values() for column in row}


def missing_of_google(name: str, section: Mapping[str, Any]) -> Iterator[Fact]:
    quota, machines, attached = (section.get(key, {}) for key in ("quota", "machines", "attach"))
    facts = {
        "machines": machines or attached,
        "zones": section.get("zones"),
        "disks": section.get("disks") or attached,
        "on_demand_quota": quota.get("on_demand") or quota.get("family"),
        "spot_quota": quota.get("spot"),
        "autopilot": section.get("autopilot", {}).get("offered") is not None,
    }
    yield from ((fact, "") for fact, value in facts.items() if not value)
    for of, kinds in [(machine, ("machines", "machines_without_ssds")) for machine in machines] or [
        (name, ("accelerators",))
    ]:
        columns = priced(section, kinds, of)
        yield from ((f"{way}_price", of) for way in ("on_demand", "spot") if way not in columns)
        if machines and priced(section, ("machines_without_ssds",), of):
            yield "local_ssd_price", of


def missing_of_amazon(_: str, section: Mapping[str, Any]) -> Iterator[Fact]:
    if not section.get("families"):
        yield "types", ""
    for family, facts in section.get("families", {}).items():
        yield from (
            (f"{way}_quota", family) for way in ("on_demand", "spot") if not facts.get("quota", {}).get(way)
        )
        for size in facts["types"]:
            machine = f"{family}.{size}"
            columns = priced(section, ("machines",), machine)
            yield from ((f"{way}_price", machine) for way in ("on_demand", "spot") if way not in columns)
            if not section.get("offered", {}).get(machine, {}).get("zones"):
                yield "zones", machine


MISSING = {"gcp": missing_of_google, "aws": missing_of_amazon}
OFFERS = [(name, cloud) for name, content in FILES.items() for cloud in MISSING if cloud in content]


@pytest.mark.parametrize(("name", "cloud"), OFFERS)
def test_every_fact_is_there_or_said_to_be_unknown_and_why(name: str, cloud: str) -> None:
    section = FILES[name][cloud]
    unknown = [(row["fact"], of) for row in section.get("unknown", ()) for of in row.get("of", [""])]
    assert sorted(unknown) == sorted(MISSING[cloud](name, section))
    assert all(row["why"] for row in section.get("unknown", ()))


FORGOTTEN = [
    ("nvidia-l4", "gcp", ("quota",)),
    ("nvidia-l4", "gcp", ("quota", "spot")),
    ("nvidia-l4", "gcp", ("zones",)),
    ("nvidia-l4", "gcp", ("autopilot",)),
    ("nvidia-l4", "gcp", ("prices", "machines", "g2-standard-8")),
    ("nvidia-tesla-t4", "gcp", ("attach",)),
    ("nvidia-tesla-t4", "gcp", ("prices", "accelerators")),
    ("nvidia-tesla-t4", "aws", ("families", "g4dn", "quota", "spot")),
    ("nvidia-tesla-t4", "aws", ("offered", "g4dn.xlarge")),
    ("nvidia-tesla-t4", "aws", ("prices", "machines", "g4dn.xlarge")),
]


@pytest.mark.parametrize(("name", "cloud", "path"), FORGOTTEN)
def test_a_forgotten_fact_is_noticed(name: str, cloud: str, path: tuple[str, ...]) -> None:
    section = deepcopy(FILES[name][cloud])
    row = section
    for key in path[:-1]:
        row = row[key]
    del row[path[-1]]
    assert {*MISSING[cloud](name, section)} > {*MISSING[cloud](name, FILES[name][cloud])}


@pytest.mark.parametrize("name", FILES)
def test_every_fact_names_its_sources(name: str) -> None:
    content = FILES[name]
    assert content["sources"].keys() == {"memory_gib", "partitions"}
    assert content.keys() - {"sources"} - MISSING.keys() == content["sources"].keys()
    if google := content.get("gcp"):
        facts = {"attach", "machines", "zones", "disks", "quota", "autopilot"} & google.keys()
        assert google["sources"].keys() == facts
    if amazon := content.get("aws"):
        facts = {"zones"} if amazon.get("offered") else set[str]()
        sold = {"sold"} if any("sold" in family for family in amazon["families"].values()) else set[str]()
        assert amazon["sources"].keys() == {"types", "quota", *facts, *sold}


def test_every_source_is_dated_and_used() -> None:
    sections = [*FILES.values(), *(FILES[name][cloud] for name, cloud in OFFERS)]
    used = {source for section in sections for sources in section["sources"].values() for source in sources}
    assert used == SOURCES.keys()
    for source in SOURCES.values():
        assert source.get("url", "https://").startswith("https://")
        assert "url" in source or source["what"]
        assert len({"date", "read", "documented"} & source.keys()) == 1
        day = source.get("date") or source.get("read")
        assert day is None or date(2020, 1, 1) < day <= datetime.now(UTC).date()
