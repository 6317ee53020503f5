"""The files with the words that are known."""

import re
import tomllib
from pathlib import Path

import pytest

from slipway.command.watch.pod_states import (
    _OTHERWISE,  # pyright: ignore[reportPrivateUsage]
    files,
    recognise,
)
from slipway.infra import commands
from slipway.runtime.schedule.places.shortages import STOCKOUT


@pytest.mark.parametrize("path", files(), ids=lambda path: path.parents[1].name)
def test_each_row_can_be_said_and_has_its_source(path: Path) -> None:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    groups = [(name, group) for name, table in content.items() for group in table]
    assert groups
    for name, group in groups:
        assert group.keys() == {"source", "version", "rows"}
        assert group["source"].startswith("https://")
        assert re.search(r"\d", group["version"])
        for kind, pattern, says, fix, *key in group["rows"]:
            assert kind
            # The pattern of a stockout is shared with the mover.
            named = re.compile(pattern or STOCKOUT).groupindex.keys()
            wanted = set(re.findall(r"\{(\w+)\}", says + fix))
            assert name == "seen" or wanted <= named | _OTHERWISE.keys() | {"taint"}, (name, kind)
            assert not says.endswith(".")
            assert len(key) <= 1


def test_pages_are_named_where_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = 'no runtime for "nvidia" is configured'
    assert "(docs/onprem.md)" in recognise(words, "volumes").fix
    monkeypatch.setattr(commands, "PROJECT", tmp_path)
    assert f"({commands.LIBRARY}/slipway/docs/onprem.md)" in recognise(words, "volumes").fix
