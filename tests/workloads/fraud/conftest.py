"""One simulation, prepared, learnt and evaluated once for all tests. They read it and never change it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.fraud.programs import CODE, SMALL, learn, run

MODULES = ("charts", "features", "measures", "model", "simulator", "transactions")


@pytest.fixture(autouse=True)
def _code_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The programs import their neighbours by name, as they do where they run."""
    monkeypatch.syspath_prepend(str(CODE))
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``prepare.py`` makes of a small simulation."""
    folder = tmp_path_factory.mktemp("fraud") / "data"
    run("prepare.py", *SMALL, "--output", folder)
    return folder


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory, prepared: Path) -> Path:
    """What ``train_day.py`` makes of its days, one after the other."""
    folder = tmp_path_factory.mktemp("fraud") / "days"
    learn(prepared, folder, "--epochs", 3)
    return folder


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory, prepared: Path, learnt: Path) -> Path:
    """What ``evaluate.py`` says of them."""
    folder = tmp_path_factory.mktemp("fraud") / "report"
    run("evaluate.py", "--data", prepared, "--days", learnt, "--output", folder, loaded=True)
    return folder
