"""What takes long to make and is only read: made by one worker for all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], str]) -> tuple[Path, str]:
    """The folder `name`, which `make` fills, and the text that `make` returned.

    The workers of pytest-xdist each have a fixture of their own, and would each make it; the others wait here for
    the first. Tests may not change the folder.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, text = shared / name / "made", shared / name / "text"
    folder.parent.mkdir(exist_ok=True)
    with (shared / name / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not text.exists():
            shutil.rmtree(folder, ignore_errors=True)
            said = make(folder)
            text.with_suffix(".new").write_text(said, encoding="utf-8")
            text.with_suffix(".new").rename(text)
    return folder, text.read_text(encoding="utf-8")
