"""How long things take, as dated data: a place's table of seconds.

A table is TOML. ``[sources.<id>]`` is as in `infra.review.sources`. All other tables are
``[<kind>.<name>]``, for example ``[creation."gcp:compute/router:Router"]``, with ``seconds`` and ``source``.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from infra.review.facts import Seconds
from infra.review.sources import sources


@cache
def durations(path: Path) -> Mapping[tuple[str, str], Seconds]:
    """By kind and name. Raises KeyError where a row has no seconds or no source that is there."""
    with path.open("rb") as file:
        content = tomllib.load(file)
    known = sources(content.pop("sources"))
    return MappingProxyType(
        {
            (kind, name): Seconds(float(row["seconds"]), known[row["source"]])
            for kind, rows in content.items()
            for name, row in rows.items()
        }
    )
