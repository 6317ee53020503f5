"""What ships is known by name, so that what a project adds of its own changes no page and no test."""

import re

from slipway.command.reference import shipped
from slipway.command.reference.settings import page
from slipway.engine.stack_config import stack_names
from slipway.infra.pipelines.discovery import pipeline_names
from tests.support.checkout import ROOT


def test_all_that_ships_is_there() -> None:
    assert set(shipped.stacks()) <= set(stack_names(ROOT))
    assert set(shipped.pipelines()) <= set(pipeline_names())


def test_the_page_of_stacks_shows_each_that_ships() -> None:
    text = (ROOT / "docs" / "your-project.md").read_text(encoding="utf-8")
    shown = re.split(r"^### ", text.partition("\n### What each stack declares\n")[2], flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| ((?!stack |---).+?) \| ", shown, flags=re.MULTILINE)
    assert sorted(name for row in rows for name in re.split(", | and ", row)) == list(shipped.stacks())


def test_keys_that_many_sections_share_stand_once() -> None:
    text = page()
    for key in ("time_limit", "follow", "uses"):
        assert len(re.findall(rf"^\| `{key}`", text, flags=re.MULTILINE)) <= 2, key
    headings = {
        re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-")
        for line in text.splitlines()
        if line[:3] == "## "
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings
