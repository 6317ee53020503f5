"""The price of a step as its pods know it, to keep to a budget, and as people see it: they are one number."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.command.watch.plan import plan_of
from slipway.evaluated.workloads import node_rate
from slipway.features.budget.feature import LIMITS_FILE
from slipway.infra.clouds.aws.review import charges as aws
from slipway.infra.clouds.aws.settings import AwsCluster
from slipway.infra.clouds.gcp.review import charges as gcp
from slipway.infra.clouds.gcp.settings import GcpCluster
from slipway.infra.platform import Rate
from slipway.infra.review.stack import Stack, at, mapping
from tests.support.checkout import ROOT
from tests.support.clouds.autopilot import CHANGES
from tests.support.previewing import previewed
from tests.support.stack_values import GONE, stack_config

pytestmark = pytest.mark.slow

LIMITED = {"budget": {"run": 1000}, "rehearsal": GONE}
N1 = {"machine_type": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "zones": ["us-central1-a"]}
POOLS: Mapping[str, Mapping[str, Any]] = {
    "gcp-dev": {
        "ssds": {**N1, "gpus": 2, "local_ssd_count": 2, "disk_type": "pd-ssd"},
        "reserved": {**N1, "gpus": 1, "reservation": "mine"},
        "queued": {"machine_type": "a3-highgpu-8g", "accelerator": "nvidia-h100-80gb", "flex_start": True}
        | {"nodes": {"total_min": 0, "total_max": 1}, "zones": ["us-central1-a"]},
    },
    "aws-dev": {
        "large": {"instance_type": "m6i.2xlarge", "disk_size_gb": 300},
        "spot": {"instance_type": "g4dn.xlarge", "spot": True},
    },
}


def rate_of(said: Mapping[str, Any], pool: str) -> Rate | None:
    """What the program says of a pool of the cluster that a stack file describes."""
    if said["cloud"] == "aws":
        cluster = AwsCluster.model_validate(said)
        return aws.node_rate(cluster, cluster.pools[pool])
    settings = GcpCluster.model_validate(said)
    return gcp.node_rate(settings, settings.pools[pool])


def prices_of_steps(stack: Stack) -> dict[str, dict[str, Any]]:
    """What the stack tells its pods, which keep to a budget, of the price of each step by the pool."""
    (content,) = [
        text
        for resource in stack.of_type("kubernetes:core/v1:ConfigMap")
        if isinstance(text := at(resource.properties, "data", LIMITS_FILE), str)
    ]
    return json.loads(content)["prices"]


@pytest.mark.parametrize("name", ["gcp-dev", "aws-dev", "autopilot"])
def test_a_budget_and_the_list_of_runs_have_the_same_price(name: str) -> None:
    if name == "autopilot":
        stack = previewed("gcp-dev", {**CHANGES, **LIMITED})
    else:
        (cluster,) = mapping(stack_config(name, ROOT)["slipway:clusters"])
        more = {f"clusters.{cluster}.pools.{pool}": said for pool, said in POOLS[name].items()}
        stack = previewed(name, {**LIMITED, **more})
        clusters = mapping(stack.configuration["slipway:clusters"])
        seen = {pool.name: node_rate(stack, pool) for pool in stack.own_pools}
        rates = {pool: rate_of(mapping(clusters[cluster]), pool) for pool in seen}
        assert {pool: rate and rate.dollars for pool, rate in rates.items()} == seen
        assert any(rate is not None and rate.day.startswith("20") for rate in rates.values())
    told = prices_of_steps(stack)
    expected = {f"{step.pipeline}.{step.step}": step for step in plan_of(stack).steps}
    known = 0
    for step, pools in told.items():
        (priced,) = pools.values() or [{}]
        assert priced.get("dollars") == expected[step].rate
        assert priced.get("kept") == (None if not priced else expected[step].kept or 0.0)
        known += bool(priced)
    assert known, "some of the steps have a price"
