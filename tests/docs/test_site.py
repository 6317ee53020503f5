"""The site of the pages: `make docs`."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.tools import site
from tests.support.checkout import ROOT, copy_checkout

CONFIGURATION = yaml.safe_load((ROOT / site.CONFIGURATION).read_text(encoding="utf-8"))


def pages_of(entries: list[dict[str, Any]]) -> Iterator[str]:
    for target in (target for entry in entries for target in entry.values()):
        if isinstance(target, str):
            yield target
        else:
            yield from pages_of(target)


def test_every_page_is_in_one_of_four_parts() -> None:
    parts = CONFIGURATION["nav"]
    assert [name for part in parts for name in part] == ["Start", "How to", "Reference", "Why"]
    assert Counter(pages_of(parts)) == Counter(page.name for page in (ROOT / site.PAGES).glob("*.md"))


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@github.com:acme/slipway.git", "https://github.com/acme/slipway"),
        ("https://user:token@gitlab.example.org:8443/a/b/c.git", "https://gitlab.example.org/a/b/c"),
        ("ssh://git@example.org:2222/acme/slipway", "https://example.org/acme/slipway"),
        ("/srv/git/slipway", None),
        ("", None),
    ],
)
def test_no_user_and_no_token_of_a_remote_is_published(remote: str, address: str | None) -> None:
    assert site.web_address(remote) == address


GITLAB = site.Repository("https://gitlab.com/acme/slipway", "main")


def test_what_only_github_knows_is_written_anew() -> None:
    page = "## `steps.<name>`\n\n[a](../a/b.yaml) [b](b.md)\n\n```sh cloud\n# <x> [a](../a)\n```\n"
    address = "https://gitlab.com/acme/slipway/-/blob/main/a/b.yaml"
    anchored = "## `steps.<name>` {#stepsname}\n\n"
    code = "\n\n```sh\n# <x> [a](../a)\n```\n"
    assert site.for_site(page, GITLAB) == f"{anchored}[a]({address}) [b](b.md){code}"
    assert site.for_site(page, None) == f"{anchored}a [b](b.md){code}"


@pytest.mark.slow
def test_a_dead_link_and_a_missing_anchor_end_the_build(tmp_path: Path) -> None:
    """And only these: all other links and anchors of the pages are right."""
    clone = copy_checkout(tmp_path / "clone")
    page = clone / site.PAGES / "index.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(f"[gone](two.md)\n\n[no such heading](stacks.md#moon)\n\n{text}", encoding="utf-8")
    failed = make_docs(clone)
    lines = failed.stderr.splitlines()
    assert [line.rpartition(":")[0] for line in lines if line.startswith("docs/")] == [
        "docs/index.md:1",
        "docs/index.md:3",
    ]
    assert failed.returncode != 0
    assert not (clone / "build/docs/site").exists()
    page.write_text(text, encoding="utf-8")
    done = make_docs(clone)
    assert done.returncode == 0, done.stderr
    assert (clone / "build/docs/site/search.json").is_file()


def make_docs(clone: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "docs"], cwd=clone, check=False, capture_output=True, text=True)
