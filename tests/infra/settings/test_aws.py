"""Stacks on AWS that load, and what pools make of their instance types."""

from typing import Any

import pytest

from slipway.infra.clouds.aws.settings import AwsCluster, AwsPool
from slipway.infra.settings.loading import load
from tests.support.clouds.aws_values import AWS
from tests.support.stack_values import changed

TRAIN = "clusters.dev.pools.train"
CLUSTER = "clusters.dev"

ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("as it is", {}),
    (
        "zones by name, of which the catalogue knows nothing",
        {f"{CLUSTER}.zones": ["ap-south-1a", "ap-south-1b"]},
    ),
    (
        "a region of which the catalogue has no zones",
        {f"{CLUSTER}.region": "sa-east-1", f"{CLUSTER}.zones": ["sae1-az1", "sae1-az2"]},
    ),
    (
        "one zone of two with Spot capacity",
        {f"{CLUSTER}.region": "eu-west-2", f"{CLUSTER}.zones": ["euw2-az2", "euw2-az3"]},
    ),
    (
        "a Capacity Block in a region without other ways",
        {
            f"{CLUSTER}.region": "us-east-2",
            f"{CLUSTER}.zones": ["use2-az1", "use2-az2"],
            "clusters.dev.pools.predict": {
                "instance_type": "p5.4xlarge",
                "zones": ["use2-az1"],
                "capacity_block": "cr-0123456789abcdef0",
            },
        },
    ),
    (
        "a reservation in a single zone",
        {f"{TRAIN}.spot": False, f"{TRAIN}.capacity_reservation": "cr-01234567", f"{TRAIN}.zones": ["aps1-az1"]},
    ),
    (
        "EFA in a single zone",
        {
            "clusters.dev.pools.big": {
                "instance_type": "p5.48xlarge",
                "zones": ["aps1-az1"],
                "efa": True,
                "nodes": {"max": 2},
            }
        },
    ),
    ("a private endpoint alone", {f"{CLUSTER}.control_plane": {"public_endpoint": False}}),
    ("three zones", {f"{CLUSTER}.zones": ["aps1-az1", "aps1-az2", "aps1-az3"]}),
    ("shares of a GPU", {f"{TRAIN}.gpu_sharing": {"clients": 4}}),
    ("EFS", {"store": {"kind": "efs"}}),
    ("a protected EFS with backups", {"protect": True, "store": {"kind": "efs", "backup": True}}),
    ("a protected bucket, which always has versions", {"protect": True}),
    (
        "keys of one's own",
        {
            f"{CLUSTER}.control_plane.secrets_key": f"arn:aws:kms:ap-south-1:111122223333:key/{'0' * 36}",
            "store.kms_key": f"arn:aws:kms:ap-south-1:111122223333:key/mrk-{'0' * 32}",
        },
    ),
    (
        "administrators",
        {f"{CLUSTER}.admins": ["arn:aws:iam::111122223333:role/team/ops", "arn:aws:iam::111122223333:user/me"]},
    ),
    (
        "tags and labels",
        {f"{TRAIN}.tags": {"cost centre": "r&d".replace("&", "+")}, f"{TRAIN}.labels": {"a": "b"}},
    ),
]


@pytest.mark.parametrize("changes", [changes for _, changes in ACCEPTED], ids=[name for name, _ in ACCEPTED])
def test_what_aws_takes_is_accepted(changes: dict[str, Any]) -> None:
    load(changed(AWS, changes))


def test_the_other_clouds_stay_loadable_beside_it() -> None:
    assert isinstance(load(AWS).clusters["dev"], AwsCluster)


def test_a_pool_needs_no_accelerator_to_have_one() -> None:
    pool = AwsPool(instance_type="g4dn.xlarge")
    assert (pool.has_gpus, pool.gpu_type) == (True, "nvidia-tesla-t4")


@pytest.mark.parametrize(
    ("name", "gpu_type"), [("g4dn.xlargee", "nvidia-tesla-t4"), ("m7i.xlargee", None), ("zz", None)]
)
def test_a_misspelt_instance_type_is_judged_as_what_was_meant(name: str, gpu_type: str | None) -> None:
    """So that the one mistake is not reported a second time, as a step without a GPU."""
    pool = AwsPool(instance_type=name)
    assert (pool.gpu_type, pool.node()) == (gpu_type, None)


@pytest.mark.parametrize(
    ("nodes", "least", "most"),
    [
        ({}, 1, 1),
        ({"count": 3}, 3, 3),
        ({"count": 0}, 0, 0),
        ({"max": 2}, 0, 2),
        ({"min": 1, "max": 2}, 1, 2),
    ],
)
def test_nodes_that_are_there_at_all_times_and_at_most(nodes: dict[str, int], least: int, most: int) -> None:
    pool = AwsPool.model_validate({"instance_type": "m7i.xlarge", "nodes": nodes})
    assert (pool.least_nodes, pool.most_nodes) == (least, most)
