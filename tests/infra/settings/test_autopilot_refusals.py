"""What a stack file may not say of clusters on GKE Autopilot, or only of these."""

from typing import Any

import pytest

from slipway.infra.clouds.gcp.rules.clusters import ONLY, REFUSED
from slipway.infra.clouds.gcp.settings import GcpPool
from tests.support.clouds.autopilot import CLUSTER, STACK
from tests.support.refusals import STEPS, Refusal, elsewhere, the_problem, wrong
from tests.support.stack_values import GCP, GONE, changed

BATCH = "clusters.batch"
POOLS = f"{BATCH}.pools"
N2 = f"{POOLS}.n2"
T4 = f"{POOLS}.t4"
STANDARD_POOL = "clusters.dev.pools.cpu"

OTHERS: dict[str, Any] = {
    "machine_type": "e2-standard-4",
    "nodes": {"max": 3},
    "zones": ["us-central1-a"],
    "reservation": "mine",
    "flex_start": True,
    "max_run_duration": "2h",
    "gpu_sharing": {"clients": 2},
    "gpu_partition": "1g.5gb",
    "disk_type": "pd-ssd",
    "disk_size_gb": 200,
    "local_ssd_count": 1,
    "labels": {"a": "b"},
    "resource_labels": {"a": "b"},
    "taints": [{"key": "only"}],
    "image_streaming": False,
    "gvnic": False,
    "placement": "compact",
    "queued_provisioning": True,
    "max_pods_per_node": 16,
    "consolidation_delay": "1m",
}
"""A value, other than the default, of every key that only a node pool has a use for."""

CASES: list[Any] = [
    wrong(f"{BATCH}.location", "us-central1-a", "`us-central1`"),
    wrong(f"{N2}.machine_family", GONE, "`n2`"),
    wrong(f"{N2}.machine_family", "n2x", "`n2`"),
    elsewhere({f"{N2}.compute_class": GONE}, f"{N2}.machine_family", "`compute_class: Performance`"),
    wrong(f"{POOLS}.scale-out.gpus", 1, "accelerator: nvidia-tesla-t4"),
    wrong(f"{T4}.gpus", 3, "`4`"),
    wrong(f"{T4}.accelerator", "nvidia-tesla-t5", "`nvidia-tesla-t4`"),
    wrong(f"{T4}.accelerator", "nvidia-tesla-v100", "`nvidia-l4`"),
    wrong(f"{T4}.compute_class", "Balanced"),
    wrong(f"{STEPS}.predict.ephemeral_storage", "11Gi", "10"),
    wrong(f"{STEPS}.predict.cpu", "31", "30"),
]


@pytest.mark.parametrize("refusal", CASES)
def test_is_refused_once_with_its_key_reason_and_fix(refusal: Refusal) -> None:
    refusal.check(STACK)


@pytest.mark.parametrize("key", OTHERS)
def test_what_only_a_node_pool_has_is_refused(key: str) -> None:
    problem = the_problem(changed(STACK, {f"{POOLS}.cpu.{key}": OTHERS[key]}))
    assert problem.key == f"slipway:{POOLS}.cpu.{key}"
    reason, fix = REFUSED[key]
    assert (reason, fix) == (problem.reason, problem.fix)


def test_every_key_of_a_pool_is_refused_or_has_a_meaning() -> None:
    meant = {"spot", "accelerator", "gpus", *ONLY}
    assert REFUSED.keys() == OTHERS.keys()
    assert GcpPool.model_fields.keys() == REFUSED.keys() | meant


@pytest.mark.parametrize("value", [("compute_class", "Balanced"), ("machine_family", "n2"), ("most_pods", 3)])
def test_what_only_autopilot_has_is_refused_of_a_node_pool(value: tuple[str, Any]) -> None:
    key, said = value
    problem = the_problem(changed(GCP, {f"{STANDARD_POOL}.{key}": said}))
    assert problem.key == f"slipway:{STANDARD_POOL}.{key}"
    assert "`mode: autopilot`" in problem.fix


def test_a_node_pool_needs_a_machine_type() -> None:
    problem = the_problem(changed(GCP, {f"{STANDARD_POOL}.machine_type": GONE}))
    assert problem.key == f"slipway:{STANDARD_POOL}.machine_type"


def test_some_pods_have_no_use_for_gpus() -> None:
    steps = {step: {"pool": "t4", "gpus": 1} for step in ("prepare", "train", "predict")}
    problem = the_problem(changed(STACK, {POOLS: {"t4": CLUSTER["pools"]["t4"]}, STEPS: steps}))
    assert problem.key == f"slipway:{POOLS}"
    assert problem.fix == "add one: `cpu: {}`"
