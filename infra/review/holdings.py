"""What of users' data goes with a resource that is deleted, as dated data: a cloud's table of holdings.

A table is TOML. ``[sources.<id>]`` is as in `infra.review.data_files`. All other tables are ``["<type>"]``:

- ``lost``: what is gone with the resource, as the object of "deletes": ``the bucket and everything in it``;
- ``kept``: why the data outlive the resource; not given where they do not;
- ``emptied_by``: the property without which the cloud refuses to delete what is not empty, ``forceDestroy``;
- ``guarded_by``: the property with which the cloud or the provider refuses to delete it, ``deletionProtection``;
- ``restore``: how it can be had back, with ``{days}`` for the value of ``window``, a path to a number of ``unit``
  (``days`` or ``seconds``), or for ``default`` days where the property is not set;
- ``meant``: true where nothing has to protect the resource, because it holds no data;
- ``source``.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from infra.review.data_files import sources
from infra.review.facts import NOT_RESTORED, Holding, Source
from infra.review.properties import at, is_true, unknown
from infra.review.stack import Resource

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
        found = at(resource.properties, *self.window.split("."))
        days = self.default
        if isinstance(found, int | float):
            days = int(found / _SECONDS_A_DAY) if self.unit == "seconds" else int(found)
        return self.restore.format(days=days) if days else NOT_RESTORED


@cache
def holdings_from(path: Path) -> Mapping[str, Row]:
    """By resource type. Raises KeyError or TypeError where a row lacks a key, or has one that is not known."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    known = sources(content.pop("sources"))
    return MappingProxyType({type_: Row(source=known[row.pop("source")], **row) for type_, row in content.items()})
