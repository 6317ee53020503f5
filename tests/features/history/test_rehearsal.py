"""With which commit a rehearsal notes its results."""

import subprocess
from pathlib import Path

from slipway.features.history.rehearsal import revision


def test_a_commit_is_noted_with_whether_files_differ_from_it(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        return subprocess.check_output(["git", "-C", str(tmp_path), *who, *words], text=True).strip()

    assert revision(tmp_path) == {}
    git("init", "--quiet")
    assert revision(tmp_path) == {}, "there is no commit yet"
    (tmp_path / "train.py").touch()
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    commit = git("rev-parse", "HEAD")
    assert revision(tmp_path) == {"commit": commit, "changed": False}
    (tmp_path / "new.py").touch()
    assert revision(tmp_path) == {"commit": commit, "changed": True}
