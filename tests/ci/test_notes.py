"""Notes on merge requests of GitLab are written by the default branch, from what their pipelines left."""

import pytest

from ci.comment import MARKER
from tests.ci.conftest import Make
from tests.ci.forges import SOMEBODY, Repository, comment

PIPELINE = {"id": 70, "project_id": 5, "web_url": "https://example.org/pipelines/70"}
LOCATION = "/projects/5/jobs/71/artifacts/build/ci/preview/preview.md"


@pytest.fixture
def merge_request(gitlab: dict[str, str], repository: Repository) -> dict[str, str]:
    """An open merge request whose preview has ended, with findings."""
    repository.change = {"iid": 12, "head_pipeline": PIPELINE}
    repository.jobs = [
        {"id": 69, "name": "lint", "status": "success"},
        {"id": 71, "name": "preview", "status": "failed"},
    ]
    repository.artifacts = {LOCATION: "## What changes\n"}
    return gitlab


def test_the_preview_of_an_open_merge_request_becomes_a_note(
    make: Make, merge_request: dict[str, str], repository: Repository
) -> None:
    done = make("ci-notes", **merge_request)
    assert done.returncode == 0, done.stderr
    [(method, path, sent)] = repository.requests
    assert (method, path) == ("POST", "/projects/5/merge_requests/12/notes")
    assert sent["body"].startswith(f"{MARKER}\n")
    assert sent["body"].endswith("## What changes")
    assert PIPELINE["web_url"] in sent["body"]


def test_a_note_is_updated_and_no_other_one(
    make: Make, merge_request: dict[str, str], repository: Repository
) -> None:
    repository.comments = [comment(3, f"{MARKER}\nnot ours", SOMEBODY), comment(4, f"{MARKER}\nold")]
    assert make("ci-notes", **merge_request).returncode == 0
    [(method, path, sent)] = repository.requests
    assert (method, path) == ("PUT", "/projects/5/merge_requests/12/notes/4")
    repository.comments, repository.requests = [comment(4, sent["body"])], []
    assert make("ci-notes", **merge_request).returncode == 0
    assert repository.requests == []


@pytest.mark.parametrize(
    "change",
    [
        {"head_pipeline": None},
        {"head_pipeline": {**PIPELINE, "project_id": 9}},
        {"jobs": [{"id": 71, "name": "preview", "status": "running"}]},
        {"jobs": []},
    ],
    ids=["no pipeline", "of a fork", "still running", "without a preview"],
)
def test_a_merge_request_without_a_preview_is_passed_over(
    make: Make, merge_request: dict[str, str], repository: Repository, change: dict[str, object]
) -> None:
    if "jobs" in change:
        repository.jobs = change["jobs"]  # pyright: ignore[reportAttributeAccessIssue]
    else:
        repository.change |= change
    done = make("ci-notes", **merge_request)
    assert done.returncode == 0
    assert repository.requests == []
    assert "Merge request 12: It" in done.stdout


def test_a_preview_that_left_nothing_is_said(
    make: Make, merge_request: dict[str, str], repository: Repository
) -> None:
    repository.artifacts = {}
    assert make("ci-notes", **merge_request).returncode == 0
    assert "could not be made" in repository.requests[0][2]["body"]


def test_the_token_does_not_follow_an_artifact_to_where_it_is_stored(
    make: Make, merge_request: dict[str, str], repository: Repository
) -> None:
    repository.redirects = {LOCATION: "/storage/preview.md"}
    repository.artifacts = {"/storage/preview.md": "## What changes\n"}
    assert make("ci-notes", **merge_request).returncode == 0
    assert "## What changes" in repository.requests[0][2]["body"]
    assert repository.signed["/storage/preview.md"] is False


def test_without_a_token_nothing_is_posted(make: Make) -> None:
    done = make("ci-notes", GITLAB_CI="true")
    assert done.returncode == 0
    assert "no token" in done.stdout


def test_a_refusal_of_gitlab_fails(make: Make, merge_request: dict[str, str], repository: Repository) -> None:
    repository.refuse = True
    done = make("ci-notes", **merge_request)
    assert done.returncode != 0
    assert "HTTP 403" in done.stderr


def test_a_preview_that_could_read_the_token_fails(make: Make) -> None:
    """A variable that is not protected is there for the code of any merge request."""
    done = make("ci-preview", GITLAB_CI="true", GITLAB_TOKEN="t")
    assert done.returncode != 0
    assert "GITLAB_TOKEN" in done.stderr
    assert "Protect variable" in done.stderr
