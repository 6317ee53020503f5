"""Keeps one comment on a pull request: ``python -m ci.comment``.

``PREVIEW`` is the folder that ``make ci-preview`` filled. What is in it was written by the code of the change,
which may be anybody's: it is text to show, and never a reason to write somewhere else. So the number in it only
counts where GitHub itself says that this change has ``HEAD_SHA`` of ``HEAD_REPOSITORY`` at its head.
"""

import os
import stat
import sys
from pathlib import Path

from ci.github import LIMIT, GitHub, GitHubError, github

MARKER = "<!-- slipway:preview -->"

PREFACE = "_Evaluated without credentials by the code of this change: judge this comment as you judge the change._"

NOT_MADE = "The preview could not be made. The log of the pipeline says why."

CUT = "\n\n… the rest is in the artifact of the pipeline."


class RefusedError(Exception):
    """The preview cannot be posted; the text says why."""


def text_of(file: Path, most: int) -> str:
    """At most ``most`` bytes of a plain file. Raises RefusedError for anything else, and FileNotFoundError.

    An artifact can hold a link to a file of this machine, which would be posted, or a device without an end.
    """
    if file.parent.is_symlink():
        raise RefusedError(f"{file.parent} is a link")
    try:
        # Without waiting for the other end of a named pipe.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RefusedError(f"{file} is no plain file: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RefusedError(f"{file} is no plain file")
        with open(descriptor, "rb", closefd=False) as content:
            return content.read(most).decode("utf-8", errors="replace")
    finally:
        os.close(descriptor)


def body(preview: Path, limit: int, run: str) -> str:
    """The comment's text with the preview of the folder. Raises RefusedError."""
    try:
        # A character has at most four bytes.
        markdown = text_of(preview / "preview.md", 4 * limit)
    except FileNotFoundError:
        markdown = NOT_MADE
    return compose(markdown, limit, run)


def compose(markdown: str, limit: int, run: str) -> str:
    """The comment's text: a marker, what to make of it with a link to the pipeline, and the preview.

    The preview comes last: an open fence, fold or comment in it would swallow whatever followed.
    """
    markdown = markdown.strip()
    head = f"{MARKER}\n{PREFACE}" + (f" [Artifacts and log]({run})" if run else "") + "\n\n"
    room = limit - len(head)
    if len(markdown) > room:
        markdown = markdown[: room - len(CUT)] + CUT
    return head + markdown


def number(preview: Path) -> int:
    """The number of the change that the preview is of. Raises RefusedError."""
    try:
        text = text_of(preview / "number", 20).strip()
    except FileNotFoundError as error:
        raise RefusedError(f"the preview does not say which change it is of: {error}") from error
    if not (text.isascii() and text.isdigit()):
        raise RefusedError(f"{text!r} is no number of a change")
    return int(text)


def post(project: GitHub, change: int, text: str) -> str:
    """Creates the comment with the marker, or edits it; says which."""
    for comment in project.comments(change):
        if comment.body.startswith(MARKER):
            if comment.body == text:
                return "The comment says this already."
            project.edit_comment(comment.number, text)
            return "Updated the comment."
    project.add_comment(change, text)
    return "Posted the comment."


def check(project: GitHub, change: int, sha: str, repository: str) -> str | None:
    """None where the comment belongs there; else why it has become pointless. Raises RefusedError."""
    pull_request = project.change(change)
    if pull_request.repository != repository:
        raise RefusedError(f"change {change} is not from {repository}")
    if not pull_request.open:
        return f"Change {change} is closed."
    if pull_request.sha != sha:
        return f"Change {change} is at {pull_request.sha[:12]} by now; its own preview follows."
    return None


def main() -> int:
    """Exits 1 where the comment is refused."""
    preview = Path(os.environ.get("PREVIEW") or "build/ci/preview")
    try:
        where = github()
        if where is None:
            print("There is no token to comment with; the preview is in the artifact and in the job's log.")
            return 0
        change = number(preview)
        if reason := check(where, change, os.environ["HEAD_SHA"], os.environ["HEAD_REPOSITORY"]):
            print(reason)
            return 0
        print(post(where, change, body(preview, LIMIT, os.environ.get("RUN_URL", ""))))
    except (RefusedError, GitHubError) as error:
        print(f"Not posted: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
