"""Rules about a section of settings as rows of a table: which key is wrong, why, and what to write instead."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path as File
from typing import Any

from slipway.infra.schema.base import Model
from slipway.infra.schema.problems import Finding, Path, did_you_mean

WORD = re.compile(r"\{[a-z_]+(\.[a-z_]+)*(:[g,])?\}")

UNSET = object()
"""In place of a value that stands in the section itself."""


@dataclass(frozen=True)
class Row:
    """A rule of a table. ``reason`` and ``fix`` may have ``{words}`` in them, which the check that finds it knows.

    ``key`` is the one that is wrong, with dots for sections in the section; empty for the section itself. ``read``
    and ``all_of`` are keys as `Finding` has them. A row with ``excludes`` is broken where the file also says
    something else than the default for one of these keys, and one with ``needs`` where it does not: it has no
    check of its own.
    """

    reason: str
    fix: str
    key: str = ""
    read: tuple[str, ...] = ()
    all_of: tuple[str, ...] = ()
    excludes: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Section:
    """A section of settings, the place where it stands, and the rules about such sections."""

    rows: Mapping[str, Row]
    at: Path
    values: Model | None

    def found(
        self,
        rule: str,
        *below: str | int,
        shown: object = UNSET,
        known: Iterable[str] | None = None,
        read: Iterable[Path] = (),
        **words: object,
    ) -> Finding:
        """The finding of a ``rule``: ``below`` leads on from its key, and ``words`` fill its sentences.

        ``shown`` is the value, where it is another than that of the key. With ``known`` words a value that is
        near to one of them is taken for a mistake in writing.
        """
        row = self.rows[rule]
        parts: Path = (*filter(None, row.key.split(".")), *below)
        value = _plain(_at(self.values, parts) if shown is UNSET else shown)
        reason, fix = _filled(row.reason, words), _filled(row.fix, words)
        if known is not None:
            fix = did_you_mean(value, known, fix)
        keys = filter(None, (*row.read, row.excludes, row.needs))
        places = (*((*self.at, *key.split(".")) for key in keys), *read)
        whole = tuple((*self.at, *filter(None, key.split("."))) for key in row.all_of)
        return Finding((*self.at, *parts), value, reason, fix, places, whole)

    def exclusions(self) -> Iterator[Finding]:
        """The findings of the rows about two keys that exclude or need each other."""
        for name, row in self.rows.items():
            if (row.excludes or row.needs) and self.says(row.key):
                other = self.says(row.excludes or row.needs)
                if other == bool(row.excludes):
                    yield self.found(name)

    def says(self, key: str) -> bool:
        """Whether the file gives the key another value than it has by itself."""
        assert self.values is not None
        default: object = type(self.values).model_fields[key].get_default(call_default_factory=True)
        return getattr(self.values, key) != default


def _filled(text: str, words: Mapping[str, object]) -> str:
    """``text`` with ``words`` in place of their names in braces; other braces are YAML's."""
    return WORD.sub(lambda match: match[0].format_map(words), text)


@cache
def rules_of(table: File) -> Mapping[str, Mapping[str, Row]]:
    """The rules of the TOML file ``table``, by what they are about and their names."""
    content = tomllib.loads(table.read_text(encoding="utf-8"))
    return {about: {name: _row(row) for name, row in rows.items()} for about, rows in content.items()}


def _row(row: Mapping[str, Any]) -> Row:
    cells: dict[str, Any] = {**row, **{key: tuple(row.get(key, ())) for key in ("read", "all_of")}}
    return Row(**cells)


def _at(value: Any, path: Path) -> Any:
    for part in path:
        value = getattr(value, str(part), None) if isinstance(value, Model) else value and value[part]
    return value


def _plain(value: object) -> object:
    return value.model_dump(exclude_none=True) if isinstance(value, Model) else value
