"""The accelerators of the catalogue: one file each, with what is the same everywhere and what each cloud sells.

The facts are data, in ``infra/data/accelerators``, each with its source and date. ``infra/data/accelerators.toml``
says what the keys mean. A new accelerator is one more file.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

PLACE = "infra/data/accelerators"
"""The folder of the files, one for each accelerator."""


@dataclass(frozen=True)
class Accelerator:
    """A GPU model by the name that stack files give it.

    ``product`` is the name that CUDA reports. ``memory_gib`` is per GPU. ``compute_capability`` is the generation
    of its instructions, (major, minor). ``partitions`` maps each MIG partition size to how many of it one GPU
    holds; empty where the GPU cannot be partitioned.
    """

    name: str
    product: str
    memory_gib: float
    compute_capability: tuple[int, int]
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Every accelerator by its name."""
    return MappingProxyType(
        {
            name: Accelerator(
                name=name,
                product=facts["product"],
                memory_gib=facts["memory_gib"],
                compute_capability=_version(facts["compute_capability"]),
                partitions=MappingProxyType(facts.get("partitions", {})),
            )
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


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
