"""Real data and one real training, made once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.processes import Together
from tests.workloads.steps import run


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's digits, prepared. Tests read it and never change it."""
    folder = tmp_path_factory.mktemp("digits") / "data"
    run("mnist.prepare", "--dataset", "digits", "--output", folder)
    return folder


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory, data: Path) -> tuple[Path, str]:
    """A finished training on `data`, and what it wrote."""
    folder = tmp_path_factory.mktemp("training") / "model"
    output = run("mnist.train", "--data", data, "--output", folder)
    return folder, output


@pytest.fixture
def model(training: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of the finished training, to change at will."""
    return Path(shutil.copytree(training[0], tmp_path / "model"))


@pytest.fixture
def started() -> Iterator[list[Together]]:
    """What a test starts is ended with it."""
    processes: list[Together] = []
    yield processes
    for process in (process for each in processes for process in each.processes):
        process.kill()
        process.wait()
