"""What several tests of `infra` ask for."""

from pathlib import Path

import pytest


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Pulumi is told to warn of."""
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    return said
