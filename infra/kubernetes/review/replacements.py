"""Which changes replace an object, and what updates in place do."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from infra.review.replacements import in_place_from

DATA = Path(__file__).parents[1] / "data"
FILE = DATA / "replacing.toml"

in_place = partial(in_place_from, DATA / "in_place.toml")
"""By resource type, what updates in place mean for what is there."""


@cache
def replacing() -> Mapping[str, Sequence[str]]:
    """By resource type, the paths of the properties whose change replaces it."""
    with FILE.open("rb") as file:
        data = tomllib.load(file)
    objects = {type_: [*data["every"], *paths] for type_, paths in data["types"].items()}
    return {**objects, **data["others"]}
