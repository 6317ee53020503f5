"""One comment on a change, whatever is in the preview, and on no other change."""

import os
from pathlib import Path

import pytest

from ci.comment import CUT, MARKER, body
from tests.ci.conftest import Make
from tests.ci.github_api import SOMEBODY, Repository, comment

HEAD = {"HEAD_SHA": "abc", "HEAD_REPOSITORY": "somebody/slipway", "RUN_URL": "https://example.org/run/1"}


@pytest.fixture
def preview(tmp_path: Path) -> Path:
    folder = tmp_path / "preview"
    folder.mkdir()
    (folder / "preview.md").write_text("## What changes\n", encoding="utf-8")
    (folder / "number").write_text("12", encoding="utf-8")
    return folder


@pytest.fixture
def github(github: dict[str, str], repository: Repository, preview: Path) -> dict[str, str]:
    repository.change = {"state": "open", "head": {"sha": "abc", "repo": {"full_name": "somebody/slipway"}}}
    return {**github, **HEAD, "PREVIEW": str(preview)}


def test_the_first_preview_is_posted(make: Make, github: dict[str, str], repository: Repository) -> None:
    repository.comments = [comment(1, "Looks good", SOMEBODY)]
    done = make("ci-comment", **github)
    assert done.returncode == 0, done.stderr
    [(method, path, sent)] = repository.requests
    assert (method, path) == ("POST", "/repos/team/slipway/issues/12/comments")
    head, shown = sent["body"].split("\n\n", 1)
    assert head.startswith(f"{MARKER}\n")
    assert "judge this comment" in head
    assert "https://example.org/run/1" in head
    assert shown == "## What changes"


def test_the_next_one_updates_it(make: Make, github: dict[str, str], repository: Repository) -> None:
    # More than one page of other comments lies before it.
    repository.comments = [
        *(comment(number, "…", SOMEBODY) for number in range(150)),
        comment(500, f"{MARKER}\nold"),
    ]
    assert make("ci-comment", **github).returncode == 0
    [(method, path, sent)] = repository.requests
    assert (method, path) == ("PATCH", "/repos/team/slipway/issues/comments/500")
    assert "## What changes" in sent["body"]


def test_the_same_preview_changes_nothing(
    make: Make, github: dict[str, str], repository: Repository, preview: Path
) -> None:
    repository.comments = [comment(500, body(preview, 65536, HEAD["RUN_URL"]))]
    assert make("ci-comment", **github).returncode == 0
    assert repository.requests == []


def test_a_comment_of_somebody_else_with_the_marker_is_left_alone(
    make: Make, github: dict[str, str], repository: Repository
) -> None:
    repository.comments = [comment(500, f"{MARKER}\nmine", SOMEBODY)]
    assert make("ci-comment", **github).returncode == 0
    assert [method for method, _, _ in repository.requests] == ["POST"]


@pytest.mark.parametrize(
    ("number", "head"),
    [
        ("12", {"sha": "abc", "repo": {"full_name": "team/slipway"}}),
        ("12", {"sha": "abc", "repo": None}),
        ("12/../13", None),
        ("\uff11\uff12", None),
        ("", None),
    ],
    ids=["of another repository", "of a deleted fork", "a path", "not ASCII", "empty"],
)
def test_a_number_that_is_not_the_change_of_this_run_is_refused(
    make: Make, github: dict[str, str], repository: Repository, preview: Path, number: str, head: object
) -> None:
    (preview / "number").write_text(number, encoding="utf-8")
    if head:
        repository.change["head"] = head
    done = make("ci-comment", **github)
    assert done.returncode != 0
    assert "Not posted" in done.stderr
    assert repository.requests == []


@pytest.mark.parametrize(
    "now", [{"head": {"sha": "def", "repo": {"full_name": "somebody/slipway"}}}, {"state": "closed"}]
)
def test_an_outdated_preview_is_not_posted(
    make: Make, github: dict[str, str], repository: Repository, now: dict[str, object]
) -> None:
    repository.change |= now
    assert make("ci-comment", **github).returncode == 0
    assert repository.requests == []


def test_without_a_preview_the_comment_says_so(
    make: Make, github: dict[str, str], repository: Repository, preview: Path
) -> None:
    (preview / "preview.md").unlink()
    assert make("ci-comment", **github).returncode == 0
    assert "could not be made" in repository.requests[0][2]["body"]


@pytest.mark.parametrize("name", ["preview.md", "number"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "link to a device", "pipe", "folder"])
def test_nothing_but_a_plain_file_of_the_artifact_is_read(
    make: Make, github: dict[str, str], repository: Repository, preview: Path, tmp_path: Path, name: str, kind: str
) -> None:
    file = preview / name
    secret = tmp_path / "secret"
    secret.write_text("12", encoding="utf-8")
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to({"link": secret, "dangling link": tmp_path / "gone"}.get(kind, Path("/dev/zero")))
    done = make("ci-comment", **github)
    assert done.returncode != 0
    assert f"Not posted: {file} is no plain file" in done.stderr
    assert repository.requests == []


def test_a_link_in_place_of_the_artifact_is_refused(
    make: Make, github: dict[str, str], repository: Repository, preview: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(preview)
    done = make("ci-comment", **{**github, "PREVIEW": str(tmp_path / "link")})
    assert done.returncode != 0
    assert "is a link" in done.stderr
    assert repository.requests == []


def test_of_a_preview_without_an_end_only_the_beginning_is_read(preview: Path) -> None:
    with (preview / "preview.md").open("ab") as sparse:
        sparse.truncate(8 << 30)
    assert len(body(preview, 65536, "")) == 65536


def test_a_comment_never_exceeds_the_limit(preview: Path) -> None:
    (preview / "preview.md").write_text("é" * 70_000, encoding="utf-8")
    text = body(preview, 65536, "https://example.org/run/1")
    assert len(text) == 65536
    assert text.endswith(CUT)
    assert "(https://example.org/run/1)" in text


def test_a_refusal_of_github_fails(make: Make, github: dict[str, str], repository: Repository) -> None:
    repository.refuse = True
    done = make("ci-comment", **github)
    assert done.returncode != 0
    assert "HTTP 403" in done.stderr


def test_without_a_token_nothing_is_posted(make: Make, preview: Path) -> None:
    done = make("ci-comment", PREVIEW=str(preview), **HEAD)
    assert done.returncode == 0
    assert "no token" in done.stdout
