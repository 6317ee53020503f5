"""The site of the pages: `make docs`."""

import functools
import json
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.command import site
from tests.support.browser import chromium
from tests.support.checkout import ROOT

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


def test_the_version_is_a_release_where_its_tag_is_and_nothing_has_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    page = tmp_path / "page.md"
    page.write_text("one", encoding="utf-8")
    for words in (["init"], ["add", "page.md"], ["commit", "-m", "One"]):
        git(*words)
    assert site.version_of(tmp_path) == site.NEXT
    git("tag", "v0.2.0")
    assert site.version_of(tmp_path) == "0.2.0"
    page.write_text("two", encoding="utf-8")
    assert site.version_of(tmp_path) == site.NEXT


GITHUB = site.Repository("https://github.com/acme/slipway", "main")


def test_what_only_github_knows_is_written_anew() -> None:
    page = "## `steps.<name>`\n\n[a](../a/b.yaml) [b](b.md)\n\n```sh cloud\n# <x> [a](../a)\n```\n"
    address = "https://github.com/acme/slipway/blob/main/a/b.yaml"
    anchored = "## `steps.<name>` {#stepsname}\n\n"
    code = "\n\n```sh\n# <x> [a](../a)\n```\n"
    assert site.for_site(page, GITHUB) == f"{anchored}[a]({address}) [b](b.md){code}"
    assert site.for_site(page, None) == f"{anchored}a [b](b.md){code}"


def make_docs(clone: Path) -> subprocess.CompletedProcess[str]:
    """The command, in a clone of a repository whose remote has a token in its address, as those of CI do."""
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main"], cwd=clone, check=True)
    remote = "https://ci:token-of-ci@github.com/acme/slipway.git"
    subprocess.run(["git", "config", "remote.origin.url", remote], cwd=clone, check=True)
    return subprocess.run(["make", "docs"], cwd=clone, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(checkout: Path) -> Path:
    """The folder of the site, which has one of each version."""
    done = make_docs(checkout)
    assert done.returncode == 0, done.stderr
    return checkout / "build" / "docs" / "site"


@pytest.mark.slow
def test_a_dead_link_and_a_missing_anchor_end_the_build(checkout: Path, built: Path) -> None:
    """And only these: all other links and anchors of the pages are right. The versions before stay."""
    shutil.move(built / site.NEXT, built / "0.0.9")
    page = checkout / site.PAGES / "index.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(f"[gone](two.md)\n\n[no such heading](your-project.md#moon)\n\n{text}", encoding="utf-8")
    failed = make_docs(checkout)
    page.write_text(text, encoding="utf-8")
    lines = [line for line in failed.stderr.splitlines() if line.startswith(f"{site.PAGES}/")]
    assert [line.rpartition(":")[0] for line in lines] == ["docs/index.md:1", "docs/index.md:3"]
    assert failed.returncode != 0
    assert [path.parent.name for path in built.glob("*/index.html")] == ["0.0.9"]
    assert make_docs(checkout).returncode == 0
    versions = [entry["version"] for entry in json.loads((built / "versions.json").read_text(encoding="utf-8"))]
    assert versions == ["0.0.9", site.NEXT]
    assert "url=0.0.9/" in (built / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_page_leads_to_where_it_is_edited_and_shows_no_token(built: Path) -> None:
    page = next(built.glob("*/your-project/index.html")).read_text(encoding="utf-8")
    assert 'href="https://github.com/acme/slipway/edit/main/docs/your-project.md"' in page
    assert not [path for path in built.rglob("*.html") if "token-of-ci" in path.read_text(encoding="utf-8")]


@pytest.mark.long
def test_pages_fit_a_phone_and_ask_no_other_host(built: Path) -> None:
    """Also while one searches."""
    requests = list[str]()
    handler = functools.partial(SimpleHTTPRequestHandler, directory=built)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, chromium() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
        page.on("request", lambda request: requests.append(request.url))
        wide = []
        for file in sorted(built.glob("*/*/index.html")):
            path = file.parent.relative_to(built).as_posix()
            page.goto(f"{address}{path}/")
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append(path)
        page.goto(address)
        page.wait_for_url(f"{address}*/")
        page.wait_for_load_state("networkidle")
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Search").fill("checkpoint")
        page.locator("a[href*='h=checkpoint']").first.click()
        page.wait_for_url("**h=checkpoint*")
        server.shutdown()
    assert wide == []
    assert {url for url in requests if not url.startswith(address)} == set()
