"""The version of a checkout: from its tag, and what stands for one where no tag can be had."""

import shutil
from pathlib import Path

import pytest
from packaging.version import Version
from typer.testing import CliRunner

from slipway.command.app import app
from slipway.infra import version
from slipway.infra.version import checkout_version
from tests.support.clones import git
from tests.support.tree import write_tree

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [0.3.0] - 2026-01-02\n\n## [0.2.0] - 2026-01-01\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = write_tree(tmp_path / "checkout", {"CHANGELOG.md": CHANGELOG, "a.py": "1\n"})
    git(root, "init", "--quiet")
    commit(root)
    return root


def commit(root: Path) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "change")
    return git(root, "rev-parse", "HEAD")[:10]


def test_it_is_the_tag_of_a_commit_without_changes(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(checkout, "tag", "v0.3.0")
    git(checkout, "tag", "v0.4.0-try")
    git(checkout, "tag", "video")
    monkeypatch.setenv("GIT_DIR", str(checkout.parent / "of-a-hook"))
    assert checkout_version(checkout) == "0.3.0"


def test_a_later_commit_or_a_change_is_a_development_version_behind_it(checkout: Path) -> None:
    git(checkout, "tag", "--annotate", "--message", "release", "v0.3.0")
    first = git(checkout, "rev-parse", "HEAD")[:10]
    (checkout / "b.py").touch()
    assert checkout_version(checkout) == f"0.3.1.dev0+g{first}.dirty", "the build would take in the new file"
    second = commit(checkout)
    later = checkout_version(checkout)
    assert later == f"0.3.1.dev1+g{second}"
    assert Version("0.3.0") < Version(f"0.3.1.dev0+g{first}.dirty") < Version(later) < Version("0.3.1")


def test_without_a_tag_the_changelog_tells_what_was_released(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "tag", "v0.3.0")
    head = commit(checkout)
    commands = {"shallow": ["--depth", "1"], "untagged": ["--no-tags"]}
    for name, options in commands.items():
        git(tmp_path, "clone", "--quiet", *options, f"file://{checkout}", name)
        assert checkout_version(tmp_path / name) == f"0.3.1.dev0+g{head}", name
    shutil.rmtree(checkout / ".git")
    git(tmp_path, "init", "--quiet")
    assert checkout_version(checkout) == "0.3.1.dev0+unknown", "the repository around it is another one"
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    assert checkout_version(checkout) == "0.1.0.dev0+unknown"
    (checkout / "CHANGELOG.md").unlink()
    assert checkout_version(checkout) == "0.1.0.dev0+unknown"


def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", lambda: "0.3.0")
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, "slipway 0.3.0\n")
