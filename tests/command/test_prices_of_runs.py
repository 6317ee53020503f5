"""The price of a step as its pods know it, to keep to a budget, and in ``make show runs``: they are one number."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.command.history.comparison import price
from slipway.command.watch.plan import plan_of
from slipway.evaluated.workloads import node_rate
from slipway.infra.clouds.aws.review import charges as aws
from slipway.infra.clouds.aws.settings import AwsCluster
from slipway.infra.clouds.gcp.review import charges as gcp
from slipway.infra.clouds.gcp.settings import GcpCluster
from slipway.infra.kubernetes.labels import LIMITS_FILE
from slipway.infra.platform import Rate
from slipway.infra.review.stack import Stack, at, mapping
from slipway.runtime.history import Result, result
from tests.support.checkout import ROOT
from tests.support.clouds.autopilot import CHANGES
from tests.support.previewing import previewed
from tests.support.stack_values import GONE, stack_config
from tests.support.stores import add_result

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


def in_store(store: Path, path: str, facts: Mapping[str, Any]) -> Result:
    """A result with these facts, of two pods on nodes, one of which took the place of another."""
    add_result(store, path, {"metrics.json": {}})
    before = {"seconds": 300.0, "gpus_asked": 1}
    for index, earlier in enumerate(([before], [])):
        file = store / ".usage" / path / f"{index}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"seconds": 1200.0, "gpus_asked": 1, "before": earlier}))
    made = result(store, path)
    assert made is not None
    return replace(made, facts=facts)


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


def test_the_seconds_of_all_pods_on_nodes_are_paid(tmp_path: Path) -> None:
    made = in_store(tmp_path, "shop/train/aaaaaaaaaa", {"rate": 3.6})
    assert (made.node_seconds, made.dollars) == (2700, 2.7)
    assert price(made)
    assert not price(in_store(tmp_path, "shop/train/bbbbbbbbbb", {}))


def test_nothing_was_paid_for_a_rehearsal_and_what_is_not_known_is_not_nought(tmp_path: Path) -> None:
    path = "shop/train/aaaaaaaaaa"
    priced: Mapping[str, Any] = {"rate": 3.6, "prices": "2026-11-01", "stack": "dev", "pool": "t4"}
    assert in_store(tmp_path, path, priced).dollars == 2.7
    assert in_store(tmp_path, path, {name: f"{value}" for name, value in priced.items()}).dollars == 2.7
    unpaid: list[Mapping[str, Any]] = [{**priced, "code": {}, "began": 1, "ended": 2}, {"stack": "dev"}]
    for facts in unpaid:
        assert in_store(tmp_path, path, facts).dollars is None
    add_result(tmp_path, "shop/train/bbbbbbbbbb", {"metrics.json": {}})
    made = result(tmp_path, "shop/train/bbbbbbbbbb")
    assert made is not None
    assert made.dollars is None
    assert replace(made, facts={**priced, "pods": 2, "began": 0, "ended": 1800}).dollars == 3.6
