"""The repository's own stacks on Google Cloud."""

import pytest

from slipway.infra.settings.model import Settings
from tests.support.clouds.gcp import NODE_POOL, declare
from tests.support.stack_values import stack_settings

STACKS = ["gcp-dev", "gcp-prod"]


@pytest.fixture(scope="module", params=STACKS)
def settings(request: pytest.FixtureRequest) -> Settings:
    return stack_settings(request.param)


def test_every_cluster_begins_with_a_node_for_gkes_own_pods(settings: Settings) -> None:
    recording = declare(settings)
    for cluster in settings.clusters:
        ordinary = [
            pool.inputs
            for pool in recording.of(NODE_POOL)
            if pool.name.startswith(f"{cluster}-") and not pool.inputs["nodeConfig"].get("guestAccelerators")
        ]
        assert sum(pool["initialNodeCount"] * len(pool["nodeLocations"]) for pool in ordinary) >= 1


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_they_can_be_declared(settings: Settings, preview: bool) -> None:
    recording = declare(settings, preview=preview)
    assert set(recording.result) == set(settings.clusters)
    assert len(recording.of(NODE_POOL)) == sum(len(cluster.pools) for cluster in settings.clusters.values())
