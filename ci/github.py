"""The little of GitHub's REST API that the workflows need: comments on a pull request.

Only what this workflow's own account wrote is ever looked at, so that nobody else's text can pose as its comment.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

PAGE = 100
"""Entries of one page, the most that the API gives."""

TIMEOUT = 30

LIMIT = 65536
"""The most characters of a comment."""


class GitHubError(Exception):
    """The API refused or did not answer; the text says which request, and what came back."""


@dataclass(frozen=True)
class Text:
    """A comment by its id."""

    number: int
    body: str


@dataclass(frozen=True)
class Change:
    """A pull request: the commit at its head, the repository that has it, and whether it is open."""

    sha: str
    repository: str
    open: bool


@dataclass(frozen=True)
class GitHub:
    """The repository with the API at ``root``; comments on a pull request are those of the issue of its number
    (https://docs.github.com/en/rest/issues)."""

    root: str
    headers: Mapping[str, str]

    def change(self, number: int) -> Change:
        pull_request = self._ask("GET", f"/pulls/{number}")
        # It is null once a fork has been deleted.
        repository = pull_request["head"]["repo"]
        name = repository["full_name"] if repository else ""
        return Change(pull_request["head"]["sha"], name, pull_request["state"] == "open")

    def comments(self, number: int) -> Iterator[Text]:
        """The comments of this workflow's own account, page after page."""
        page = 1
        while True:
            path = f"/issues/{number}/comments?per_page={PAGE}&page={page}"
            entries = cast("list[dict[str, Any]]", self._ask("GET", path))
            ours = (entry for entry in entries if entry["user"]["login"] == "github-actions[bot]")
            yield from (Text(entry["id"], entry["body"] or "") for entry in ours)
            if len(entries) < PAGE:
                return
            page += 1

    def add_comment(self, number: int, body: str) -> None:
        self._ask("POST", f"/issues/{number}/comments", {"body": body})

    def edit_comment(self, comment: int, body: str) -> None:
        self._ask("PATCH", f"/issues/comments/{comment}", {"body": body})

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The answer's JSON. Raises GitHubError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "slipway-ci"}
        request = urllib.request.Request(self.root + path, data=data, headers=headers, method=method)
        for name, value in self.headers.items():
            # Where a request is redirected to is not to see the token.
            request.add_unredirected_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            raise GitHubError(f"{method} {path}: HTTP {error.code}: {said}") from error
        except OSError as error:
            raise GitHubError(f"{method} {path}: {error}") from error


def github() -> GitHub | None:
    """From the variables that GitHub sets, and ``GITHUB_TOKEN``; None without that."""
    if not (token := os.environ.get("GITHUB_TOKEN", "")):
        return None
    return GitHub(
        f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}",
        {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )


def append(variable: str, text: str) -> None:
    """Adds ``text`` to the file that this variable names, such as GITHUB_OUTPUT, where it names one."""
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


def fence(text: str) -> str:
    """Text as a Markdown block that nothing in it can end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text.rstrip()}\n{fence}"
