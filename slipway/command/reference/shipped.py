"""Which stacks and pipelines come with this repository, and which a project added of its own."""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "shipped.toml"


def stacks() -> Sequence[str]:
    """The names of the stacks that come with it, sorted."""
    return _names("stacks")


def pipelines() -> Sequence[str]:
    """The folders below ``workloads/`` of the pipelines that come with it, sorted."""
    return _names("pipelines")


@cache
def _names(key: str) -> Sequence[str]:
    return tuple(sorted(tomllib.loads(DATA.read_text(encoding="utf-8"))[key]))
