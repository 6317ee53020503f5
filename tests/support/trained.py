"""Real data and one real training, made once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.once import made_once
from tests.support.steps import run
from tests.support.together import Together


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's digits, prepared. Tests read them and never change them."""
    return made_once(
        tmp_path_factory,
        "digits",
        lambda folder: run("mnist.prepare", "--dataset", "digits", "--output", folder),
    )[0]


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory, data: Path) -> tuple[Path, str]:
    """A finished training on `data`, and what it wrote."""
    return made_once(
        tmp_path_factory,
        "training",
        lambda folder: run("mnist.train", "--data", data, "--output", folder),
    )


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
