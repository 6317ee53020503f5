"""A project of one's own takes updates of this repository: none touches what is the user's, and none conflicts."""

from pathlib import Path

import pytest

from tests.support.checkout import copy_checkout
from tests.support.clones import git, python
from tests.support.tree import write_tree

PIPELINE, STACK = "fraud-of-tests", "fraud-dev-of-tests"
COMMENTED = {".py", ".yaml", ".yml", ".toml", ".txt", ".in", ".md", ".j2", ""}
"""Endings of the files to which the update appends a line."""


def names(repository: Path, *words: str) -> set[str]:
    return set(git(repository, *words, "-z").split("\0")) - {""}


def update(upstream: Path) -> None:
    """A commit that changes nearly every file, and adds, renames and deletes some."""
    for name in names(upstream, "ls-files"):
        path = upstream / name
        if path.suffix in COMMENTED and not path.is_symlink():
            with path.open("a", encoding="utf-8") as file:
                file.write("\n" if path.suffix == ".md" else "# A later version of it.\n")
    write_tree(upstream, {"workloads/new/notes.txt": "new\n", "stacks/Pulumi.new.yaml": "config: {}\n"})
    git(upstream, "mv", "docs/runs.md", "docs/what-runs.md")
    git(upstream, "rm", "-q", "-f", "docs/performance.md")
    git(upstream, "add", ".")
    git(upstream, "commit", "-q", "-m", "a later version")


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two versions, of which the first has the tag ``begun``."""
    repository = copy_checkout(tmp_path_factory.mktemp("upstream") / "slipway")
    (repository / ".venv").unlink()
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "a version")
    git(repository, "tag", "begun")
    update(repository)
    return repository


@pytest.fixture(scope="module")
def begun(upstream: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that began with the first version of upstream, with a pipeline, a stack and a page of its own."""
    folder = tmp_path_factory.mktemp("begun")
    git(folder, "clone", "-q", "--origin", "upstream", str(upstream), "project")
    project = folder / "project"
    git(project, "reset", "-q", "--hard", "begun")
    python(project, "-m", "slipway", "new", f"--pipeline={PIPELINE}")
    python(project, "-m", "slipway", "new", f"--stack={STACK}", "--cloud=gcp", f"--uses={PIPELINE}")
    write_tree(project, {"docs/own/how-we-work.md": "# How we work\n"})
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "ours")
    return project


@pytest.fixture
def project(begun: Path, upstream: Path, tmp_path: Path) -> Path:
    """A clone of it, which a test changes."""
    git(tmp_path, "clone", "-q", str(begun), "project")
    git(tmp_path / "project", "remote", "add", "-f", "upstream", str(upstream))
    return tmp_path / "project"


def content(project: Path, files: set[str]) -> dict[str, bytes]:
    return {name: (project / name).read_bytes() for name in files}


@pytest.mark.long
def test_an_update_touches_nothing_of_the_users_and_does_not_conflict(project: Path, upstream: Path) -> None:
    ours = names(project, "diff", "--name-only", "HEAD^", "HEAD")
    assert {f"stacks/Pulumi.{STACK}.yaml", f"workloads/{PIPELINE}/train.py", "docs/own/how-we-work.md"} < ours
    before = content(project, ours)
    git(project, "merge", "-q", "--no-edit", "upstream/main")
    touched = names(project, "diff", "--name-only", "--no-renames", "HEAD^1", "HEAD")
    assert len(touched) > 300
    assert touched & ours == set()
    assert content(project, ours) == before
    assert names(project, "diff", "--name-only", "--no-renames", "upstream/main", "HEAD") == ours
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.long
def test_a_shipped_stack_that_was_deleted_is_deleted_again(project: Path, upstream: Path) -> None:
    git(project, "rm", "-q", "stacks/Pulumi.onprem.yaml")
    git(project, "commit", "-q", "-m", "without a stack that ships")
    ours = names(project, "ls-files", f"workloads/{PIPELINE}", f"stacks/Pulumi.{STACK}.yaml")
    before = content(project, ours)
    git(project, "merge", "-q", "--no-edit", "upstream/main", code=1)
    assert names(project, "diff", "--name-only", "--diff-filter=U") == {"stacks/Pulumi.onprem.yaml"}
    git(project, "rm", "-q", "stacks/Pulumi.onprem.yaml")
    git(project, "commit", "-q", "--no-edit")
    assert content(project, ours) == before
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.long
def test_the_pages_and_stacks_of_upstream_stay_as_they_are_beside_those_of_the_user(project: Path) -> None:
    python(project, "-m", "slipway.command.reference.settings", "--check")
    printed = python(project, "-m", "slipway", "check", "--stack", STACK, "--stack", "gcp-dev")
    assert STACK in printed
    assert "error" not in printed
