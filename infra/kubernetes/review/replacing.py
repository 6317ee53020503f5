"""Which changes replace an object."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "replacing.toml"


@cache
def replacing() -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties whose change replaces it."""
    with FILE.open("rb") as file:
        data = tomllib.load(file)
    objects = {type_: [*data["every"], *paths] for type_, paths in data["types"].items()}
    return {**objects, **data["others"]}
