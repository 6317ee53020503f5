"""What a preview says of changed settings of stacks on AWS."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.evaluated.model import Finding
from tests.support.previewing import findings, previewed

DEV = "aws-dev"
FEW = {"pipelines.resnet": None}
"""Without its measurements, aws-dev is evaluated in half the time."""
POOLS = "clusters.dev.pools"
SCALE_DOWN = "clusters.dev.scale_down_unneeded_time"
OPS, OTHERS = "arn:aws:iam::111111111111:role/ops", "arn:aws:iam::222222222222:role/ops"
CPU = {"instance_type": "m7i.xlarge", "nodes": {"min": 1, "max": 2}}
T4 = {"instance_type": "g4dn.xlarge", "spot": True, "nodes": {"min": 0, "max": 1}}


def of_dev(changes: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> list[Finding]:
    return findings(DEV, changes, {**FEW, **(base or {})})


def ended(changes: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> str:
    """What is said of the pool ``train``."""
    matching = [finding for finding in of_dev(changes, base) if finding.policy == "ends-running-pods"]
    return "\n".join(finding.reason for finding in matching if finding.name.partition(" ")[0] == "dev-train")


@pytest.mark.parametrize(
    "changes",
    [
        {f"{POOLS}.train.spot": False},
        {f"{POOLS}.train.zones": ["aps1-az1"]},
        {
            POOLS: {"cpu": CPU, "t4": T4, "predict": T4},
            "pipelines.mnist.steps.train.pool": "t4",
        },
    ],
    ids=["spot", "zones", "rename"],
)
def test_a_pool_that_is_replaced_or_renamed_says_which_jobs_end(changes: Mapping[str, Any]) -> None:
    assert "mnist-train" in ended(changes)


def test_a_pool_whose_nodes_are_replaced_without_it_says_which_jobs_end() -> None:
    said = ended({f"{POOLS}.train.disk_size_gb": 200})
    assert "replaces all nodes" in said
    assert "mnist-train" in said


def test_a_pool_that_no_longer_scales_says_which_jobs_end() -> None:
    # The autoscaler may have made three nodes, of which the stack knows nothing.
    base = {f"{POOLS}.train.nodes": {"min": 0, "max": 3}}
    assert "mnist-train" in ended({f"{POOLS}.train.nodes": {"count": 1}}, base)
    assert not ended({f"{POOLS}.train.nodes": {"count": 3}}, base)


@pytest.mark.slow
def test_nodes_are_paid_until_the_autoscaler_of_the_stack_takes_them() -> None:
    kept = {
        time: {pool.scale_down.amount for pool in previewed(DEV, {SCALE_DOWN: time}).pools if pool.scale_down}
        for time in ("1m", "10m")
    }
    (minute,), (ten,) = kept.values()
    assert (60 < minute < 90, ten - minute) == (True, 540)


def let_in(changes: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> str:
    matching = [finding for finding in of_dev(changes, base) if finding.policy == "lets-in"]
    assert all(finding.harm for finding in matching)
    return "\n".join(finding.reason for finding in matching)


@pytest.mark.parametrize(
    ("before", "after", "who"),
    [
        ({"clusters.dev.admins": [OPS]}, {"clusters.dev.admins": [OPS, OTHERS]}, OTHERS),
        (
            {"teams": {"vision": {"namespace": "images"}}},
            {"teams": {"vision": {"namespace": "vision"}}},
            "pods of vision/runner",
        ),
        (
            {"teams": {"vision": {"namespace": "vision"}}},
            {"teams": {"vision": {"namespace": "vision", "service_account": "other"}}},
            "pods of vision/other",
        ),
    ],
    ids=["admin", "namespace", "service-account"],
)
def test_another_principal_of_what_is_there_is_named(
    before: Mapping[str, Any], after: Mapping[str, Any], who: str
) -> None:
    assert who in let_in(after, before)
    assert who not in let_in(before, after)


NOTEBOOK = {"pipelines.mnist.apps": {"serving": {"pool": "cpu"}, "notebook": {"pool": "cpu"}}}


def test_the_volume_of_a_pool_whose_zones_change_is_left_behind() -> None:
    changes = {f"{POOLS}.cpu.zones": ["aps1-az1"]}
    [left] = [finding for finding in of_dev(changes, NOTEBOOK) if finding.policy == "volume-out-of-reach"]
    assert left.name.partition(" ")[0] == "mnist-notebook"
    assert of_dev({}, NOTEBOOK) == []
