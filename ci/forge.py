"""The little of GitHub's and GitLab's REST APIs that the pipelines need: comments on a change, and issues.

Both speak through one shape, `Forge`. Only what this pipeline's own account wrote is ever looked at, so that
nobody else's text can pose as its comment or its issue.
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, cast

PAGE = 100
"""Entries of one page, the most that either API gives."""

TIMEOUT = 30


class ForgeError(Exception):
    """The API refused or did not answer; the text says which request, and what came back."""


class MissingError(ForgeError):
    """What was asked for is not there."""


@dataclass(frozen=True)
class Text:
    """A comment by its id, or an issue by its number."""

    number: int
    body: str


@dataclass(frozen=True)
class Change:
    """A pull or merge request: the commit at its head, the repository that has it, and whether it is open."""

    sha: str
    repository: str
    open: bool


class Forge(Protocol):
    """What the pipelines ask of either."""

    limit: int
    """The most characters of a comment or of an issue's text."""

    def comments(self, number: int) -> Iterator[Text]: ...
    def add_comment(self, number: int, body: str) -> None: ...
    def edit_comment(self, number: int, comment: int, body: str, /) -> None: ...
    def issues(self, label: str) -> Iterator[Text]: ...
    def open_issue(self, title: str, body: str, label: str) -> None: ...
    def edit_issue(self, issue: int, body: str) -> None: ...
    def close_issue(self, issue: int, why: str) -> None: ...


@dataclass(frozen=True)
class Api:
    """JSON over HTTP. ``root`` is what every path begins with."""

    root: str
    headers: Mapping[str, str]

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The answer's JSON. Raises ForgeError."""
        data = None if body is None else json.dumps(body).encode()
        return json.loads(self._bytes(method, path, data) or b"null")

    def text(self, path: str, most: int) -> str | None:
        """At most ``most`` bytes of a file; None where there is none. Raises ForgeError."""
        try:
            return self._bytes("GET", path, None, most).decode("utf-8", errors="replace")
        except MissingError:
            return None

    def _bytes(self, method: str, path: str, data: bytes | None, most: int | None = None) -> bytes:
        headers = {"Content-Type": "application/json", "User-Agent": "slipway-ci"}
        request = urllib.request.Request(self.root + path, data=data, headers=headers, method=method)
        for name, value in self.headers.items():
            # Artifacts may be redirected to a storage service, which is not to see the token.
            request.add_unredirected_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return answer.read(most)
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            kind = MissingError if error.code == HTTPStatus.NOT_FOUND else ForgeError
            raise kind(f"{method} {path}: HTTP {error.code}: {said}") from error
        except OSError as error:
            raise ForgeError(f"{method} {path}: {error}") from error

    def pages(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """Every entry of a list, page after page."""
        number = 1
        while True:
            parameters = urllib.parse.urlencode({**query, "per_page": PAGE, "page": number})
            entries = cast("list[dict[str, Any]]", self.ask("GET", f"{path}?{parameters}"))
            yield from entries
            if len(entries) < PAGE:
                return
            number += 1


class GitHub:
    """https://docs.github.com/en/rest/issues; comments on a pull request are those of the issue of its number."""

    limit = 65536

    def __init__(self, api: Api) -> None:
        self._api = api

    def _own(self, entry: Mapping[str, Any]) -> bool:
        return entry["user"]["login"] == "github-actions[bot]"

    def change(self, number: int) -> Change:
        pull_request = self._api.ask("GET", f"/pulls/{number}")
        # It is null once a fork has been deleted.
        repository = pull_request["head"]["repo"]
        name = repository["full_name"] if repository else ""
        return Change(pull_request["head"]["sha"], name, pull_request["state"] == "open")

    def comments(self, number: int) -> Iterator[Text]:
        for entry in self._api.pages(f"/issues/{number}/comments"):
            if self._own(entry):
                yield Text(entry["id"], entry["body"] or "")

    def add_comment(self, number: int, body: str) -> None:
        self._api.ask("POST", f"/issues/{number}/comments", {"body": body})

    def edit_comment(self, _number: int, comment: int, body: str, /) -> None:
        self._api.ask("PATCH", f"/issues/comments/{comment}", {"body": body})

    def issues(self, label: str) -> Iterator[Text]:
        for entry in self._api.pages("/issues", state="open", labels=label):
            if "pull_request" not in entry and self._own(entry):
                yield Text(entry["number"], entry["body"] or "")

    def open_issue(self, title: str, body: str, label: str) -> None:
        self._api.ask("POST", "/issues", {"title": title, "body": body, "labels": [label]})

    def edit_issue(self, issue: int, body: str) -> None:
        self._api.ask("PATCH", f"/issues/{issue}", {"body": body})

    def close_issue(self, issue: int, why: str) -> None:
        self.add_comment(issue, why)
        self._api.ask("PATCH", f"/issues/{issue}", {"state": "closed", "state_reason": "completed"})


class GitLab:
    """https://docs.gitlab.com/api/notes/ and https://docs.gitlab.com/api/issues/"""

    limit = 1_000_000

    def __init__(self, api: Api, author: int) -> None:
        self._api = api
        self._author = author

    def open_changes(self) -> Iterator[int]:
        """The numbers of all open merge requests (docs.gitlab.com/api/merge_requests)."""
        for entry in self._api.pages("/merge_requests", state="opened"):
            yield entry["iid"]

    def head_pipeline(self, number: int) -> dict[str, Any] | None:
        """The pipeline of the commit at the merge request's head: ``id``, ``project_id`` and ``web_url``."""
        return self._api.ask("GET", f"/merge_requests/{number}")["head_pipeline"]

    def jobs(self, pipeline: int) -> Iterator[dict[str, Any]]:
        """Each with ``id``, ``name`` and ``status`` (docs.gitlab.com/api/jobs)."""
        return self._api.pages(f"/pipelines/{pipeline}/jobs")

    def artifact(self, job: int, path: str) -> str | None:
        """A text file of a job's artifacts; None where it has none (docs.gitlab.com/api/job_artifacts)."""
        # A character has at most four bytes.
        return self._api.text(f"/jobs/{job}/artifacts/{path}", 4 * self.limit)

    def comments(self, number: int) -> Iterator[Text]:
        for entry in self._api.pages(f"/merge_requests/{number}/notes"):
            if entry["author"]["id"] == self._author:
                yield Text(entry["id"], entry["body"] or "")

    def add_comment(self, number: int, body: str) -> None:
        self._api.ask("POST", f"/merge_requests/{number}/notes", {"body": body})

    def edit_comment(self, number: int, comment: int, body: str, /) -> None:
        self._api.ask("PUT", f"/merge_requests/{number}/notes/{comment}", {"body": body})

    def issues(self, label: str) -> Iterator[Text]:
        for entry in self._api.pages("/issues", state="opened", labels=label, author_id=str(self._author)):
            yield Text(entry["iid"], entry["description"] or "")

    def open_issue(self, title: str, body: str, label: str) -> None:
        self._api.ask("POST", "/issues", {"title": title, "description": body, "labels": label})

    def edit_issue(self, issue: int, body: str) -> None:
        self._api.ask("PUT", f"/issues/{issue}", {"description": body})

    def close_issue(self, issue: int, why: str) -> None:
        self._api.ask("POST", f"/issues/{issue}/notes", {"body": why})
        self._api.ask("PUT", f"/issues/{issue}", {"state_event": "close"})


def forge() -> Forge | None:
    """The one that runs this pipeline, from the variables that it sets; None where there is no token for it."""
    return gitlab() if os.environ.get("GITLAB_CI") else github()


def gitlab() -> GitLab | None:
    """From the variables that GitLab sets, and ``GITLAB_TOKEN``; None without that."""
    if not (token := os.environ.get("GITLAB_TOKEN", "")):
        return None
    root, headers = os.environ["CI_API_V4_URL"], {"PRIVATE-TOKEN": token}
    author = Api(root, headers).ask("GET", "/user")["id"]
    return GitLab(Api(f"{root}/projects/{os.environ['CI_PROJECT_ID']}", headers), author)


def github() -> GitHub | None:
    """From the variables that GitHub sets, and ``GITHUB_TOKEN``; None without that."""
    if not (token := os.environ.get("GITHUB_TOKEN", "")):
        return None
    api = Api(
        f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}",
        {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    return GitHub(api)


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
