"""``make docs``: builds the pages in docs/ as a site, build/docs/site/<version>.

The pages are written for GitHub, too. What only GitHub knows is changed in a copy: the words behind the language
of a fence (```` ```sh cloud ````), the anchors of headings with angle brackets, and links to files outside of
docs/, which lead to the repository instead. Everything else stands in mkdocs.yml. This runs in an environment of
its own, which has what requirements-docs.txt pins and nothing else.
"""

import itertools
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from slipway import files
from slipway.infra.places import LIBRARY, PROJECT

CONFIGURATION, PAGES = "mkdocs.yml", "docs"

THEME = LIBRARY / "slipway" / "command" / "site_theme"
"""What differs from the generator's own theme."""

NEXT = "next"
"""The version of what is not released yet."""

RELEASE = re.compile(r"v(\d+\.\d+\.\d+)")

FENCED = re.compile(r"(^ *```[^\n]*\n.*?^ *```[ ]*$)", re.MULTILINE | re.DOTALL)
"""A block of code, between which is prose."""

INFO = re.compile(r"^( *)(```+[\w-]+)[^\n]*")

INDENT = 4
"""Columns by which the generator has blocks of a list's item indented; GitHub asks for two or three."""

HEADING = re.compile(r"^#+ (?P<title>[^\n]*<[^\n]*)$", re.MULTILINE)
"""A heading with an angle bracket, which the generator takes for the start of a tag when it makes the anchor."""

OUTSIDE = re.compile(r"\[(?P<text>[^\]]*)\]\(\.\./(?P<path>[^)\s]+)\)")
"""A link to a file outside of the folder of the pages."""

WARNING = re.compile(r"Warning: (?P<message>[^\n]*)\n[^\n]*\[ (?P<page>[^\n]+?):(?P<line>\d+):\d+ \]")
"""What Zensical 0.0.73 says of a page, its colours left out."""


class Repository:
    """Where the files of the pages are read and changed: a repository's web address and a revision of it."""

    def __init__(self, url: str, revision: str) -> None:
        self.url = url
        self.revision = revision

    def page(self, action: str, path: str) -> str:
        """The address at which a file is seen (``blob``) or changed (``edit``)."""
        return f"{self.url}/{action}/{self.revision}/{path}"


def web_address(remote: str) -> str | None:
    """The web address of a remote of git, without the user and the password in it; None of a local folder."""
    match = re.fullmatch(r"(?:\w+@)?(?P<host>[\w.-]+):(?!//)(?P<path>.+)", remote)
    if match:
        host, path = match["host"], match["path"]
    else:
        parts = urlsplit(remote)
        if parts.scheme not in {"http", "https", "ssh"} or not parts.hostname:
            return None
        host, path = parts.hostname, parts.path
    return f"https://{host}/{path.strip('/').removesuffix('.git')}"


def for_site(text: str, repository: Repository | None) -> str:
    """A page as the generator reads it; line by line the same. Links outside become text without a repository."""

    def link(match: re.Match[str]) -> str:
        return f"[{match['text']}]({repository.page('blob', match['path'])})" if repository else match["text"]

    prose, code = (FENCED.split(text)[start::2] for start in (0, 1))
    prose = [HEADING.sub(_with_anchor, OUTSIDE.sub(link, part)) for part in prose]
    blocks = [_block(part) for part in code]
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(prose, blocks, fillvalue="")))


def _block(code: str) -> str:
    """The block with its language alone, and with the indentation that keeps it in its list."""
    language = INFO.sub(r"\1\2", code)
    indent = len(language) - len(language.lstrip(" "))
    return textwrap.indent(language, " " * (INDENT - indent)) if 0 < indent < INDENT else language


def _with_anchor(match: re.Match[str]) -> str:
    """The heading with the anchor that GitHub gives it."""
    anchor = re.sub(r"[^\w -]", "", match["title"].lower()).replace(" ", "-")
    return f"{match[0]} {{#{anchor}}}"


def findings(output: str) -> list[str]:
    """What is wrong with the pages, each with its file and line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    return [f"{PAGES}/{match['page']}:{match['line']}: {match['message']}" for match in WARNING.finditer(plain)]


def build(project: Path, target: Path) -> int:
    """Writes the site of the pages of ``project`` to ``target``/site/<version>, beside those of other versions.

    Returns the exit code: 1 where a link leads nowhere, and then there is no site of this version.
    """
    version = version_of(project)
    pages, site = target / "pages", target / "site" / version
    for folder in (pages, site, target / ".cache"):
        files.remove(folder)
    repository = _repository(project)
    shutil.copytree(project / PAGES, pages)
    for page in pages.rglob("*.md"):
        page.write_text(for_site(page.read_text(encoding="utf-8"), repository), encoding="utf-8")
    configuration = yaml.safe_load((project / CONFIGURATION).read_text(encoding="utf-8"))
    configuration |= {"docs_dir": "pages", "site_dir": f"site/{version}"}
    configuration["theme"]["custom_dir"] = str(THEME)
    if repository:
        configuration |= {"repo_url": repository.url, "edit_uri": repository.page("edit", PAGES)}
    (target / CONFIGURATION).write_text(yaml.safe_dump(configuration), encoding="utf-8")
    words = (sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(target / CONFIGURATION))
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        files.remove(site)
        print("\n".join(findings(done.stdout)) or done.stdout, file=sys.stderr)
    _list_versions(target / "site")
    return min(done.returncode, 1)


def version_of(project: Path) -> str:
    """The release whose tag is at this commit, where nothing was changed since; else `NEXT`."""
    tag = RELEASE.fullmatch(_git(project, "describe", "--tags", "--exact-match", "--dirty"))
    return tag[1] if tag else NEXT


def _list_versions(site: Path) -> None:
    """Writes which versions are there, for the theme's menu, and a start page that leads to the newest release."""
    names = [folder.parent.name for folder in site.glob("*/index.html")]
    releases = [name for name in names if name != NEXT]
    releases.sort(key=lambda release: [int(number) for number in release.split(".")], reverse=True)
    versions = releases + [NEXT] * (NEXT in names)
    if versions:
        menu = [{"version": version, "title": version, "aliases": list[str]()} for version in versions]
        files.write(site / "versions.json", json.dumps(menu))
        files.write(site / "index.html", f'<meta http-equiv="refresh" content="0; url={versions[0]}/">\n')


def _repository(project: Path) -> Repository | None:
    """The repository that `origin` names, at the branch that is checked out, or its commit."""
    url = web_address(_git(project, "ls-remote", "--get-url", "origin"))
    revision = _git(project, "branch", "--show-current") or _git(project, "rev-parse", "HEAD")
    return Repository(url, revision) if url and revision else None


def _git(project: Path, *words: str) -> str:
    """What git prints; nothing where it fails or is not installed."""
    try:
        done = subprocess.run(("git", *words), cwd=project, check=False, capture_output=True, text=True)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout.strip()


if __name__ == "__main__":
    folder = PROJECT / "build" / "docs"
    code = build(PROJECT, folder)
    if code == 0:
        print(f"{folder / 'site'} has the site; to see it: python3 -m http.server --directory {folder / 'site'}")
    raise SystemExit(code)
