"""`slipway lock`: the lock file of a pipeline, from what its programs import."""

from pathlib import Path

import pytest

from slipway.command import lock
from slipway.infra.exits import Exit
from tests.support.tree import write_tree
from tests.support.wheels import write_wheel


def test_it_writes_the_file_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lock, "PROJECT", tmp_path)
    packages = "--no-index\n--find-links ../../wheels\nengine\n"
    (tmp_path / "wheels").mkdir()
    write_tree(tmp_path, {"workloads/churn/requirements.in": packages})
    write_wheel(tmp_path / "wheels", "engine", "1", {})
    assert lock.compile_lock("churn") is Exit.DONE
    assert capsys.readouterr().out == "Wrote workloads/churn/requirements.txt\n"
    assert "engine==1" in (tmp_path / "workloads/churn/requirements.txt").read_text("utf-8")
