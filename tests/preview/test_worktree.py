"""Another revision is checked out beside the user's checkout, which stays as it was."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.files import LOCK, Lock
from slipway.preview.revisions import PREFIX, TreeError, check_out

ROOT = Path(__file__).parents[2]
IDENTITY = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@b",
}


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), "-c", "protocol.file.allow=always", *arguments]
    environment = {**os.environ, **IDENTITY}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def commit(root: Path, text: str) -> str:
    (root / "Pulumi.yaml").write_text(f"name: {text}\n", encoding="utf-8")
    git(root, "add", "Pulumi.yaml")
    git(root, "commit", "-q", "-m", text)
    return git(root, "rev-parse", "HEAD")


def name_in(path: Path) -> str:
    return (path / "Pulumi.yaml").read_text(encoding="utf-8").split()[1]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A branch and ``main``, which has moved on since they parted."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    commit(root, "first")
    git(root, "tag", "parted")
    git(root, "checkout", "-q", "-b", "change")
    commit(root, "changed")
    git(root, "checkout", "-q", "main")
    commit(root, "moved-on")
    git(root, "checkout", "-q", "change")
    return root


def state(root: Path) -> list[str]:
    """All that a run must leave alone."""
    asked = (
        ("status", "--porcelain", "--branch"),
        ("for-each-ref",),
        ("diff", "--cached"),
        ("stash", "list"),
        ("worktree", "list", "--porcelain"),
    )
    return [git(root, *each) for each in asked]


def test_the_merge_base_is_checked_out(repository: Path) -> None:
    with check_out(repository, "main") as found:
        assert name_in(found.path) == "first"
        assert (found.base, found.base_commit) == ("main", git(repository, "rev-parse", "main"))
        assert found.commit == git(repository, "rev-parse", "parted")
        assert found.title == f"main (merge base {found.commit[:10]})"
    assert not found.path.exists()


def test_a_base_behind_head_is_checked_out_itself(repository: Path) -> None:
    with check_out(repository, "parted") as found:
        assert found.commit == found.base_commit
        assert found.title == f"parted ({found.commit[:10]})"


def test_the_users_checkout_is_left_alone(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "Pulumi.yaml").write_text("name: dirty\n", encoding="utf-8")
    (repository / "staged").write_text("x", encoding="utf-8")
    (repository / "loose").write_text("x", encoding="utf-8")
    git(repository, "add", "staged")
    hook = repository / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\ntouch hooked\n", encoding="utf-8")
    hook.chmod(0o755)
    before = state(repository)
    # As where a hook of the user's starts the preview.
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git/index"))
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    with check_out(repository, "main") as found:
        assert name_in(found.path) == "first"
        assert not (found.path / "hooked").exists()
        assert not (found.path / "staged").exists()
    monkeypatch.undo()
    assert state(repository) == before
    assert name_in(repository) == "dirty"
    assert not (repository / "hooked").exists()


def test_the_worktree_is_removed_after_an_error(repository: Path) -> None:
    before = state(repository)
    with pytest.raises(LookupError), check_out(repository, "main") as found:
        raise LookupError
    assert found.path.name == "tree"
    assert not found.path.parent.exists()
    assert state(repository) == before


HOLDING = """
import sys, time
from pathlib import Path
from slipway.files import LOCK, Lock
from slipway.preview.revisions import check_out
with check_out(Path(sys.argv[1]), "main") as found:
    print(found.path, flush=True)
    time.sleep(60)
"""


def holding(root: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a checkout, and where that is."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    # A test deletes the folder: where the process failed, no path must stand for the folder that tests run in.
    if not Path(line).parent.name.startswith(PREFIX):
        raise AssertionError(process.communicate(timeout=30))
    return process, Path(line)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_worktree_is_removed_after_a_signal(number: signal.Signals, repository: Path) -> None:
    before = state(repository)
    process, path = holding(repository)
    assert name_in(path) == "first"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert not path.parent.exists()
    assert state(repository) == before


@pytest.mark.parametrize("leave", [lambda _: None, lambda path: shutil.rmtree(path.parent)], ids=["whole", "gone"])
def test_only_worktrees_of_killed_runs_are_removed_by_the_next(
    leave: Callable[[Path], object], repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "-q", "--detach", str(tmp_path / "mine"))
    before = state(repository)
    killed, left = holding(repository)
    running, path = holding(repository)
    killed.kill()
    killed.communicate(timeout=30)
    leave(left)
    with check_out(repository, "main"):
        assert str(left) not in git(repository, "worktree", "list")
        assert not left.parent.exists()
        assert name_in(path) == "first"
    running.terminate()
    running.communicate(timeout=30)
    assert state(repository) == before


@pytest.mark.parametrize("name", [f"{PREFIX}mine/tree", f"{PREFIX}mine/other"])
@pytest.mark.parametrize("lock", [None, "", "other text"])
def test_a_worktree_of_the_user_s_in_a_folder_of_that_name_stays(
    name: str, lock: str | None, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tree = tmp_path / name
    git(repository, "worktree", "add", "-q", "--detach", str(tree))
    (tree / "uncommitted").write_text("mine")
    if lock is not None:
        (tree.parent / LOCK).write_text(lock)
    with check_out(repository, "main"):
        pass
    assert (tree / "uncommitted").read_text() == "mine"


def test_a_marked_worktree_elsewhere_and_one_behind_a_link_stay(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = tmp_path / f"{PREFIX}abc"
    Lock(marked).close()
    git(repository, "worktree", "add", "-q", "--detach", str(marked / "tree"))
    for place in (tmp_path / "other", tmp_path / "linked"):
        place.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        if place.name == "linked":
            (place / marked.name).symlink_to(marked)
        with check_out(repository, "main"):
            pass
        assert (marked / "tree" / "Pulumi.yaml").is_file()


def test_it_works_from_a_linked_worktree_and_from_a_folder_of_the_repository(
    repository: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", "-b", "other", str(linked), "main")
    (linked / "deep").mkdir()
    git(linked, "mv", "Pulumi.yaml", "deep/Pulumi.yaml")
    git(linked, "commit", "-q", "-m", "deeper")
    with check_out(linked / "deep", "other") as found:
        assert name_in(found.path) == "moved-on"
    with pytest.raises(TreeError, match=r"main has no such project: there is no Pulumi\.yaml"):
        check_out(linked / "deep", "main").__enter__()
    assert git(repository, "worktree", "list").count("\n") == 1


def test_missing_submodules_are_ignored(repository: Path) -> None:
    sha = git(repository, "rev-parse", "parted")
    (repository / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ../gone\n', encoding="utf-8")
    git(repository, "add", ".gitmodules")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{sha},sub")
    git(repository, "commit", "-q", "-m", "with a submodule")
    with check_out(repository, "change") as found:
        assert (found.path / "sub").is_dir()
    assert not found.path.exists()


def clone(repository: Path, target: Path, *options: str) -> Path:
    git(repository, "clone", "-q", *options, f"file://{repository}", str(target))
    return target


def test_a_shallow_clone_says_how_to_get_what_it_lacks(repository: Path, tmp_path: Path) -> None:
    git(repository, "checkout", "-q", "change")
    one = clone(repository, tmp_path / "one", "--depth=1", "--branch=change")
    with pytest.raises(TreeError, match=r"git fetch --depth=100 origin main:refs/remotes/origin/main"):
        check_out(one, "origin/main").__enter__()
    with pytest.raises(TreeError, match=r"git fetch --deepen"):
        check_out(one, "parted").__enter__()
    both = clone(repository, tmp_path / "both", "--depth=1", "--no-single-branch", "--branch=change")
    with pytest.raises(TreeError, match=r"too shallow.*git fetch --deepen=100"):
        check_out(both, "origin/main").__enter__()
    git(both, "fetch", "-q", "--deepen=100")
    with check_out(both, "origin/main") as found:
        assert name_in(found.path) == "first"


@pytest.mark.parametrize("base", ["nope", "origin/nope", "--output=x", ""])
def test_a_missing_revision_is_named(base: str, repository: Path) -> None:
    with pytest.raises(TreeError, match="there is no revision") as error:
        check_out(repository, base).__enter__()
    assert repr(base) in str(error.value)
    assert "git fetch" in str(error.value)


def test_histories_without_a_common_commit_are_refused(repository: Path) -> None:
    git(repository, "checkout", "-q", "--orphan", "alone")
    commit(repository, "alone")
    with pytest.raises(TreeError, match="no commit in common"):
        check_out(repository, "main").__enter__()


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "here").mkdir()
    with pytest.raises(TreeError, match="not in a git repository"):
        check_out(tmp_path / "here", "main").__enter__()
