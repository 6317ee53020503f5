"""The accelerators that the catalogue knows: facts about GPUs that are the same wherever they run.

Where a cloud offers them, and in which machines, is in that cloud's own catalogue.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

DATA = Path(__file__).parent / "data" / "accelerators.toml"


@dataclass(frozen=True)
class Accelerator:
    """A GPU model by the name that stack files give it.

    ``product`` is the name that CUDA reports. ``memory_gib`` is per GPU. ``compute_capability`` is the generation
    of its instructions, (major, minor). ``partitions`` maps each MIG partition
    size to how many of it one GPU holds; empty where the GPU cannot be partitioned.
    """

    name: str
    product: str
    memory_gib: float
    compute_capability: tuple[int, int]
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Every accelerator by its name."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return MappingProxyType(
        {
            name: Accelerator(
                name=name,
                product=facts["product"],
                memory_gib=facts["memory_gib"],
                compute_capability=_version(facts["compute_capability"]),
                partitions=MappingProxyType(facts.get("partitions", {})),
            )
            for name, facts in data.items()
        }
    )


def accelerator(name: str) -> Accelerator | None:
    """The accelerator of that name, or None where the catalogue has none."""
    return accelerators().get(name)


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
