"""The Cluster Autoscaler: what it is, what it may do, and what it is told of groups that have no node."""

from typing import Any

import pytest

from slipway.infra.settings.model import Settings
from tests.support.clouds.aws import (
    RELEASE,
    changed,
    declare,
)


def values(settings: Settings) -> dict[str, Any]:
    return dict(declare(settings).one(RELEASE).inputs["values"])


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.35", "1.36"])
def test_it_is_of_the_clusters_version(version: str) -> None:
    assert values(changed(kubernetes_version=version))["image"]["tag"].startswith(f"v{version}.")
