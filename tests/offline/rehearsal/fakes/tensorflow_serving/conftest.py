"""One server for all tests of its answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.offline.rehearsal.fakes.tensorflow_serving.server import Server, configuration


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of two models: one with versions 1 and 2, and one with version 123."""
    from tests.offline.rehearsal.fakes.tensorflow_serving.models import half_plus, sensors

    folder = tmp_path_factory.mktemp("models")
    half_plus(folder / "half_plus_three" / "123", 3)
    sensors(folder / "sensors" / "1")
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="session")
def server(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with both."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "models.config").write_text(configuration(models), encoding="utf-8")
    (folder / "monitoring.config").write_text("prometheus_config { enable: true }", encoding="utf-8")
    started = Server(
        f"--model_config_file={folder / 'models.config'}",
        f"--monitoring_config_file={folder / 'monitoring.config'}",
    )
    yield started.ready()
    started.end()
