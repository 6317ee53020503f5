"""The files with the words that are known."""

import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

from slipway.tools.watch.pod_states import (
    _OTHERWISE,
    files,  # pyright: ignore[reportPrivateUsage]
)
from slipway.workloads.schedule.places.shortages import STOCKOUT


@pytest.mark.parametrize("path", files(), ids=lambda path: path.parents[1].name)
def test_each_row_can_be_said_and_has_its_source(path: Path) -> None:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = [(name, row) for name, table in content.items() if name != "sidecars" for row in table]
    assert rows
    for name, row in rows:
        # That of a stockout is shared with the mover.
        pattern = row.setdefault("pattern", STOCKOUT) if row["kind"] == "stockout" else row["pattern"]
        assert row.keys() == {"kind", "pattern", "says", "fix", "source", "read"}, (name, row)
        assert row["source"].startswith("https://")
        assert isinstance(row["read"], date)
        groups = re.compile(pattern).groupindex.keys()
        wanted = set(re.findall(r"\{(\w+)\}", row["says"] + row["fix"]))
        assert wanted <= groups | _OTHERWISE.keys(), (name, row["kind"])
        assert not row["says"].endswith(".")
