"""The accelerators of the catalogue, one file each: read, and written as a cloud's price list has them today.

The facts are data, in ``infra/data/accelerators``, each with its source and date. ``infra/data/accelerators.toml``
says what the keys mean. A new accelerator is one more file.
"""

import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

PLACE = "infra/data/accelerators"
"""The folder of the files, one for each accelerator."""


@dataclass(frozen=True)
class Accelerator:
    """A GPU model by the name that stack files give it.

    ``partitions`` maps each MIG partition size to how many of it one GPU holds; empty where the GPU cannot be
    partitioned.
    """

    name: str
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Every accelerator by its name."""
    return MappingProxyType(
        {
            name: Accelerator(name, MappingProxyType(facts.get("partitions", {})))
            for name, facts in _files().items()
        }
    )


def accelerator(name: str) -> Accelerator | None:
    """The accelerator of that name, or None where the catalogue has none."""
    return accelerators().get(name)


@cache
def sold_by(cloud: str) -> Mapping[str, Mapping[str, Any]]:
    """What the files say of a cloud, by accelerator; only those that the cloud offers."""
    return MappingProxyType({name: facts[cloud] for name, facts in _files().items() if cloud in facts})


def prices_of(cloud: str) -> Mapping[str, Mapping[str, Any]]:
    """The rows of a cloud's price table that are of accelerators, by kind and name."""
    rows: dict[str, dict[str, Any]] = {}
    for facts in sold_by(cloud).values():
        for kind, names in facts.get("prices", {}).items():
            rows.setdefault(kind, {}).update(names)
    return rows


@cache
def _files() -> Mapping[str, Mapping[str, Any]]:
    """The content of every file, by the accelerator's name: those with the least memory first."""
    folder = Path(__file__).parents[1] / PLACE
    content = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.toml")}
    return dict(sorted(content.items(), key=lambda item: (item[1]["memory_gib"], item[0])))


# Writes facts about accelerators into their data files, as a cloud's price list has them today.
#
# Comments and all other lines stay as they are.


WIDTH = 115
"""The longest line of a list."""

Prices = dict[tuple[str, str], dict[str, float]]
"""Amounts by column, of a name in a region."""

TIMEOUTS = (5, 120)
"""Seconds to wait for a connection, and for the next piece of an answer: lists have hundreds of MB."""


class RefreshError(Exception):
    """An answer is missing, or is not what it is documented to be; the text says which."""


@dataclass
class AcceleratorFiles:
    """The data files below ``root`` as text, what changed in them, and what was not asked for."""

    root: Path
    texts: dict[Path, str] = field(default_factory=dict[Path, str])
    changes: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    left: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        paths = [
            *self.root.glob("infra/clouds/*/data/prices.toml"),
            self.sources,
            *(self.root / PLACE).glob("*.toml"),
        ]
        self.texts = {path: path.read_text(encoding="utf-8") for path in paths}

    def prices(self, cloud: str) -> Path:
        """The price table of a cloud, which has the sources of prices."""
        return self.root / "infra" / "clouds" / cloud / "data" / "prices.toml"

    @property
    def sources(self) -> Path:
        """The file with the sources of all other facts about accelerators."""
        return self.root / f"{PLACE}.toml"

    def sold_by(self, cloud: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """What each accelerator's file says of ``cloud``."""
        for path, text in self.texts.items():
            if path.parent == self.root / PLACE and cloud in (content := tomllib.loads(text)):
                yield path, content[cloud]

    def set(self, path: Path, table: str, key: str, value: str) -> None:
        """Writes ``key = value`` into ``[table]``, which is added at the end of the file where it is not there."""
        tables = re.split(r"(?m)^(?=\[)", self.texts[path])
        line = re.compile(rf"(?ms)^{re.escape(key)} = (\[.*?\]|[^\n]*)$")
        for index, content in enumerate(tables):
            if content.startswith(f"[{table}]\n"):
                end = len(content.rstrip("\n"))
                tables[index], count = line.subn(lambda _: f"{key} = {value}", content, count=1)
                if not count:
                    tables[index] = f"{content[:end]}\n{key} = {value}{content[end:]}"
                break
        else:
            tables.append(f"\n[{table}]\n{key} = {value}\n")
        self.texts[path] = "".join(tables)

    def cite(self, path: Path, table: str, url: str, key: str, day: date) -> None:
        """Writes a source: its ``date``, or the day on which it was ``read``."""
        self.set(path, table, "url", f'"{url}"')
        self.set(path, table, key, day.isoformat())

    def put_prices(self, cloud: str, kind: str, prices: Prices, source: str) -> None:
        """Puts ``prices`` into the rows that there are. What is not among them keeps its amount and its source."""
        default: str = tomllib.loads(self.texts[self.prices(cloud)])["kinds"][kind]
        for path, sold in list(self.sold_by(cloud)):
            for name, rows in sold.get("prices", {}).get(kind, {}).items():
                for region, row in rows.items():
                    new = prices.get((name, region), {})
                    earlier: str | dict[str, str] = row.pop("source", default)
                    of: dict[str, str] = {
                        column: earlier[column] if isinstance(earlier, dict) else earlier for column in row
                    }
                    of |= dict.fromkeys(new, source)
                    self.changes += [
                        (f"{kind}.{name}, {region}, {column}", str(row.get(column, "-")), str(amount))
                        for column, amount in new.items()
                        if row.get(column) != amount
                    ]
                    sources = source if {*of.values()} == {source} else of
                    key = f'"{name}"' if "." in name else name
                    if new:
                        value = toml({**row, **new, "source": sources})
                        self.set(path, f"{cloud}.prices.{kind}.{key}", region, value)

    def put_zones(self, path: Path, table: str, before: list[str], after: list[str]) -> None:
        """Puts a list of zones in the place of another."""
        if sorted(before) != after:
            gone, more = sorted({*before} - {*after}), sorted({*after} - {*before})
            self.changes.append((f"{path.stem}, {table}, zones", ", ".join(gone) or "-", ", ".join(more) or "-"))
            line = toml(after)
            if len(f"zones = {line}") > WIDTH:
                rows = textwrap.wrap(f"{line[1:-1]},", WIDTH, break_on_hyphens=False, initial_indent="  ")
                line = "\n".join(["[", *(f"  {row.strip()}" for row in rows), "]"])
            self.set(path, table, "zones", line)


def toml(value: Any) -> str:
    """``value`` as it stands behind a key."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return f"{{ {', '.join(f'{key} = {toml(member)}' for key, member in members)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, cast('list[Any]', value)))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
