"""Node pools on GKE: every key of a pool reaches its resource, and GPU pools are what GKE makes of them."""

from typing import Any

import pytest

from slipway.infra.clouds.gcp.nodes import fewest_nodes
from slipway.infra.schema.problems import SettingsError
from tests.support.clouds.gcp import NODE_POOL, declare, with_pool

H100 = {"machine_type": "a3-highgpu-8g", "accelerator": "nvidia-h100-80gb", "disk_type": "pd-ssd"}
T4 = {"machine_type": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "gpus": 1}


def declared(pool: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    return dict(declare(with_pool(pool, **cluster)).one(NODE_POOL, "dev-extra").inputs)


def at(inputs: Any, path: str) -> Any:
    """The value at a dotted path; None where any part of it is missing."""
    for key in path.split("."):
        if inputs is None:
            return None
        inputs = inputs[int(key)] if key.isdigit() else inputs.get(key)
    return inputs


NODES = [
    ({}, None, 1),
    ({"count": 0}, None, 0),
    ({"min": 1, "max": 3}, {"minNodeCount": 1, "maxNodeCount": 3}, None),
    ({"total_min": 0, "total_max": 4}, {"totalMinNodeCount": 0, "totalMaxNodeCount": 4}, None),
    ({"total_max": 4}, {"totalMinNodeCount": 0, "totalMaxNodeCount": 4}, None),
]


@pytest.mark.parametrize(
    "wrong", [{"consolidation_delay": "90s"}, {"consolidation_delay": "2d"}, {"nodes": {"count": 1}}]
)
def test_a_delay_that_gke_does_not_take_is_refused(wrong: dict[str, Any]) -> None:
    pool = {**T4, "nodes": {"total_max": 1}, "consolidation_delay": "1m", **wrong}
    with pytest.raises(SettingsError, match="consolidation_delay"):
        declare(with_pool(pool))


@pytest.mark.parametrize(
    ("nodes", "least"),
    [
        ({"count": 2}, 4),
        ({"min": 1, "max": 3}, 2),
        ({"max": 3}, 0),
        ({"total_min": 1, "total_max": 3}, 1),
        ({"total_max": 3}, 0),
    ],
)
def test_the_nodes_that_stay_are_counted_over_all_zones(nodes: dict[str, int], least: int) -> None:
    pool = {"machine_type": "e2-standard-4", "nodes": nodes, "zones": ["us-central1-a", "us-central1-b"]}
    recording = declare(with_pool(pool))
    assert recording.result["dev"].pools["extra"].min_nodes == least
    # Previews read it from the pool that is declared.
    assert fewest_nodes(recording.one(NODE_POOL, "dev-extra").inputs) == least
